package httpcheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon makes retries and settling short: the tests count questions, not time.
var soon = verify.Patience{Timeout: 20 * time.Second, Tries: 2, Delay: time.Millisecond, MaxDelay: time.Millisecond, SettleEvery: time.Millisecond}

func settling(questions int) verify.Patience {
	p := soon
	p.Settle = time.Duration(questions-1) * p.SettleEvery
	return p
}

// world is a server that answers from a script, repeats the last line, and counts.
type world struct {
	*httptest.Server
	asked atomic.Int32
}

func serve(t *testing.T, script ...http.HandlerFunc) *world {
	t.Helper()
	w := &world{}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		n := int(w.asked.Add(1))
		script[min(n, len(script))-1](rw, r)
	}))
	t.Cleanup(w.Close)
	return w
}

// says answers with a status, headers ("Name: value") and a body.
func says(status int, body string, headers ...string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			rw.Header().Set(name, value)
		}
		rw.WriteHeader(status)
		io.WriteString(rw, body)
	}
}

// dies closes the connection without an answer.
func dies(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// dieInside breaks off in the middle of the body.
func diesInside(rw http.ResponseWriter, _ *http.Request) {
	rw.Header().Set("Content-Length", "1000")
	io.WriteString(rw, `{"version":"7"`)
	rw.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

func mustNew(t *testing.T, c Config) runtime.Verifier {
	t.Helper()
	v, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func equals(s string) *string { return &s }

var versionCheck = []verify.Check{{Pointer: "/version", Field: "version"}, {Pointer: "/state", Equals: equals("paid")}}

func TestFindings(t *testing.T) {
	const e, g, c, x = runtime.Exists, runtime.Gone, runtime.Changed, runtime.CannotTell
	plain := tga.StateChange{ResourceType: "invoice", ResourceID: "a/1", Operation: "create"}
	marked := func(version, etag string) tga.StateChange {
		m := plain
		m.Version, m.ETag = version, etag
		return m
	}
	deleted := marked("7", "e")
	deleted.Operation = verify.OperationDelete
	big := `{"version":"7","state":"paid","pad":"` + strings.Repeat("x", verify.MaxBody) + `"}`
	for _, test := range []struct {
		name   string
		config Config
		change tga.StateChange
		world  []http.HandlerFunc
		want   runtime.Finding
		failed bool
		asked  int32
	}{
		{"there", Config{}, plain, []http.HandlerFunc{says(200, "")}, e, false, 1},
		{"no content", Config{}, plain, []http.HandlerFunc{says(204, "")}, e, false, 1},
		{"gone", Config{}, plain, []http.HandlerFunc{says(404, "")}, g, false, 1},
		{"gone for good", Config{}, plain, []http.HandlerFunc{says(410, "")}, g, false, 1},
		{"gone by another status", Config{Gone: []int{403}}, plain, []http.HandlerFunc{says(403, "")}, g, false, 1},
		{"404 where it is not gone", Config{Gone: []int{410}}, plain, []http.HandlerFunc{says(404, "")}, x, false, 1},
		{"not allowed to look", Config{}, plain, []http.HandlerFunc{says(403, "")}, x, false, 1},
		{"ok by another status", Config{OK: []int{302}}, plain, []http.HandlerFunc{says(302, "")}, e, false, 1},
		{"200 where it is not ok", Config{OK: []int{204}}, plain, []http.HandlerFunc{says(200, "")}, x, false, 1},
		{"same ETag", Config{}, marked("", `"v7"`), []http.HandlerFunc{says(200, "", `ETag: "v7"`)}, e, false, 1},
		{"same ETag, weak and without quotes", Config{}, marked("", `v7`), []http.HandlerFunc{says(200, "", `ETag: W/"v7"`)}, e, false, 1},
		{"ETag of another version", Config{}, marked("", `"v7"`), []http.HandlerFunc{says(200, "", `ETag: "v8"`)}, c, false, 1},
		{"no ETag to compare", Config{}, marked("", `"v7"`), []http.HandlerFunc{says(200, "")}, x, false, 1},
		{"no ETag, and none wanted", Config{Ignore: []string{"etag"}}, marked("", `"v7"`), []http.HandlerFunc{says(200, "", `ETag: "v8"`)}, e, false, 1},
		{"ETag by HEAD", Config{Method: "HEAD"}, marked("", `"v7"`), []http.HandlerFunc{says(200, "", `ETag: "v8"`)}, c, false, 1},
		{"version that nothing compares", Config{}, marked("7", ""), []http.HandlerFunc{says(200, `{"version":"7"}`)}, x, false, 1},
		{"version in the URL", Config{URL: "/{resource_id}/{version}"}, marked("7", ""), []http.HandlerFunc{says(200, "")}, e, false, 1},
		{"version in the body", Config{Checks: versionCheck}, marked("7", ""), []http.HandlerFunc{says(200, `{"version":7,"state":"paid"}`)}, e, false, 1},
		{"another version", Config{Checks: versionCheck}, marked("7", ""), []http.HandlerFunc{says(200, `{"version":8,"state":"paid"}`)}, c, false, 1},
		{"another state", Config{Checks: versionCheck}, marked("7", ""), []http.HandlerFunc{says(200, `{"version":7,"state":"void"}`)}, c, false, 1},
		{"200 with a login page", Config{Checks: versionCheck}, marked("7", ""), []http.HandlerFunc{says(200, "<html>log in</html>")}, x, false, 1},
		{"200 with an error in it", Config{Checks: versionCheck}, marked("7", ""), []http.HandlerFunc{says(200, `{"error":"not found"}`)}, x, false, 1},
		{"200 with the version twice", Config{Checks: versionCheck}, marked("7", ""), []http.HandlerFunc{says(200, `{"version":7,"version":8,"state":"paid"}`)}, x, false, 1},
		{"an answer that is too long to be read", Config{Checks: versionCheck}, marked("7", ""), []http.HandlerFunc{says(200, big)}, x, false, 1},
		{"too long, and nothing to read in it", Config{}, plain, []http.HandlerFunc{says(200, big)}, e, false, 1},
		{"busy, then there", Config{}, plain, []http.HandlerFunc{says(503, ""), says(200, "")}, e, false, 2},
		{"busy for too long", Config{}, plain, []http.HandlerFunc{says(503, "")}, x, true, 2},
		{"too many requests", Config{}, plain, []http.HandlerFunc{says(429, ""), says(404, "")}, g, false, 2},
		{"dies, then there", Config{}, plain, []http.HandlerFunc{dies, says(200, "")}, e, false, 2},
		{"dies in its answer, then there", Config{Checks: versionCheck}, marked("7", ""), []http.HandlerFunc{diesInside, says(200, `{"version":7,"state":"paid"}`)}, e, false, 2},
		{"dies", Config{}, plain, []http.HandlerFunc{dies}, x, true, 2},
		{"visible late", Config{Patience: settling(4)}, plain, []http.HandlerFunc{says(404, ""), says(404, ""), says(404, ""), says(200, "")}, e, false, 4},
		{"visible too late", Config{Patience: settling(3)}, plain, []http.HandlerFunc{says(404, ""), says(404, ""), says(404, ""), says(200, "")}, g, false, 3},
		{"a replica with the old version", Config{Patience: settling(3)}, marked("", "v7"), []http.HandlerFunc{says(200, "", `ETag: "v6"`), says(200, "", `ETag: "v7"`)}, e, false, 2},
		{"deleted and gone", Config{}, deleted, []http.HandlerFunc{says(404, "")}, e, false, 1},
		{"deleted and there", Config{Ignore: []string{"version", "etag"}}, deleted, []http.HandlerFunc{says(200, "")}, c, false, 1},
		{"an id that climbs", Config{}, tga.StateChange{ResourceType: "invoice", ResourceID: "../admin"}, []http.HandlerFunc{says(200, "")}, x, true, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := serve(t, test.world...)
			if test.config.URL == "" {
				test.config.URL = "/{resource_id}"
			}
			test.config.URL = w.URL + test.config.URL
			if test.config.Tries == 0 {
				test.config.Patience = soon
			}
			f, evidence, err := mustNew(t, test.config).Verify(t.Context(), test.change)
			if f != test.want || (err != nil) != test.failed || w.asked.Load() != test.asked {
				t.Errorf("got %v, %v after %d questions, want %v after %d", f, err, w.asked.Load(), test.want, test.asked)
			}
			if test.asked > 0 && (!json.Valid(evidence.Detail) || len(evidence.Detail) > verify.MaxEvidence || !strings.Contains(evidence.Source, w.URL+"/a%2F1")) {
				t.Errorf("evidence %q: %.300s", evidence.Source, evidence.Detail)
			}
		})
	}
}

func TestRequestOnTheWire(t *testing.T) {
	got := make(chan *http.Request, 1)
	w := serve(t, func(_ http.ResponseWriter, r *http.Request) { got <- r })
	file := headers(t, "# login\n\nAuthorization: Bearer t0ken-t0ken\nX-Team: a\n")
	v := mustNew(t, Config{URL: w.URL + "/x/{resource_id}?v={version}&r={external_ref}", HeadersFile: file, Patience: soon})
	_, _, err := v.Verify(t.Context(), tga.StateChange{ResourceType: "r", ResourceID: "a b", Version: "1&2", ExternalRef: "é"})
	if err != nil {
		t.Fatal(err)
	}
	r := <-got
	if r.Method != "GET" || r.RequestURI != "/x/a%20b?v=1%262&r=%C3%A9" || r.ContentLength != 0 || !r.Close {
		t.Errorf("%s %s, close %v", r.Method, r.RequestURI, r.Close)
	}
	for name, want := range map[string]string{
		"Authorization": "Bearer t0ken-t0ken", "X-Team": "a", "Cache-Control": "no-cache", "User-Agent": "tgad", "Accept-Encoding": "", "Cookie": "",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestRedirectIsNotFollowed: the server that it names would get the secret headers.
func TestRedirectIsNotFollowed(t *testing.T) {
	other := serve(t, says(200, ""))
	for _, status := range []int{301, 302, 303, 307, 308} {
		w := serve(t, says(status, "", "Location: "+other.URL+"/a"))
		f, _, err := mustNew(t, Config{URL: w.URL + "/{resource_id}", Patience: soon}).Verify(t.Context(), tga.StateChange{ResourceID: "1"})
		if f != runtime.CannotTell || err != nil || w.asked.Load() != 1 {
			t.Errorf("%d: got %v, %v after %d", status, f, err, w.asked.Load())
		}
	}
	if n := other.asked.Load(); n != 0 {
		t.Errorf("the other server was asked %d times", n)
	}
}

func TestAnswerAtTheLimit(t *testing.T) {
	check := []verify.Check{{Pointer: "/v", Equals: equals("1")}}
	for extra, want := range map[int]runtime.Finding{0: runtime.Exists, 1: runtime.CannotTell} {
		body := `{"v":1,"pad":""}`
		body = `{"v":1,"pad":"` + strings.Repeat("x", verify.MaxBody-len(body)+extra) + `"}`
		w := serve(t, says(200, body))
		f, evidence, err := mustNew(t, Config{URL: w.URL + "/{resource_id}", Checks: check, Patience: soon}).Verify(t.Context(), tga.StateChange{ResourceID: "1"})
		if f != want || err != nil || len(evidence.Detail) > verify.MaxEvidence {
			t.Errorf("%d bytes: got %v, %v, evidence of %d", len(body), f, err, len(evidence.Detail))
		}
	}
}

// TestTimeOut: a server that reads the question and never answers.
func TestTimeOut(t *testing.T) {
	release := make(chan struct{})
	w := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	p := soon
	p.Timeout = 20 * time.Millisecond
	f, _, err := mustNew(t, Config{URL: w.URL + "/{resource_id}", Patience: p}).Verify(t.Context(), tga.StateChange{ResourceID: "1"})
	if f != runtime.CannotTell || !errors.Is(err, tga.ToolTimeout) {
		t.Errorf("got %v, %v", f, err)
	}
}

func TestCancelEndsTheQuestion(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	f, _, err := mustNew(t, Config{URL: w.URL + "/{resource_id}", Patience: settling(100)}).Verify(ctx, tga.StateChange{ResourceID: "1"})
	if f != runtime.CannotTell || !errors.Is(err, context.Canceled) || w.asked.Load() != 1 {
		t.Errorf("got %v, %v after %d", f, err, w.asked.Load())
	}
}

func headers(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSecretsStayIn asks servers that echo what they were sent, that refuse it, and that break off.
func TestSecretsStayIn(t *testing.T) {
	const secret = `s3cret/"tok"`
	echo := func(status int) http.HandlerFunc {
		return func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("ETag", `"`+r.Header.Get("X-Key")+`"`)
			rw.WriteHeader(status)
			json.NewEncoder(rw).Encode(r.Header)
		}
	}
	file := headers(t, "Authorization: Bearer "+secret+"\nX-Key: s3cret-key\n")
	for i, script := range []http.HandlerFunc{echo(200), echo(401), echo(503), echo(302), dies, diesInside} {
		w := serve(t, script)
		f, e, err := mustNew(t, Config{URL: w.URL + "/{resource_id}", HeadersFile: file, Patience: soon}).Verify(t.Context(), tga.StateChange{ResourceID: "1"})
		if all := fmt.Sprint(f, e.Source, string(e.Detail), err); strings.Contains(all, "s3cret") || strings.Contains(all, "tok") && !strings.Contains(all, "hidden") {
			t.Errorf("%d: %s", i, all)
		}
	}
	p, err := NewProber(ProberConfig{URL: "http://127.0.0.1:1/{key}", HeadersFile: file, NotRan: []Rule{{Status: []int{404}}}, Patience: soon})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := p.Probe(t.Context(), runtime.Call{Key: "k"}); err == nil || strings.Contains(fmt.Sprint(got, err), "s3cret") {
		t.Errorf("%v, %v", got, err)
	}
}

func TestHeaderFileIsChecked(t *testing.T) {
	for content, ok := range map[string]bool{
		"A: b\n": true, "A: b: c\n# x\n\nB-c: d": true,
		"A\n": false, ": b\n": false, "A b: c\n": false, "A: b\na: c\n": false, "A: \n": false, "A: b\x00\n": false, "A: é\n": false, "Ä: b\n": false,
	} {
		_, err := New(Config{URL: "http://h/{resource_id}", HeadersFile: headers(t, content)})
		if (err == nil) != ok || err != nil && (!errors.Is(err, tga.ValidationError) || strings.Contains(err.Error(), content)) {
			t.Errorf("%q: %v", content, err)
		}
	}
}

func TestTLSOfAPrivateAuthority(t *testing.T) {
	w := httptest.NewUnstartedServer(says(200, ""))
	w.Config.ErrorLog = nil
	w.StartTLS()
	defer w.Close()
	w.Config.ErrorLog = nil
	ca := filepath.Join(t.TempDir(), "ca.pem")
	pem := "-----BEGIN CERTIFICATE-----\n" + base64Lines(w.Certificate().Raw) + "-----END CERTIFICATE-----\n"
	if err := os.WriteFile(ca, []byte(pem), 0o644); err != nil {
		t.Fatal(err)
	}
	change := tga.StateChange{ResourceID: "1"}
	if f, _, err := mustNew(t, Config{URL: w.URL + "/{resource_id}", CAFile: ca, Patience: soon}).Verify(t.Context(), change); f != runtime.Exists || err != nil {
		t.Errorf("got %v, %v", f, err)
	}
	if f, _, err := mustNew(t, Config{URL: w.URL + "/{resource_id}", Patience: soon}).Verify(t.Context(), change); f != runtime.CannotTell || err == nil {
		t.Errorf("a certificate that nobody vouches for: got %v, %v", f, err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	const u = "http://h/{resource_id}"
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		c   Config
		key string
	}{
		{Config{URL: u}, ""},
		{Config{}, "url"},
		{Config{URL: "http://h/{key}"}, "url"},
		{Config{URL: u, Method: "POST"}, "method"},
		{Config{URL: u, Method: "get"}, "method"},
		{Config{URL: u, OK: []int{199}}, "ok"},
		{Config{URL: u, Gone: []int{600}}, "gone"},
		{Config{URL: u, Gone: []int{204}}, "gone"},
		{Config{URL: u, OK: []int{404}}, "gone"},
		{Config{URL: u, OK: []int{404}, Gone: []int{}}, ""},
		{Config{URL: u, Ignore: []string{"url"}}, "ignore"},
		{Config{URL: u, Checks: []verify.Check{{}}}, "check.0"},
		{Config{URL: u, Method: "HEAD", Checks: versionCheck}, "check"},
		{Config{URL: u, Patience: verify.Patience{Tries: -1}}, "tries"},
		{Config{URL: u, HeadersFile: "/nonexistent"}, "headers_file"},
		{Config{URL: u, HeadersFile: empty}, "headers_file"},
		{Config{URL: u, CAFile: "/nonexistent"}, "ca_file"},
		{Config{URL: u, CAFile: empty}, "ca_file"},
	} {
		v, err := New(test.c)
		wantKey(t, v != nil, err, test.key)
	}
}

func wantKey(t *testing.T, made bool, err error, key string) {
	t.Helper()
	if (err == nil) != (key == "") || made != (err == nil) || err != nil && (!errors.Is(err, tga.ValidationError) || !strings.Contains(err.Error(), " "+key+": ")) {
		t.Errorf("got %v, want an error about %q", err, key)
	}
}

// lost acts and then answers nothing: the acknowledgement is lost.
func lost(acts func(*http.Request)) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		acts(r)
		conn, _, err := rw.(http.Hijacker).Hijack()
		if err == nil {
			conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}
	}
}

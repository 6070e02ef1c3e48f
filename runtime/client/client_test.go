package client

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listener listens at a path that is short enough for a socket, until the test ends.
func listener(t *testing.T) net.Listener {
	t.Helper()
	dir, err := os.MkdirTemp("", "tgad")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// against makes a client of a daemon that answers as f says.
func against(t *testing.T, f http.HandlerFunc) *Client {
	t.Helper()
	l := listener(t)
	srv := &http.Server{Handler: f}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l) // ends with Close
	}()
	c := New(l.Addr().String(), Options{MaxAnswerBytes: 1000})
	t.Cleanup(func() {
		c.Close()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return c
}

func TestDocumentIsCheckedAgainstItsTag(t *testing.T) {
	for name, tag := range map[string]string{
		"right": `"` + tga.Sum([]byte("bytes")).String() + `"`, "another": `"` + tga.Sum(nil).String() + `"`, "none": "", "weak": `W/"x"`,
	} {
		c := against(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", tag)
			io.WriteString(w, "bytes")
		})
		raw, _, err := c.Document(t.Context(), tga.ID{}, "/result")
		if (err == nil) != (name == "right") || err == nil && string(raw) != "bytes" {
			t.Errorf("%s: %q %v", name, raw, err)
		}
	}
}

// TestOlderCheckpointIsNotRemembered: the daemon names its newest checkpoint when it begins with a request, so the answer to
// a long call has an older one than the answers that overtook it. A client that then forgot the newer one would not notice
// that the store was rolled back to between the two.
func TestOlderCheckpointIsNotRemembered(t *testing.T) {
	told := []string{"10 ten", "1000 thousand", "10 ten", "x", "", "1000 other", "1001 more"}
	var sent []string
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		sent = append(sent, r.Header.Get(wire.HeaderCheckpoint))
		w.Header().Set(wire.HeaderCheckpoint, told[len(sent)-1])
		io.WriteString(w, "{}")
	})
	c.opts.Remember = true
	for range told {
		if err := delivered(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"", "10 ten", "1000 thousand", "1000 thousand", "1000 thousand", "1000 thousand", "1000 thousand"}
	if !slices.Equal(sent, want) || *c.seen.Load() != "1001 more" {
		t.Errorf("it sent %q, and knows %q", sent, *c.seen.Load())
	}
}

// TestHalfALineIsNoEntry: a stream that breaks off is an error after its last whole line.
func TestHalfALineIsNoEntry(t *testing.T) {
	for name, x := range map[string]struct {
		body    string
		entries int
		code    tga.Code
	}{
		"whole":   {"{\"epoch\":\"1\"}\n\n{\"epoch\":\"2\"}\n", 2, ""},
		"half":    {"{\"epoch\":\"1\"}\n{\"epoch\":\"2\"", 1, tga.StoreUnavailable},
		"no JSON": {"{\"epoch\":\"1\"}\n{\"epoch\n", 1, tga.StoreUnavailable},
		"long":    {"{\"epoch\":\"" + strings.Repeat("1", 1000) + "\"}\n", 0, tga.LimitExceeded},
		"problem": {"{\"epoch\":\"1\"}\n{\"problem\":{\"code\":\"LIMIT_EXCEEDED\",\"detail\":\"x\"}}\n", 1, tga.LimitExceeded},
	} {
		c := against(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, x.body) })
		n := 0
		var last error
		for _, err := range c.Entries(t.Context(), tga.ID{}, 0, false) {
			if last = err; err == nil {
				n++
			}
		}
		if n != x.entries || tga.CodeOf(last) != x.code {
			t.Errorf("%s: %d entries and %v, want %d and %q", name, n, last, x.entries, x.code)
		}
	}
}

// TestWhatIsNoProblemIsNoAnswer: an answer from something that is no daemon does not count as a
// refusal by a daemon.
// TestExportHasItsEnd: one that breaks off, wherever, is an error, and what the daemon says is it.
func TestExportHasItsEnd(t *testing.T) {
	const end = `{"kind":"end","traces":0}` + "\n"
	for _, row := range []struct {
		name, answer string
		lines        int
		code         tga.Code
	}{
		{"whole", "{}\n" + end, 2, ""},
		{"no line", "", 0, tga.StoreUnavailable},
		{"no end", "{}\n", 1, tga.StoreUnavailable},
		{"half an end", "{}\n" + end[:len(end)-1], 1, tga.StoreUnavailable},
		{"a line after it", end + "{}\n", 1, tga.StoreUnavailable},
		{"a problem", "{}\n" + `{"problem":{"code":"NOT_FOUND"}}` + "\n", 1, tga.NotFound},
		{"a problem after it", end + `{"problem":{"code":"NOT_FOUND"}}` + "\n", 1, tga.NotFound},
	} {
		c := against(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, row.answer) })
		n, code := 0, tga.Code("")
		for _, err := range c.Export(t.Context(), wire.ExportRequest{}) {
			if err != nil {
				code = tga.CodeOf(err)
				break
			}
			n++
		}
		if n != row.lines || code != row.code {
			t.Errorf("%s: %d lines and %q, want %d and %q", row.name, n, code, row.lines, row.code)
		}
	}
}

func TestWhatIsNoProblemIsNoAnswer(t *testing.T) {
	c := against(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "bad gateway", http.StatusBadGateway) })
	_, err := c.Call(t.Context(), runtime.Request{Server: "s", Tool: "t"})
	if _, ok := ProblemIn(err); ok || tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("error %v", err)
	}
	long := against(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "{\"summary\":%q}", strings.Repeat("x", 1000))
	})
	_, err = long.Call(t.Context(), runtime.Request{Server: "s", Tool: "t"})
	if tga.CodeOf(err) != tga.LimitExceeded {
		t.Errorf("a long answer: %v", err)
	}
	gone := New(filepath.Join(t.TempDir(), "none"), Options{})
	if _, err := gone.Call(t.Context(), runtime.Request{}); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("nobody there: %v", err)
	}
}

func TestDeadlineTravels(t *testing.T) {
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		d, err := time.ParseDuration(r.Header.Get(wire.HeaderTimeout))
		if err != nil || d <= 30*time.Minute || d > time.Hour || r.Host != wire.Host || r.Header.Get(wire.HeaderClient) == "" {
			t.Errorf("host %q, headers %v", r.Host, r.Header)
		}
		io.WriteString(w, "{}")
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if _, err := c.Call(ctx, runtime.Request{}); err != nil {
		t.Error(err)
	}
}

// TestClaimTravels: the times of a licence are sent in milliseconds, rounded to the stricter side. Only 0
// means the operator's time.
func TestClaimTravels(t *testing.T) {
	for _, x := range []struct {
		l    *ledger.Licence
		want wire.BeginRequest
	}{
		{nil, wire.BeginRequest{}},
		{&ledger.Licence{}, wire.BeginRequest{Licence: "park"}},
		{&ledger.Licence{Kind: ledger.DedupeKey, Window: time.Hour + 999*time.Microsecond}, wire.BeginRequest{Licence: "dedupe_key", LicenceWindowMS: 3_600_000}},
		{&ledger.Licence{Kind: ledger.DedupeKey, Window: time.Microsecond}, wire.BeginRequest{Licence: "dedupe_key", LicenceWindowMS: 1}},
		{&ledger.Licence{Kind: ledger.Probe, MaxInFlight: time.Second + 1}, wire.BeginRequest{Licence: "probe", LicenceMaxInFlightMS: 1001}},
	} {
		var got wire.BeginRequest
		if claim(&got, x.l); !reflect.DeepEqual(got, x.want) {
			t.Errorf("%+v travels as %+v", x.l, got)
		}
	}
}

// TestTextOfARequest: net/http can read every request, whatever its parts are, and no byte is left
// after it.
func TestTextOfARequest(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for name, x := range map[string]struct {
		name   string
		ctx    context.Context
		r      request
		target string
		client string
	}{
		"get":          {"tgad-go", t.Context(), get("/v1/log", "after", "a b&c=d", "empty", ""), "/v1/log?after=a+b%26c%3Dd", "tgad-go"},
		"path":         {"tgad-go", t.Context(), get("/v1/evidence/a?b/ä\r\nX: y"), "/v1/evidence/a%3Fb/%C3%A4%0D%0AX:%20y", "tgad-go"},
		"empty post":   {"tgad-go", ctx, post("/v1/recover", nil), "/v1/recover", "tgad-go"},
		"message":      {"tgad-go", ctx, post("/v1/seal", wire.SealRequest{Before: 5}), "/v1/seal", "tgad-go"},
		"long message": {"tgad-go", ctx, post("/v1/x", wire.FinishRequest{Permit: strings.Repeat("p", 100_000)}), "/v1/x", "tgad-go"},
		"bad name":     {"a\r\nHost: evil", t.Context(), post("/v1/recover", nil), "/v1/recover", "a  Host: evil"},
	} {
		c := New("socket", Options{Name: x.name})
		rest := bufio.NewReader(io.MultiReader(bytes.NewReader(c.text(x.ctx, x.r)), strings.NewReader("rest")))
		req, err := http.ReadRequest(rest)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		body, err := io.ReadAll(req.Body)
		var want []byte
		if x.r.body != nil {
			want = wire.Append(nil, x.r.body)
		}
		if err != nil || !bytes.Equal(body, want) || req.ContentLength != int64(len(want)) {
			t.Errorf("%s: a body of %d bytes, want %d (%v)", name, len(body), len(want), err)
		}
		if req.Method != x.r.method || req.RequestURI != x.target || req.Host != wire.Host || req.Header.Get(wire.HeaderClient) != x.client || len(req.Header) > 4 {
			t.Errorf("%s: %s %s at %s, %v", name, req.Method, req.RequestURI, req.Host, req.Header)
		}
		if kind := req.Header.Get("Content-Type"); (kind == "application/json") != (want != nil) {
			t.Errorf("%s: the type is %q", name, kind)
		}
		wait := req.Header.Get(wire.HeaderTimeout)
		if d, err := time.ParseDuration(wait); x.ctx == ctx && (err != nil || d > time.Hour-time.Second || d < time.Minute) || x.ctx != ctx && wait != "" {
			t.Errorf("%s: the time to wait is %q", name, wait)
		}
		if after, err := io.ReadAll(rest); err != nil || string(after) != "rest" {
			t.Errorf("%s: after it comes %q (%v)", name, after, err)
		}
	}
}

// TestEachListBeginsAnew: a list of traces may be ranged over again.
func TestEachListBeginsAnew(t *testing.T) {
	pages := map[string]string{
		"": `{"traces":[],"next":"01936a8b-4c2d-7000-8000-000000000001"}`, "01936a8b-4c2d-7000-8000-000000000001": `{"traces":[]}`,
	}
	var asked []string
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Get("after"))
		io.WriteString(w, pages[r.URL.Query().Get("after")])
	})
	list := c.Traces(t.Context(), wire.TracesQuery{})
	for range 2 {
		for _, err := range list {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := "01936a8b-4c2d-7000-8000-000000000001"; !slices.Equal(asked, []string{"", want, "", want}) {
		t.Errorf("it asked for the traces after %q", asked)
	}
}

// TestLargestLimitOfAnAnswer: a limit that no answer reaches takes every answer.
func TestLargestLimitOfAnAnswer(t *testing.T) {
	c := against(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"traces":[]}`) })
	c = New(c.conns.socket, Options{MaxAnswerBytes: math.MaxInt64})
	defer c.Close()
	for _, err := range c.Traces(t.Context(), wire.TracesQuery{}) {
		t.Error(err)
	}
}

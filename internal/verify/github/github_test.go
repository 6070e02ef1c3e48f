package github

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	token   = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	sha     = "6dcb09b5b57875f334f61aebed695e2e4193db5e"
	other   = "7fd1a60b01f91b314f59955a4e4d4e80d8edf11d"
	updated = "2026-01-15T19:00:00Z"
)

// fake is a GitHub with one repository, octo/hello, that only its token may see. It
// answers as the REST API of version 2022-11-28 does.
type fake struct {
	*httptest.Server
	mu     sync.Mutex
	script []http.HandlerFunc // answers instead of the API's, each used once
	asked  []string
}

func start(t *testing.T, script ...http.HandlerFunc) *fake {
	t.Helper()
	f := &fake{script: script}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// paths are the paths that were requested so far.
func (f *fake) paths() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

func refuse(rw http.ResponseWriter, status int, message string) {
	rw.Header().Set("Content-Type", "application/json; charset=utf-8")
	rw.WriteHeader(status)
	fmt.Fprintf(rw, `{"message":%q,"documentation_url":"https://docs.github.com/rest","status":"%d"}`, message, status)
}

func (f *fake) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.asked = append(f.asked, r.URL.Path)
	var scripted http.HandlerFunc
	if len(f.script) > 0 {
		scripted, f.script = f.script[0], f.script[1:]
	}
	f.mu.Unlock()
	if scripted != nil {
		scripted(rw, r)
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/api/v3/repos/octo/hello")
	switch {
	case r.Header.Get("Accept") != "application/vnd.github+json" || r.Header.Get("X-GitHub-Api-Version") != "2022-11-28" || r.Header.Get("User-Agent") == "":
		refuse(rw, 400, "Bad request")
	case r.Header.Get("Authorization") != "" && r.Header.Get("Authorization") != "Bearer "+token:
		refuse(rw, 401, "Bad credentials")
	case !ok || r.Header.Get("Authorization") == "":
		refuse(rw, 404, "Not Found")
	default:
		f.repository(rw, path)
	}
}

var pages = map[string]string{
	"":           `{"id":1296269,"node_id":"MDEw","name":"hello","full_name":"octo/hello","private":true}`,
	"/issues/7":  `{"id":1,"node_id":"I_1","number":7,"title":"found a bug","state":"open","state_reason":null,"locked":false,"comments":0,"created_at":"2026-01-01T00:00:00Z","updated_at":"` + updated + `","closed_at":null,"body":"x"}`,
	"/issues/8":  `{"id":2,"number":8,"title":"done","state":"closed","state_reason":"completed","updated_at":"` + updated + `","closed_at":"` + updated + `"}`,
	"/issues/9":  `{"id":3,"number":9,"title":"a change","state":"open","pull_request":{"url":"https://api.github.com/repos/octo/hello/pulls/9"},"updated_at":"` + updated + `"}`,
	"/issues/11": `{"id":4,"number":7,"title":"of another number","state":"open","updated_at":"` + updated + `"}`,
	"/pulls/9":   `{"id":3,"number":9,"state":"open","merged":false,"merged_at":null,"head":{"ref":"topic","sha":"` + sha + `"},"base":{"ref":"main","sha":"` + other + `"},"updated_at":"` + updated + `"}`,
	"/pulls/10":  `{"id":5,"number":10,"state":"closed","merged":true,"merged_at":"` + updated + `","head":{"ref":"topic","sha":"` + sha + `"},"base":{"ref":"main","sha":"` + other + `"},"updated_at":"` + updated + `"}`,
	"/pulls/12":  `{"id":6,"number":12,"state":"closed","merged":false,"head":{"sha":"` + sha + `"},"updated_at":"` + updated + `"}`,
}

func (f *fake) repository(rw http.ResponseWriter, path string) {
	body, ok := pages[path]
	if commit, is := strings.CutPrefix(path, "/commits/"); is {
		if commit != sha {
			refuse(rw, 422, "No commit found for SHA: "+commit)
			return
		}
		body, ok = `{"sha":"`+sha+`","node_id":"C_1","commit":{"message":"fix"},"parents":[]}`, true
	}
	switch {
	case path == "/issues/6":
		refuse(rw, 410, "This issue was deleted")
	case path == "/issues/5":
		rw.Header().Set("Location", f.URL+"/api/v3/repositories/2/issues/1")
		refuse(rw, 301, "Moved Permanently")
	case !ok:
		refuse(rw, 404, "Not Found")
	default:
		rw.Header().Set("Content-Type", "application/json; charset=utf-8")
		rw.Header().Set("ETag", `W/"`+tga.Sum([]byte(body)).String()+`"`)
		fmt.Fprint(rw, body)
	}
}

func etag(path string) string { return tga.Sum([]byte(pages[path])).String() }

func tokenFile(t *testing.T, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

var soon = verify.Patience{Timeout: 20 * time.Second, Tries: 2, Delay: time.Millisecond, MaxDelay: time.Millisecond, SettleEvery: time.Millisecond}

func verifier(t *testing.T, f *fake, c Config) runtime.Verifier {
	t.Helper()
	c.BaseURL = f.URL + "/api/v3/"
	if c.TokenFile == "" {
		c.TokenFile = tokenFile(t, token+"\n", 0o600)
	}
	if c.Tries == 0 {
		c.Patience = soon
	}
	v, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestFindings(t *testing.T) {
	const e, g, c, x = runtime.Exists, runtime.Gone, runtime.Changed, runtime.CannotTell
	for _, test := range []struct {
		kind, id, version, etag string
		want                    runtime.Finding
		failed                  bool
		asked                   int
	}{
		{Issue, "octo/hello#7", "", "", e, false, 1},
		{Issue, "octo/hello#7", "open", "", e, false, 1},
		{Issue, "octo/hello#7", "closed", "", c, false, 1},
		{Issue, "octo/hello#8", "closed", "", e, false, 1},
		{Issue, "octo/hello#8", "open", "", c, false, 1},
		{Issue, "octo/hello#7", updated, "", e, false, 1},
		{Issue, "octo/hello#7", "2026-01-15T20:00:00.000+01:00", "", e, false, 1},
		{Issue, "octo/hello#7", "2026-01-15T19:00:01Z", "", c, false, 1},
		{Issue, "octo/hello#7", "merged", "", x, false, 1},
		{Issue, "octo/hello#7", sha, "", x, false, 1},
		{Issue, "octo/hello#7", "v1", "", x, false, 1},
		{Issue, "octo/hello#7", "", etag("/issues/7"), e, false, 1},
		{Issue, "octo/hello#7", "", `W/"` + etag("/issues/7") + `"`, e, false, 1},
		{Issue, "octo/hello#7", "open", `"another"`, c, false, 1},
		{Issue, "octo/hello#6", "", "", g, false, 1},
		{Issue, "octo/hello#5", "", "", x, false, 1},
		{Issue, "octo/hello#9", "", "", c, false, 1},  // by now it is a pull request
		{Issue, "octo/hello#11", "", "", x, false, 1}, // the answer is about 7
		{Issue, "octo/hello#404", "", "", g, false, 2},
		{Issue, "octo/secret#7", "", "", x, false, 2}, // does not exist, or is not visible
		{Pull, "octo/hello#9", "", "", e, false, 1},
		{Pull, "octo/hello#9", sha, "", e, false, 1},
		{Pull, "octo/hello#9", other, "", c, false, 1},
		{Pull, "octo/hello#9", "open", "", e, false, 1},
		{Pull, "octo/hello#9", "merged", "", c, false, 1},
		{Pull, "octo/hello#10", "merged", "", e, false, 1},
		{Pull, "octo/hello#10", "closed", "", e, false, 1},
		{Pull, "octo/hello#12", "merged", "", c, false, 1},
		{Pull, "octo/hello#7", "", "", g, false, 2},
		{Commit, "octo/hello@" + sha, "", "", e, false, 1},
		{Commit, "octo/hello@" + sha, sha, "", e, false, 1},
		{Commit, "octo/hello@" + sha, other, "", c, false, 1},
		{Commit, "octo/hello@" + sha, "open", "", x, false, 1},
		{Commit, "octo/hello@" + sha, updated, "", x, false, 1},
		{Commit, "octo/hello@" + other, "", "", g, false, 1},
		{Commit, "octo/hello@" + sha[:7], "", "", x, true, 0},
		{Issue, "octo/hello", "", "", x, true, 0},
		{Issue, "octo/hello#0", "", "", x, true, 0},
		{Issue, "octo/..#7", "", "", x, true, 0},
		{Issue, "octo/hello/../x#7", "", "", x, true, 0},
		{Issue, "octo/hello#7\n", "", "", x, true, 0},
		{Issue, "octo/hello@" + sha, "", "", x, true, 0},
		{"gist", "octo/hello#7", "", "", x, true, 0},
	} {
		f := start(t)
		change := tga.StateChange{ResourceType: test.kind, ResourceID: test.id, Operation: "create", Version: test.version, ETag: test.etag}
		got, evidence, err := verifier(t, f, Config{}).Verify(t.Context(), change)
		if got != test.want || (err != nil) != test.failed || len(f.paths()) != test.asked {
			t.Errorf("%s %s %s %s: got %v, %v after %q: %s", test.kind, test.id, test.version, test.etag, got, err, f.paths(), evidence.Detail)
		}
		if test.asked > 0 && !strings.Contains(evidence.Source, "/repos/octo/") {
			t.Errorf("%s: evidence %q", test.id, evidence.Source)
		}
	}
}

func TestTroubleOnTheWay(t *testing.T) {
	busy := func(rw http.ResponseWriter, _ *http.Request) { refuse(rw, 502, "Server Error") }
	limit := func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("X-RateLimit-Remaining", "0")
		refuse(rw, 403, "API rate limit exceeded")
	}
	forbidden := func(rw http.ResponseWriter, _ *http.Request) {
		refuse(rw, 403, "Resource not accessible by personal access token")
	}
	missing := func(rw http.ResponseWriter, _ *http.Request) { refuse(rw, 404, "Not Found") }
	die := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	page := func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "<html>unicorn</html>") }
	repo := func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, pages[""]) }
	late := soon
	late.Settle = 2 * late.SettleEvery
	for _, test := range []struct {
		name   string
		p      verify.Patience
		script []http.HandlerFunc
		want   runtime.Finding
		failed bool
		asked  int
	}{
		{"busy", soon, []http.HandlerFunc{busy}, runtime.Exists, false, 2},
		{"busy for too long", soon, []http.HandlerFunc{busy, busy}, runtime.CannotTell, true, 2},
		{"over the limit", soon, []http.HandlerFunc{limit}, runtime.Exists, false, 2},
		{"forbidden", soon, []http.HandlerFunc{forbidden}, runtime.CannotTell, false, 1},
		{"dies", soon, []http.HandlerFunc{die}, runtime.Exists, false, 2},
		{"dies twice", soon, []http.HandlerFunc{die, die}, runtime.CannotTell, true, 2},
		{"a page", soon, []http.HandlerFunc{page}, runtime.CannotTell, false, 1},
		{"visible late", late, []http.HandlerFunc{missing, repo, missing, repo}, runtime.Exists, false, 5},
		{"visible too late", late, []http.HandlerFunc{missing, repo, missing, repo, missing, repo}, runtime.Gone, false, 6},
		{"the repository does not answer", soon, []http.HandlerFunc{missing, busy, missing, die}, runtime.CannotTell, true, 4},
	} {
		f := start(t, test.script...)
		got, _, err := verifier(t, f, Config{Patience: test.p}).Verify(t.Context(), tga.StateChange{ResourceType: Issue, ResourceID: "octo/hello#7"})
		if got != test.want || (err != nil) != test.failed || len(f.paths()) != test.asked {
			t.Errorf("%s: got %v, %v after %q", test.name, got, err, f.paths())
		}
	}
}

// TestTokenStaysIn: a server that echoes the token, one that refuses it, and one that breaks off.
func TestTokenStaysIn(t *testing.T) {
	echo := func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("ETag", r.Header.Get("Authorization"))
		refuse(rw, 401, "bad: "+r.Header.Get("Authorization"))
	}
	die := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for _, script := range [][]http.HandlerFunc{{echo}, {die, die}, nil} {
		f := start(t, script...)
		got, e, err := verifier(t, f, Config{}).Verify(t.Context(), tga.StateChange{ResourceType: Issue, ResourceID: "octo/hello#7"})
		if strings.Contains(fmt.Sprint(got, e.Source, string(e.Detail), err), token[:12]) {
			t.Errorf("%v, %+v, %v", got, e, err)
		}
	}
	if _, err := New(Config{TokenFile: tokenFile(t, token+"\nx\n", 0o600)}); err == nil || strings.Contains(err.Error(), token[:12]) {
		t.Error(err)
	}
}

func TestWithoutATokenPrivateCannotBeTold(t *testing.T) {
	f := start(t)
	v, err := New(Config{BaseURL: f.URL + "/api/v3", Patience: soon})
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := v.Verify(t.Context(), tga.StateChange{ResourceType: Issue, ResourceID: "octo/hello#7"})
	if got != runtime.CannotTell || err != nil || len(f.paths()) != 2 {
		t.Errorf("got %v, %v after %q", got, err, f.paths())
	}
}

func TestIgnoredMarks(t *testing.T) {
	f := start(t)
	v := verifier(t, f, Config{Ignore: []string{"etag", "version"}})
	got, _, err := v.Verify(t.Context(), tga.StateChange{ResourceType: Issue, ResourceID: "octo/hello#7", Version: "closed", ETag: "x"})
	if got != runtime.Exists || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, test := range []struct {
		c   Config
		key string
	}{
		{Config{}, ""},
		{Config{BaseURL: "https://ghe.example/api/v3/"}, ""},
		{Config{BaseURL: "ghe.example"}, "base_url"},
		{Config{BaseURL: "https://u:p@ghe.example"}, "base_url"},
		{Config{BaseURL: "https://ghe.example/?x=1"}, "base_url"},
		{Config{BaseURL: "https://ghe.example/#x"}, "base_url"},
		{Config{TokenFile: tokenFile(t, token, 0o600)}, ""},
		{Config{TokenFile: tokenFile(t, token, 0o644)}, "token_file"},
		{Config{TokenFile: tokenFile(t, "", 0o600)}, "token_file"},
		{Config{TokenFile: "/nonexistent"}, "token_file"},
		{Config{CAFile: "/nonexistent"}, "ca_file"},
		{Config{Ignore: []string{"state"}}, "ignore"},
		{Config{Patience: verify.Patience{Settle: -1}}, "settle"},
	} {
		v, err := New(test.c)
		if (err == nil) != (test.key == "") || (v != nil) != (err == nil) || err != nil && (!errors.Is(err, tga.ValidationError) || !strings.Contains(err.Error(), " "+test.key+": ")) {
			t.Errorf("%+v: got %v, want an error about %q", test.c, err, test.key)
		}
	}
}

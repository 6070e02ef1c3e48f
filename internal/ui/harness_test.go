package ui_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/daemon"
	"github.com/tgad/tgad/internal/ui"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// stage is a real daemon with a tool server, and its view with a browser's cookies.
type stage struct {
	*testing.T
	client  *client.Client
	view    *ui.Server
	at      string // the view's http://host:port
	browser *http.Client
	intent  string // of the next calls
	answer  string // of the tool "pay"; "" breaks the connection off
	licence string // of the tool "pay", for the next reload; "" = none
}

const shopConfig = `
[[rule]]
tool = "ask"
decision = "NEEDS_APPROVAL"

[[rule]]
decision = "APPROVE"

[approval]
self = true

[store]
low_water_bytes = 1

[[server]]
id = "shop"
type = "http"
url = %q
breaker = { failures = 1000 }

[[server]]
id = "own"
type = "external"
`

func newStage(t *testing.T, o ui.Options) *stage { return newStageWith(t, o, shopConfig) }

// newStageWith is newStage with another configuration of the daemon.
func newStageWith(t *testing.T, o ui.Options, text string) *stage {
	t.Helper()
	s := &stage{T: t}
	tools := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if s.answer == "" {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, s.answer)
	}))
	t.Cleanup(tools.Close)
	dir, err := os.MkdirTemp("", "tgad-ui-") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	parse := func() (*config.Config, error) {
		text := fmt.Sprintf(text, tools.URL)
		if s.licence != "" {
			text += fmt.Sprintf("\n[[tool]]\nserver = \"shop\"\nname = \"pay\"\nlicence = %q\n", s.licence)
		}
		return assemble.Parse("ui.toml", []byte(text))
	}
	conf, err := parse()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	socket := filepath.Join(dir, "run", "s")
	go func() {
		ended <- daemon.Run(ctx, daemon.Options{Data: filepath.Join(dir, "data"), Socket: socket, Config: conf, Logger: slog.New(slog.DiscardHandler), Reload: parse, Ready: func() { close(ready) }})
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	s.client = client.New(socket, client.Options{Name: "ui-test"})
	t.Cleanup(func() {
		if err := s.client.Close(); err != nil {
			t.Error(err)
		}
	})
	s.serve(ui.New(s.client, o))
	return s
}

// serve starts the view again, as tgad ui does.
func (s *stage) serve(view *ui.Server) {
	s.Helper()
	l, err := ui.Listen("127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- view.Serve(ctx, l) }()
	s.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.Error(err)
		}
	})
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.Fatal(err)
	}
	s.view, s.at, s.browser = view, "http://"+l.Addr().String(), &http.Client{Jar: jar, Timeout: 20 * time.Second}
}

// login opens the link.
func (s *stage) login() *stage {
	s.Helper()
	if status, page := s.get(s.view.Login()); status != http.StatusOK {
		s.Fatalf("login: %d %s", status, page)
	}
	return s
}

func (s *stage) do(r *http.Request) (int, string, http.Header) {
	s.Helper()
	resp, err := s.browser.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	return resp.StatusCode, string(body), resp.Header
}

func (s *stage) request(method, path, body string) *http.Request {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, s.at+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return r
}

func (s *stage) get(path string) (int, string) {
	s.Helper()
	status, body, _ := s.do(s.request("GET", path, ""))
	return status, body
}

var tokenOf = regexp.MustCompile(`name="token" value="([A-Z2-7]{26})"`)

// post presses a button of a page as a browser would: with the page's token.
func (s *stage) post(page, path, why string) (int, string) {
	s.Helper()
	_, body := s.get(page)
	token := tokenOf.FindStringSubmatch(body)
	if token == nil {
		s.Fatalf("%s has no form:\n%s", page, body)
	}
	status, answer, _ := s.do(s.request("POST", path, url.Values{"token": {token[1]}, "shown": {shownBeside(body, path)}, "why": {why}}.Encode()))
	return status, answer
}

var shown = regexp.MustCompile(`name="shown" value="([0-9a-f]*)"`)

// shownBeside returns what the form with the button for a path says that it showed, or "" if there is no
// such form.
func shownBeside(page, path string) string {
	before, _, found := strings.Cut(page, `formaction="`+path+`"`)
	if all := shown.FindAllStringSubmatch(before, -1); found && len(all) > 0 {
		return all[len(all)-1][1]
	}
	return ""
}

// call makes a call of shop and returns its trace.
func (s *stage) call(tool, key, args string) tga.ID {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 20*time.Second)
	defer cancel()
	res, err := s.client.Call(ctx, runtime.Request{Server: "shop", Tool: tool, Key: key, Args: []byte(args), Intent: s.intent})
	if res.TraceID.IsZero() {
		s.Fatalf("call: %+v, %v", res, err)
	}
	return res.TraceID
}

func (s *stage) state(id tga.ID) tga.State {
	s.Helper()
	is, err := s.client.State(s.Context(), id)
	if err != nil {
		s.Fatal(err)
	}
	return is.Current
}

func (s *stage) has(body string, want ...string) {
	s.Helper()
	for _, w := range want {
		if !strings.Contains(body, w) {
			s.Errorf("no %q in:\n%s", w, body)
		}
	}
}

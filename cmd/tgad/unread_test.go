package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/cli"
)

// withoutDocuments listens at a socket for the daemon at another one, and answers no question for a document.
func withoutDocuments(t *testing.T, at, daemon string) {
	t.Helper()
	l, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "tgad"})
	proxy.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", daemon)
	}}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/documents") {
			panic(http.ErrAbortHandler) // as if it had been killed here
		}
		proxy.ServeHTTP(w, r)
	})}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// TestWhatCannotBeReadIsNoFinding: a daemon that goes away between a trace and its documents says nothing about the
// log. The exit code is that of an error, not that of a log that was altered.
func TestWhatCannotBeReadIsNoFinding(t *testing.T) {
	h := newHeld(t)
	dir := filepath.Dir(h.data)
	defer h.serves(filepath.Join(dir, "s"))()
	withoutDocuments(t, filepath.Join(dir, "p"), filepath.Join(dir, "s"))
	for _, verb := range []string{"show", "report"} {
		if code, _, errs := says(verb, h.done, "--socket", filepath.Join(dir, "s")); code != cli.ExitOK {
			t.Errorf("%s: exit code %d, %s", verb, code, errs)
		}
		if code, _, errs := says(verb, h.done, "--socket", filepath.Join(dir, "p")); code != cli.ExitError || !strings.HasPrefix(errs, "tgad: STORE_UNAVAILABLE: ") {
			t.Errorf("%s without its documents: exit code %d, %s", verb, code, errs)
		}
	}
}

package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
)

// TestQuestionWhoseRequestCannotBeReadIsNamed: the request of one question cannot be read. The others are
// shown, and the error names that question.
func TestQuestionWhoseRequestCannotBeReadIsNamed(t *testing.T) {
	h := newHeld(t)
	dir := filepath.Dir(h.data)
	socket, between := filepath.Join(dir, "s"), filepath.Join(dir, "between")
	defer h.serves(socket)()
	c := client.New(socket, client.Options{})
	defer c.Close()
	_, _ = c.Begin(t.Context(), runtime.BeginRequest{BeginID: uuid.NewString(), Request: runtime.Request{
		Server: "x", Tool: "ask", Key: uuid.NewString(), Args: []byte(`{}`),
	}}) // the question waits, which is reported as an error
	waits, err := c.Approvals(t.Context())
	if err != nil || len(waits) != 2 {
		t.Fatalf("%d questions, %v", len(waits), err)
	}

	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "tgad"})
	proxy.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	l, err := net.Listen("unix", between)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, h.question) {
			http.Error(w, "it cannot be read", http.StatusNotFound)
			return
		}
		proxy.ServeHTTP(w, r)
	})}
	go func() { _ = s.Serve(l) }() // the call ends with Close
	defer s.Close()
	code, out, errs := says("approvals", "--socket", between)
	if code != cli.ExitError || strings.Contains(out, h.question) || !strings.Contains(errs, h.question) {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	for _, w := range waits {
		if id := w.TraceID.String(); id != h.question && !strings.Contains(out, id) {
			t.Errorf("%s is not shown:\n%s", id, out)
		}
	}
}

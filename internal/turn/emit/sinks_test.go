package emit_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/turn/emit"
	"github.com/tgad/tgad/schemas/tga"
)

func event(n string) emit.Event { return emit.Event{ID: n, JSON: []byte(`{"id":"` + n + `"}`)} }

func write(t *testing.T, s emit.Sink, names ...string) {
	t.Helper()
	for _, n := range names {
		if err := s.Write(t.Context(), event(n)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFileAppendsLines: the events of two runs follow each other, one per line, and a line that
// was cut off in between spoils no other.
func TestFileAppendsLines(t *testing.T) {
	for _, sync := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "events.ndjson")
		for run, names := range [][]string{{"a", "b"}, {"c"}} {
			s, err := emit.File(path, emit.FileOptions{Sync: sync})
			if err != nil {
				t.Fatal(err)
			}
			write(t, s, names...)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if run == 0 { // the process died in a write
				f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := f.WriteString(`{"id":"to`); err != nil {
					t.Fatal(err)
				}
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if want := "{\"id\":\"a\"}\n{\"id\":\"b\"}\n{\"id\":\"to\n{\"id\":\"c\"}\n"; string(raw) != want {
			t.Errorf("the file is %q, want %q", raw, want)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
	}
}

// TestFileThatCannotBeOpened is refused when the sink is made, not at the first event.
func TestFileThatCannotBeOpened(t *testing.T) {
	if _, err := emit.File(filepath.Join(t.TempDir(), "none", "x"), emit.FileOptions{}); !errors.Is(err, tga.ValidationError) {
		t.Error(err)
	}
}

// TestHTTPPostsStructuredEvents: a real server gets each event of a turn, once, in
// structured mode.
func TestHTTPPostsStructuredEvents(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/cloudevents+json; charset=UTF-8" || r.Header.Get("Authorization") != "Bearer x" {
			t.Errorf("%s %v", r.Method, r.Header)
		}
		m := map[string]any{}
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Error(err)
		}
		got = append(got, m["id"].(string)) // no lock needed: the sink sends one event at a time
		w.WriteHeader(http.StatusAccepted)
	}))
	defer server.Close()
	s, err := emit.HTTP(server.URL+"/events", emit.HTTPOptions{Header: http.Header{"Authorization": {"Bearer x"}}})
	if err != nil {
		t.Fatal(err)
	}
	o := everything(t, func(opts *emit.Options) { opts.Sinks = append(opts.Sinks, s) })
	o.emit(t, full())
	o.close(t)
	if len(got) != 9 {
		t.Fatalf("the server got %d events", len(got))
	}
	for i, e := range o.sink.events {
		if got[i] != e.ID {
			t.Errorf("event %d is %s, want %s", i, got[i], e.ID)
		}
	}
	if c := o.emitter.Counts().Sinks[1]; c.Sent != 9 {
		t.Errorf("counts %+v", c)
	}
}

// TestHTTPFailures: an answer other than 2xx is a failure. The error does not contain the URL's
// password, the event is not sent again, and a redirect is not followed.
func TestHTTPFailures(t *testing.T) {
	var elsewhere, requests atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	status := http.StatusInternalServerError
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.Header().Set("Location", other.URL)
		w.WriteHeader(status)
	}))
	defer server.Close()
	s, err := emit.HTTP(server.URL, emit.HTTPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, status = range []int{500, 429, 404, 307, 301, 199 + 101} {
		before := requests.Load()
		if err := s.Write(t.Context(), event("a")); err == nil {
			t.Errorf("%d is taken", status)
		}
		if n := requests.Load() - before; n != 1 {
			t.Errorf("%d: %d requests", status, n)
		}
	}
	if elsewhere.Load() != 0 {
		t.Error("a redirect was followed")
	}
	for _, status = range []int{200, 202, 204, 299} {
		if err := s.Write(t.Context(), event("a")); err != nil {
			t.Errorf("%d: %v", status, err)
		}
	}
	server.Close()
	secretly, err := emit.HTTP(strings.Replace(server.URL, "//", "//user:hunter2@", 1), emit.HTTPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := secretly.Write(t.Context(), event("a")); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("no server: %v", err)
	}
	for _, bad := range []string{"", "ftp://x", "//x", "http://", "ftp://user:hunter2@y", "http://user:hunter2@y:z"} {
		if _, err := emit.HTTP(bad, emit.HTTPOptions{}); !errors.Is(err, tga.ValidationError) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := emit.HTTP("http://x", emit.HTTPOptions{Timeout: -1}); !errors.Is(err, tga.ValidationError) {
		t.Errorf("a negative time-out: %v", err)
	}
}

// TestHTTPHasATimeLimit: the sink gives up on a server that does not answer, at its own limit and
// at the end of its context.
func TestHTTPHasATimeLimit(t *testing.T) {
	let := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-let }))
	defer server.Close()
	defer close(let)
	limited, err := emit.HTTP(server.URL, emit.HTTPOptions{Timeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := limited.Write(t.Context(), event("a")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("past the limit: %v", err)
	}
	patient, err := emit.HTTP(server.URL, emit.HTTPOptions{Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := patient.Write(ctx, event("a")); !errors.Is(err, context.Canceled) {
		t.Errorf("past the context: %v", err)
	}
}

// TestEndlessAnswerIsCutShort: a server's answer is read up to a limit.
func TestEndlessAnswerIsCutShort(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := bufio.NewWriter(w)
		for r.Context().Err() == nil {
			if _, err := b.Write(bytes.Repeat([]byte("x"), 1<<10)); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	s, err := emit.HTTP(server.URL, emit.HTTPOptions{Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(t.Context(), event("a")); err != nil {
		t.Error(err)
	}
}

package frames

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tgad/tgad/internal/mcpraw"
)

// TestBrokenStreamIsFollowed: the stream of an answer ends early. If its events have ids, the rest is asked for, behind the last event
// that came whole, until the tool server says that it has none. The request is sent once.
func TestBrokenStreamIsFollowed(t *testing.T) {
	const answer = "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"
	const primed = "id: a\nretry: 1\ndata: \n\n"
	for name, c := range map[string]struct {
		agreed mcpraw.Revision
		post   string
		gets   []string // what each GET is answered, "" is status 404
		after  []string // the ids that they name
		lost   bool
	}{
		"the server ends it at once": {"2025-11-25", primed, []string{"id: b\n" + answer}, []string{"a"}, false},
		"in several parts":           {"2025-11-25", primed, []string{"id: b\ndata:\n\n", "id: c\n: ok\n\n", answer}, []string{"a", "b", "c"}, false},
		"it begins with a mark":      {"2025-11-25", "\ufeff" + primed, []string{"\ufeff" + answer}, []string{"a"}, false},
		"an event is cut":            {"2025-06-18", primed + "id: b\ndata: {\"jsonrpc\"", []string{answer}, []string{"a"}, false},
		"the rest is not there":      {"2025-11-25", primed, []string{""}, []string{"a"}, true},
		"an id that no header can":   {"2025-11-25", "id: a\x01\ndata: \n\n", nil, nil, true},
		"no ids":                     {"2025-11-25", ": nothing\n\n", nil, nil, true},
		"no handshake":               {"", primed, nil, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			posts, after := 0, []string(nil)
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				w.Header().Set("Content-Type", "text/event-stream")
				said := c.post
				if r.Method == http.MethodGet {
					after = append(after, r.Header.Get("Last-Event-ID"))
					said = c.gets[len(after)-1]
				} else {
					posts++
				}
				if said == "" {
					w.WriteHeader(http.StatusNotFound)
				}
				_, _ = io.WriteString(w, said)
			}))
			defer srv.Close()
			heard := make(chan *Frame, 8)
			up := Dial(t.Context(), Endpoint{URL: srv.URL, Most: 1 << 20, Log: slog.New(slog.DiscardHandler)}, func(f *Frame) { heard <- f })
			defer up.Close()
			f := NewFrame([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`))
			if err := up.Write(&Message{Env: &f.Envelope, Parts: []io.WriterTo{Text(f.Head)}, Agreed: c.agreed}); err != nil {
				t.Fatal(err)
			}
			got := <-heard
			defer got.Close()
			if lost := got.Bad != ""; lost != c.lost || got.Unsent != "" || string(got.RawID) != "1" {
				t.Errorf("lost %v, want %v: %+v", lost, c.lost, got)
			}
			mu.Lock()
			defer mu.Unlock()
			if posts != 1 || !slices.Equal(after, c.after) {
				t.Errorf("%d POSTs, GETs behind %q, want those behind %q", posts, after, c.after)
			}
		})
	}
}

// TestPauseThatTheToolServerAsksFor: a GET comes as soon as the tool server asks for, and no sooner, also after GETs that failed.
func TestPauseThatTheToolServerAsksFor(t *testing.T) {
	for _, c := range []struct{ retry, want string }{
		{"", "1s 2s 4s 8s"}, {"0", "100ms 2s 4s 8s"}, {"3000", "3s 3s 4s 8s"}, {"20000", "20s 20s 20s 20s"},
		{"3600001", "1h0m0s 1h0m0s 1h0m0s 1h0m0s"}, {"soon", "1s 2s 4s 8s"}, {"-5", "1s 2s 4s 8s"},
	} {
		var at place
		if c.retry != "" {
			at.field([]byte("retry: " + c.retry))
		}
		var got []string
		for failed := range resumeTries {
			got = append(got, at.pause(failed).String())
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("retry %q: pauses of %s, want %s", c.retry, s, c.want)
		}
	}
}

// TestStreamGoesOnBehindItsLastEvent: the stream of messages that belong to no request goes on behind its last event. If the tool server
// does not know that event any more, another stream is asked for.
func TestStreamGoesOnBehindItsLastEvent(t *testing.T) {
	after := make(chan string, 8)
	n := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		after <- r.Header.Get("Last-Event-ID")
		switch n++; n { // the GETs come one after another
		case 1:
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprint(w, "id: a\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n")
		case 2:
			w.WriteHeader(http.StatusBadRequest)
		default:
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
	}))
	defer srv.Close()
	up := Dial(t.Context(), Endpoint{URL: srv.URL, Most: 1 << 20, Log: slog.New(slog.DiscardHandler)}, func(f *Frame) { f.Close() })
	defer up.Close()
	f := NewFrame([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	if err := up.Write(&Message{Env: &f.Envelope, Parts: []io.WriterTo{Text(f.Head)}, Agreed: "2025-11-25"}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join([]string{<-after, <-after, <-after}, ","); got != ",a," {
		t.Errorf("GETs behind %q", got)
	}
}

// TestEventsThatAreNoMessages: a tool server sends events of a type of its own, so that a proxy does not end the stream. The client, which
// may read lines, hears nothing of them.
func TestEventsThatAreNoMessages(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: ping\ndata: tick\n\nevent: ping\ndata: {}\n\n"+
			"data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n")
	}))
	defer srv.Close()
	heard := make(chan string, 8)
	up := Dial(t.Context(), Endpoint{URL: srv.URL, Most: 1 << 20, Log: slog.New(slog.DiscardHandler)}, func(f *Frame) {
		defer f.Close()
		heard <- string(f.Head)
	})
	defer up.Close()
	f := NewFrame([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`))
	if err := up.Write(&Message{Env: &f.Envelope, Parts: []io.WriterTo{Text(f.Head)}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"notifications/x", `"result"`} {
		if got := <-heard; !strings.Contains(got, want) {
			t.Errorf("heard %s, want %s", got, want)
		}
	}
}

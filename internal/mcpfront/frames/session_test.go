package frames

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpraw"
)

// TestMessageAfterTheHandshakeIsOfItsSession: what is written because of the answer to initialize names the session that came with
// that answer, however soon it is written.
func TestMessageAfterTheHandshakeIsOfItsSession(t *testing.T) {
	const answer = `{"jsonrpc":"2.0","id":1,"result":{}}`
	for kind, body := range map[string]string{"application/json": answer, "text/event-stream": "data: " + answer + "\n\n"} {
		t.Run(kind, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				raw, _ := io.ReadAll(r.Body)
				switch {
				case r.Method != http.MethodPost:
					w.WriteHeader(http.StatusMethodNotAllowed)
				case strings.Contains(string(raw), `"initialize"`):
					w.Header().Set("Mcp-Session-Id", "s")
					w.Header().Set("Content-Type", kind)
					_, _ = io.WriteString(w, body)
				default:
					if got := r.Header.Get("Mcp-Session-Id"); got != "s" {
						t.Errorf("%s is of session %q", raw, got)
					}
					w.WriteHeader(http.StatusAccepted)
				}
			}))
			defer srv.Close()
			var up Upstream
			write := func(raw string) error {
				f := NewFrame([]byte(raw))
				return up.Write(&Message{Env: &f.Envelope, Parts: []io.WriterTo{Text(f.Head)}})
			}
			wrote := make(chan error, 1)
			up = Dial(t.Context(), Endpoint{URL: srv.URL, Most: 1 << 20, Log: slog.New(slog.DiscardHandler)}, func(f *Frame) {
				wrote <- write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			})
			defer up.Close()
			if err := write(`{"jsonrpc":"2.0","id":1,"method":"initialize"}`); err != nil {
				t.Fatal(err)
			}
			if err := <-wrote; err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestRequestAfterTheHandshakeComesAfterIt: each message is a POST on a connection of its own. What is written after
// notifications/initialized is written once the tool server has taken that, or has not for a long time.
func TestRequestAfterTheHandshakeComesAfterIt(t *testing.T) {
	took, greeted := make(chan struct{}), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		if strings.Contains(string(raw), "initialized") {
			close(took)
			<-greeted
		}
		w.WriteHeader(http.StatusAccepted)
	}))
	defer srv.Close()
	up := Dial(t.Context(), Endpoint{URL: srv.URL, Most: 1 << 20, Log: slog.New(slog.DiscardHandler)}, func(f *Frame) {})
	defer up.Close()
	wrote := make(chan error, 1)
	go func() {
		f := NewFrame([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
		wrote <- up.Write(&Message{Env: &f.Envelope, Parts: []io.WriterTo{Text(f.Head)}})
	}()
	<-took
	select {
	case err := <-wrote:
		close(greeted)
		t.Fatalf("the next message may overtake it (%v)", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(greeted)
	if err := <-wrote; err != nil {
		t.Error(err)
	}
}

// TestEachRequestOfASessionNamesItsRevision: from the end of the handshake on, every HTTP request names the revision that was agreed on, the
// GET of the stream and the DELETE of the session as well. A tool server may refuse one without it. Each wants an answer that is not
// compressed: if it said nothing of it, the tool server might compress.
func TestEachRequestOfASessionNamesItsRevision(t *testing.T) {
	got := make(chan string, 8)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if plain := r.Header.Get("Accept-Encoding"); plain != "identity" {
			t.Errorf("%s that accepts the encoding %q", r.Method, plain)
		}
		got <- r.Method + " " + r.Header.Get("Mcp-Protocol-Version")
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Mcp-Session-Id", "s")
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	}))
	defer srv.Close()
	answered := make(chan struct{}, 8)
	up := Dial(t.Context(), Endpoint{URL: srv.URL, Most: 1 << 20, Log: slog.New(slog.DiscardHandler)}, func(*Frame) { answered <- struct{}{} })
	write := func(raw string, agreed mcpraw.Revision) {
		f := NewFrame([]byte(raw))
		if err := up.Write(&Message{Env: &f.Envelope, Parts: []io.WriterTo{Text(f.Head)}, Agreed: agreed}); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"jsonrpc":"2.0","id":1,"method":"initialize"}`, "")
	<-answered
	write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, "2025-11-25")
	for _, want := range []string{"POST ", "POST 2025-11-25", "GET 2025-11-25"} {
		if is := <-got; is != want {
			t.Errorf("%q, want %q", is, want)
		}
	}
	up.Close()
	if is := <-got; is != "DELETE 2025-11-25" {
		t.Errorf("%q, want the DELETE of 2025-11-25", is)
	}
}

package frames

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// TestStreamIsAskedForAgain: the GET stream is requested again after a status that a proxy, or a tool server that is restarting or busy or has
// not seen the end of the stream before, may send. It is not requested again after a status that says that the server offers no stream.
func TestStreamIsAskedForAgain(t *testing.T) {
	for status, again := range map[int]bool{502: true, 503: true, 429: true, 409: true, 405: false, 404: false, 501: false} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method != http.MethodGet:
					w.WriteHeader(http.StatusAccepted)
				case asked.Add(1) == 1:
					w.WriteHeader(status)
				default:
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = w.Write([]byte("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n"))
					w.(http.Flusher).Flush()
					<-r.Context().Done()
				}
			}))
			defer srv.Close()
			heard := make(chan string, 1)
			up := Dial(t.Context(), Endpoint{URL: srv.URL, Most: 1 << 20, Log: slog.New(slog.DiscardHandler)}, func(f *Frame) {
				defer f.Close()
				heard <- f.Method
			})
			defer up.Close()
			f := NewFrame([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
			if err := up.Write(&Message{Env: &f.Envelope, Parts: []io.WriterTo{Text(f.Head)}}); err != nil {
				t.Fatal(err)
			}
			wait := 20 * time.Second
			if !again {
				wait = 2 * listenPause
			}
			select {
			case method := <-heard:
				if !again || method != "notifications/tools/list_changed" {
					t.Errorf("heard %q", method)
				}
			case <-time.After(wait):
				if again {
					t.Error("nothing is heard of it any more")
				}
			}
		})
	}
}

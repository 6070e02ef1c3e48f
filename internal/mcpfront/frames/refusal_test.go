package frames

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpraw"
)

// TestAnswerInARefusalIsHandedOn: a status that refuses counts only if its body is certainly no answer to the request,
// even if the status ends the session. An answer is passed on. A body that may be an answer and cannot be read counts
// as a lost answer.
func TestAnswerInARefusalIsHandedOn(t *testing.T) {
	fault := func(id string, n int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":7,"message":"half done %s"}}`, id, strings.Repeat("x", n))
	}
	const answered, lost, refused = "answered", "lost", "refused"
	for name, c := range map[string]struct {
		body string
		more int // bytes that Content-Length announces and that do not come
		want string
	}{
		"short answer":     {fault("1", 0), 0, answered},
		"answer of 2 KiB":  {fault("1", 2<<10), 0, answered},
		"answer of 60 KiB": {fault("1", 60<<10), 0, answered},
		"over the limit":   {fault("1", mcpraw.MaxRefusal), 0, lost},
		"answer cut off":   {fault("1", 0)[:20], 60, lost},
		"result":           {`{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":true}}`, 0, answered},
		"torn answer":      {strings.Replace(fault("1", 0), "half ", "half\n", 1), 0, lost},
		"answer that two parsers read differently": {`{"jsonrpc":"2.0","id":1,"result":{"content":[]},"Result":{}}`, 0, lost},
		"another's id":      {fault("999", 0), 0, refused},
		"no id":             {fault("null", 0), 0, refused},
		"no such session":   {`{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`, 0, refused},
		"nothing":           {"", 0, refused},
		"a page for people": {"<p>" + strings.Repeat("x", mcpraw.MaxRefusal), 0, refused},
	} {
		for _, status := range []int{400, 401, 403, 404, 405, 406, 413, 415, 429} {
			for _, session := range []string{"", "s"} {
				t.Run(fmt.Sprintf("%s/%d/session %q", name, status, session), func(t *testing.T) {
					srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						w.Header().Set("Content-Length", fmt.Sprint(len(c.body)+c.more))
						w.WriteHeader(status)
						_, _ = io.WriteString(w, c.body) // the client may be gone
					}))
					defer srv.Close()
					heard := make(chan *Frame, 1)
					up := Dial(t.Context(), Endpoint{URL: srv.URL, Most: 1 << 20, Log: slog.New(slog.DiscardHandler)}, func(f *Frame) { heard <- f })
					defer up.Close()
					up.(*remote).session = session
					f := NewFrame([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`))
					if err := up.Write(&Message{Env: &f.Envelope, Parts: []io.WriterTo{Text(f.Head)}}); err != nil {
						t.Fatal(err)
					}
					select {
					case f := <-heard:
						defer f.Close()
						got := answered
						switch {
						case f.Unsent != "":
							got = refused
						case f.Bad != "":
							got = lost
						}
						if got != c.want {
							t.Errorf("%s, want %s: %.200s %.200s", got, c.want, f.Bad, f.Unsent)
						}
					case <-time.After(20 * time.Second):
						t.Fatal("nothing is heard")
					}
					ends := session != "" && (status == http.StatusNotFound || status == http.StatusBadRequest && name == "no such session")
					select {
					case <-up.Done():
						if !ends {
							t.Errorf("the conversation is over: %v", up.Why())
						}
					case <-time.After(map[bool]time.Duration{true: 20 * time.Second, false: 0}[ends]):
						if ends {
							t.Error("the session goes on")
						}
					}
				})
			}
		}
	}
}

// TestOneExchangeHasOneEnd: the answer in a stream is too long, or is in an array. The end of the stream does not end the request a second
// time, when another request may have its id.
func TestOneExchangeHasOneEnd(t *testing.T) {
	testOneEnd(t, `{"jsonrpc":"2.0","id":1,"result":{"a":"`+strings.Repeat("x", 4096)+`"}}`, true)
	testOneEnd(t, `[{"jsonrpc":"2.0","id":1,"result":{}}]`, false)
}

func testOneEnd(t *testing.T, event string, bad bool) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: "+event+"\n\n")
	}))
	defer srv.Close()
	got := make(chan *Frame, 2)
	up := Dial(t.Context(), Endpoint{URL: srv.URL, Most: 1024, Spill: t.TempDir(), Log: slog.New(slog.DiscardHandler)}, func(f *Frame) { got <- f })
	f := NewFrame([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`))
	if err := up.Write(&Message{Env: &f.Envelope, Parts: []io.WriterTo{f}}); err != nil {
		t.Fatal(err)
	}
	if f := <-got; f.Bad == "" == bad || string(f.RawID) != "1" {
		t.Errorf("%+v", f)
	}
	up.(*remote).open.Wait()
	if n := len(got); n != 0 {
		t.Errorf("%d more frames, the first: %+v", n, <-got)
	}
	up.Close()
}

//go:build unix

package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestAnswerInARefusalDecides: a status that refuses counts only if its body is certainly no answer to the call. An
// answer, however long, says that the server has accepted the call. A body that may be an answer and cannot be read is
// doubt.
func TestAnswerInARefusalDecides(t *testing.T) {
	fault := func(id string, n int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":7,"message":"half done %s"}}`, id, strings.Repeat("x", n))
	}
	const (
		answered = iota
		doubt
		refused
		sessionOver
	)
	for name, c := range map[string]struct {
		write func(w http.ResponseWriter, id string)
		want  int
	}{
		"short answer": {func(w http.ResponseWriter, id string) { io.WriteString(w, fault(id, 0)) }, answered},
		"result": {func(w http.ResponseWriter, id string) {
			io.WriteString(w, `{"jsonrpc":"2.0","id":`+id+`,"result":{"content":[],"isError":true}}`)
		}, answered},
		"answer of 2 KiB":  {func(w http.ResponseWriter, id string) { io.WriteString(w, fault(id, 2<<10)) }, answered},
		"answer of 60 KiB": {func(w http.ResponseWriter, id string) { io.WriteString(w, fault(id, 60<<10)) }, answered},
		"over the limit":   {func(w http.ResponseWriter, id string) { io.WriteString(w, fault(id, mcpraw.MaxRefusal)) }, doubt},
		"answer cut off": {func(w http.ResponseWriter, id string) {
			w.(http.Flusher).Flush()
			io.WriteString(w, fault(id, 0)[:20])
			hangUp(w)
		}, doubt},
		"answer that two parsers read differently": {func(w http.ResponseWriter, id string) {
			io.WriteString(w, `{"jsonrpc":"2.0","id":`+id+`,"result":{"content":[]},"error":{"code":7,"message":"no"},"Result":{}}`)
		}, doubt},
		"another's id":      {func(w http.ResponseWriter, _ string) { io.WriteString(w, fault("999", 0)) }, refused},
		"no id":             {func(w http.ResponseWriter, _ string) { io.WriteString(w, fault("null", 0)) }, refused},
		"nothing":           {func(http.ResponseWriter, string) {}, refused},
		"a page for people": {func(w http.ResponseWriter, _ string) { io.WriteString(w, "<p>"+strings.Repeat("x", mcpraw.MaxRefusal)) }, refused},
	} {
		for _, status := range []int{400, 401, 403, 404, 405, 406, 413, 415, 429} {
			t.Run(fmt.Sprintf("%s/%d", name, status), func(t *testing.T) {
				_, s := newEndpoint(t, func(w http.ResponseWriter, id json.RawMessage) {
					w.WriteHeader(status)
					c.write(w, string(id))
				})
				r, err := s.Dispatch(t.Context(), testCall("x", "{}"))
				got := answered
				switch {
				case errors.Is(err, runtime.ErrNotSent):
					got = sessionOver
				case err != nil:
					got = doubt
				case r.Status == tga.StatusDenied:
					got = refused
				}
				want := c.want
				if want == refused && status == http.StatusNotFound {
					want = sessionOver // the call may be sent in the next one
				}
				if got != want {
					t.Errorf("%d, want %d: %.300v, %.300v", got, want, r, err)
				}
			})
		}
	}
}

package gateway

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/names"
)

// TestCancelledRequestEndsItsPost: the POST of a cancelled request ends without an answer, and the id can
// be used again. The tool server's answer is recorded, and the repeat of the call gets it.
func TestCancelledRequestEndsItsPost(t *testing.T) {
	for name, door := range map[string]func(*world) (url, tool, journal string){
		"shim": func(w *world) (string, string, string) { return w.listening(), "charge", w.Journal },
		"gateway": func(w *world) (string, string, string) {
			return w.Door(w.gateTo(names.Lists{}, w.behind("a", names.Names{})).lobby), "a__charge", w.JournalOf("a")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			url, tool, journal := door(w)
			session := fronttest.Session2025(t, url)
			call := func(id int) string {
				return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"wait":%q}}}`, id, tool, w.Dir+"/go on")
			}
			got := make(chan string)
			go func() {
				status, answer, err := fronttest.TryPost(url, call(1), session...)
				got <- fmt.Sprint(status, " ", answer, err)
			}()
			fronttest.Eventually(t, "the call", func() bool { return len(fronttest.JournalOf(t, journal)) == 1 })
			for _, id := range []int{2, 1} { // of 2 nothing is under way
				if status, said := fronttest.Post(t, url, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id), session...); status != http.StatusAccepted {
					t.Errorf("%d %s", status, said)
				}
			}
			if end := <-got; end != "200 <nil>" {
				t.Errorf("the POST of what was cancelled ended with %s", end)
			}
			if err := os.WriteFile(w.Dir+"/go on", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			fronttest.Eventually(t, "the record", func() bool {
				_, again := fronttest.Post(t, url, call(1), session...)
				return strings.Contains(again, `"text":"ok"`)
			})
			if n := len(fronttest.JournalOf(t, journal)); n != 1 {
				t.Errorf("%d effects", n)
			}
		})
	}
}

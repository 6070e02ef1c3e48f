package gateway

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/names"
	"github.com/tgad/tgad/internal/mcpfront/say"
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

// TestClientsOfAGatewayDoNotCancelEachOther: clients without a session do not know each other's ids. What one of them cancels
// ends no stream or request of another one.
func TestClientsOfAGatewayDoNotCancelEachOther(t *testing.T) {
	w := newWorld(t)
	url := w.Door(w.gateTo(names.Lists{}, w.behind("a", names.Names{})).lobby)
	body, h := fronttest.Modern(`"s"`, say.Listen, `"notifications":{"toolsListChanged":true}`)
	ctx, end := context.WithTimeout(t.Context(), 20*time.Second)
	defer end()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(h); i += 2 {
		req.Header.Set(h[i], h[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	hears := func(words string) {
		t.Helper()
		for line := ""; !strings.Contains(line, words); {
			if line, err = in.ReadString('\n'); err != nil {
				t.Fatalf("no %s: %v", words, err)
			}
		}
	}
	hears(say.Ack)
	for id := range 5 {
		if status, said := fronttest.Post(t, url, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id)); status != http.StatusAccepted {
			t.Errorf("%d %s", status, said)
		}
	}
	body, h = fronttest.Modern("1", "tools/call", `"name":"a__grow"`, "Mcp-Name", "a__grow")
	fronttest.Post(t, url, body, h...)
	hears(say.ToolsChanged)
}

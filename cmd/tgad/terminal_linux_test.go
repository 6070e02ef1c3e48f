package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/cli"
)

// TestAnswersAreHarmlessOnATerminal: what a tool answers goes to a pipe byte for byte, and sends a terminal no commands.
func TestAnswersAreHarmlessOnATerminal(t *testing.T) {
	const answer = "\x1b]0;pwned\x07\x1b[2J\u009b31m\u202e\tone\ntwo"
	tool := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write([]byte(answer))
	}))
	defer tool.Close()
	h := newHeld(t)
	h.config += "\n[[server]]\nid = \"web\"\ntype = \"http\"\nurl = \"" + tool.URL + "\"\n"
	socket := filepath.Join(filepath.Dir(h.data), "s")
	defer h.serves(socket)()
	t.Setenv("TGAD_SOCKET", socket)
	code, out, errs := says("call", "web", "get", "{}", "--key", "k")
	if code != cli.ExitOK || out != answer+"\n" {
		t.Fatalf("exit code %d, %q %s", code, out, errs)
	}
	_, list, _ := says("ls", "--all", "--server", "web")
	id := strings.Fields(list)[5] // under TRACE SINCE STATE TOOL KEY
	for _, args := range [][]string{{"call", "web", "get", "{}", "--key", "k"}, {"recover", id}, {"show", id}, {"ls", "--all"}, {"tail"}} {
		s := newScreen(t, 80, 24)
		var errs strings.Builder
		if code := run(args, strings.NewReader(""), s.slave, &errs); code != cli.ExitOK {
			t.Errorf("%q: exit code %d, %s", args, code, &errs)
		}
		if _, err := s.slave.WriteString("the end"); err != nil {
			t.Fatal(err)
		}
		drawn := ""
		if err := waitFor(func() error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if drawn = s.text.String(); !strings.HasSuffix(drawn, "the end") {
				return os.ErrNotExist
			}
			return nil
		}); err != nil {
			t.Fatalf("%q: %q", args, drawn)
		}
		if strings.ContainsAny(drawn, "\x1b\x07\u009b\u202e") {
			t.Errorf("%q sends a terminal %q", args, drawn)
		}
		if args[0] == "call" && !strings.Contains(drawn, "one\r\ntwo\r\n") {
			t.Errorf("%q: %q", args, drawn)
		}
	}
}

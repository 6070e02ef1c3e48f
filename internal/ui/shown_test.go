package ui_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/ui"
)

// TestCutArgumentsAreSaidToBeCut: whoever is to approve long arguments sees how much is not on the page, and finds it
// behind a link beside the button.
func TestCutArgumentsAreSaidToBeCut(t *testing.T) {
	s := newStage(t, ui.Options{}).login()
	args := func(n int) string { return fmt.Sprintf(`{"a":%q,"to":"mallory"}`, strings.Repeat("x", n)) }
	short := s.call("ask", "short", args(10))
	_, page := s.get("/")
	if strings.Contains(page, "Cut here") || !strings.Contains(page, "mallory") || strings.Contains(page, "/traces/"+short.String()+"/raw") {
		t.Errorf("short arguments: %s", page)
	}
	long := s.call("ask", "long", args(16<<10))
	for _, path := range []string{"/", "/traces/" + long.String()} {
		_, page := s.get(path)
		_, card, _ := strings.Cut(page, `<article data-kind="approval"><h3><strong>shop ask</strong></h3><a class="id" href="/traces/`+long.String())
		card, _, _ = strings.Cut(card, "</article>")
		if strings.Contains(card, "mallory") {
			t.Fatal("the arguments are not cut")
		}
		s.has(card, fmt.Sprintf("%d bytes more are not on this page", len(args(16<<10))-16<<10), `href="/traces/`+long.String()+`/raw"`, "Approve")
	}
	if _, raw := s.get("/traces/" + long.String() + "/raw"); !strings.Contains(raw, "mallory") {
		t.Error("the rest is not behind the link")
	}
}

// TestCutTextIsBehindALink: in a report, which leads nowhere else, arguments and answers that are cut are there to be
// downloaded; on the page of the call, arguments are among the entries as they are stored.
func TestCutTextIsBehindALink(t *testing.T) {
	s := newStage(t, ui.Options{}).login()
	long := func(name string) string { return fmt.Sprintf(`{"a":%q,"to":%q}`, strings.Repeat("x", 16<<10), name) }
	s.answer = long("answer")
	id := s.call("pay", "long", long("args"))
	page := s.report(id)
	for _, text := range []string{long("args"), s.answer} {
		if !strings.Contains(page, "data:application/octet-stream;base64,"+base64.StdEncoding.EncodeToString([]byte(text))) {
			t.Errorf("%.0s…%s is not in the report", text, text[len(text)-20:])
		}
	}
	_, page = s.get("/traces/" + id.String())
	if n := strings.Count(page, `href="/traces/`+id.String()+`/raw"`); n != 2 {
		t.Errorf("the page of the call has %d links to its entries, want one beside its arguments too", n)
	}
	s.answer = `{}`
	short := s.call("pay", "short", `{"a":1}`)
	if page = s.report(short); strings.Contains(page, base64.StdEncoding.EncodeToString([]byte(`{"a":1}`))) {
		t.Error("short arguments are there twice")
	}
}

package ui_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/logfile"
	"github.com/tgad/tgad/internal/ui"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// TestAFileIsShownAndNothingIsDone: an export of a daemon shows the same pages as the daemon, word for word,
// except for what only a daemon knows. It has no buttons.
func TestAFileIsShownAndNothingIsDone(t *testing.T) {
	s := newStage(t, ui.Options{}).login()
	s.answer = `{"paid":5,"note":"<script>alert(1)</script>"}`
	paid := s.call("pay", "order-17", `{"amount":5}`)
	s.answer = ""
	doubt := s.call("pay", "order-18", `{"amount":6}`)
	_, live := s.get("/traces/" + paid.String())
	_, raw := s.get("/traces/" + paid.String() + "/raw")
	path := filepath.Join(t.TempDir(), "all.ndjson")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for line, err := range s.client.Export(t.Context(), wire.ExportRequest{}) {
		if err == nil {
			_, err = out.Write(line)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := logfile.Open(t.Context(), path, func(*logfile.Reader) func() { return func() {} })
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	about := &ui.About{Words: "all.ndjson (export).", Fault: f.Fault, Proved: f.Proved}
	s.serve(ui.New(f, ui.Options{About: about}))
	s.login()
	_, page := s.get("/traces/" + paid.String())
	s.has(page, "all.ndjson (export).", "It can be looked at, and nothing can be done.")
	steps := func(page string) string {
		_, rest, _ := strings.Cut(page, `<ol class="steps">`)
		steps, _, _ := strings.Cut(rest, "</ol>")
		return steps
	}
	if steps(page) != steps(live) || !strings.Contains(steps(page), "&lt;script&gt;") {
		t.Errorf("the file says\n%s\nthe daemon\n%s", steps(page), steps(live))
	}
	if _, again := s.get("/traces/" + paid.String() + "/raw"); again != raw {
		t.Error("the browser is given something else to verify")
	}
	if status, doc := s.get("/traces/" + paid.String() + "/document?pointer=/result"); status != http.StatusOK || !strings.Contains(doc, "<script>") {
		t.Errorf("the document: %d %s", status, doc)
	}
	_, inbox := s.get("/")
	s.has(inbox, "Calls in doubt (1)", doubt.String())
	_, list := s.get("/traces?all=1")
	s.has(list, paid.String(), doubt.String())
	for _, page := range []string{page, inbox, list} {
		if strings.Contains(page, `method="post"`) || strings.Contains(page, "sse-connect") || strings.Contains(page, `href="/turns"`) || strings.Contains(page, `href="/store"`) {
			t.Errorf("it offers what a file has not:\n%s", page)
		}
	}
	for _, gone := range []string{"/live", "/turns", "/states", "/store"} {
		if status, _ := s.get(gone); status != http.StatusNotFound {
			t.Errorf("%s: %d", gone, status)
		}
	}
	if status, _, _ := s.do(s.request("POST", "/traces/"+doubt.String()+"/ran", "why=I+have+looked+at+it")); status != http.StatusMethodNotAllowed && status != http.StatusNotFound {
		t.Errorf("an action: %d", status)
	}
	// Each page says what is wrong with the file, with the code, as text.
	about.Fault = errors.Join(tga.Errorf(tga.StateChecksumMismatch, "line 3: <script>"))
	for _, at := range []string{"/", "/traces?all=1", "/traces/" + paid.String()} {
		_, page := s.get(at)
		s.has(page, "This file is damaged", "STATE_CHECKSUM_MISMATCH", "&lt;script&gt;")
	}
}

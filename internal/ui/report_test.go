package ui_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/browser"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/internal/ui"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// report makes the report file of a trace.
func (s *stage) report(id tga.ID) string {
	s.Helper()
	said, err := s.client.Trace(s.Context(), id)
	if err != nil {
		s.Fatal(err)
	}
	page, err := ui.Report(said, func(pointer string) ([]byte, error) {
		data, _, err := s.client.Document(context.Background(), id, pointer)
		return data, err
	}, "of the test")
	if err != nil {
		s.Fatal(err)
	}
	return string(page)
}

// TestReportNeedsNothingBesideItself: the report names no other place, and its policy allows only the style
// and code inside it. A tool's answer in it is text, and it says the same as the page of the view.
func TestReportNeedsNothingBesideItself(t *testing.T) {
	s := newStage(t, ui.Options{}).login()
	s.answer = `{"x":"</script><script>alert(1)</script><img src=x onerror=alert(1)>` + "\u202e" + `"}`
	id := s.call("pay", `"><script>alert(2)</script>`, `{"<b>":"</pre><script>alert(3)</script>"}`)
	page := s.report(id)
	if again := s.report(id); again != page {
		t.Error("of one trace there are two reports")
	}
	for _, bad := range []string{"<img", "<b>", "\u202e", ` src="`, "@import", "url(http", "http://", "https://", "<link", "<form", "<iframe"} {
		if strings.Contains(page, bad) {
			t.Errorf("it has %q", bad)
		}
	}
	for _, link := range regexp.MustCompile(`(?:href|content|action)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if at := link[1]; strings.Contains(at, "//") || strings.HasPrefix(at, "/") {
			t.Errorf("it leads to %q", at)
		}
	}
	scripts := regexp.MustCompile(`(?s)<(script|style)([^>]*)>(.*?)</(?:script|style)>`).FindAllStringSubmatch(page, -1)
	if len(scripts) != 3 {
		t.Fatalf("it has %d styles and scripts, want one style, the trace and one script", len(scripts))
	}
	for _, of := range scripts {
		sum := sha256.Sum256([]byte(of[3]))
		allowed := strings.Contains(page, of[1]+"-src &#39;sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"&#39;")
		if data := strings.Contains(of[2], "application/json"); allowed == data {
			t.Errorf("%s%s: allowed %v", of[1], of[2], allowed)
		}
	}
	_, raw := s.get("/traces/" + id.String() + "/raw")
	if got := scripts[1][3]; got != raw {
		t.Errorf("what it verifies is not what is stored:\n%s\n%s", got, raw)
	}
	_, live := s.get("/traces/" + id.String())
	said := func(page string) string {
		_, rest, _ := strings.Cut(page, `<ol class="steps">`)
		steps, _, _ := strings.Cut(rest, "</ol>")
		return regexp.MustCompile(`<a href="[^"]*"( download="document")?>`).ReplaceAllString(steps, "<a>")
	}
	if said(page) != said(live) || !strings.Contains(said(page), "&lt;/script&gt;") {
		t.Errorf("it says\n%s\nthe view\n%s", said(page), said(live))
	}
	document := regexp.MustCompile(`href="data:application/octet-stream;base64,([^"]*)" download="document"`).FindStringSubmatch(page)
	if document == nil {
		t.Fatal("the answer cannot be had")
	}
	if got, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(document[1], "&#43;", "+")); err != nil || string(got) != s.answer {
		t.Errorf("the answer is %q, %v", got, err)
	}
	if _, err := ui.Report(wire.Timeline{TraceID: id}, nil, ""); tga.CodeOf(err) != tga.NotFound {
		t.Errorf("of a trace without an entry: %v", err)
	}
	for _, size := range []int{1<<20 - 8, 1<<20 - 7} { // {"x":""} has eight bytes
		s.answer = `{"x":"` + strings.Repeat("y", size) + `"}`
		page := s.report(s.call("pay", "long"+strings.Repeat("x", size&1), `{}`))
		if has := strings.Contains(page, "octet-stream;base64,"); has != (len(s.answer) <= 1<<20) || has == strings.Contains(page, "not in this file; its SHA-256 is "+tga.Sum([]byte(s.answer)).String()) {
			t.Errorf("an answer of %d bytes: in the file %v", len(s.answer), has)
		}
	}
}

// TestReportVerifiesInABrowser: when it is opened as a file, it shows its picture, verifies, and finds a
// change.
func TestReportVerifiesInABrowser(t *testing.T) {
	serial.Long(t)
	s := seen{newStage(t, ui.Options{}), browser.New(t)}
	s.answer = `{"paid":5,"note":"<script>document.title='hit'</script>"}`
	page := s.report(s.call("pay", "order-17", `{"amount":5}`))
	dir := t.TempDir()
	open := func(name, page string) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
		s.Open("file://" + path)
		s.Value(`document.getElementById("verify").click()`)
	}
	open("report.html", page)
	s.shows("Checked here: 4 entries in an unbroken chain, 4 artifacts, 0 notes.", "EXECUTING · attempt 1 may be sent from here on")
	if s.Value(`document.querySelectorAll("svg.course rect").length`).(float64) < 5 || s.Value(`document.title`) == "hit" {
		t.Error("it has no picture, or runs what a tool answered")
	}
	s.Screen(1000, 860, false)
	s.keep("report.png")
	open("forged.html", strings.Replace(page, `\"amount\":5`, `\"amount\":6`, 1))
	s.Until(10*time.Second, "the forged one does not verify", `document.getElementById("verdict").textContent.startsWith("It does not verify")`)
	if !bytes.Contains([]byte(page), []byte(`\"amount\":5`)) {
		t.Error("nothing was forged")
	}
}

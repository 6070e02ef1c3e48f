package ui_test

import (
	"fmt"
	"html"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/browser"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/internal/ui"
	"github.com/tgad/tgad/schemas/tga"
)

// TestPagesAreMadeAnew: each page says which part of it is loaded again, and from which address. A page that
// would read the whole store twice a second does not reload, nor does a page of a read-only view.
func TestPagesAreMadeAnew(t *testing.T) {
	s := newStage(t, ui.Options{}).login()
	id := s.call("pay", "order-1", `{}`)
	pages := map[string]string{
		"/": "inbox", "/traces": "shown", "/traces?all=1&server=shop&order=id": "shown", "/traces?tool=" + url.QueryEscape(`"><b>`): "shown",
		"/traces/" + id.String(): "shown", "/turns": "shown", "/store": "shown",
		"/traces?find=order": "", "/traces?text=order&all=1": "", "/turns?all=1": "", "/states": "", "/doubts": "",
	}
	for path, part := range pages {
		_, page := s.get(path)
		want := fmt.Sprintf(`<div id="%s" hx-get="%s" hx-trigger="sse:change" hx-select="#%s" hx-swap="outerHTML">`, part, html.EscapeString(path), part)
		if n := strings.Count(page, "hx-get"); part == "" && n != 0 || part != "" && (n != 1 || !strings.Contains(page, want)) {
			t.Errorf("%s: %d parts, want %s\n%s", path, n, want, page)
		}
	}
	s.serve(ui.New(s.client, ui.Options{ReadOnly: true}))
	s.login()
	for path := range pages {
		if _, page := s.get(path); strings.Contains(page, "hx-get") {
			t.Errorf("%s of a view that only shows is made anew", path)
		}
	}
}

// TestPagesFollowTheLog: lists and calls show new entries without being loaded again, and do not change a
// part that somebody is editing.
func TestPagesFollowTheLog(t *testing.T) {
	serial.Long(t)
	s := seen{newStage(t, ui.Options{}), browser.New(t)}
	s.answer = `{"paid":true}`
	s.Open(s.at + s.view.Login())

	s.Open(s.at + "/traces?all=1&order=id")
	s.Value(`window.mark = "not loaded again"; document.querySelector("input[name=find]").value = "half a wor"`)
	id := s.call("pay", "order-21", `{}`)
	s.shows(id.String())
	if got := s.Value(`window.mark + document.querySelector("input[name=find]").value`); got != "not loaded againhalf a wor" {
		t.Errorf("the page was loaded again: %v", got)
	}
	s.Value(`getSelection().selectAllChildren(document.querySelector("tbody a.id"))`)
	later := s.call("pay", "order-22", `{}`)
	time.Sleep(2 * time.Second)
	if got := s.Value(fmt.Sprintf(`document.body.innerText.includes(%q)`, later)); got != false {
		t.Error("what somebody copies was taken away")
	}
	s.Value(`getSelection().removeAllRanges()`)
	last := s.call("pay", "order-23", `{}`)
	s.shows(later.String(), last.String())

	s.answer = ""
	doubt := s.call("pay", "order-24", `{}`)
	s.Open(s.at + "/traces/" + doubt.String())
	s.shows("What happened")
	if res, err := s.client.Abandon(t.Context(), doubt, "on the command line"); res.State != tga.Failed {
		t.Fatal(res.State, err)
	}
	s.shows("on the command line")
	s.Value(`document.getElementById("verify").click()`)
	s.shows("Checked here")

	s.Open(s.at + "/store")
	before := s.Value(`document.getElementById("shown").innerText`)
	s.call("pay", "order-25", `{}`)
	s.Until(20*time.Second, "the figures change", fmt.Sprintf(`document.getElementById("shown").innerText !== %q`, before))
	if len(s.Complaints) != 0 {
		t.Errorf("the browser complains: %.500s", s.Complaints)
	}
}

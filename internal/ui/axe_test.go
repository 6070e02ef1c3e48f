package ui_test

import (
	"testing"

	"github.com/tgad/tgad/internal/browser"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/internal/ui"
)

// accessible opens a page in light and in dark mode and checks it. If it has a name, a picture of it is
// kept.
func (s seen) accessible(program, path, picture string) {
	s.stage.Helper()
	s.Accessible(program, s.at+path)
	if picture != "" {
		s.keep(picture)
	}
}

// TestPagesAreAccessible: axe-core finds nothing serious on any page, with waiting calls, with a long list
// and with errors, in light and in dark mode.
func TestPagesAreAccessible(t *testing.T) {
	serial.Long(t)
	program := browser.Axe(t)
	b := seen{newStage(t, ui.Options{Version: "of the test"}), browser.New(t)}
	b.intent = "refund of order 17, which arrived broken"
	b.call("ask", "order-17", `{"amount":4200}`)
	doubt := b.call("pay", "order-18", `{"amount":1900}`)
	b.call("pay", "order-19", `{"amount":1900}`)
	b.answer = `{"paid":5}`
	paid := b.call("pay", "order-20", `{"amount":5}`)
	b.Open(b.at + b.view.Login())
	for path, picture := range map[string]string{
		"/": "", "/traces?all=1": "", "/traces/" + doubt.String(): "", "/traces/" + paid.String(): "", "/doubts?tool=shop/pay&why=the+statement+has+{key}": "many.png",
		"/turns?all=1": "", "/states": "", "/store": "store.png", "/traces/x": "",
	} {
		b.accessible(program, path, picture)
	}
	rest, ended, state := agents(t)
	a := seen{rest, b.Browser}
	rest.serve(ui.New(rest.client, ui.Options{ReadOnly: true})) // with a login link that was not used
	a.Open(rest.at + rest.view.Login())
	for path, picture := range map[string]string{"/turns?all=1": "", "/turns/" + ended.InvocationID.String(): "turn.png", "/turns/" + ended.InteractionID.String(): "", "/states": "", "/states/" + state.String() + "/0": ""} {
		a.accessible(program, path, picture)
	}
	a.Open(rest.at + "/states/" + state.String() + "/0")
	at, _ := a.Value(`document.querySelector("td a.id").getAttribute("href")`).(string)
	a.Open(rest.at + at)
	a.shows("Before and after")
	a.accessible(program, at, "")
}

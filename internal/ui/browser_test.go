package ui_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/browser"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/internal/ui"
	"github.com/tgad/tgad/schemas/tga"
)

// pictures is the directory that gets the pictures of docs/UI.md: TGAD_PICTURES=../../docs/ui.
const pictures = "TGAD_PICTURES"

// seen is a stage that a browser looks at.
type seen struct {
	*stage
	*browser.Browser
}

// keep keeps the current view as a picture of docs/UI.md.
func (s seen) keep(name string) {
	png := s.Picture()
	if dir := os.Getenv(pictures); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name), png, 0o644); err != nil {
			s.stage.Error(err)
		}
	}
}

// shows waits until the page has all of these texts.
func (s seen) shows(texts ...string) {
	s.stage.Helper()
	for _, text := range texts {
		s.Until(20*time.Second, "the page shows "+text, fmt.Sprintf("document.body?.innerText.includes(%q) === true", text))
	}
}

// choose presses the button with that name for a trace.
func (s seen) choose(id tga.ID, verb string) {
	s.Value(fmt.Sprintf(`document.querySelector('button[formaction="/traces/%s/%s"]').click()`, id, verb))
}

// TestPeopleSettleInABrowser: a person logs in by the link, sees new calls without loading the page again,
// answers by keyboard and by button, verifies a call, and is told if somebody else was faster. The browser
// reports no error, also if a tool answers with markup.
func TestPeopleSettleInABrowser(t *testing.T) {
	serial.Long(t)
	s := seen{newStage(t, ui.Options{Version: "of the test"}), browser.New(t)}
	s.Screen(1000, 860, false)
	s.Open(s.at + s.view.Login())
	s.shows("Nothing waits for you.")

	// New calls are shown by themselves.
	s.intent = "refund of order 17, which arrived broken"
	asked := s.call("ask", "order-17", `{"account":"acme","amount":4200,"currency":"EUR"}`)
	s.shows("Waiting for a decision (1)", asked.String(), "refund of order 17", `"amount": 4200`)
	s.intent = "the charge of order 18"
	doubt := s.call("pay", "order-18", `{"account":"acme","amount":1900,"currency":"EUR"}`)
	s.shows("Calls in doubt (1)", doubt.String())
	s.keep("inbox.png")
	s.Screen(420, 900, true)
	s.keep("narrow-dark.png")
	if wide := s.Value(`document.documentElement.scrollWidth > document.documentElement.clientWidth`); wide == true {
		t.Error("a narrow screen scrolls sideways")
	}
	s.Screen(1000, 860, false)

	// By keyboard: to the first call, into its field, a reason, on to the button. The selection stays.
	s.Type("j")
	third := s.call("pay", "order-20", `{}`)
	s.shows("Calls in doubt (2)", third.String())
	s.Until(5*time.Second, "after something came, the same is chosen", fmt.Sprintf(`document.querySelector("article.chosen a.id")?.textContent === %q`, asked.String()))
	s.answer = `{"refunded":4200,"note":"<img src=x onerror=document.title='hit'><script>document.title='hit'</script>"}`
	s.Type("Enter", "the photograph shows the damage")
	for range 9 {
		if s.Value(`document.activeElement.textContent`) == "Approve" {
			break
		}
		s.Type("Tab")
	}
	s.Type("Enter")
	s.shows("Approve: recorded. The call is COMPLETED.")
	if got := s.state(asked); got != tga.Completed {
		t.Errorf("the refund is %s", got)
	}

	// An update does not disturb what somebody is writing.
	s.answer = ""
	s.Open(s.at + "/")
	s.Value(fmt.Sprintf(`document.getElementById("why-%s").focus()`, doubt))
	s.Type("the account shows one charge")
	later := s.call("pay", "order-19", `{}`)
	time.Sleep(2 * time.Second)
	if got := s.Value(fmt.Sprintf(`document.getElementById("why-%s").value`, doubt)); got != "the account shows one charge" {
		t.Errorf("what was written is now %q", got)
	}
	// Somebody else is faster.
	if res, err := s.client.Abandon(t.Context(), doubt, "on the command line"); res.State != tga.Failed {
		t.Fatal(res.State, err)
	}
	s.choose(doubt, "ran")
	s.shows("It was not done", "STATE_INVALID_TRANSITION")
	s.Open(s.at + "/")
	s.shows(later.String())
	s.Value(fmt.Sprintf(`document.getElementById("why-%s").value = "the account shows one charge"`, later))
	s.choose(later, "ran")
	s.shows("It ran: recorded. The call is COMPLETED.")

	s.Open(s.at + "/traces/" + asked.String())
	s.shows("COMPLETED", "refund of order 17", "the photograph shows the damage", "<script>")
	s.Value(`document.getElementById("verify").click()`)
	s.shows("Checked here: 4 entries in an unbroken chain")
	s.keep("call.png")
	s.Open(s.at + "/traces?all=1")
	s.shows("order-17", "order-18", "order-19")
	s.keep("calls.png")
	if title := s.Value(`document.title`).(string); strings.Contains(title, "hit") {
		t.Error("the answer of a tool became part of the page")
	}
	if n := s.Value(`document.querySelectorAll("script:not([src]), img").length`); n != 0.0 {
		t.Errorf("%v elements that the view did not make", n)
	}
	for _, c := range s.Complaints {
		if !strings.Contains(c, "409 (Conflict)") { // the slower one
			t.Errorf("the browser complains: %.500s", c)
		}
	}
}

// TestHiddenInboxRaisesNotifications: after a person has pressed the bell, a doubt and a decision that come
// while the page is hidden raise one notification each, also while the person has begun to write. A
// notification names the tool and nothing of the call's content. What comes while the page is visible raises
// none, and nothing is raised twice.
func TestHiddenInboxRaisesNotifications(t *testing.T) {
	serial.Long(t)
	s := seen{newStage(t, ui.Options{}), browser.New(t)}
	s.Grant(s.at, "notifications")
	s.Open(s.at + s.view.Login())
	s.shows("Nothing waits for you.", "While this page is hidden")
	// Nobody can see real notifications here, so they are written down.
	s.Value(`window.raised = []; window.Notification = class extends Notification { constructor(t, o) { super(t, o); raised.push(t + " | " + o.body) } }; 1`)
	first := s.call("pay", "order-1", `{"card":"s3cret"}`)
	s.shows(first.String())
	s.Hide()
	if n := s.Value(`raised.length`); n != 0.0 {
		t.Errorf("%v notifications of what somebody sees", n)
	}
	s.call("pay", "order-2", `{"card":"s3cret"}`)
	s.Until(20*time.Second, "a doubt raises one", `raised.join() === "tgad: A call is in doubt | shop pay"`)
	s.Value(fmt.Sprintf(`document.getElementById("why-%s").value = "I am at it"; raised = []; 1`, first))
	s.call("ask", "order-3", `{"card":"s3cret"}`)
	s.Until(20*time.Second, "a decision raises one", `raised.join() === "tgad: A call waits for a decision | shop ask"`)
	s.call("ask", "order-4", `{}`)
	s.Until(20*time.Second, "the next one raises one, and the ones before none", `raised.length === 2`)
	if shown := s.Value(fmt.Sprintf(`document.getElementById("why-%s").value`, first)); shown != "I am at it" {
		t.Errorf("what was written is now %q", shown)
	}
	if len(s.Complaints) != 0 {
		t.Errorf("the browser complains: %.500s", s.Complaints)
	}
}

// TestBellAsksOnce: if the person has not yet decided about notifications, the bell is shown, and asks when
// it is pressed.
func TestBellAsksOnce(t *testing.T) {
	serial.Long(t)
	s := seen{newStage(t, ui.Options{}), browser.New(t)}
	s.Open(s.at + s.view.Login())
	s.shows("Nothing waits for you.")
	if s.Value(`document.getElementById("bell").hidden`) != (s.Value(`Notification.permission`) == "denied") {
		t.Error("the bell is there where it can do nothing, or is not where it can")
	}
	// This browser cannot ask a person, so the test answers.
	s.Value(`window.asked = 0; window.say = "default"; window.Notification = class { static get permission() { return say } static async requestPermission() { asked++; say = "granted"; return say } }; ring(false); 1`)
	if s.Value(`asked`) != 0.0 || s.Value(`document.querySelector("#bell button").hidden`) != false {
		t.Error("it asks before anybody pressed the bell, or there is none")
	}
	s.Value(`document.querySelector("#bell button").click()`)
	s.shows("While this page is hidden")
	if s.Value(`asked`) != 1.0 || s.Value(`document.querySelector("#bell button").hidden`) != true {
		t.Error("it did not ask once, or the bell is still there")
	}
	s.Value(`say = "denied"; ring(true); 1`)
	s.shows("lets this page raise no notifications")
	s.Value(`ring(false); 1`)
	if s.Value(`document.getElementById("bell").hidden`) != true {
		t.Error("who said no is told so on each page")
	}
}

// TestLongListsDoNotHang: a list of a hundred calls, and a document of the greatest length that a page
// shows, appear before a person would look away.
func TestLongListsDoNotHang(t *testing.T) {
	serial.Long(t)
	s := seen{newStage(t, ui.Options{}), browser.New(t)}
	s.answer = `{"x":"` + strings.Repeat("y", 9<<20) + `"}`
	long := s.call("pay", "long", `{}`)
	s.answer = `{}`
	for i := range 150 {
		s.call("pay", fmt.Sprintf("key-%03d", i), `{}`)
	}
	s.Open(s.at + s.view.Login())
	for path, rows := range map[string]float64{"/traces?all=1": 101, "/traces/" + long.String(): 0} {
		s.Open(s.at + path)
		if got := s.Value(`document.querySelectorAll("tr").length`); got != rows {
			t.Errorf("%s: %v rows, want %v", path, got, rows)
		}
		took, _ := s.Value(`(() => { const n = performance.getEntriesByType("navigation")[0]; return n.loadEventEnd - n.responseStart })()`).(float64)
		t.Logf("%s: %.0f ms to show", path, took)
	}
	if len(s.Complaints) != 0 {
		t.Errorf("the browser complains: %.500s", s.Complaints)
	}
}

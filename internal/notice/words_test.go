package notice

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestNoticeHasNoContent: a notice has exactly these members. The content of a call and the reason for it
// are not among them.
func TestNoticeHasNoContent(t *testing.T) {
	w := newWorld(t)
	m := doubt(1)
	m.Cause, m.Licence, m.Attempts, m.Expires, m.State, m.About = "reset", "park", 2, 5, "EXECUTING", "q"
	w.r.conf.UI, w.r.conf.Resolved = "http://127.0.0.1:1/", true
	w.all = []Matter{m}
	w.step(0)
	w.wants("one", w.step(time.Minute), 1, 0, 0)
	raw, err := json.Marshal(w.notices[0])
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	matter := all["matters"].([]any)[0].(map[string]any)
	names := func(m map[string]any) string {
		var names []string
		for name := range m {
			names = append(names, name)
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	if got := names(all); got != "host id lists matters more new receiver subject text timestamp type waiting" {
		t.Errorf("a notice has %s", got)
	}
	if got := names(matter); got != "attempts cause commands event expires idempotency_key kind licence link namespace since state tool_name tool_server trace_id" {
		t.Errorf("a matter has %s", got)
	}
	if link := matter["link"]; link != "http://127.0.0.1:1/traces/"+m.TraceID.String() {
		t.Errorf("the link is %v", link)
	}
}

// TestHostileNamesMakeNoLines: no text of a caller or a tool server begins a line, moves a cursor, or is in
// the subject.
func TestHostileNamesMakeNoLines(t *testing.T) {
	w := newWorld(t)
	m := doubt(1)
	const evil = "x\nSubject: y\r\n\x1b[2J\u202etxt"
	m.Namespace, m.Server, m.Tool, m.Key, m.Cause = evil, evil, evil, evil+strings.Repeat("k", 5000), evil+strings.Repeat("c", 5000)
	w.all = []Matter{m}
	w.step(0)
	w.wants("one", w.step(time.Minute), 1, 0, 0)
	n := w.notices[0]
	if strings.ContainsAny(n.Subject, "\n\r\x1b") || strings.Contains(n.Subject, "y") && strings.Contains(n.Subject, "Subject") {
		t.Errorf("the subject is %q", n.Subject)
	}
	if strings.ContainsAny(n.Text, "\r\x1b\u202e") || strings.Count(n.Text, "\n") != 7 || len(n.Text) > 3000 {
		t.Errorf("%d lines, %d bytes: %q", strings.Count(n.Text, "\n"), len(n.Text), n.Text)
	}
}

// TestAgesAreWhatPeopleSay: ages at each limit.
func TestAgesAreWhatPeopleSay(t *testing.T) {
	for d, want := range map[time.Duration]string{-time.Hour: "0s", 59 * time.Second: "59s", time.Minute: "1m", 90 * time.Minute: "1h30m", 47 * time.Hour: "47h0m", 48 * time.Hour: "2 days"} {
		if got := age(d); got != want {
			t.Errorf("%s is %q, want %q", d, got, want)
		}
	}
}

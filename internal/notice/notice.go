// Package notice tells people of what waits for them: calls in doubt, decisions, traces that fail a check, a
// store that is frozen.
//
// It looks at what is, and not at what happens: a doubt after a crash has no record of its own in the log.
// What waits now is compared with what each receiver was told before, which is kept in its book. Of a store that
// several processes have, one at a time tells a receiver: it is on duty, and the book is what is kept of the duty. A receiver has a goroutine of its own, and keeps no queue: one that hangs delays neither a call
// nor another receiver.
//
// # Invariants
//
//	told     what waits long enough is told, and again after an error, a restart, kill -9  [receiver.step]  TestKilledDaemonTellsAgain
//	once     what a receiver took is not told again before its time, also after a restart  [book]           TestRestartRepeatsNothing
//	few      one notice in each pause, whatever waits                                      [receiver.step]  TestTenThousandDoubtsAreOneNotice
//	unknown  where it cannot be read what waits, nothing counts as settled                 [Service.look]   TestUnreadableStoreSettlesNothing
//	private  no argument, answer or intent is in a notice                                  [Matter]         TestNoticeHasNoContent
//	harmless no text of a call makes a line, or moves a cursor                             [compose]        TestHostileNamesMakeNoLines
package notice

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/schemas/tga"
)

// Matter is one thing that waits for people, or did.
type Matter struct {
	Kind      string     `json:"kind"`  // config.OnDoubt, …
	Event     string     `json:"event"` // new, again or resolved
	TraceID   tga.ID     `json:"trace_id,omitzero"`
	Namespace string     `json:"namespace,omitempty"`
	Server    string     `json:"tool_server,omitempty"`
	Tool      string     `json:"tool_name,omitempty"`
	Key       string     `json:"idempotency_key,omitempty"`
	Since     tga.Millis `json:"since,omitempty"`
	Expires   tga.Millis `json:"expires,omitempty"`  // of a decision
	Attempts  uint32     `json:"attempts,omitempty"` // of a doubt
	Licence   string     `json:"licence,omitempty"`
	Cause     string     `json:"cause,omitempty"`
	State     string     `json:"state,omitempty"`    // of the trace, of what no longer waits
	Commands  []string   `json:"commands,omitempty"` // that look at it, and settle it
	Link      string     `json:"link,omitempty"`

	About string `json:"-"` // tells it from an earlier matter of the same trace
	Known any    `json:"-"` // the [World]'s own
}

// id tells a matter from others, for as long as it waits.
func (m *Matter) id() string { return m.Kind + " " + hex.EncodeToString(m.TraceID[:]) + " " + m.About }

// World is where matters come from.
type World interface {
	// Waiting lists all that waits now. After an error nobody knows what does.
	Waiting(ctx context.Context) ([]Matter, error)
	// Complete adds what the list leaves out: the cause, the commands.
	Complete(ctx context.Context, m *Matter) error
	// Fate says what became of a matter that is no longer in the list, of which Kind and TraceID are known, and
	// completes it.
	Fate(ctx context.Context, m *Matter) (Fate, error)
	// Lists are the commands that list what waits.
	Lists() []string
}

// Fate is what became of a matter.
type Fate uint8

// Fates.
const (
	Open     Fate = iota // it goes on, and may wait again
	Settled              // it is over
	Replaced             // another question took its place
)

// Notice is what a receiver is given.
type Notice struct {
	Type     string     `json:"type"` // TypeNotice or TypeTest
	ID       string     `json:"id"`   // the same where the same is told again, because nobody knows whether it was taken
	Time     tga.Millis `json:"timestamp"`
	Receiver string     `json:"receiver"`
	Host     string     `json:"host,omitempty"`
	Subject  string     `json:"subject"` // one line for people
	Text     string     `json:"text"`    // all of it for people

	// How many matters of each kind it tells of, by why; and how many wait now in all.
	New      map[string]int `json:"new,omitempty"`
	Again    map[string]int `json:"again,omitempty"`
	Resolved map[string]int `json:"resolved,omitempty"`
	Waiting  map[string]int `json:"waiting,omitempty"`

	Matters []Matter `json:"matters"` // the first of them
	More    int      `json:"more"`    // how many it tells of beside those
	Lists   []string `json:"lists,omitempty"`
}

// Types of a [Notice].
const (
	TypeNotice = "tgad.notice"
	TypeTest   = "tgad.test"
)

// Why a matter is told.
const (
	isNew      = "new"
	isAgain    = "again"
	isResolved = "resolved"
)

// order is that of the kinds in a notice: what stops most comes first.
var order = []string{config.OnFrozen, config.OnQuarantined, config.OnDoubt, config.OnApproval}

// words count matters of a kind: one of them, and more.
var words = map[string][2]string{
	config.OnFrozen:      {"the store is frozen", ""},
	config.OnQuarantined: {"1 trace fails a check", "%d traces fail a check"},
	config.OnDoubt:       {"1 call is in doubt", "%d calls are in doubt"},
	config.OnApproval:    {"1 call waits for a decision", "%d calls wait for a decision"},
}

// count says how many there are of each kind.
func count(of map[string]int) string {
	var all []string
	for _, kind := range order {
		switch n, w := of[kind], words[kind]; {
		case n == 1 || n > 1 && w[1] == "":
			all = append(all, w[0])
		case n > 1:
			all = append(all, fmt.Sprintf(w[1], n))
		}
	}
	return strings.Join(all, ", ")
}

// told is a matter with why it is told now.
type told struct {
	Matter
	*entry
}

// compose makes a notice of what is to be told.
func (r *receiver) compose(ctx context.Context, due []told, waiting map[string]int) (*Notice, error) {
	slices.SortFunc(due, func(a, b told) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)), cmp.Compare(a.Since, b.Since), cmp.Compare(a.id(), b.id()))
	})
	n := &Notice{
		Type: TypeNotice, Time: tga.MillisOf(r.clock.Now()), Receiver: r.conf.ID, Host: r.host, Lists: r.world.Lists(), Waiting: waiting,
		New: map[string]int{}, Again: map[string]int{}, Resolved: map[string]int{}, Matters: []Matter{},
	}
	id := sha256.New()
	for i := range due {
		t := &due[i]
		map[string]map[string]int{isNew: n.New, isAgain: n.Again, isResolved: n.Resolved}[t.Event][t.Kind]++
		fmt.Fprintf(id, "%s %s %d %d\n", t.Event, t.id(), t.First, t.Times)
		if i >= r.conf.Named {
			n.More++
			continue
		}
		m := t.Matter
		if m.Event != isResolved {
			if err := r.world.Complete(ctx, &m); err != nil {
				return nil, err
			}
		}
		if r.conf.UI != "" {
			m.Link = strings.TrimSuffix(r.conf.UI, "/") + "/"
			if !m.TraceID.IsZero() {
				m.Link += "traces/" + m.TraceID.String()
			}
		}
		m.Cause = clip.Short(m.Cause, mostCause)
		n.Matters = append(n.Matters, m)
	}
	n.ID = r.conf.ID + "-" + hex.EncodeToString(id.Sum(nil)[:16])
	n.say(r.clock.Now())
	return n, nil
}

// mostCause is how much of a cause is told, in characters.
const mostCause = 300

// headline begins the subject of a notice of a machine.
func headline(host string) string {
	if host == "" {
		return "tgad: "
	}
	return "tgad on " + clip.Short(clip.Clean(host), 60) + ": "
}

// say puts a notice into words. What callers and tool servers wrote stays within its line.
func (n *Notice) say(now time.Time) {
	var subject, text []string
	for _, part := range []struct {
		of          map[string]int
		short, long string
	}{{n.New, "", "New: "}, {n.Again, "still ", "Still: "}, {n.Resolved, "no longer: ", "No longer: "}} {
		if said := count(part.of); said != "" {
			subject, text = append(subject, part.short+said), append(text, part.long+said+".")
		}
	}
	n.Subject = headline(n.Host) + strings.Join(subject, "; ")
	if said := count(n.Waiting); said == "" {
		text = append(text, "Nothing waits now.")
	} else if said != count(n.New) {
		text = append(text, "Now, all in all: "+said+".")
	}
	for i := range n.Matters {
		text = append(text, "")
		text = append(text, n.Matters[i].lines(now)...)
	}
	if n.More > 0 {
		text = append(text, "", fmt.Sprintf("And %d more. To list what waits:", n.More))
		for _, command := range n.Lists {
			text = append(text, "  "+command)
		}
	}
	n.Text = strings.Join(text, "\n") + "\n"
}

// lines tell a matter.
func (m *Matter) lines(now time.Time) []string {
	title := count(map[string]int{m.Kind: 1})
	if m.Event != isNew {
		title = map[string]string{isAgain: "still: ", isResolved: "no longer: "}[m.Event] + title
	}
	if m.Tool != "" || m.Server != "" {
		title += ": " + short(m.Server+"/"+m.Tool)
	}
	all := []string{title}
	var facts []string
	fact := func(name, value string) {
		if value != "" {
			facts = append(facts, strings.TrimSpace(name+" "+short(value)))
		}
	}
	if !m.TraceID.IsZero() {
		fact("trace", m.TraceID.String())
	}
	fact("namespace", m.Namespace)
	fact("key", m.Key)
	fact("licence", m.Licence)
	if m.Attempts > 0 {
		fact("attempts", fmt.Sprint(m.Attempts))
	}
	fact("now", m.State)
	if len(facts) > 0 {
		all = append(all, "  "+strings.Join(facts, ", "))
	}
	if m.Since != 0 && m.Event != isResolved {
		all = append(all, fmt.Sprintf("  since %s, %s", m.Since, age(now.Sub(m.Since.Time()))))
	}
	if m.Expires != 0 {
		all = append(all, "  until "+m.Expires.String()+"; then it is denied")
	}
	if m.Cause != "" {
		all = append(all, "  why: "+clip.Clean(m.Cause))
	}
	for _, command := range m.Commands {
		all = append(all, "  "+command)
	}
	if m.Link != "" {
		all = append(all, "  "+m.Link)
	}
	return all
}

// short is a text of a caller's that stays in its line.
func short(s string) string { return clip.Short(clip.Clean(s), 200) }

// age is a time in words, as exact as somebody wants to know.
func age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%d days", int(d/(24*time.Hour)))
}

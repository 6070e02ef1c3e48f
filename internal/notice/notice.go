// Package notice sends notices to people about what waits for them: calls in doubt, decisions, traces that
// fail a check, and a frozen store. Each of these is a matter.
//
// It looks at the current state of the store and not at events, because a doubt after a crash has no record of
// its own in the log. It compares what waits now with what each receiver was told before, which is in the
// receiver's book. If several processes have the store, one at a time tells a receiver: the one that is on duty.
// The book is kept with the duty. A receiver has a goroutine of its own, and no queue. So a receiver that
// hangs delays neither a call nor another receiver.
//
// # Invariants
//
//	told     a matter that waits long enough is told, also after an error, a restart, kill -9 [receiver.step]  TestKilledDaemonTellsAgain
//	once     a matter that was told is not told again before its time, also after a restart   [book]           TestRestartRepeatsNothing
//	few      a receiver gets one notice in each pause, however much waits                     [receiver.step]  TestTenThousandDoubtsAreOneNotice
//	unknown  if the store cannot be read, no matter counts as settled                         [Service.look]   TestUnreadableStoreSettlesNothing
//	private  no argument, answer or intent is in a notice                                     [Matter]         TestNoticeHasNoContent
//	harmless no text of a call can add a line or contain control characters                   [Notice.say]     TestHostileNamesMakeNoLines
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
	State     string     `json:"state,omitempty"`    // of the trace, if the matter no longer waits
	Commands  []string   `json:"commands,omitempty"` // that show the matter, and settle it
	Link      string     `json:"link,omitempty"`

	About string `json:"-"` // distinguishes it from an earlier matter of the same trace
	Known any    `json:"-"` // for the use of the [World]
}

// id identifies a matter for as long as it waits.
func (m *Matter) id() string { return m.Kind + " " + hex.EncodeToString(m.TraceID[:]) + " " + m.About }

// World is where matters come from.
type World interface {
	// Waiting lists everything that waits now. After an error that is not known.
	Waiting(ctx context.Context) ([]Matter, error)
	// Complete fills in the fields that Waiting leaves out: the cause and the commands.
	Complete(ctx context.Context, m *Matter) error
	// Fate says what became of a matter that is no longer in the list. It gets only Kind, TraceID and About, and
	// fills in the other fields.
	Fate(ctx context.Context, m *Matter) (Fate, error)
	// Lists are the commands that list what waits.
	Lists() []string
}

// Fate is what became of a matter.
type Fate uint8

// Fates.
const (
	Open     Fate = iota // the call goes on, and the matter may wait again
	Settled              // the matter is over
	Replaced             // another question took its place
)

// Notice is one message to a receiver.
type Notice struct {
	Type     string     `json:"type"` // TypeNotice or TypeTest
	ID       string     `json:"id"`   // the same if the same notice is sent again because its answer was lost
	Time     tga.Millis `json:"timestamp"`
	Receiver string     `json:"receiver"`
	Host     string     `json:"host,omitempty"`
	Subject  string     `json:"subject"` // one line for people
	Text     string     `json:"text"`    // the whole notice for people

	// Numbers of matters by kind: those that are told, by why they are told, and all that wait now.
	New      map[string]int `json:"new,omitempty"`
	Again    map[string]int `json:"again,omitempty"`
	Resolved map[string]int `json:"resolved,omitempty"`
	Waiting  map[string]int `json:"waiting,omitempty"`

	Matters []Matter `json:"matters"` // the first of the matters that are told
	More    int      `json:"more"`    // how many others are told
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

// order is the order of the kinds in a notice: the kind that stops most comes first.
var order = []string{config.OnFrozen, config.OnQuarantined, config.OnDoubt, config.OnApproval}

// words are the words for one matter of a kind, and for several.
var words = map[string][2]string{
	config.OnFrozen:      {"the store is frozen", ""},
	config.OnQuarantined: {"1 trace fails a check", "%d traces fail a check"},
	config.OnDoubt:       {"1 call is in doubt", "%d calls are in doubt"},
	config.OnApproval:    {"1 call waits for a decision", "%d calls wait for a decision"},
}

// count puts the numbers of each kind into words.
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

// told is a matter that is due, with its entry in the book.
type told struct {
	Matter
	*entry
}

// compose makes a notice of the matters that are due.
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

// mostCause is how much of a cause is in a notice, in characters.
const mostCause = 300

// headline is the beginning of a notice's subject. It names the machine.
func headline(host string) string {
	if host == "" {
		return "tgad: "
	}
	return "tgad on " + clip.Short(clip.Clean(host), 60) + ": "
}

// say makes the subject and the text of a notice. Text of callers and tool servers cannot add lines.
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

// lines describe a matter.
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

// short makes a caller's text short, and keeps it on one line.
func short(s string) string { return clip.Short(clip.Clean(s), 200) }

// age is a duration in words. The longer it is, the coarser its unit.
func age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%d days", int(d/(24*time.Hour)))
}

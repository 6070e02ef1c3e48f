package chain

import (
	"slices"
	"unicode/utf8"

	"github.com/tgad/tgad/schemas/tga"
)

// Erasure says what is to be erased: all that it names, or every trace of a subject.
type Erasure struct {
	Traces []tga.ID
	Turns  []tga.ID     // of agents, that have ended: their journals
	Kept   []string     // tool servers of the namespace: what remote executors keep about them
	Agents []AgentState // what agents keep for themselves
	States []tga.ID     // working states with their forks, by the ids of their families
	// Namespace and Subject are those of the requests (meta.namespace, meta.subject). "" is the
	// default namespace.
	Namespace, Subject string
	Who                string // asks for it
	Reason             string // stands in a note, and cannot be erased
	// Leave leaves out a trace of which something is still to come, or that somebody is at, instead
	// of refusing the whole.
	Leave bool
}

// AgentState names the state that a session of an agent works on; without a session the one that the
// agent keeps across its sessions. No turn may be at work on it while it is erased.
type AgentState struct{ Agent, Session string }

// Erased says what an erasure did.
type Erased struct {
	Traces  int // erased now, or remembered to be; 0 where nothing is
	Turns   int // likewise
	Kept    int // tool servers, likewise
	States  int // of agents, and working states, likewise
	Already int // of those named, erased before
	Keys    int // destroyed
	// Shared counts traces whose key is that of a subject. It is not destroyed for the sake of one
	// trace: copies of the store, and backups, still have what the trace carried.
	Shared int
	// Left counts traces that cannot be read: whether they are of the subject is not known, and they
	// are as they were. Unread names the first of them.
	Left   int
	Unread []Unread
	// Unsealed counts traces, turns, states and kept values that had no key, or not for every entry and value: likewise.
	Unsealed int
}

// Unread is a trace that cannot be read.
type Unread struct {
	TraceID tga.ID
	Err     error
}

// mostUnread is how many traces that cannot be read are named.
const mostUnread = 100

// Most of one erasure: what is under way is remembered as one value of the store.
const (
	MaxErased = 1 << 20 // traces, turns, tool servers and states; and keys
	maxReason = 500
	maxEraser = 255
)

// Leave counts a trace that cannot be read.
func (d *Erased) Leave(id tga.ID, err error) {
	if d.Left++; len(d.Unread) < mostUnread {
		d.Unread = append(d.Unread, Unread{TraceID: id, Err: err})
	}
}

// Check refuses what is no erasure with VALIDATION_ERROR, and one of too much with LIMIT_EXCEEDED.
func (e *Erasure) Check() error {
	named := len(e.Traces) + len(e.Turns) + len(e.Kept) + len(e.Agents) + len(e.States)
	switch {
	case (named > 0) == (e.Subject != ""):
		return tga.Errorf(tga.ValidationError, "erase: name traces, turns, tool servers or states, or a subject, and not both")
	case named > MaxErased:
		return tga.Errorf(tga.LimitExceeded, "erase %d traces, turns, tool servers and states: at most %d at once", named, MaxErased)
	case slices.ContainsFunc(e.Agents, func(s AgentState) bool { return s.Agent == "" }):
		return tga.Errorf(tga.ValidationError, "erase: of which agent?")
	case e.Who == "" || utf8.RuneCountInString(e.Who) > maxEraser:
		return tga.Errorf(tga.ValidationError, "erase: say who asks for it, in at most %d characters", maxEraser)
	case e.Reason == "" || utf8.RuneCountInString(e.Reason) > maxReason || !utf8.ValidString(e.Reason) || !utf8.ValidString(e.Who):
		return tga.Errorf(tga.ValidationError, "erase: give a reason of 1 to %d characters. It stays in the log", maxReason)
	}
	return nil
}

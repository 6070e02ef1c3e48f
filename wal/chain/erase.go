package chain

import (
	"slices"
	"unicode/utf8"

	"github.com/tgad/tgad/schemas/tga"
)

// Erasure says what to erase: everything that it names, or every trace of a subject.
type Erasure struct {
	Traces []tga.ID
	Turns  []tga.ID     // ended turns of agents, whose journals are erased
	Kept   []string     // tool servers of the namespace: values that remote executors keep about them
	Agents []AgentState // state that agents keep for themselves
	States []tga.ID     // working states with their forks, by the ids of their families
	// Namespace and Subject are those of the requests (meta.namespace, meta.subject). "" is the
	// default namespace.
	Namespace, Subject string
	Who                string // who asks for the erasure
	Reason             string // is kept in a note, and cannot be erased
	// Leave skips a trace that is not finished, that a live process is executing, or that was archived
	// beside one that cannot be read, instead of refusing the whole erasure. It is not for a subject, whose keys are destroyed.
	Leave bool
}

// AgentState names the state that a session of an agent works on. Without a session it names the
// state that the agent keeps across its sessions. No turn may be using the state while it is erased.
type AgentState struct{ Agent, Session string }

// Erased says what an erasure did.
type Erased struct {
	Traces  int // erased now, or recorded to be erased
	Turns   int // likewise
	Kept    int // tool servers, likewise
	States  int // of agents, and working states, likewise
	Already int // of those named, erased before
	Keys    int // destroyed
	// Shared counts traces whose key belongs to a whole subject. The erasure of one trace does not
	// destroy that key, so copies of the store, and backups, still have what the trace carried.
	Shared int
	// Left counts traces that cannot be read, whether they belong to the subject or not, and traces that
	// were archived beside one that cannot be read. They are unchanged. Unread names the first of them.
	Left   int
	Unread []Unread
	// Unsealed counts traces, turns, states and kept values that had no key for some or all of their
	// entries or values. Copies of the store, and backups, still have those.
	Unsealed int
}

// Unread is a trace that was left, and why.
type Unread struct {
	TraceID tga.ID
	Err     error
}

// mostUnread is how many unreadable traces are named at most.
const mostUnread = 100

// Limits of one erasure. An erasure under way is stored as one value, so it must stay small.
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

// Check refuses an erasure that is not well-formed with VALIDATION_ERROR, and one that names too
// much with LIMIT_EXCEEDED.
func (e *Erasure) Check() error {
	named := len(e.Traces) + len(e.Turns) + len(e.Kept) + len(e.Agents) + len(e.States)
	switch {
	case (named > 0) == (e.Subject != ""):
		return tga.Errorf(tga.ValidationError, "erase: name traces, turns, tool servers or states, or a subject, and not both")
	case e.Leave && e.Subject != "":
		return tga.Errorf(tga.ValidationError, "erase a subject: no trace of it can be left out, because its keys are destroyed")
	case named > MaxErased:
		return tga.Errorf(tga.LimitExceeded, "erase %d traces, turns, tool servers and states: at most %d at once", named, MaxErased)
	case slices.ContainsFunc(e.Agents, func(s AgentState) bool { return s.Agent == "" }):
		return tga.Errorf(tga.ValidationError, "erase: an agent's state needs the agent's name")
	case e.Who == "" || utf8.RuneCountInString(e.Who) > maxEraser:
		return tga.Errorf(tga.ValidationError, "erase: say who asks for it, in at most %d characters", maxEraser)
	case e.Reason == "" || utf8.RuneCountInString(e.Reason) > maxReason || !utf8.ValidString(e.Reason) || !utf8.ValidString(e.Who):
		return tga.Errorf(tga.ValidationError, "erase: give a reason of 1 to %d characters. It stays in the log", maxReason)
	}
	return nil
}

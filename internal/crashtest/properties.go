package crashtest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/tgad/tgad/internal/evidence/sends"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// Violation is a property that does not hold.
type Violation struct {
	Property string
	Key      string
	Trace    tga.ID `json:",omitzero"`
	Detail   string
	// Where says how to reproduce it: tier, scenario, seed, crash points.
	Where string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s key %q trace %s: %s [%s]", v.Property, v.Key, v.Trace, v.Detail, v.Where)
}

// Property is one line of docs/SEMANTICS.md that every tier checks; of turns and working
// state, one of docs/CRASH.md.
type Property struct {
	Name  string
	Says  string
	check func(h *history, o *Observed, report func(key string, trace tga.ID, format string, args ...any))
}

// Properties are what every recovered store is held to.
var Properties = []Property{
	{"S1", "no licence: one send a reservation; always: one send an attempt", oneSend},
	{"S2", "one effect a key, with a tool that behaves as attested", oneEffect},
	{"S3", "no send after a durable effect", noSendAfterEffect},
	{"S4", "each send has a durable attempt before it, of the same call", sendHasAttempt},
	{"S5", "a licensed re-send is the same call: bytes, id and key", resendIsSame},
	{"S6", "what was acknowledged survives, and the log extends it", acknowledgedSurvives},
	{"S7", "a batch is all or nothing; ledger and index are what the log says", batchesAreWhole},
	{"S8", "chain, numbers and digests are valid and agree with every checkpoint handed out", chainIsValid},
	{"S10", "only legal transitions, by one writer; a terminal state is final", legalTransitions},
	{"S11", "who judges the log from outside, by the licences, finds no send that no rule allows", noForbiddenSend},
	{"L1", "after a recovery each trace is terminal, waits or is in doubt", nothingIsLeft},
	{"L2", "in doubt only with a durable attempt, no effect and no licence", noOverParking},
}

// Judge returns the violations of the properties by a store, given the journal.
func Judge(events []Event, o *Observed) []Violation {
	all := slices.Clip(Properties)
	if o.turns != nil {
		all = append(all, TurnProperties...)
	}
	if o.work != nil {
		all = append(all, WorkProperties...)
	}
	return judge(all, events, o)
}

func judge(properties []Property, events []Event, o *Observed) (bad []Violation) {
	if o.Err != nil {
		return []Violation{{Property: "L1", Detail: "the store cannot be read: " + o.Err.Error()}}
	}
	h := historyOf(events)
	for _, p := range properties {
		p.check(h, o, func(key string, trace tga.ID, format string, args ...any) {
			bad = append(bad, Violation{Property: p.Name, Key: key, Trace: trace, Detail: fmt.Sprintf(format, args...)})
		})
	}
	return bad
}

// send is one send with its place in the journal.
type send struct {
	Event
	at int
}

// toolKey names a logical call.
type toolKey struct{ tool, key string }

// history is a journal, indexed for the properties.
type history struct {
	events  []Event
	sends   map[toolKey][]send
	acted   map[toolKey]int
	ended   map[toolKey][]send // durable effects: the earliest time each was known
	lastRun int                // where the newest process began
}

func historyOf(events []Event) *history {
	h := &history{events: events, sends: map[toolKey][]send{}, acted: map[toolKey]int{}, ended: map[toolKey][]send{}}
	tools := map[tga.ID]string{}
	for i, e := range events {
		k := toolKey{e.Tool, e.Key}
		switch e.Kind {
		case Opened:
			h.lastRun = i
		case Submitted:
			for _, a := range e.Batch.Artifacts {
				if a.Artifact.Request != nil {
					tools[e.Trace] = a.Artifact.Request.Proposal.ToolName
				}
			}
		case Sent:
			h.sends[k] = append(h.sends[k], send{e, i})
		case Acted:
			h.acted[k]++
		case Ended:
			h.ended[k] = append(h.ended[k], send{e, i})
		case Acknowledged:
			for _, l := range e.Entries {
				if l.Type == tga.EffectType {
					k := toolKey{tools[e.Trace], l.IdempotencyKey}
					h.ended[k] = append(h.ended[k], send{e, i})
				}
			}
		}
	}
	return h
}

// licensed reports whether the licence of a tool may permit a second send.
func licensed(tool string, p ledger.Profile) bool {
	name, _ := licenceOf(tool)
	switch name {
	case "dedupe_key", "dedupe_args", "read_only", probed:
		return true
	case none:
		return p == ledger.Spec93
	}
	return false
}

// released reports whether a trace ended in a way that lets another trace use its key: nothing
// was sent, or the tool server answered that it did not execute the call.
func (o *Observed) released(id tga.ID) bool { return o.class(id).Releases() }

// class is the outcome class of a trace, ClassNone where it has no effect.
func (o *Observed) class(id tga.ID) ledger.Class {
	s := o.Traces[id]
	if s == nil || s.Trace == nil || s.Trace.Effect == nil {
		return ledger.ClassNone
	}
	return ledger.ClassOf(s.Trace.Effect)
}

func oneSend(h *history, o *Observed, report func(string, tga.ID, string, ...any)) {
	for k, sends := range h.sends {
		byTrace, byAttempt := map[tga.ID]int{}, map[string]int{}
		for _, s := range sends {
			byTrace[s.Trace]++
			attempt := fmt.Sprint(s.Trace, s.Call.Attempt)
			if byAttempt[attempt]++; byAttempt[attempt] > 1 {
				report(k.key, s.Trace, "attempt %d was sent %d times", s.Call.Attempt, byAttempt[attempt])
			}
		}
		first := map[tga.ID]tga.Millis{}
		for _, s := range sends {
			if _, again := first[s.Trace]; !again {
				first[s.Trace] = s.At
			}
			if t := o.Traces[s.Trace]; !s.Remote && t != nil && o.external(s.Trace) {
				report(k.key, s.Trace, "attempt %d of a call that a remote executor began was sent here", s.Call.Attempt)
			}
			if name, _ := licenceOf(k.tool); name == "dedupe_key" && s.At-first[s.Trace] >= tga.Millis(window.Milliseconds()) {
				report(k.key, s.Trace, "attempt %d was sent after the window of its licence", s.Call.Attempt)
			}
		}
		newest := sends[len(sends)-1].Trace
		for trace, n := range byTrace {
			if n > 1 && !licensed(k.tool, o.Profile) {
				report(k.key, trace, "%d sends without a licence", n)
			}
			if o.class(trace) == ledger.ClassNotSent {
				report(k.key, trace, "%d sends of a call that ended as not sent", n)
			}
			if trace != newest && !o.released(trace) {
				report(k.key, trace, "trace %s sent the key too", newest)
			}
		}
	}
}

func noForbiddenSend(_ *history, o *Observed, report func(string, tga.ID, string, ...any)) {
	book := sends.New(sends.Attested{Profile: o.Profile, Licence: attested})
	for i := range o.Leaves {
		s := o.Traces[o.Leaves[i].TraceID]
		if s == nil || s.Trace == nil {
			continue // no trace, or one that S8 speaks of
		}
		if err := book.Take(&o.Leaves[i], s.Trace); err != nil {
			report(s.Key.Key, s.Trace.ID, "%v", err)
		}
	}
}

// attested is the operator's configuration in the form for a monitor.
func attested(server, tool string) sends.Tool {
	if strings.HasPrefix(server, turn.ModelServer("")) {
		return sends.Tool{Licence: ledger.Licence{Kind: ledger.ReadOnly}, Explicit: true, Reads: true} // a question to a model, as turns have it
	}
	p := policy(server, tool)
	return sends.Tool{Licence: p.Licence, Explicit: p.LicenceSet, Reads: p.Class == tga.ClassRead, Claims: p.ClientLicence}
}

func oneEffect(h *history, _ *Observed, report func(string, tga.ID, string, ...any)) {
	for k, n := range h.acted {
		if n > 1 {
			report(k.key, tga.ID{}, "the server of %s acted %d times", k.tool, n)
		}
	}
}

func noSendAfterEffect(h *history, o *Observed, report func(string, tga.ID, string, ...any)) {
	for k, sends := range h.sends {
		for _, s := range sends {
			for _, e := range h.ended[k] {
				if e.at < s.at && !(e.Trace != s.Trace && o.released(e.Trace)) && !o.neverSent(e.Trace) {
					report(k.key, s.Trace, "attempt %d was sent when the effect of trace %s was durable", s.Call.Attempt, e.Trace)
				}
			}
		}
	}
}

// neverSent reports whether a trace's effect was served or refused without a send. Such an
// effect says nothing about the key; the effect of the trace that reserved the key does.
func (o *Observed) neverSent(id tga.ID) bool {
	s := o.Traces[id]
	return s != nil && s.Trace != nil && s.Trace.Call != nil && ledger.NeverSent(s.Trace.Call)
}

func sendHasAttempt(h *history, o *Observed, report func(string, tga.ID, string, ...any)) {
	for k, sends := range h.sends {
		for _, s := range sends {
			t := o.Traces[s.Trace]
			if t == nil || t.Trace == nil || t.Trace.Call == nil {
				report(k.key, s.Trace, "attempt %d was sent and no call is on disk", s.Call.Attempt)
				continue
			}
			c := t.Trace.Call
			switch {
			case c.ID != s.Call.ToolCallID || c.Call.IdempotencyKey != s.Call.Key:
				report(k.key, s.Trace, "sent was call %s, on disk is %s", s.Call.ToolCallID, c.ID)
			case c.Call.Call.ToolServer != s.Call.Server || c.Call.Call.ToolName != s.Call.Tool || !bytes.Equal(c.Call.Call.Args, s.Call.Args):
				report(k.key, s.Trace, "sent was %s(%s), on disk is %s(%s)", s.Call.Tool, s.Call.Args, c.Call.Call.ToolName, c.Call.Call.Args)
			case !marked(t, s.Call.Attempt):
				report(k.key, s.Trace, "attempt %d was sent and is not marked", s.Call.Attempt)
			}
		}
	}
}

// marked reports whether an attempt of the trace is on disk.
func marked(t *Seen, attempt uint32) bool {
	switch t.Trace.Call.Meta.String(tga.MetaAttempt) {
	case tga.AttemptApart, tga.AttemptNone:
	default:
		if attempt == 1 {
			return true
		}
	}
	for _, n := range t.Notes {
		if n.Kind != tga.NoteAttempt {
			continue
		}
		if m, err := ledger.ParseMark(n.Body); err == nil && m.Attempt == attempt {
			return true
		}
	}
	return false
}

func resendIsSame(h *history, _ *Observed, report func(string, tga.ID, string, ...any)) {
	for k, sends := range h.sends {
		first := map[tga.ID]send{}
		for _, s := range sends {
			f, again := first[s.Trace]
			if !again {
				first[s.Trace] = s
				continue
			}
			a, b := f.Call, s.Call
			if a.ToolCallID != b.ToolCallID || a.Key != b.Key || a.Server != b.Server || a.Tool != b.Tool || !bytes.Equal(a.Args, b.Args) {
				report(k.key, s.Trace, "sent %+v, then %+v", a, b)
			}
		}
	}
}

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// lineWidth is how wide a timeline is: it fits a terminal of 80 columns.
const lineWidth = 78

// Timeline prints a trace for people: one line per entry and note, in the order in
// which they became durable as far as the chain tells, and under it what it says.
// Sizes and arguments that would fill the screen are cut; --json and export are not.
func Timeline(w io.Writer, t *chain.Trace) error {
	var b bytes.Buffer
	p := &timeline{b: &b}
	p.head(t)
	notes := t.Notes
	for i := range t.Entries {
		e := &t.Entries[i]
		p.entry(t, e)
		// A note names the head it was written under, so it stands before the entry
		// that came after that head.
		for len(notes) > 0 && (notes[0].HeadDigest == e.Digest || i == len(t.Entries)-1) {
			p.note(&notes[0])
			notes = notes[1:]
		}
	}
	p.foot(t)
	_, err := w.Write(b.Bytes())
	return err
}

type timeline struct {
	b    *bytes.Buffer
	last tga.Millis
}

func (p *timeline) head(t *chain.Trace) {
	fmt.Fprintf(p.b, "trace %s  %s\n", t.ID, Standing(t))
	if t.Request == nil {
		return
	}
	q := t.Request.Request
	fmt.Fprintf(p.b, "%s %s", q.Proposal.ToolServer, q.Proposal.ToolName)
	if key := keyOf(t); key != "" {
		fmt.Fprintf(p.b, "  key %s", Shorten(Clean(key), 40))
	}
	if t.Namespace != tga.DefaultNamespace {
		fmt.Fprintf(p.b, "  namespace %s", Clean(t.Namespace))
	}
	if t.Deadline != 0 {
		fmt.Fprintf(p.b, "\ndeadline %s", t.Deadline)
	}
	p.b.WriteString("\n\n")
}

// Standing is where a trace stands: its state, and whether it is in doubt.
func Standing(t *chain.Trace) string {
	if InDoubt(t) {
		return t.Head.State.String() + ", in doubt unless running"
	}
	return t.Head.State.String()
}

// InDoubt says, from the log alone, whether a call may have been sent and has no
// effect. A call that is being run right now looks the same.
func InDoubt(t *chain.Trace) bool {
	if t.Head.State != tga.Executing {
		return false
	}
	var at tga.LogEntry
	for _, e := range t.Entries {
		if e.Type == tga.CallType {
			at = e
		}
	}
	rec, touches, err := ledger.FromTrace(t.Call, at.Seq, 0, at.TS, nil, 0, t.Notes)
	return err == nil && touches && rec.InDoubt()
}

func keyOf(t *chain.Trace) string {
	if t.Call != nil {
		return t.Call.Call.IdempotencyKey
	}
	return t.Request.Request.IdempotencyKey
}

func (p *timeline) entry(t *chain.Trace, e *tga.LogEntry) {
	p.line(fmt.Sprintf("%d", e.Seq), e.TS, e.To.String(), e.Type.String(), e.Digest)
	switch e.Type {
	case tga.RequestType:
		if a := t.Request; p.present(a) {
			q := a.Request
			p.say("%s risk, agent %s: %s", strings.ToLower(q.RiskLevel), q.AgentID, q.Intent)
			p.data("args", q.Proposal.Args)
			p.meta(a, requestMeta)
		}
	case tga.DecisionType:
		if a := t.Decision; p.present(a) {
			p.say("%s: %s", a.Decision.Decision, a.Decision.Rationale)
			if who := a.Meta.String("approvers"); who != "" {
				p.say("approvers: %s", who)
			}
		}
	case tga.CallType:
		if a := t.Call; p.present(a) {
			p.say("%s call, %s", a.Call.ToolClass, attemptText[a.Meta.String(tga.MetaAttempt)])
			p.meta(a, callMeta)
		}
	case tga.EffectType:
		if a := t.Effect; p.present(a) {
			p.effect(a)
			for _, d := range t.Documents {
				if d.Erased {
					p.say("%s: erased", d.Pointer)
					continue
				}
				p.data(strings.TrimPrefix(d.Pointer, "/"), d.Data)
			}
		}
	}
}

var attemptText = map[string]string{
	"":                  "attempt 1 may be sent from here on",
	tga.AttemptFused:    "attempt 1 may be sent from here on",
	tga.AttemptApart:    "attempts are notes of their own",
	tga.AttemptExternal: "attempt 1 is with a remote executor",
	tga.AttemptNone:     "never sent",
}

func (p *timeline) effect(a *tga.Artifact) {
	o := a.Effect.Outcome
	p.say("%s, %s%s", o.Status, ledger.ClassOf(a), prefixed(": ", o.Summary))
	if o.Error != nil {
		p.say("%s: %s", o.Error.Code, o.Error.Message)
	}
	p.meta(a, effectMeta)
}

// said is a name in an artifact's meta, and how it reads.
type said struct{ name, text string }

var requestMeta = []said{
	{tga.MetaSubmitter, "handed in by %s"},
	{tga.MetaRetryOf, "a new attempt after trace %s"},
	{tga.MetaCompensates, "undoes trace %s"},
}

var callMeta = []said{
	{tga.MetaRetryOf, "the key of trace %s, of which nothing was executed"},
}

var effectMeta = []said{
	{tga.MetaReplayedFrom, "the recorded effect of trace %s; the tool was not called"},
	{tga.MetaCompensatedBy, "undone by trace %s"},
	{tga.MetaResolvedBy, "settled by %s"},
	{tga.MetaResolvedVia, "decided by a %s, by the right of that peer; no person has confirmed it"},
	{tga.MetaResolver, "who: %s"},
	{tga.MetaOutcomeError, "a rule about the answer was not applied: %s"},
}

func (p *timeline) meta(a *tga.Artifact, names []said) {
	for _, m := range names {
		if v := a.Meta.String(m.name); v != "" {
			p.say(m.text, v)
		}
	}
}

func (p *timeline) note(n *tga.Note) {
	p.line("n"+fmt.Sprint(n.Number), n.TS, "", "note "+string(n.Kind), n.Digest)
	p.data(Clean(n.Who), n.Body)
}

func (p *timeline) line(number string, ts tga.Millis, state, what string, d tga.Digest) {
	when := ts.Time().Format("15:04:05.000")
	if p.last != 0 {
		when = "+" + since(p.last, ts)
	}
	p.last = ts
	fmt.Fprintf(p.b, "%4s  %-12s  %-10s  %-32s %s\n", number, when, state, Clean(what), d.String()[:12])
}

// since is the time between two lines, in a form of at most ten characters.
func since(from, to tga.Millis) string {
	d := time.Duration(to-from) * time.Millisecond
	switch {
	case d < 0:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Hour:
		return fmt.Sprintf("%.3f s", d.Seconds())
	}
	return fmt.Sprintf("%.2f h", d.Hours())
}

func (p *timeline) present(a *tga.Artifact) bool {
	if a == nil {
		p.say("the artifact is erased; its digest remains in the entry")
	}
	return a != nil
}

const margin = "                    " // under the state column

func (p *timeline) say(format string, args ...any) {
	p.b.WriteString(Wrap(Clean(fmt.Sprintf(format, args...)), margin, lineWidth) + "\n")
}

// data prints a document on one line. What is not UTF-8 text is named by its size.
func (p *timeline) data(name string, data []byte) {
	text := fmt.Sprintf("%d bytes", len(data))
	if utf8.Valid(data) {
		var flat bytes.Buffer
		if json.Compact(&flat, data) == nil {
			data = flat.Bytes()
		}
		text = Clean(string(data))
	}
	p.b.WriteString(margin + Shorten(name+" "+text, lineWidth-len(margin)) + "\n")
}

func (p *timeline) foot(t *chain.Trace) {
	fmt.Fprintf(p.b, "\nhead  %s\n", t.Head.Digest)
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

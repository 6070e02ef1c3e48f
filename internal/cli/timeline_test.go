package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// builder appends entries to a trace as a store would.
type builder struct {
	t     *testing.T
	trace *chain.Trace
	ts    tga.Millis
	n     byte
}

func newBuilder(t *testing.T) *builder {
	id, err := tga.ParseID("01936a8b-4c2d-7000-8000-000000000001")
	if err != nil {
		t.Fatal(err)
	}
	return &builder{t: t, trace: chain.NewTrace(id), ts: 1768503600000}
}

func (b *builder) append(a *tga.Artifact, documents ...chain.Document) *tga.Artifact {
	b.t.Helper()
	b.n++
	b.ts += 250
	a.ID, a.TraceID, a.PlanID, a.TS = b.trace.ID, b.trace.ID, b.trace.ID, b.ts
	a.ID[15] = b.n + 1
	if err := a.Seal(); err != nil {
		b.t.Fatal(err)
	}
	e, err := b.trace.Link(a, b.ts)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.trace.Apply(&chain.Entry{LogEntry: e, Artifact: a, Documents: documents}); err != nil {
		b.t.Fatal(err)
	}
	return a
}

func (b *builder) note(kind tga.NoteKind, body string) {
	b.t.Helper()
	b.ts += 1500
	n, err := b.trace.LinkNote(chain.NewNote{Kind: kind, Who: "runtime", Body: []byte(body)}, b.ts)
	if err == nil {
		err = b.trace.ApplyNote(&n)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// executing builds a trace as far as its call.
func executing(t *testing.T, intent string) *builder {
	b := newBuilder(t)
	p := tga.Proposal{ToolServer: "payments", ToolName: "charge", Args: []byte(`{"account":"acme","amount":100}`)}
	request := b.append(&tga.Artifact{Type: tga.RequestType, Request: &tga.ActionRequest{
		AgentID: b.trace.ID, RiskLevel: tga.RiskWrite, Intent: intent,
		Resources: []tga.Resource{{Kind: "service", ID: "payments"}}, Proposal: p, IdempotencyKey: "order-1",
	}})
	decision := b.append(&tga.Artifact{Type: tga.DecisionType, Decision: &tga.SupervisorDecision{
		RequestID: request.ID, RequestDigest: request.Digest, Decision: tga.Approve, Rationale: "approved by the rule table",
	}})
	b.append(&tga.Artifact{Type: tga.CallType, Call: &tga.ToolCall{
		DecisionID: decision.ID, DecisionDigest: decision.Digest, Call: p,
		IdempotencyKey: "order-1", ToolClass: tga.ClassWrite, BatchTotalBytes: -1,
	}})
	return b
}

func (b *builder) effect(result string) {
	data := []byte(result)
	b.append(&tga.Artifact{Type: tga.EffectType, Meta: tga.Meta{tga.MetaOutcomeClass: "side_effect_committed"}, Effect: &tga.ToolEffect{
		CallID: b.trace.Call.ID, CallDigest: b.trace.Call.Digest, BatchTotalBytes: -1, ContentHashAlg: "sha256",
		Outcome:        tga.Outcome{Status: tga.StatusSuccess},
		DocumentHashes: []tga.DocumentHash{{Pointer: tga.PointerResult, Hash: tga.Sum(data), SizeBytes: int64(len(data))}},
	}}, chain.Document{Pointer: tga.PointerResult, Data: data})
}

func render(t *testing.T, tr *chain.Trace) string {
	t.Helper()
	var out bytes.Buffer
	if err := Timeline(&out, tr); err != nil {
		t.Fatal(err)
	}
	for _, l := range strings.Split(out.String(), "\n") {
		if n := utf8.RuneCountInString(l); n > 80 {
			t.Errorf("a line of %d characters: %q", n, l)
		}
	}
	return out.String()
}

func TestTimelineShowsEntriesAndNotesInTheirOrder(t *testing.T) {
	b := executing(t, "charge the customer for order one")
	b.note(tga.NoteAttempt, `{"attempt":2,"epoch":"3","executor":"local"}`)
	b.effect(`{"charge":1}`)
	out := render(t, b.trace)
	at := -1
	for _, want := range []string{
		"trace 01936a8b-4c2d-7000-8000-000000000001  COMPLETED\n",
		"payments charge  key order-1\n",
		"   1  19:00:00.250  PENDING     action_request",
		`args {"account":"acme","amount":100}`,
		"   2  +250 ms       AUTHORIZED  supervisor_decision",
		"APPROVE: approved by the rule table",
		"   3  +250 ms       EXECUTING   tool_call",
		"  n1  +1.500 s                  note attempt",
		`"attempt":2`,
		"   4  +250 ms       COMPLETED   tool_effect",
		"SUCCESS, side_effect_committed",
		`result {"charge":1}`,
		"head  " + b.trace.Head.Digest.String(),
	} {
		i := strings.Index(out, want)
		if i < 0 {
			t.Errorf("no %q in\n%s", want, out)
		} else if i < at {
			t.Errorf("%q stands too early in\n%s", want, out)
		}
		at = max(at, i)
	}
}

// TestTimelineSaysTheLicence: the timeline shows the licence that the program claimed, and the one under
// which the attempt was made.
func TestTimelineSaysTheLicence(t *testing.T) {
	for text, want := range map[string]string{
		"dedupe_key 86400000 60000": "dedupe_key, window 24h0m0s, margin 1m0s",
		"dedupe_key 0 60000":        "dedupe_key",
		"probe 60000":               "probe, at most 1m0s in flight",
		"park":                      "park",
		"whatever":                  "whatever",
	} {
		b := newBuilder(t)
		p := tga.Proposal{ToolServer: "own", ToolName: "ship", Args: []byte(`{}`)}
		request := b.append(&tga.Artifact{Type: tga.RequestType, Meta: tga.Meta{tga.MetaClientLicence: text}, Request: &tga.ActionRequest{
			AgentID: b.trace.ID, RiskLevel: tga.RiskWrite, Intent: "ship the order once", Proposal: p, IdempotencyKey: "order-1",
			Resources: []tga.Resource{{Kind: "service", ID: "own"}},
		}})
		decision := b.append(&tga.Artifact{Type: tga.DecisionType, Decision: &tga.SupervisorDecision{
			RequestID: request.ID, RequestDigest: request.Digest, Decision: tga.Approve, Rationale: "approved by the rule table",
		}})
		b.append(&tga.Artifact{Type: tga.CallType, Meta: tga.Meta{tga.MetaLicence: text}, Call: &tga.ToolCall{
			DecisionID: decision.ID, DecisionDigest: decision.Digest, Call: p, IdempotencyKey: "order-1", ToolClass: tga.ClassWrite, BatchTotalBytes: -1,
		}})
		out := strings.Join(strings.Fields(render(t, b.trace)), " ")
		for _, line := range []string{"its program claims licence " + want + " 2 ", "under licence " + want + " head"} {
			if !strings.Contains(out, line) {
				t.Errorf("%q: no %q in\n%s", text, line, out)
			}
		}
	}
}

func TestTimelineSaysInDoubtFromTheLogAlone(t *testing.T) {
	b := executing(t, "charge the customer for order one")
	if !story.InDoubt(b.trace) || !strings.Contains(render(t, b.trace), "EXECUTING, in doubt unless running") {
		t.Errorf("an attempt without an effect is not shown in doubt:\n%s", render(t, b.trace))
	}
	b.note(tga.NoteNotSent, `{"attempt":1,"reason":"dial failed"}`)
	if story.InDoubt(b.trace) {
		t.Error("in doubt, although its one attempt was not sent")
	}
	b.effect(`{}`)
	if story.InDoubt(b.trace) {
		t.Error("a call with an effect is in doubt")
	}
}

func TestTimelineIsHarmlessWhateverTheLogHolds(t *testing.T) {
	b := executing(t, "a hostile \u001b[2J intent \u202e that would rewrite the screen\nand more")
	b.effect("\x00\x1b[31m\xff binary")
	out := render(t, b.trace)
	if i := strings.IndexFunc(out, func(r rune) bool { return r != '\n' && Clean(string(r)) != string(r) }); i >= 0 {
		t.Errorf("the timeline has %q:\n%s", out[i], out)
	}
	if !strings.Contains(out, `\u202e`) || !strings.Contains(out, "result 14 bytes") {
		t.Errorf("what was hostile is not named:\n%s", out)
	}
}

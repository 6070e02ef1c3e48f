package story

import (
	"reflect"
	"testing"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// told is a trace as the log has it: entries by their type, notes by kind and body. It has only what a
// course is made of.
type told struct {
	attempt string // meta of the call
	effect  tga.Meta
	code    tga.Code
	steps   []any // tga.ArtifactType or tga.Note
}

func (w told) trace() *chain.Trace {
	t := &chain.Trace{Call: &tga.Artifact{Call: &tga.ToolCall{}, Meta: tga.Meta{tga.MetaAttempt: w.attempt}}}
	states := map[tga.ArtifactType]tga.State{tga.RequestType: tga.Pending, tga.DecisionType: tga.Authorized, tga.CallType: tga.Executing, tga.EffectType: tga.Completed}
	for i, s := range w.steps {
		switch s := s.(type) {
		case tga.ArtifactType:
			t.Entries = append(t.Entries, tga.LogEntry{TS: tga.Millis(i), To: states[s], Type: s, Digest: tga.Digest{byte(i + 1)}})
			t.Head.State = states[s]
		case tga.Note:
			s.TS, s.HeadDigest = tga.Millis(i), t.Entries[len(t.Entries)-1].Digest
			t.Notes = append(t.Notes, s)
		}
	}
	if w.effect != nil || t.Head.State == tga.Completed {
		t.Effect = &tga.Artifact{Effect: &tga.ToolEffect{}, Meta: w.effect}
		if w.code != "" {
			t.Effect.Effect.Outcome.Error = &tga.OutcomeError{Code: string(w.code)}
		}
	}
	return t
}

func marked(n uint32) tga.Note {
	return tga.Note{Kind: tga.NoteAttempt, Body: ledger.Mark{Attempt: n, Epoch: 1}.Body()}
}

// TestEndsOfAttempts: the picture says no more about an attempt than the log does.
func TestEndsOfAttempts(t *testing.T) {
	const rq, dc, cl, ef = tga.RequestType, tga.DecisionType, tga.CallType, tga.EffectType
	doubt := tga.Note{Kind: tga.NoteDoubt, Body: []byte(`{"attempt":1,"cause":"reset","code":"TOOL_ERROR"}`)}
	unsent := tga.Note{Kind: tga.NoteNotSent, Body: ledger.NotSent{Attempt: 1, Reason: "refused"}.Body()}
	probe := tga.Note{Kind: tga.NoteProbe, Body: []byte(`{"answer":"not_ran","attempt":1}`)}
	for name, c := range map[string]struct {
		told
		want   []Attempt
		served bool
	}{
		"answered":             {told{steps: []any{rq, dc, cl, ef}}, []Attempt{{1, 2, 3, Answered}}, false},
		"answered elsewhere":   {told{attempt: tga.AttemptExternal, steps: []any{rq, dc, cl, marked(1), ef}}, []Attempt{{1, 2, 4, Answered}}, false},
		"apart":                {told{attempt: tga.AttemptApart, steps: []any{rq, dc, cl, marked(1), ef}}, []Attempt{{1, 3, 4, Answered}}, false},
		"never sent":           {told{attempt: tga.AttemptNone, steps: []any{rq, dc, cl, ef}}, nil, false},
		"served":               {told{attempt: tga.AttemptNone, effect: tga.Meta{tga.MetaReplayedFrom: "x"}, steps: []any{rq, dc, cl, ef}}, nil, true},
		"nothing said yet":     {told{steps: []any{rq, dc, cl}}, []Attempt{{1, 2, -1, Unknown}}, false},
		"with a cause":         {told{steps: []any{rq, dc, cl, doubt}}, []Attempt{{1, 2, 3, NoAnswer}}, false},
		"not sent, then again": {told{steps: []any{rq, dc, cl, unsent, marked(2), ef}}, []Attempt{{1, 2, 3, NotSent}, {2, 4, 5, Answered}}, false},
		"crash, then again":    {told{steps: []any{rq, dc, cl, marked(2), ef}}, []Attempt{{1, 2, 3, Gone}, {2, 3, 4, Answered}}, false},
		"crash, then asked":    {told{effect: tga.Meta{tga.MetaResolvedBy: "probe"}, steps: []any{rq, dc, cl, probe, ef}}, []Attempt{{1, 2, 3, Gone}}, false},
		"settled by a person":  {told{effect: tga.Meta{tga.MetaResolvedBy: "person"}, steps: []any{rq, dc, cl, ef}}, []Attempt{{1, 2, 3, Settled}}, false},
		"given up":             {told{code: tga.EffectInDoubt, steps: []any{rq, dc, cl, ef}}, []Attempt{{1, 2, 3, Gone}}, false},
		"a stranger's notes": {told{attempt: tga.AttemptApart, steps: []any{rq, dc, cl, tga.Note{Kind: tga.NoteAttempt, Body: []byte(`{}`)},
			tga.Note{Kind: tga.NoteDoubt, Body: []byte(`[]`)}, ef}}, nil, false},
	} {
		got := CourseOf(c.trace())
		if !reflect.DeepEqual(got.Attempts, c.want) || got.Served != c.served || len(got.Moments) != len(c.steps) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

package runtime_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// appendedBy is the note that peer appended the entries first to last raw.
func appendedBy(t *testing.T, peer string, first, last uint64) tga.Note {
	t.Helper()
	n, err := runtime.AppendedNote(peer, first, last)
	if err != nil {
		t.Fatal(err)
	}
	return tga.Note{Kind: n.Kind, Who: n.Who, Body: n.Body}
}

// marked is the mark of an attempt, of a remote executor's where it has a permit.
func marked(attempt uint32, permit tga.Digest) tga.Note {
	return tga.Note{Kind: tga.NoteAttempt, Body: ledger.Mark{Attempt: attempt, Epoch: 1, Permit: permit}.Body()}
}

// called is a trace with a request, a decision and a call.
func called(request, call tga.Meta, notes ...tga.Note) *chain.Trace {
	return &chain.Trace{
		Head:    chain.Head{Seq: 3, State: tga.Executing},
		Entries: []tga.LogEntry{{Seq: 1, Type: tga.RequestType}, {Seq: 2, Type: tga.DecisionType}, {Seq: 3, Type: tga.CallType}},
		Request: &tga.Artifact{Type: tga.RequestType, Meta: request},
		Call:    &tga.Artifact{Type: tga.CallType, Meta: call},
		Notes:   notes,
	}
}

// TestAppenderIsOfTheEntriesThatItsNoteNames: the first and the last of them, and none beside them.
func TestAppenderIsOfTheEntriesThatItsNoteNames(t *testing.T) {
	trace := called(nil, nil, marked(1, tga.Digest{}),
		tga.Note{Kind: tga.NoteAppended, Who: "broken", Body: []byte(`[]`)},
		appendedBy(t, "bob", 2, 3), appendedBy(t, "eve", 4, 4))
	for seq, want := range []string{"", "", "bob", "bob", "eve", ""} {
		if got := runtime.Appender(trace, uint64(seq)); got != want {
			t.Errorf("entry %d is of %q, want %q", seq, got, want)
		}
	}
}

// TestWhoMadeRequestAndSent tests all combinations of who submitted a request and who sent the
// call: these decide who may write about them.
func TestWhoMadeRequestAndSent(t *testing.T) {
	external, none := tga.Meta{tga.MetaAttempt: tga.AttemptExternal}, tga.Meta{}
	of := func(first, last uint64) tga.Note { return appendedBy(t, "bob", first, last) }
	permit := tga.Sum([]byte("permit"))
	for name, c := range map[string]struct {
		trace           *chain.Trace
		submitter       string
		request, sender runtime.Origin // as bob sees them
	}{
		"this process":                           {called(none, none), "", runtime.OfProcess, runtime.OfProcess},
		"this process for ann":                   {called(tga.Meta{tga.MetaSubmitter: "ann"}, none), "ann", runtime.OfProcess, runtime.OfProcess},
		"an executor":                            {called(tga.Meta{tga.MetaExecutor: tga.AttemptExternal}, external), "", runtime.OfExecutor, runtime.OfExecutor},
		"an executor, then this process":         {called(none, external, marked(2, tga.Digest{})), "", runtime.OfProcess, runtime.OfProcess},
		"this process, then an executor":         {called(none, none, marked(2, permit)), "", runtime.OfProcess, runtime.OfExecutor},
		"an executor, this process, an executor": {called(none, external, marked(2, tga.Digest{}), marked(3, permit)), "", runtime.OfProcess, runtime.OfExecutor},
		"bob":                                    {called(none, none, of(1, 3)), "bob", runtime.OfWriter, runtime.OfWriter},
		"bob, in the name of ann":                {called(tga.Meta{tga.MetaSubmitter: "ann"}, none, of(1, 3)), "bob", runtime.OfWriter, runtime.OfWriter},
		"bob's request":                          {called(none, none, of(1, 1)), "bob", runtime.OfWriter, runtime.OfProcess},
		"bob's call":                             {called(none, none, of(3, 3)), "", runtime.OfProcess, runtime.OfWriter},
		"bob's call, sent again":                 {called(none, none, of(1, 3), marked(2, tga.Digest{})), "bob", runtime.OfWriter, runtime.OfProcess},
		"bob's call, by an executor":             {called(none, none, of(1, 3), marked(2, permit)), "bob", runtime.OfWriter, runtime.OfExecutor},
		"eve":                                    {called(none, none, appendedBy(t, "eve", 1, 3)), "eve", runtime.OfAnother, runtime.OfAnother},
		"nobody":                                 {&chain.Trace{}, "", runtime.OfNobody, runtime.OfNobody},
	} {
		t.Run(name, func(t *testing.T) {
			if got := runtime.SubmitterOf(c.trace); got != c.submitter {
				t.Errorf("handed in by %q, want %q", got, c.submitter)
			}
			if got := runtime.RequestOrigin(c.trace, "bob"); got != c.request {
				t.Errorf("request of %v, want %v", got, c.request)
			}
			if got := runtime.Sender(c.trace, "bob"); got != c.sender {
				t.Errorf("sent by %v, want %v", got, c.sender)
			}
			// The next step is bob's if he sent the call, or if there is no call and he made the request.
			own := c.sender == runtime.OfWriter || len(c.trace.Entries) == 0
			if got := runtime.OwnTrace(c.trace, "bob"); got != own {
				t.Errorf("bob's to go on with: %v, want %v", got, own)
			}
			if c.trace.Call == nil {
				return
			}
			ended := *c.trace
			ended.Head.State = tga.Completed
			if runtime.OwnTrace(&ended, "bob") {
				t.Error("bob's to go on with, and it has ended")
			}
			asked := *c.trace
			asked.Call, asked.Entries, asked.Head.State = nil, asked.Entries[:2], tga.Authorized
			if got, want := runtime.OwnTrace(&asked, "bob"), c.request == runtime.OfWriter; got != want {
				t.Errorf("without a call bob's to go on with: %v, want %v", got, want)
			}
			if got := runtime.Sender(&asked, "bob"); got != runtime.OfNobody {
				t.Errorf("without a call sent by %v", got)
			}
		})
	}
	if runtime.RequestOrigin(nil, "bob") != runtime.OfNobody || runtime.Sender(nil, "bob") != runtime.OfNobody {
		t.Error("of a trace that is not there somebody is named")
	}
}

// TestEndedByNamesTheRightByWhichItEnded: the right comes from the effect's own meta, and for an
// effect that a peer appended, from the log.
func TestEndedByNamesTheRightByWhichItEnded(t *testing.T) {
	for name, c := range map[string]struct {
		call, effect tga.Meta
		notes        []tga.Note
		by           runtime.Writer
		who          string
	}{
		"this process":                  {nil, nil, nil, runtime.ByProcess, ""},
		"a probe":                       {nil, tga.Meta{tga.MetaResolvedBy: "probe"}, nil, runtime.ByProbe, ""},
		"a person":                      {nil, tga.Meta{tga.MetaResolvedBy: "person", tga.MetaResolver: "ann"}, nil, runtime.ByPerson, "ann"},
		"an executor":                   {tga.Meta{tga.MetaAttempt: tga.AttemptExternal}, tga.Meta{tga.MetaFinishedBy: "exec"}, nil, runtime.ByPermit, "exec"},
		"an executor that gave it back": {tga.Meta{tga.MetaAttempt: tga.AttemptExternal}, nil, nil, runtime.ByPermit, ""},
		"an executor, late":             {nil, tga.Meta{tga.MetaFinishedBy: "exec"}, nil, runtime.ByPermit, "exec"},
		"a peer":                        {nil, nil, []tga.Note{appendedBy(t, "bob", 4, 4)}, runtime.ByPeer, "bob"},
		"a peer that claims to be a person": {
			nil, tga.Meta{tga.MetaResolvedBy: "person", tga.MetaResolver: "ann"},
			[]tga.Note{appendedBy(t, "bob", 4, 4)}, runtime.ByPeer, "bob",
		},
	} {
		trace := called(nil, c.call, c.notes...)
		if _, _, ok := runtime.EndedBy(trace); ok {
			t.Errorf("%s: ended without an effect", name)
		}
		trace.Entries = append(trace.Entries, tga.LogEntry{Seq: 4, Type: tga.EffectType})
		trace.Effect = &tga.Artifact{Type: tga.EffectType, Meta: c.effect}
		if by, who, ok := runtime.EndedBy(trace); by != c.by || who != c.who || !ok {
			t.Errorf("%s: ended by %v %q, %v, want %v %q", name, by, who, ok, c.by, c.who)
		}
	}
}

// TestRefusalNamesTheRightsThatAreMissing: those and no others, for the operator gives them by it.
func TestRefusalNamesTheRightsThatAreMissing(t *testing.T) {
	const all = runtime.RightDecide | runtime.RightSign | runtime.RightSelf
	for has, want := range map[runtime.Rights]string{
		0:                          "an approval takes the verb decide and a [[supervisor]] of the configuration that names the peer and approval.self = true, because it submitted the request",
		all &^ runtime.RightDecide: "an approval takes the verb decide",
		all &^ runtime.RightSign:   "an approval takes a [[supervisor]] of the configuration that names the peer",
		all &^ runtime.RightSelf:   "an approval takes approval.self = true, because it submitted the request",
		runtime.RightAdmin | runtime.RightAppend | runtime.RightSign | runtime.RightSelf: "an approval takes the verb decide",
	} {
		err := runtime.MayAppend(runtime.Claim{Subject: runtime.AnApproval, Writer: runtime.ByPeer, Origin: runtime.OfWriter, Rights: has})
		if e := (*tga.Error)(nil); !errors.As(err, &e) || e.Message != want {
			t.Errorf("with rights %05b: %v, want %q", has, err, want)
		}
	}
}

// TestPeersAttemptIsNotFencedByTime: a peer appended its call itself and sent it. Nobody here sees the peer end, so
// max_in_flight never makes the server's "did not run" permit another send.
func TestPeersAttemptIsNotFencedByTime(t *testing.T) {
	for _, by := range []string{"", "bob"} {
		read := licence(ledger.ReadOnly) // then the call names no licence, like a peer's
		read.Resends = -1
		source := setup(t, read, func(b *bench) { b.tool.answer = unknown })
		res, err := source.call(charge("k"))
		wantCode(t, err, tga.EffectInDoubt)
		made, err := source.db.Load(t.Context(), res.TraceID)
		if err != nil {
			t.Fatal(err)
		}
		b, p := probing(t, ledger.Licence{MaxInFlight: 10 * time.Minute}, func(int, runtime.Call) (runtime.Probed, error) {
			return runtime.Probed{Answer: ledger.ProbeNotRan}, nil
		})
		b.tool.answer = nil
		var batch chain.Batch
		for _, a := range []*tga.Artifact{made.Request, made.Decision, made.Call} {
			batch.Artifacts = append(batch.Artifacts, chain.NewArtifact{Artifact: a})
		}
		if by != "" {
			n := appendedBy(t, by, 1, 3)
			batch.Notes = []chain.NewNote{{Kind: n.Kind, Who: n.Who, Body: n.Body}}
		}
		lease, err := b.db.Acquire(t.Context(), res.TraceID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.db.Append(t.Context(), lease, batch); err != nil {
			t.Fatal(err)
		}
		b.db.Release(lease)
		b.reopen()
		for range 3 {
			_, err = b.rt.Recover(t.Context(), res.TraceID)
			b.advance(6 * time.Minute)
		}
		if by == "" { // the control: this process sent it
			b.wantSends(1)
			continue
		}
		wantCode(t, err, tga.EffectInDoubt)
		b.wantSends(0)
		if p.asked != 3 {
			t.Errorf("asked %d times", p.asked)
		}
	}
}

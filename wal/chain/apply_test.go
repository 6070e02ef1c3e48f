package chain_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

var equalTraces = cmp.Options{cmpopts.IgnoreUnexported(chain.Trace{}), cmpopts.EquateEmpty()}

// at returns a trace of seed 1 folded up to n entries.
func at(t *testing.T, n int, o chaintest.Options) *chain.Trace {
	t.Helper()
	if n == 0 {
		return chain.NewTrace(chaintest.ID(o.Seed, 0))
	}
	o.Entries = n
	return chaintest.New(o).State
}

// resealed returns e changed by f, with a digest that is right for what it then says.
func resealed(e chain.Entry, f func(*chain.Entry)) chain.Entry {
	f(&e)
	e.Seal()
	e.Preimage = nil
	return e
}

// refused applies e, which must be refused with a code, and checks that the trace is
// as it was.
func refused(t *testing.T, tr *chain.Trace, e chain.Entry, want tga.Code) *tga.Error {
	t.Helper()
	before := tr.Clone()
	err := tr.Apply(&e)
	var te *tga.Error
	if !errors.As(err, &te) || te.Code != want {
		t.Fatalf("apply %s entry %d on head %d: %v, want %s", e.Type, e.Seq, tr.Head.Seq, err, want)
	}
	if te.TraceID != tr.ID || te.Where != "given" {
		t.Errorf("error names trace %s, where %q", te.TraceID, te.Where)
	}
	if diff := cmp.Diff(before, tr, equalTraces); diff != "" {
		t.Errorf("the refused entry changed the trace:\n%s", diff)
	}
	return te
}

// TestMachineGrid walks every head and every kind of next entry, legal and illegal:
// each entry chains and is sealed, so that only the machine can refuse it.
func TestMachineGrid(t *testing.T) {
	heads := map[tga.State]*chain.Trace{
		tga.None:       at(t, 0, chaintest.Options{}),
		tga.Pending:    at(t, 1, chaintest.Options{}),
		tga.Authorized: at(t, 2, chaintest.Options{}),
		tga.Executing:  at(t, 3, chaintest.Options{}),
		tga.Completed:  at(t, 4, chaintest.Options{}),
		tga.Failed:     at(t, 4, chaintest.Options{Status: tga.StatusError}),
		tga.Denied:     at(t, 2, chaintest.Options{Verdict: tga.Deny}),
	}
	legal := map[[3]any]bool{
		{tga.None, tga.RequestType, ""}:                    true,
		{tga.Pending, tga.DecisionType, tga.Approve}:       true,
		{tga.Pending, tga.DecisionType, tga.Deny}:          true,
		{tga.Authorized, tga.CallType, ""}:                 true,
		{tga.Executing, tga.EffectType, tga.StatusSuccess}: true,
		{tga.Executing, tga.EffectType, tga.StatusFailure}: true,
		{tga.Executing, tga.EffectType, tga.StatusDenied}:  true,
		{tga.Executing, tga.EffectType, tga.StatusError}:   true,
	}
	type candidate struct {
		artifact *tga.Artifact
		verdict  string
	}
	candidates := []candidate{
		{chaintest.Artifacts(chaintest.Options{})[0], ""},
		{chaintest.Artifacts(chaintest.Options{})[1], tga.Approve},
		{chaintest.Artifacts(chaintest.Options{Verdict: tga.Deny})[1], tga.Deny},
		{chaintest.Artifacts(chaintest.Options{Verdict: tga.NeedsApproval})[1], tga.NeedsApproval},
		{chaintest.Artifacts(chaintest.Options{})[2], ""},
	}
	for _, s := range []string{tga.StatusSuccess, tga.StatusFailure, tga.StatusDenied, tga.StatusError} {
		candidates = append(candidates, candidate{chaintest.Artifacts(chaintest.Options{Status: s})[3], s})
	}
	states := []tga.State{tga.Pending, tga.Authorized, tga.Executing, tga.Completed, tga.Failed, tga.Denied}
	var accepted int
	for head, base := range heads {
		for _, c := range candidates {
			_, err := base.Link(c.artifact, 0)
			if want := legal[[3]any{head, c.artifact.Type, c.verdict}]; (err == nil) != want {
				t.Errorf("link %s %s on %q: %v", c.artifact.Type, c.verdict, head, err)
			} else if err != nil && tga.CodeOf(err) != tga.StateInvalidTransition {
				t.Errorf("link %s %s on %q: %v", c.artifact.Type, c.verdict, head, err)
			}
			// Whatever from and to an entry claims, one pair at most is right.
			for _, from := range states {
				for _, to := range states {
					for _, withArtifact := range []bool{true, false} {
						tr := base.Clone()
						e := chain.Entry{LogEntry: tga.LogEntry{
							TraceID: tr.ID, Seq: tr.Head.Seq + 1, Prev: tr.Head.Digest, From: from, To: to,
							Type: c.artifact.Type, ArtifactID: c.artifact.ID, ArtifactDigest: c.artifact.Digest,
						}}
						if withArtifact {
							e.Artifact = c.artifact
						}
						switch c.artifact.Type {
						case tga.CallType:
							e.ToolCallID, e.IdempotencyKey = c.artifact.ID, c.artifact.Call.IdempotencyKey
						case tga.EffectType:
							e.ToolCallID = c.artifact.Effect.CallID
						}
						e.Seal()
						err := tr.Apply(&e)
						next, ok := tga.Next(head, c.artifact.Type, c.verdict)
						sameFrom := from == head || head == tga.None && from == tga.Pending
						want := ok && sameFrom && to == next
						if !withArtifact {
							// Without the artifact its verdict is not known: any edge of
							// the type from here.
							want = sameFrom && tga.LegalPair(from, to, c.artifact.Type) && (head == tga.None) == (c.artifact.Type == tga.RequestType)
						}
						if (err == nil) != want || err != nil && tga.CodeOf(err) != tga.StateInvalidTransition {
							t.Errorf("%s %s %s→%s on %q, artifact %v: %v, want legal %v",
								c.artifact.Type, c.verdict, from, to, head, withArtifact, err, want)
						}
						if err == nil && withArtifact {
							accepted++
						}
					}
				}
			}
		}
	}
	if accepted != len(legal) {
		t.Errorf("%d edges accepted, the machine has %d", accepted, len(legal))
	}
}

// TestChecksAreMadeInOrder applies entries that fail a check and all checks after it. The code must
// be that of the first.
func TestChecksAreMadeInOrder(t *testing.T) {
	o := chaintest.Options{Key: "order-1"}
	base := at(t, 2, o)
	good := chaintest.New(chaintest.Options{Key: "order-1", Entries: 3}).Entries[2]
	other := chaintest.Artifacts(chaintest.Options{Seed: 99})[2]
	steps := []struct {
		want  tga.Code
		spoil func(*chain.Entry)
	}{
		{tga.SchemaViolation, func(e *chain.Entry) { e.Artifact, e.ArtifactDigest = other, other.Digest }},
		{tga.MissingToolCallID, func(e *chain.Entry) { e.ToolCallID = tga.ID{} }},
		{tga.StateInvalidTransition, func(e *chain.Entry) { e.From = tga.Pending }},
		{tga.StateChecksumMismatch, func(e *chain.Entry) { e.Prev[0]++ }},
		{tga.StateSequenceGap, func(e *chain.Entry) { e.Seq++ }},
	}
	e := good
	for _, s := range steps {
		e = resealed(e, s.spoil)
		refused(t, base.Clone(), e, s.want)
	}
	err := refused(t, base.Clone(), e, tga.StateSequenceGap)
	if err.ExpectedSeq != 3 || err.ActualSeq != 4 {
		t.Errorf("gap names expected %d, actual %d", err.ExpectedSeq, err.ActualSeq)
	}
	if err := base.Apply(&good); err != nil {
		t.Errorf("the entry that was spoiled: %v", err)
	}
}

// TestRefusedEntryChangesNothing refuses an entry of each position for its digest; the
// other refusals of this package go through the same helper.
func TestRefusedEntryChangesNothing(t *testing.T) {
	tr := chaintest.New(chaintest.Options{Documents: []chain.Document{document("/result", 3)}})
	for n := range 4 {
		e := tr.Entries[n]
		e.Digest[0]++
		err := refused(t, at(t, n, chaintest.Options{Documents: []chain.Document{document("/result", 3)}}), e, tga.StateChecksumMismatch)
		if err.WantDigest != tr.Entries[n].Digest || err.GotDigest != e.Digest || err.Seq != uint64(n+1) {
			t.Errorf("entry %d: error %+v", n+1, err)
		}
	}
}

func TestCloneAdvancesAlone(t *testing.T) {
	// Three entries leave room for a fourth behind the slice that the clones share.
	good, bad := chaintest.New(chaintest.Options{}), chaintest.New(chaintest.Options{Status: tga.StatusError})
	base := at(t, 3, chaintest.Options{})
	one, two := base.Clone(), base.Clone()
	if err := one.Apply(&good.Entries[3]); err != nil {
		t.Fatal(err)
	}
	if err := two.Apply(&bad.Entries[3]); err != nil {
		t.Fatal(err)
	}
	if len(base.Entries) != 3 || one.Entries[3].Digest != good.Entries[3].Digest || two.Entries[3].Digest != bad.Entries[3].Digest {
		t.Error("clones share entries")
	}
}

// A discarded successor does not change its trace, a clone of the trace, or the successor that is
// used instead. Neither does a clone that is advanced in another way.
func TestSuccessorIsTakenOrGivenUp(t *testing.T) {
	artifacts := chaintest.Artifacts(chaintest.Options{Key: "order-1"})
	other := chaintest.Artifacts(chaintest.Options{Key: "order-1", Verdict: tga.Deny})
	extend := func(tr *chain.Trace, a *tga.Artifact) {
		t.Helper()
		if err := tr.Extend(&chain.Entry{Artifact: a}, a.TS); err != nil {
			t.Fatal(err)
		}
	}
	base := chain.NewTrace(artifacts[0].TraceID)
	for n, a := range artifacts {
		want := base.Clone()
		if n == 1 {
			givenUp := base.Successor()
			extend(givenUp, other[1])
			apart := base.Clone()
			extend(apart, other[1])
			next := base.Successor()
			extend(next, a)
			if apart.Entries[1].ArtifactDigest != other[1].Digest || next.Entries[1].ArtifactDigest != a.Digest {
				t.Error("a clone and a successor share an entry")
			}
		}
		next := base.Successor()
		extend(next, a)
		extend(want, a)
		if !slices.Equal(next.Entries, want.Entries) || next.Head != want.Head || len(base.Entries) != n {
			t.Errorf("after %s: %+v, want %+v", a.Type, next.Entries, want.Entries)
		}
		base = next
	}
}

func TestTraceHoldsWhatTheRequestSays(t *testing.T) {
	tr := at(t, 1, chaintest.Options{})
	if tr.Namespace != tga.DefaultNamespace || tr.Deadline != 0 || tr.PlanID != chaintest.ID(0, 100) {
		t.Errorf("namespace %q, deadline %d, plan %s", tr.Namespace, tr.Deadline, tr.PlanID)
	}
	tr = at(t, 1, chaintest.Options{Meta: tga.Meta{"namespace": "team-a", "deadline": "2026-01-15T20:00:00.000Z"}})
	if tr.Namespace != "team-a" || tr.Deadline != chaintest.Start+3600_000 {
		t.Errorf("namespace %q, deadline %s", tr.Namespace, tr.Deadline)
	}
	for name, meta := range map[string]tga.Meta{
		"deadline without time": {"deadline": "soon"}, "deadline number": {"deadline": tga.Number("5")},
		"deadline null": {"deadline": nil}, "namespace empty": {"namespace": ""}, "namespace null": {"namespace": nil},
	} {
		t.Run(name, func(t *testing.T) {
			a := chaintest.Artifacts(chaintest.Options{Meta: meta})[0]
			tr := chain.NewTrace(a.TraceID)
			e, err := tr.Link(a, 0)
			if err != nil {
				t.Fatal(err)
			}
			refused(t, tr, chain.Entry{LogEntry: e, Artifact: a}, tga.SchemaViolation)
		})
	}
}

func TestStateAndCheckpointAreThoseOfTheHead(t *testing.T) {
	for n := range 5 {
		tr := at(t, n, chaintest.Options{})
		s, c := tr.State(), tr.Checkpoint(chaintest.Start)
		current := tr.Head.State
		if n == 0 {
			current = tga.Pending
		}
		if s.Current != current || s.LastSeq != uint64(n) || s.LastDigest != tr.Head.Digest || s.Digest.IsZero() {
			t.Errorf("state at %d: %+v", n, s)
		}
		if c.Seq != uint64(n) || c.State.LastDigest != tr.Head.Digest || c.State.Current != current || c.Digest.IsZero() || c.TS != chaintest.Start {
			t.Errorf("checkpoint at %d: %+v", n, c)
		}
		if n == 0 {
			continue // an empty trace has no plan, and so no contract form
		}
		if _, err := tga.DecodeExecutionState(s.AppendCanonical(nil)); err != nil {
			t.Errorf("state at %d: %v", n, err)
		}
		if _, err := tga.DecodeCheckpoint(c.AppendCanonical(nil)); err != nil {
			t.Errorf("checkpoint at %d: %v", n, err)
		}
	}
}

// Extend gives the same entry and trace as Link and Apply, and refuses an artifact whose digest is
// not that of its bytes.
func TestExtendIsLinkAndApply(t *testing.T) {
	linked, extended := chain.NewTrace(chaintest.New(chaintest.Options{}).ID), chain.NewTrace(chaintest.New(chaintest.Options{}).ID)
	for _, a := range chaintest.Artifacts(chaintest.Options{Key: "order-1"}) {
		made, err := linked.Link(a, a.TS)
		if err != nil {
			t.Fatal(err)
		}
		want, got := chain.Entry{LogEntry: made, Artifact: a}, chain.Entry{Artifact: a}
		if err := errors.Join(linked.Apply(&want), extended.Extend(&got, a.TS)); err != nil {
			t.Fatal(err)
		}
		if got.LogEntry != want.LogEntry || !bytes.Equal(got.Preimage, want.Preimage) || extended.Head != linked.Head {
			t.Errorf("%s: extended %+v, linked %+v", a.Type, got.LogEntry, want.LogEntry)
		}
	}
	bad := *chaintest.Artifacts(chaintest.Options{Key: "order-1"})[0]
	bad.Digest[0] ^= 1
	err := chain.NewTrace(bad.TraceID).Extend(&chain.Entry{Artifact: &bad}, bad.TS)
	if tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("artifact with another's digest: %v", err)
	}
}

// TestListingOfEachState: what a list shows of a trace, from its first entry on, and once the request is erased.
func TestListingOfEachState(t *testing.T) {
	whole := at(t, 4, chaintest.Options{})
	p, call := whole.Request.Request, whole.Call
	for n := 1; n <= 4; n++ {
		tr := at(t, n, chaintest.Options{})
		want := chain.Listing{
			OpenTrace: chain.OpenTrace{TraceID: tr.ID, Namespace: tr.Namespace, State: tr.Head.State, Since: whole.Entries[n-1].TS, Deadline: tr.Deadline},
			Server:    p.Proposal.ToolServer, Tool: p.Proposal.ToolName, Key: p.IdempotencyKey,
		}
		if n >= 3 {
			want.Key, want.ToolCallID = call.Call.IdempotencyKey, call.ID
		}
		if diff := cmp.Diff(want, tr.Listing()); diff != "" {
			t.Errorf("with %d entries (-want +got):\n%s", n, diff)
		}
	}
	whole.Request = nil // erased: the entries have the call's id and key
	if got := whole.Listing(); got.Server != "" || got.Tool != "" || got.Key != call.Call.IdempotencyKey || got.ToolCallID != call.ID || got.State != tga.Completed {
		t.Errorf("erased: %+v", got)
	}
	first := at(t, 1, chaintest.Options{})
	first.Request = nil
	if got := first.Listing(); got.Key != "" || got.Server != "" || !got.ToolCallID.IsZero() {
		t.Errorf("erased before its call: %+v", got)
	}
}

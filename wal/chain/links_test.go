package chain_test

import (
	"testing"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// changed returns the n-th artifact of a trace, changed by f and sealed again.
func changed(t *testing.T, o chaintest.Options, n int, f func(*tga.Artifact)) *tga.Artifact {
	t.Helper()
	a := chaintest.Artifacts(o)[n]
	f(a)
	if err := a.Seal(); err != nil {
		t.Fatal(err)
	}
	return a
}

// TestArtifactLinks changes each member by which an artifact is bound to the trace. The
// artifact and its entry are sealed and right in themselves.
func TestArtifactLinks(t *testing.T) {
	o := chaintest.Options{Key: "order-1", Token: "aGVhZA.Ym9keQ.c2ln"}
	noToken := chaintest.Options{Key: "order-1"}
	noKey := chaintest.Options{}
	digest, id := tga.Sum([]byte("another")), chaintest.ID(77, 77)
	for _, c := range []struct {
		name string
		o    chaintest.Options
		n    int // artifact, from 0
		f    func(*tga.Artifact)
		want tga.Code
		at   string
	}{
		{"decision names another request", o, 1, func(a *tga.Artifact) { a.Decision.RequestID = id }, tga.SchemaViolation, "/action_request_id"},
		{"decision names another request digest", o, 1, func(a *tga.Artifact) { a.Decision.RequestDigest = digest }, tga.StateChecksumMismatch, "/action_request_digest"},
		{"call names another decision", o, 2, func(a *tga.Artifact) { a.Call.DecisionID = id }, tga.SchemaViolation, "/supervisor_decision_id"},
		{"call names another decision digest", o, 2, func(a *tga.Artifact) { a.Call.DecisionDigest = digest }, tga.StateChecksumMismatch, "/supervisor_decision_digest"},
		{"effect names another call", o, 3, func(a *tga.Artifact) { a.Effect.CallID = id }, tga.SchemaViolation, "/tool_call_id"},
		{"effect names another call digest", o, 3, func(a *tga.Artifact) { a.Effect.CallDigest = digest }, tga.StateChecksumMismatch, "/tool_call_digest"},
		{"call has other args", o, 2, func(a *tga.Artifact) { a.Call.Call.Args = []byte(`{"amount":13}`) }, tga.SchemaViolation, "/call"},
		{"call has another tool", o, 2, func(a *tga.Artifact) { a.Call.Call.ToolName = "refund" }, tga.SchemaViolation, "/call"},
		{"call has another server", o, 2, func(a *tga.Artifact) { a.Call.Call.ToolServer = "bank" }, tga.SchemaViolation, "/call"},
		{"call has another key", o, 2, func(a *tga.Artifact) { a.Call.IdempotencyKey = "order-2" }, tga.SchemaViolation, "/idempotency_key"},
		{"call has a key of its own", noKey, 2, func(a *tga.Artifact) { a.Call.IdempotencyKey = "order-2" }, "", ""},
		{"call without capability digest", o, 2, func(a *tga.Artifact) { a.Call.CapabilityDigest = tga.Digest{} }, tga.SchemaViolation, "/capability_digest"},
		{"call with another capability digest", o, 2, func(a *tga.Artifact) { a.Call.CapabilityDigest = digest }, tga.StateChecksumMismatch, "/capability_digest"},
		{"call with a capability nobody minted", noToken, 2, func(a *tga.Artifact) { a.Call.CapabilityDigest = digest }, tga.SchemaViolation, "/capability_digest"},
		{"request of another trace", o, 0, func(a *tga.Artifact) { a.TraceID = id }, tga.SchemaViolation, "/trace_id"},
		{"decision of another trace", o, 1, func(a *tga.Artifact) { a.TraceID = id }, tga.SchemaViolation, "/trace_id"},
		{"call of another trace", o, 2, func(a *tga.Artifact) { a.TraceID = id }, tga.SchemaViolation, "/trace_id"},
		{"effect of another trace", o, 3, func(a *tga.Artifact) { a.TraceID = id }, tga.SchemaViolation, "/trace_id"},
		{"decision of another plan", o, 1, func(a *tga.Artifact) { a.PlanID = id }, tga.SchemaViolation, "/plan_id"},
		{"call of another plan", o, 2, func(a *tga.Artifact) { a.PlanID = id }, tga.SchemaViolation, "/plan_id"},
		{"effect of another plan", o, 3, func(a *tga.Artifact) { a.PlanID = id }, tga.SchemaViolation, "/plan_id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := at(t, c.n, c.o)
			a := changed(t, c.o, c.n, c.f)
			e, err := tr.Link(a, a.TS)
			if err != nil {
				t.Fatal(err)
			}
			entry := chain.Entry{LogEntry: e, Artifact: a}
			if c.want == "" {
				if err := tr.Apply(&entry); err != nil {
					t.Error(err)
				}
				return
			}
			if err := refused(t, tr, entry, c.want); err.Pointer != c.at {
				t.Errorf("pointer %q, want %q: %v", err.Pointer, c.at, err)
			}
		})
	}
}

// TestEntryAgreesWithItsArtifact changes what a caller's own entry says beside the
// artifact.
func TestEntryAgreesWithItsArtifact(t *testing.T) {
	o := chaintest.Options{Key: "order-1"}
	whole := chaintest.New(o)
	digest, id := tga.Sum([]byte("another")), chaintest.ID(77, 77)
	for _, c := range []struct {
		name string
		n    int
		f    func(*chain.Entry)
		want tga.Code
	}{
		{"another trace", 0, func(e *chain.Entry) { e.TraceID = id }, tga.SchemaViolation},
		{"another artifact id", 1, func(e *chain.Entry) { e.ArtifactID = id }, tga.SchemaViolation},
		{"another artifact digest", 1, func(e *chain.Entry) { e.ArtifactDigest = digest }, tga.StateChecksumMismatch},
		{"another tool_call_id on the call", 2, func(e *chain.Entry) { e.ToolCallID = id }, tga.SchemaViolation},
		{"another tool_call_id on the effect", 3, func(e *chain.Entry) { e.ToolCallID = id }, tga.SchemaViolation},
		{"no tool_call_id on the call", 2, func(e *chain.Entry) { e.ToolCallID = tga.ID{} }, tga.MissingToolCallID},
		{"no tool_call_id on the effect", 3, func(e *chain.Entry) { e.ToolCallID = tga.ID{} }, tga.MissingToolCallID},
		{"tool_call_id on the request", 0, func(e *chain.Entry) { e.ToolCallID = id }, tga.SchemaViolation},
		{"tool_call_id on the decision", 1, func(e *chain.Entry) { e.ToolCallID = id }, tga.SchemaViolation},
		{"another key on the request", 0, func(e *chain.Entry) { e.IdempotencyKey = "x" }, tga.SchemaViolation},
		{"a key on the decision", 1, func(e *chain.Entry) { e.IdempotencyKey = "order-1" }, tga.SchemaViolation},
		{"another key on the call", 2, func(e *chain.Entry) { e.IdempotencyKey = "x" }, tga.SchemaViolation},
		{"no key on the call", 2, func(e *chain.Entry) { e.IdempotencyKey = "" }, tga.SchemaViolation},
		{"another key on the effect", 3, func(e *chain.Entry) { e.IdempotencyKey = "x" }, tga.SchemaViolation},
		{"no key on the request", 0, func(e *chain.Entry) { e.IdempotencyKey = "" }, ""},
		{"no key on the effect", 3, func(e *chain.Entry) { e.IdempotencyKey = "" }, ""},
		{"an artifact of another type", 1, func(e *chain.Entry) {
			e.Artifact = whole.Entries[0].Artifact
			e.ArtifactDigest = e.Artifact.Digest
		}, tga.StateInvalidTransition},
		{"an artifact whose bytes say another digest", 1, func(e *chain.Entry) {
			a := *e.Artifact
			a.Digest, e.ArtifactDigest = digest, digest
			e.Artifact = &a
		}, tga.StateChecksumMismatch},
		{"an artifact whose bytes were changed", 1, func(e *chain.Entry) {
			a := *e.Artifact
			a.Canonical = append([]byte(nil), a.Canonical...)
			a.Canonical[len(a.Canonical)-3]++
			e.Artifact = &a
		}, tga.StateChecksumMismatch},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := resealed(whole.Entries[c.n], c.f)
			tr := at(t, c.n, o)
			if c.want != "" {
				refused(t, tr, e, c.want)
			} else if err := tr.Apply(&e); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPreimageIsTheEntry: the stored bytes and the members that the program uses must agree.
func TestPreimageIsTheEntry(t *testing.T) {
	tr := chaintest.New(chaintest.Options{})
	e := tr.Entries[1]
	e.Preimage = tr.Entries[0].Preimage
	refused(t, at(t, 1, chaintest.Options{}), e, tga.StateChecksumMismatch)
}

// TestErasedArtifactsStillLink folds traces in which any set of artifacts was erased.
// Links by id and digest hold without the artifact they name.
func TestErasedArtifactsStillLink(t *testing.T) {
	whole := chaintest.New(chaintest.Options{Key: "k", Documents: []chain.Document{document("/result", 9)}})
	for set := range 16 {
		tr := chain.NewTrace(whole.ID)
		for i, e := range whole.Entries {
			if set&(1<<i) != 0 {
				e = chaintest.Erase(e)
			}
			if err := tr.Apply(&e); err != nil {
				t.Fatalf("set %04b, entry %d: %v", set, i+1, err)
			}
		}
		if tr.Head != whole.State.Head {
			t.Errorf("set %04b: head %+v", set, tr.Head)
		}
		if erased := set&1 != 0; (tr.Request == nil) != erased || (tr.Namespace == "") != erased {
			t.Errorf("set %04b: request %v, namespace %q", set, tr.Request, tr.Namespace)
		}
	}
	tr := chain.NewTrace(whole.ID)
	for _, e := range whole.Entries[:3] {
		e = chaintest.Erase(e)
		if err := tr.Apply(&e); err != nil {
			t.Fatal(err)
		}
	}
	a := changed(t, chaintest.Options{Key: "k"}, 3, func(a *tga.Artifact) { a.Effect.CallDigest = tga.Sum(nil) })
	e, err := tr.Link(a, 0)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, tr, chain.Entry{LogEntry: e, Artifact: a}, tga.StateChecksumMismatch)
}

func TestDocumentsAreBound(t *testing.T) {
	result, changes := document("/result", 5), document("/state_changes", 6)
	other := chain.Document{Pointer: "/elsewhere", Data: []byte("kept by the tool")}
	three := []chain.Document{result, changes, other}
	o := chaintest.Options{Documents: three}
	base := at(t, 3, o)
	erased := chain.Document{Pointer: "/result", Erased: true}
	for _, c := range []struct {
		name string
		docs []chain.Document
		want tga.Code
	}{
		{"all", three, ""},
		{"one of another pointer kept elsewhere", three[:2], ""},
		{"an erased one", []chain.Document{erased, changes, other}, ""},
		{"result missing", three[1:], tga.StateChecksumMismatch},
		{"state changes missing", []chain.Document{result, other}, tga.StateChecksumMismatch},
		{"none", nil, tga.StateChecksumMismatch},
		{"out of order", []chain.Document{changes, result, other}, tga.StateChecksumMismatch},
		{"one more", append(three[:3:3], document("/evidence", 1)), tga.StateChecksumMismatch},
		{"one twice", []chain.Document{result, result, changes, other}, tga.StateChecksumMismatch},
		{"a byte less", []chain.Document{document("/result", 4), changes, other}, tga.StateChecksumMismatch},
		{"another byte", []chain.Document{{Pointer: "/result", Data: []byte("xxxxy")}, changes, other}, tga.StateChecksumMismatch},
		{"erased with bytes", []chain.Document{{Pointer: "/result", Data: []byte("x"), Erased: true}, changes, other}, tga.StateChecksumMismatch},
		{"pointer over 1 KiB", []chain.Document{{Pointer: "/" + string(make([]byte, 1<<10))}}, tga.LimitExceeded},
		{"255 documents", make([]chain.Document, 255), tga.LimitExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := base.Clone()
			a := chaintest.Artifacts(o)[3]
			e, err := tr.Link(a, a.TS)
			if err != nil {
				t.Fatal(err)
			}
			entry := chain.Entry{LogEntry: e, Artifact: a, Documents: c.docs}
			if c.want != "" {
				refused(t, tr, entry, c.want)
			} else if err := tr.Apply(&entry); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("of a request", func(t *testing.T) {
		e := chaintest.New(chaintest.Options{Entries: 1}).Entries[0]
		e.Documents = []chain.Document{result}
		refused(t, at(t, 0, chaintest.Options{}), e, tga.StateChecksumMismatch)
	})
	t.Run("bound twice", func(t *testing.T) {
		a := changed(t, o, 3, func(a *tga.Artifact) {
			a.Effect.DocumentHashes = append(a.Effect.DocumentHashes, a.Effect.DocumentHashes[0])
		})
		tr := base.Clone()
		e, err := tr.Link(a, 0)
		if err != nil {
			t.Fatal(err)
		}
		refused(t, tr, chain.Entry{LogEntry: e, Artifact: a, Documents: append(three[:3:3], result)}, tga.StateChecksumMismatch)
	})
	t.Run("of an erased artifact", func(t *testing.T) {
		e := chaintest.New(o).Entries[3]
		e.Artifact = nil
		refused(t, base.Clone(), e, tga.StateChecksumMismatch)
		e.Documents = []chain.Document{erased}
		refused(t, base.Clone(), e, tga.StateChecksumMismatch)
	})
}

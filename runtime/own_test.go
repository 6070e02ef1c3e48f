package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// scribbler is all code of an embedder that is given parts of calls and answers. It notes the parts
// and then writes into everything that it was given.
type scribbler struct {
	mu   sync.Mutex
	sent int
	saw  map[string][]string // hook → the arguments or answers that it was given
}

// scribble notes what a hook was given, and overwrites it.
func (s *scribbler) scribble(hook string, given []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.saw == nil {
		s.saw = map[string][]string{}
	}
	s.saw[hook] = append(s.saw[hook], string(given))
	for i := range given {
		given[i] = 'x'
	}
}

func (s *scribbler) Dispatch(_ context.Context, c runtime.Call) (runtime.Reply, error) {
	s.scribble("Dispatch", c.Args)
	if s.sent++; s.sent == 1 {
		return runtime.Reply{}, errReset
	}
	return ok(`{"paid":1}`), nil
}

func (s *scribbler) Check(_ context.Context, c runtime.Call) error {
	s.scribble("Check", c.Args)
	return nil
}

func (s *scribbler) Prepare(_ context.Context, c runtime.Call) ([]chain.Attachment, error) {
	s.scribble("Prepare", c.Args)
	return nil, nil
}

func (s *scribbler) Decide(_ context.Context, a *tga.Artifact) (runtime.Verdict, error) {
	q := a.Request
	s.scribble("Decide", q.Proposal.Args)
	a.ID, a.Digest, a.Meta[tga.MetaNamespace] = tga.ID{}, tga.Digest{}, "other"
	q.IdempotencyKey, q.Proposal.ToolName, q.Resources[0] = "other", "refund", tga.Resource{}
	return runtime.Verdict{Decision: tga.Approve, Rationale: "approved by a scribbler"}, nil
}

func (*scribbler) Pure() {}

func (s *scribbler) Probe(_ context.Context, c runtime.Call) (runtime.Probed, error) {
	s.scribble("Probe", c.Args)
	return runtime.Probed{Answer: ledger.ProbeNotRan, Fenced: true}, nil
}

func (s *scribbler) outcome(c runtime.Call, r *runtime.Reply) error {
	s.scribble("Outcome", c.Args)
	s.scribble("Outcome, answer", r.Result)
	return nil
}

func (s *scribbler) inverse(c *tga.ToolCall, e *tga.ToolEffect, result []byte) (runtime.Inverse, bool, error) {
	s.scribble("Inverse", c.Call.Args)
	s.scribble("Inverse, answer", result)
	c.Call.ToolName, e.Outcome.Status, e.DocumentHashes[0] = "other", "other", tga.DocumentHash{}
	return runtime.Inverse{Server: "payments", Tool: "refund", Args: []byte(`{"amount":100}`)}, true, nil
}

// TestEmbeddersCodeGetsCopies has each part of an embedder overwrite what it is given. The log, every attempt and every
// answer have what the caller asked and what the tool answered; setup checks the store at the end.
func TestEmbeddersCodeGetsCopies(t *testing.T) {
	s := &scribbler{}
	b := setup(t, licence(ledger.Probe), func(b *bench) {
		b.tools, b.sup = s, s
		b.opts.Trust.Prober = func(string, string) runtime.Prober { return s }
		b.opts.Trust.Outcome, b.opts.Trust.Inverse = s.outcome, s.inverse
	})
	req := charge("k")
	req.TraceID = newID()
	for range 2 {
		if res := b.mustCall(req); res.State != tga.Completed || string(res.Value) != `{"paid":1}` {
			t.Errorf("%v, %s", res.State, res.Value)
		} else {
			s.scribble("caller", res.Value)
		}
	}
	if res, err := b.rt.Compensate(context.Background(), req.TraceID, "ann"); err != nil || res.State != tga.Completed {
		t.Errorf("compensate: %v, %v", res.State, err)
	}
	if res := b.wantState(req.TraceID, tga.Completed); string(res.Value) != `{"paid":1}` {
		t.Errorf("the store has the answer %s", res.Value)
	}
	for _, hook := range []string{"Dispatch", "Check", "Prepare", "Decide", "Probe", "Outcome", "Inverse"} {
		if len(s.saw[hook]) == 0 {
			t.Errorf("%s was not called", hook)
		}
		for _, args := range s.saw[hook] {
			if args != `{"amount":100}` {
				t.Errorf("%s was given %s", hook, args)
			}
		}
	}
	if got := s.saw["Outcome, answer"][0] + s.saw["Inverse, answer"][0]; got != `{"paid":1}{"paid":1}` {
		t.Errorf("answers: %s", got)
	}
	if s.sent != 3 {
		t.Errorf("%d sends, want two of the call and one of its inverse", s.sent)
	}
}

// inPlace is a redactor that masks the bytes that it is given, and returns them.
type inPlace struct{}

func mask(b []byte) bool {
	at := bytes.Index(b, []byte(cardNumber))
	if at < 0 {
		return false
	}
	copy(b[at:], "####-####-####-####")
	return true
}

func (inPlace) Args(c runtime.Call) ([]byte, bool, error) { return c.Args, mask(c.Args), nil }

func (inPlace) Reply(_ runtime.Call, r runtime.Reply) (runtime.Reply, bool, error) {
	return r, mask(r.Result), nil
}

// TestRedactorMayMaskInPlace: the tool gets the whole arguments and the waiting caller the whole answer, also if the
// redactor writes into the bytes that it is given.
func TestRedactorMayMaskInPlace(t *testing.T) {
	b := setup(t, park, func(b *bench) { b.opts.Redact = inPlace{} })
	b.tool.answer = func(_ int, c runtime.Call) (runtime.Reply, error) { return ok(`{"echo":` + string(c.Args) + `}`), nil }
	req := secretCharge("k")
	res := b.mustCall(req)
	if got := string(b.tool.calls[0].Args); got != string(req.Args) {
		t.Errorf("the tool got %s", got)
	}
	if want := `{"echo":` + string(req.Args) + `}`; string(res.Value) != want || res.Redacted {
		t.Errorf("the caller got %s, redacted %v", res.Value, res.Redacted)
	}
	b.wantNoSecret()
}

// finds is a verifier with one finding for everything.
type finds runtime.Finding

func (f finds) Verify(context.Context, tga.StateChange) (runtime.Finding, runtime.Evidence, error) {
	return runtime.Finding(f), runtime.Evidence{}, nil
}

// TestFindingThatIsNoneIsAMismatch: the record is not served, and nothing panics.
func TestFindingThatIsNoneIsAMismatch(t *testing.T) {
	b := setup(t, park, func(b *bench) {
		b.opts.Trust.Verifier = func(string) runtime.Verifier { return finds(runtime.Changed + 1) }
	})
	b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) {
		r := ok(`1`)
		r.Changes = []tga.StateChange{{ResourceType: "row", ResourceID: "1", Operation: "create"}}
		return r, nil
	}
	res, err := b.rt.Recover(context.Background(), b.mustCall(charge("k")).TraceID)
	wantCode(t, err, tga.ConfirmationMismatch)
	if c := res.Confirmation; c == nil || len(c.Mismatches) != 1 || c.Mismatches[0].Finding != runtime.CannotTell || c.Mismatches[0].Reason == "" {
		t.Errorf("%+v", c)
	}
}

// TestCallersKeepWhatTheyHandIn: a caller may use its memory again once a method has returned. The store then still shows
// what was asked, finished and resolved.
func TestCallersKeepWhatTheyHandIn(t *testing.T) {
	ctx := context.Background()
	var asked []tga.Resource
	b := setup(t, park, func(b *bench) {
		b.sup = asks(func(a *tga.Artifact) { asked = a.Request.Resources })
	})
	resources := []tga.Resource{{Kind: "db", ID: "ledger"}}
	req := charge("asked")
	req.Resources = resources
	res, err := b.call(req)
	wantCode(t, err, tga.EscalationRequired)
	resources[0].ID = "scratch"
	b.tool.answer = unknown
	if _, err := b.rt.Decide(ctx, res.TraceID, yes); !errors.Is(err, tga.EffectInDoubt) {
		t.Fatal(err)
	}
	if asked[0].ID != "ledger" {
		t.Errorf("the supervisor is asked about %v", asked)
	}
	room := []byte(`{"paid":1}`)
	answer := func() runtime.Reply { return runtime.Reply{Status: tga.StatusSuccess, Result: room} }
	if _, err := b.rt.Resolve(ctx, res.TraceID, runtime.Resolution{Reply: answer(), Who: "ann", Evidence: room}); err != nil {
		t.Fatal(err)
	}
	begun, err := b.rt.Begin(ctx, runtime.BeginRequest{Request: charge("begun"), BeginID: "b"})
	if err == nil && begun.Standing == runtime.BeginNeedsApproval {
		if _, err = b.rt.Decide(ctx, begun.Result.TraceID, yes); err != nil {
			t.Fatal(err)
		}
		begun, err = b.rt.Begin(ctx, runtime.BeginRequest{Request: charge("begun"), BeginID: "b"})
	}
	if err != nil || begun.Standing != runtime.BeginSend {
		t.Fatalf("%v, %v", begun.Standing, err)
	}
	if _, err := b.rt.Finish(ctx, begun.Result.TraceID, begun.Permit, runtime.Finished{Reply: answer()}); err != nil {
		t.Fatal(err)
	}
	copy(room, `{"paid":9}`)
	for _, id := range []tga.ID{res.TraceID, begun.Result.TraceID} {
		trace, err := b.db.Load(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range trace.Documents {
			if string(d.Data) != `{"paid":1}` {
				t.Errorf("%s is %s", d.Pointer, d.Data)
			}
		}
	}
}

// asks wants one approval of each request, and shows the request.
type asks func(a *tga.Artifact)

func (f asks) Decide(_ context.Context, a *tga.Artifact) (runtime.Verdict, error) {
	f(a)
	return runtime.Verdict{Decision: tga.NeedsApproval, Rationale: "a person must look at it"}, nil
}

// TestAnswersThatChangeAreRecordedAsTheyCame: a tool, a prober, a verifier and a redactor that go on writing into what
// they returned change neither what is recorded nor what is served; setup checks the store at the end.
func TestAnswersThatChangeAreRecordedAsTheyCame(t *testing.T) {
	ctx := context.Background()
	out := [][]byte{[]byte(`{"sent":1}`), []byte(`{"probed":1}`), []byte(`{"evidence":1}`), []byte(`{"verified":1}`), []byte(`{"redacted":1}`)}
	sent, probed, evidence, verified, redacted := out[0], out[1], out[2], out[3], out[4]
	changes := []tga.StateChange{{ResourceType: "row", ResourceID: "1", Operation: "create"}}
	scribbled := func() {
		for _, b := range out {
			b[2] = 'x'
		}
		changes[0].ResourceID = "2"
	}
	b := setup(t, licence(ledger.Probe), func(b *bench) {
		b.opts.Trust.Prober = func(string, string) runtime.Prober {
			return probes{runtime.Probed{Answer: ledger.ProbeRan, Reply: runtime.Reply{Status: tga.StatusSuccess, Result: probed}, Evidence: runtime.Evidence{Detail: evidence}}}
		}
		b.opts.Trust.Verifier = func(string) runtime.Verifier { return verifies{runtime.Evidence{Detail: verified}} }
		b.opts.Redact = redacts{redacted}
	})
	b.tool.answer = func(_ int, c runtime.Call) (runtime.Reply, error) {
		switch c.Key {
		case "probed":
			return runtime.Reply{}, errReset
		case "redacted":
			return ok(`{"whole":1}`), nil
		}
		return runtime.Reply{Status: tga.StatusSuccess, Result: sent, Changes: changes}, nil
	}
	want := map[string]string{}
	for _, key := range []string{"sent", "probed", "redacted"} {
		want[key] = string(b.mustCall(charge(key)).Value)
	}
	want["redacted"] = string(redacted)
	req := charge("sent")
	req.Replay = true
	b.mustCall(req) // verified
	scribbled()
	for key, value := range want {
		if res := b.mustCall(charge(key)); string(res.Value) != value || key == "sent" && res.Changes[0].ResourceID != "1" {
			t.Errorf("%s: a repeat is served %s, recorded was %s; changes %v", key, res.Value, value, res.Changes)
		}
	}
	kept := 0
	for a, err := range b.db.Attachments(ctx, chain.AttachBlob, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(a.Value, []byte("x")) && bytes.HasPrefix(a.Value, []byte(`{"x`)) {
			t.Errorf("evidence was changed: %s", a.Value)
		}
		kept++
	}
	if kept == 0 {
		t.Error("no evidence is kept")
	}
}

type probes struct{ said runtime.Probed }

func (p probes) Probe(context.Context, runtime.Call) (runtime.Probed, error) { return p.said, nil }

type verifies struct{ evidence runtime.Evidence }

func (v verifies) Verify(context.Context, tga.StateChange) (runtime.Finding, runtime.Evidence, error) {
	return runtime.Exists, v.evidence, nil
}

// redacts keeps the given bytes of the answer to a call with the key "redacted".
type redacts struct{ kept []byte }

func (redacts) Args(c runtime.Call) ([]byte, bool, error) { return c.Args, false, nil }

func (r redacts) Reply(c runtime.Call, reply runtime.Reply) (runtime.Reply, bool, error) {
	if c.Key != "redacted" {
		return reply, false, nil
	}
	reply.Result = r.kept
	return reply, true, nil
}

package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/redact"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

const (
	cardNumber = "4111-2222-3333-4444"
	authToken  = "tok-9f8e7d6c5b4a"
)

// redacting keeps the card of a charge and the token of its answer out of the store.
func redacting(b *bench) {
	r, err := redact.New([]byte(strings.Repeat("k", redact.MinKey)), func(_, tool string) *redact.Rule {
		if tool != "charge" {
			return nil
		}
		return &redact.Rule{Args: []string{"/card"}, Result: []string{"/token"}, Patterns: []*regexp.Regexp{regexp.MustCompile(`tok-[0-9a-f]+`)}}
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.opts.Redact = r
	b.tool.answer = answersWithSecrets
}

func answersWithSecrets(_ int, c runtime.Call) (runtime.Reply, error) {
	r := ok(`{"token":"` + authToken + `","charged":100,"echo":` + string(c.Args) + `}`)
	r.Summary = "charged " + cardNumber + " with " + authToken
	return r, nil
}

func secretCharge(key string) runtime.Request {
	req := charge(key)
	req.Args = []byte(`{"amount":100,"card":"` + cardNumber + `"}`)
	return req
}

// wantNoSecret reads every file of the store. parts are parts of secrets that must not be there either.
func (b *bench) wantNoSecret(parts ...string) {
	b.t.Helper()
	b.close()
	files := 0
	err := filepath.WalkDir(b.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		files++
		for _, secret := range append(parts, cardNumber, authToken) {
			if bytes.Contains(raw, []byte(secret)) {
				b.t.Errorf("%s holds %q", path, secret)
			}
		}
		return err
	})
	if err != nil || files == 0 {
		b.t.Fatalf("%d files, %v", files, err)
	}
	b.open()
}

// wantWhole holds every call that reached the tool to the arguments that its caller gave.
func (b *bench) wantWhole() {
	b.t.Helper()
	b.tool.mu.Lock()
	defer b.tool.mu.Unlock()
	for _, c := range b.tool.calls {
		if !bytes.Contains(c.Args, []byte(cardNumber)) || bytes.Contains(c.Args, []byte("REDACTED")) {
			b.t.Errorf("the tool was sent %s", c.Args)
		}
	}
}

// TestSecretsReachTheToolAndNotTheDisk: the caller gets the whole answer, a repeat the redacted one.
func TestSecretsReachTheToolAndNotTheDisk(t *testing.T) {
	b := setup(t, park, redacting)
	res := b.mustCall(secretCharge("order-1"))
	if !bytes.Contains(res.Value, []byte(authToken)) || !bytes.Contains(res.Value, []byte(cardNumber)) || res.Redacted || res.State != tga.Completed {
		t.Errorf("the caller got %s (redacted: %v)", res.Value, res.Redacted)
	}
	b.wantWhole()
	b.wantNoSecret()
	again := b.mustCall(secretCharge("order-1"))
	if !again.Redacted || !again.Replayed || bytes.Contains(again.Value, []byte(authToken)) || !bytes.Contains(again.Value, []byte(`"charged":100`)) {
		t.Errorf("the repeat got %s (redacted: %v)", again.Value, again.Redacted)
	}
	b.wantSends(1)
	// Another card under the same key is another call, though no byte of either card is stored.
	other := secretCharge("order-1")
	other.Args = bytes.Replace(other.Args, []byte("4444"), []byte("5555"), 1)
	_, err := b.call(other)
	wantCode(t, err, tga.IdempotencyKeyConflict)
	plain := charge("order-2") // nothing in it is redacted
	plain.Tool = "refund"
	if res := b.mustCall(plain); res.Redacted || !bytes.Contains(res.Value, []byte(authToken)) {
		t.Errorf("another tool: %s, %v", res.Value, res.Redacted)
	}
}

// TestRedactedCallIsSentFromMemoryAlone: wherever the process dies, and under every licence, recovery
// sends nothing of such a call. A caller that makes the same call again goes on with it.
func TestRedactedCallIsSentFromMemoryAlone(t *testing.T) {
	serial.Test(t)
	for _, kind := range []ledger.LicenceKind{ledger.Park, ledger.DedupeKey, ledger.DedupeArgs, ledger.ReadOnly} {
		for crashAt := 1; crashAt <= 3; crashAt++ {
			for _, after := range []bool{false, true} {
				b := setup(t, licence(kind), redacting, func(b *bench) { b.sup = &impure{} })
				req := secretCharge("order-1")
				if kind == ledger.ReadOnly {
					req.Risk = tga.RiskRead
				}
				store := &counted{Store: b.db, crashAt: crashAt, after: after}
				b.store = store
				b.start()
				_, err := b.call(req)
				if !store.down {
					continue // fewer appends than that
				}
				wantCode(t, err, tga.StoreUnavailable)
				sent := b.tool.sends()
				b.reopen()
				if _, err := b.rt.RecoverAll(context.Background(), 2); err != nil {
					t.Fatal(err)
				}
				if got := b.tool.sends(); got != sent {
					t.Errorf("%v, crash at append %d (%v): recovery sent it", kind, crashAt, after)
				}
				res, err := b.call(req)
				switch {
				case kind == ledger.Park && errors.Is(err, tga.EffectInDoubt):
					// It may have been sent, and no licence permits another send.
				case err != nil || res.State != tga.Completed:
					t.Errorf("%v, crash at append %d (%v): the repeat comes to %v, %v", kind, crashAt, after, res.State, err)
				}
				b.wantWhole()
				b.wantNoSecret()
			}
		}
	}
}

// TestLateApprovalSendsNothingRedacted: the vote counts, and the caller sends.
func TestLateApprovalSendsNothingRedacted(t *testing.T) {
	b := setup(t, park, redacting, needsApproval(1, 0))
	res, err := b.call(secretCharge("order-1"))
	wantCode(t, err, tga.EscalationRequired)
	_, err = b.rt.Decide(context.Background(), res.TraceID, vote("ann", true))
	wantCode(t, err, tga.IdempotencyKeyInFlight)
	b.wantSends(0)
	b.wantState(res.TraceID, tga.Authorized)
	b.wantNoSecret()
	again := secretCharge("order-1")
	again.TraceID = res.TraceID
	if got := b.mustCall(again); got.State != tga.Completed {
		t.Errorf("the repeat comes to %+v", got)
	}
	b.wantSends(1)
	b.wantWhole()
}

// TestRedactedRetryIsTheCallers: only the caller makes a new attempt.
func TestRedactedRetryIsTheCallers(t *testing.T) {
	policy := park
	policy.Retry = runtime.Backoff{Attempts: 3}
	b := setup(t, policy, redacting)
	b.tool.answer = func(n int, c runtime.Call) (runtime.Reply, error) {
		if n == 1 {
			return runtime.Reply{}, runtime.ErrNotSent
		}
		return answersWithSecrets(n, c)
	}
	res, err := b.call(secretCharge("order-1"))
	if err != nil || res.State != tga.Failed {
		t.Fatalf("%+v, %v", res, err)
	}
	b.advance(2 * policy.Retry.Max)
	if fired := b.fireAll(); fired != 0 {
		t.Errorf("%d timers", fired)
	}
	b.wantSends(1)
	if got := b.mustCall(secretCharge("order-1")); got.State != tga.Completed {
		t.Errorf("the repeat comes to %+v", got)
	}
	b.wantWhole()
}

// TestRemoteExecutorGetsItsArguments: they come from its own Begin, also after a restart.
func TestRemoteExecutorGetsItsArguments(t *testing.T) {
	b := setup(t, park, redacting)
	begin := func() runtime.Begun {
		begun, err := b.rt.Begin(context.Background(), runtime.BeginRequest{Request: secretCharge("order-1"), BeginID: "begin-1"})
		if err != nil {
			t.Fatal(err)
		}
		b.wantStanding(begun, runtime.BeginSend)
		if !bytes.Contains(begun.Args, []byte(cardNumber)) {
			t.Errorf("it is to send %s", begun.Args)
		}
		return begun
	}
	begin()
	b.reopen()
	begun := begin()
	// The tool repeats the arguments in its answer, which arrives in a later request.
	reply, err := answersWithSecrets(1, runtime.Call{Args: begun.Args})
	if err != nil {
		t.Fatal(err)
	}
	res, err := b.finish(begun, reply)
	if err != nil || !res.Redacted || bytes.Contains(res.Value, []byte(authToken)) {
		t.Errorf("%s, %v, %v", res.Value, res.Redacted, err)
	}
	b.wantNoSecret()
}

// TestRawRequestWithSecretsIsRefused: an artifact that a peer made itself cannot be redacted, because the
// peer's digest covers it.
func TestRawRequestWithSecretsIsRefused(t *testing.T) {
	b := setup(t, park, redacting)
	request := &tga.Artifact{Type: tga.RequestType, Meta: tga.Meta{}, Request: &tga.ActionRequest{
		Proposal: tga.Proposal{ToolServer: "payments", ToolName: "charge", Args: secretCharge("k").Args}, IdempotencyKey: "k",
	}}
	wantCode(t, b.rt.Admit(context.Background(), request), tga.ValidationError)
	request.Meta[tga.MetaRedacted] = true // which only says so
	wantCode(t, b.rt.Admit(context.Background(), request), tga.ValidationError)
	request.Meta = tga.Meta{}
	request.Request.Proposal.Args = []byte(`{"amount":1}`)
	if err := b.rt.Admit(context.Background(), request); err != nil {
		t.Errorf("nothing to redact: %v", err)
	}
}

// TestRawEffectWithSecretsIsRefused: the same for an effect, in each document, the summary, the message and
// the tool's words in the meta.
func TestRawEffectWithSecretsIsRefused(t *testing.T) {
	b := setup(t, park, redacting)
	call := &tga.Artifact{Type: tga.CallType, Call: &tga.ToolCall{Call: tga.Proposal{ToolServer: "payments", ToolName: "charge", Args: []byte(`{"amount":1}`)}, IdempotencyKey: "k"}}
	for what, c := range map[string]struct {
		tool string
		e    tga.Outcome
		doc  string
		meta string
		good bool
	}{
		"the answer":    {"charge", tga.Outcome{Status: tga.StatusSuccess}, `{"token":"x"}`, "", false},
		"a text in it":  {"charge", tga.Outcome{Status: tga.StatusSuccess}, `{"a":"` + authToken + `"}`, "", false},
		"the summary":   {"charge", tga.Outcome{Status: tga.StatusSuccess, Summary: authToken}, `{}`, "", false},
		"the error":     {"charge", tga.Outcome{Status: tga.StatusError, Error: &tga.OutcomeError{Message: authToken}}, `{}`, "", false},
		"its words":     {"charge", tga.Outcome{Status: tga.StatusError}, `{}`, "code_" + authToken, false},
		"nothing of it": {"charge", tga.Outcome{Status: tga.StatusSuccess, Summary: "charged"}, `{"charged":1}`, "", true},
		"another tool":  {"refund", tga.Outcome{Status: tga.StatusSuccess}, `{"token":"x"}`, "", true},
	} {
		call.Call.Call.ToolName = c.tool
		effect := chain.NewArtifact{
			Artifact:  &tga.Artifact{Type: tga.EffectType, Meta: tga.Meta{tga.MetaToolErrorCode: c.meta}, Effect: &tga.ToolEffect{Outcome: c.e}},
			Documents: []chain.Document{{Pointer: tga.PointerResult, Data: []byte(c.doc)}},
		}
		if err := b.rt.AdmitEffect(call, tga.DefaultNamespace, effect); (err == nil) != c.good || err != nil && !errors.Is(err, tga.ValidationError) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestWordsOfAnExecutorAreRedacted: those of an attempt that it gives up, or takes back.
func TestWordsOfAnExecutorAreRedacted(t *testing.T) {
	for _, takeBack := range []bool{false, true} {
		b := setup(t, park, redacting)
		begun, err := b.rt.Begin(context.Background(), runtime.BeginRequest{Request: secretCharge("order-1"), BeginID: "begin-1"})
		if err != nil {
			t.Fatal(err)
		}
		words := "no answer to " + cardNumber + " by " + authToken
		if takeBack {
			_, err = b.rt.NotSent(context.Background(), begun.Result.TraceID, begun.Permit, words, 0)
		} else {
			err = b.rt.GiveUp(context.Background(), begun.Result.TraceID, begun.Permit, words, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		b.wantNoSecret()
	}
}

type brokenRedactor struct{ runtime.Redactor }

func (brokenRedactor) Reply(runtime.Call, runtime.Reply) (runtime.Reply, bool, error) {
	return runtime.Reply{}, false, errors.New("no rule applies")
}

// TestAnswerThatCannotBeRedactedIsNotKept: the effect has happened and is recorded, without a word of
// the tool's.
func TestAnswerThatCannotBeRedactedIsNotKept(t *testing.T) {
	b := setup(t, park, redacting, func(b *bench) { b.opts.Redact = brokenRedactor{b.opts.Redact} })
	res := b.mustCall(secretCharge("order-1"))
	if res.State != tga.Completed || res.Class != ledger.ClassCommitted || !bytes.Contains(res.Value, []byte(authToken)) {
		t.Errorf("%+v", res)
	}
	if kept := b.wantState(res.TraceID, tga.Completed); kept.Value != nil || kept.Summary != "" || !kept.Redacted {
		t.Errorf("kept %q, %q", kept.Value, kept.Summary)
	}
	b.wantNoSecret()
}

// TestCauseOfADoubtIsRedacted: the error of a transport goes into the note of its attempt, redacted.
func TestCauseOfADoubtIsRedacted(t *testing.T) {
	b := setup(t, park, redacting)
	b.tool.answer = func(_ int, c runtime.Call) (runtime.Reply, error) {
		return runtime.Reply{}, errors.Join(errReset, errors.New("while sending "+string(c.Args)+" by "+authToken))
	}
	res, err := b.call(secretCharge("order-1"))
	wantCode(t, err, tga.EffectInDoubt)
	if !errors.Is(err, errReset) || strings.Contains(err.Error(), cardNumber) {
		t.Errorf("the caller is told %v", err)
	}
	b.wantState(res.TraceID, tga.Executing)
	b.wantNoSecret()
}

// echoing is a tool server, asked about a call, and a verifier, that repeat secrets in everything that they say.
type echoing struct{ fails bool }

func (e echoing) said() (runtime.Evidence, error) {
	if e.fails {
		return runtime.Evidence{}, errors.New("refused " + authToken)
	}
	return runtime.Evidence{Source: "GET /charges?token=" + authToken, Detail: []byte(`{"token":"` + authToken + `","seen":"` + authToken + `","charged":100}`)}, nil
}

func (e echoing) Probe(context.Context, runtime.Call) (runtime.Probed, error) {
	said, err := e.said()
	return runtime.Probed{Answer: ledger.ProbeUnknown, Evidence: said}, err
}

func (e echoing) Verify(context.Context, tga.StateChange) (runtime.Finding, runtime.Evidence, error) {
	said, err := e.said()
	return runtime.Gone, said, err
}

// TestSecretsAreNotInTheEvidence: what a tool server says about a call in doubt, and what a verifier says about its
// changes, is kept without the secrets, and so is the text of their errors.
func TestSecretsAreNotInTheEvidence(t *testing.T) {
	for _, e := range []echoing{{false}, {true}} {
		b := setup(t, licence(ledger.Probe), redacting, func(b *bench) {
			b.opts.Trust.Prober = func(string, string) runtime.Prober { return e }
			b.opts.Trust.Verifier = func(string) runtime.Verifier { return e }
		})
		b.tool.answer = func(n int, c runtime.Call) (runtime.Reply, error) {
			if n == 1 {
				return unknown(n, c)
			}
			r := ok(`{"charged":100}`)
			r.Changes = []tga.StateChange{{ResourceType: "charge", ResourceID: "7", Operation: "create"}}
			return r, nil
		}
		_, err := b.call(charge("in-doubt"))
		wantCode(t, err, tga.EffectInDoubt)
		done := b.mustCall(charge("k"))
		_, err = b.call(replay("k"))
		wantCode(t, err, tga.ConfirmationMismatch)
		if strings.Contains(err.Error(), authToken) {
			t.Errorf("the refusal says %v", err)
		}
		kept := 0
		for a, err := range b.db.Attachments(t.Context(), chain.AttachBlob, nil) {
			if err != nil {
				t.Fatal(err)
			}
			if kept++; !bytes.Contains(a.Value, []byte("REDACTED")) || !e.fails && !bytes.Contains(a.Value, []byte(`"charged":100`)) {
				t.Errorf("the evidence is %s", a.Value)
			}
		}
		if kept != 2 || b.notes(done.TraceID, tga.NoteConfirmation) != 1 {
			t.Errorf("%d pieces of evidence, want that of the question and of the confirmation", kept)
		}
		b.wantNoSecret()
	}
}

package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	goruntime "runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestADefiniteAnswerIsNeverDoubt passes replies with all kinds of statuses and codes that a
// tool may choose, through a dispatch and through a remote executor's finish. Each ends its
// call, and the tool's own words are kept.
func TestADefiniteAnswerIsNeverDoubt(t *testing.T) {
	const limit = 100
	text := func(n int) string { return strings.Repeat("é", n) }
	for _, c := range []struct {
		name   string
		reply  runtime.Reply
		status string
		class  ledger.Class
		code   tga.Code
		own    string // the tool's code, as it is kept
	}{
		{"foreign code", runtime.Reply{Status: tga.StatusFailure, ErrorCode: "card_declined"}, tga.StatusFailure, ledger.ClassPermanent, tga.ToolError, "card_declined"},
		{"foreign code, well spelled", runtime.Reply{Status: tga.StatusFailure, ErrorCode: "CARD_DECLINED"}, tga.StatusFailure, ledger.ClassPermanent, tga.ToolError, "CARD_DECLINED"},
		{"the contract's code", runtime.Reply{Status: tga.StatusFailure, ErrorCode: "RATE_LIMITED"}, tga.StatusFailure, ledger.ClassPermanent, tga.RateLimited, ""},
		{"tgad's own code", runtime.Reply{Status: tga.StatusError, ErrorCode: "EFFECT_IN_DOUBT"}, tga.StatusError, ledger.ClassPermanent, tga.ToolError, "EFFECT_IN_DOUBT"},
		{"bad UTF-8 in code and message", runtime.Reply{Status: tga.StatusFailure, ErrorCode: "a\xffb", ErrorMessage: "\xff\xfe"}, tga.StatusFailure, ledger.ClassPermanent, tga.ToolError, "a\ufffdb"},
		{"code at the limit", runtime.Reply{Status: tga.StatusFailure, ErrorCode: text(200)}, tga.StatusFailure, ledger.ClassPermanent, tga.ToolError, text(200)},
		{"code past it", runtime.Reply{Status: tga.StatusFailure, ErrorCode: text(201)}, tga.StatusFailure, ledger.ClassPermanent, tga.ToolError, text(199) + "…"},
		{"message and summary at the limit", runtime.Reply{Status: tga.StatusDenied, ErrorMessage: text(200), Summary: text(500)}, tga.StatusDenied, ledger.ClassPermanent, tga.ToolError, ""},
		{"message and summary past it", runtime.Reply{Status: tga.StatusDenied, ErrorMessage: text(201), Summary: text(501)}, tga.StatusDenied, ledger.ClassPermanent, tga.ToolError, ""},
		{"unknown status", runtime.Reply{Status: "ok", Result: []byte("1")}, tga.StatusError, ledger.ClassPermanent, tga.ToolError, ""},
		{"no status", runtime.Reply{Result: []byte("1")}, tga.StatusError, ledger.ClassPermanent, tga.ToolError, ""},
		{"class of another status", runtime.Reply{Status: tga.StatusSuccess, Class: ledger.ClassRetryable}, tga.StatusSuccess, ledger.ClassCommitted, "", ""},
		{"class that is none", runtime.Reply{Status: tga.StatusFailure, Class: 99}, tga.StatusFailure, ledger.ClassPermanent, tga.ToolError, ""},
		{"success with an error", runtime.Reply{Status: tga.StatusSuccess, ErrorCode: "x", ErrorMessage: "y"}, tga.StatusSuccess, ledger.ClassCommitted, "", ""},
		{"answer at the limit", runtime.Reply{Status: tga.StatusSuccess, Result: make([]byte, limit)}, tga.StatusSuccess, ledger.ClassCommitted, "", ""},
		{"answer past it", runtime.Reply{Status: tga.StatusSuccess, Result: make([]byte, limit+1)}, tga.StatusSuccess, ledger.ClassCommitted, "", ""},
		{"cut answer of a negative size", runtime.Reply{Status: tga.StatusSuccess, Truncated: true, ResultBytes: -1}, tga.StatusSuccess, ledger.ClassCommitted, "", ""},
	} {
		b := setup(t, park, func(b *bench) { b.opts.MaxAnswer = limit })
		b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) { return c.reply, nil }
		sent, err := b.call(charge("sent"))
		if err != nil {
			t.Errorf("%s, sent: %v", c.name, err)
			continue
		}
		begun, err := b.rt.Begin(context.Background(), runtime.BeginRequest{Request: charge("begun"), BeginID: "b"})
		if err != nil {
			t.Fatal(err)
		}
		finished, err := b.rt.Finish(context.Background(), begun.Result.TraceID, begun.Permit, runtime.Finished{Reply: c.reply})
		if err != nil {
			t.Errorf("%s, finished: %v", c.name, err)
			continue
		}
		for how, res := range map[string]runtime.Result{"sent": sent, "finished": finished} {
			if res.Status != c.status || res.Class != c.class || res.ErrorCode != c.code || c.code != "" && res.ToolErrorCode != c.own {
				t.Errorf("%s, %s: %s %v %q %q, want %s %v %q %q", c.name, how, res.Status, res.Class, res.ErrorCode, res.ToolErrorCode, c.status, c.class, c.code, c.own)
			}
			if !utf8.ValidString(res.ErrorMessage+res.Summary) || utf8.RuneCountInString(res.ErrorMessage) > 200 || utf8.RuneCountInString(res.Summary) > 500 {
				t.Errorf("%s, %s: message %q, summary %q", c.name, how, res.ErrorMessage, res.Summary)
			}
		}
		b.close()
	}
}

// panicking panics where it is told to.
type panicking struct {
	*tool
	in string
}

func (p panicking) Dispatch(ctx context.Context, c runtime.Call) (runtime.Reply, error) {
	reply, err := p.tool.Dispatch(ctx, c)
	if p.in == "dispatch" {
		panic(fmt.Errorf("a nil pointer: %w", runtime.ErrNotSent))
	}
	return reply, err
}

func (p panicking) Prepare(context.Context, runtime.Call) ([]chain.Attachment, error) {
	if p.in == "prepare" {
		panic("no memory")
	}
	return nil, nil
}

func (p panicking) Check(context.Context, runtime.Call) error {
	if p.in == "check" {
		panic("no names")
	}
	return nil
}

func (p panicking) Decide(context.Context, *tga.Artifact) (runtime.Verdict, error) {
	if p.in == "decide" {
		panic("no rules")
	}
	return runtime.Verdict{Decision: tga.Approve, Rationale: "it is a test of panics"}, nil
}

// TestAPanicIsAnErrorOfItsCall makes each part of an embedder panic. If Dispatch panics, the
// call is in doubt; if another part panics, nothing was sent. The stack is logged, and with
// Options.Repanic the panic goes on.
func TestAPanicIsAnErrorOfItsCall(t *testing.T) {
	for _, in := range []string{"dispatch", "prepare", "check", "decide"} {
		for _, repanic := range []bool{false, true} {
			var log strings.Builder
			b := setup(t, park, func(b *bench) {
				b.opts.Repanic, b.opts.Logger = repanic, slog.New(slog.NewTextHandler(&log, nil))
			})
			p := panicking{b.tool, in}
			rt, err := runtime.New(b.db, p, p, b.opts)
			if err != nil {
				t.Fatal(err)
			}
			call := func(req runtime.Request) (went any, res runtime.Result, err error) {
				defer func() { went = recover() }()
				res, err = rt.Call(context.Background(), req)
				return nil, res, err
			}
			req := charge("k")
			req.TraceID = newID()
			went, _, err := call(req)
			var caught *runtime.PanicError
			if repanic {
				caught, _ = went.(*runtime.PanicError)
			} else {
				errors.As(err, &caught)
			}
			if caught == nil || len(caught.Stack) == 0 {
				t.Errorf("%s, repanic %v: %v, %v", in, repanic, went, err)
			}
			if !strings.Contains(log.String(), "answer_test.go") {
				t.Errorf("%s: the log has no stack: %s", in, log.String())
			}
			if in == "dispatch" {
				b.wantState(req.TraceID, tga.Executing)
				if _, err := b.call(req); !errors.Is(err, tga.EffectInDoubt) {
					t.Errorf("%s: %v", in, err)
				}
				b.wantSends(1)
			} else {
				b.wantSends(0)
			}
			b.close()
		}
	}
}

// TestAnswerWithAttachmentsThatNoStoreTakes: the effect is recorded with the other attachments, and says what is missing.
func TestAnswerWithAttachmentsThatNoStoreTakes(t *testing.T) {
	stream := keyspace.StreamKey(newID(), 1)
	reply := ok(`1`)
	reply.Attachments = []chain.Attachment{
		{}, {Kind: chain.AttachBlob, Key: make([]byte, 300), Value: []byte("x")}, {Kind: chain.AttachStream, Key: stream, Value: []byte("kept")},
	}
	b := setup(t, park)
	b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) { return reply, nil }
	res := b.mustCall(charge("k"))
	trace, err := b.db.Load(t.Context(), res.TraceID)
	if err != nil || res.State != tga.Completed || trace.Effect.Meta.String(tga.MetaOutcomeError) == "" {
		t.Errorf("%v, %v", res.State, err)
	}
	if got, err := b.db.Attachment(t.Context(), chain.AttachStream, stream); err != nil || string(got) != "kept" {
		t.Errorf("%q, %v", got, err)
	}
}

// unaskable is an error whose methods panic, as those of a nil pointer do.
type unaskable struct{ in string }

func (b unaskable) Error() string {
	if b.in == "Error" {
		panic("no words")
	}
	return "broken"
}

func (b unaskable) Is(error) bool {
	if b.in == "Is" {
		panic("nothing is it")
	}
	return false
}

// TestErrorThatCannotBeReadIsAPanicOfItsCall: an error of a dispatcher whose methods panic, and a panic with such an error
// as its value, leave the call in doubt, and nothing panics beside it.
func TestErrorThatCannotBeReadIsAPanicOfItsCall(t *testing.T) {
	for name, err := range map[string]error{
		"nil pointer": (*tga.Error)(nil), "in Error": unaskable{"Error"}, "in Is": unaskable{"Is"},
		"wrapped": fmt.Errorf("tool: %w", unaskable{"Is"}),
	} {
		for _, panics := range []bool{false, true} {
			b := setup(t, park, func(b *bench) { b.opts.Logger = slog.New(slog.DiscardHandler) })
			b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) {
				if panics {
					panic(err)
				}
				return ok(`1`), err
			}
			res, err := b.call(charge("k"))
			var caught *runtime.PanicError
			if !errors.Is(err, tga.EffectInDoubt) || !errors.As(err, &caught) {
				t.Errorf("%s, panics %v: %v", name, panics, err)
			}
			b.wantState(res.TraceID, tga.Executing)
			b.close()
		}
	}
}

// TestRecoverAllReturnsWhatItsCallsDid: with Options.Repanic the panic of a call comes out of RecoverAll itself, where the
// program can catch it, and every other trace is recovered. Of a call whose tool ended the goroutine, the result is an error.
func TestRecoverAllReturnsWhatItsCallsDid(t *testing.T) {
	for _, end := range []string{"panic", "exit"} {
		b := setup(t, licence(ledger.DedupeArgs), func(b *bench) {
			b.opts.Repanic, b.opts.Logger = true, slog.New(slog.DiscardHandler)
		})
		ctx, cancel := context.WithCancel(t.Context())
		b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) {
			cancel()
			return runtime.Reply{}, errReset
		}
		var traces []tga.ID
		for _, key := range []string{"bad", "good"} {
			req := charge(key)
			req.TraceID = newID()
			traces = append(traces, req.TraceID)
			if _, err := b.rt.Call(ctx, req); !errors.Is(err, tga.EffectInDoubt) {
				t.Fatal(err)
			}
			ctx, cancel = context.WithCancel(t.Context())
		}
		b.tool.answer = func(_ int, c runtime.Call) (runtime.Reply, error) {
			switch {
			case c.Key == "good":
				return ok(`1`), nil
			case end == "panic":
				panic("bad")
			}
			goruntime.Goexit()
			return runtime.Reply{}, nil
		}
		var all []runtime.Recovered
		went := func() (went any) {
			defer func() { went = recover() }()
			var err error
			if all, err = b.rt.RecoverAll(t.Context(), 2); err != nil {
				t.Error(err)
			}
			return nil
		}()
		if _, ok := went.(*runtime.PanicError); ok != (end == "panic") {
			t.Errorf("%s: RecoverAll panics with %v", end, went)
		}
		for _, r := range all {
			if bad := r.TraceID == traces[0]; (r.Err != nil) != bad || r.Result.TraceID != r.TraceID {
				t.Errorf("%s: trace %s: %v, %v", end, r.TraceID, r.Result.State, r.Err)
			}
		}
		b.wantState(traces[0], tga.Executing)
		b.wantState(traces[1], tga.Completed)
		cancel()
		b.close()
	}
}

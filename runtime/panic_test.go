package runtime_test

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// logged is a log that several goroutines write.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// bad implements several interfaces of an embedder, and panics in each method.
type bad struct{}

func (bad) Verify(context.Context, tga.StateChange) (runtime.Finding, runtime.Evidence, error) {
	panic("no verifier")
}
func (bad) Probe(context.Context, runtime.Call) (runtime.Probed, error) { panic("no prober") }
func (bad) Mint(context.Context, runtime.Grant) (string, error)         { panic("no pen") }
func (bad) Check(context.Context, string, runtime.Grant) error          { panic("no keys") }

// unreadable mints, and panics where it checks.
type unreadable struct{ notary }

func (*unreadable) Check(context.Context, string, runtime.Grant) error { panic("no keys") }

// TestEveryHookMayPanic lets each part of an embedder that Options name panic. Its stack is logged,
// and no panic leaves the runtime without Options.Repanic. With it, the panic goes on out of every
// method whose answer it decided.
func TestEveryHookMayPanic(t *testing.T) {
	call := func(b *bench, _ string) error { _, err := b.call(charge("k")); return err }
	approve := func(b *bench, _ string) error {
		res, err := b.call(charge("k"))
		if !errors.Is(err, tga.EscalationRequired) {
			return err
		}
		_, err = b.rt.Decide(context.Background(), res.TraceID, yes)
		return err
	}
	asked := func(b *bench) { b.sup = runtime.Rules{Rules: []runtime.Rule{{Decision: tga.NeedsApproval}}} }
	changed := func(b *bench) {
		b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) {
			r := ok(`1`)
			r.Changes = []tga.StateChange{{ResourceType: "row", ResourceID: "1", Operation: "create"}}
			return r, nil
		}
	}
	replay := func(b *bench, _ string) error {
		res := b.mustCall(charge("k"))
		_, err := b.rt.Recover(context.Background(), res.TraceID)
		return err
	}
	signed := func(b *bench, _ string) error {
		res, err := b.call(charge("k"))
		wantCode(b.t, err, tga.EscalationRequired)
		trace, err := b.db.Load(context.Background(), res.TraceID)
		if err != nil {
			b.t.Fatal(err)
		}
		return b.rt.CheckSupervisor(context.Background(), trace.Request, "uid:7", "e30.e30.e30")
	}
	probing := func(b *bench) { b.tool.answer = unknown }
	rows := []struct {
		hook   string // field of Options or of Trust
		set    func(b *bench)
		do     func(b *bench, hook string) error
		goesOn bool     // its error decides the answer
		code   tga.Code // of the answer; "" = none
	}{
		{"Policy", func(b *bench) { b.opts.Policy = func(string, string) runtime.Policy { panic("no policy") } }, call, false, ""},
		{"Observe", func(b *bench) {
			b.opts.Observe = func(runtime.Event) { panic("no eyes") } // it is told of refusals
			b.opts.Trust.RequireCapability = true
		}, call, false, tga.CapabilityInvalid},
		{"Tracer", func(b *bench) { b.opts.Tracer = panics{} }, call, false, ""},
		{"Tracer", func(b *bench) { b.opts.Tracer = panics{atEnd: true} }, call, false, ""},
		{"Lock", func(b *bench) { b.opts.Lock = func(string) ledger.Liveness { panic("no lock") } }, func(b *bench, _ string) error {
			_, err := b.rt.Begin(context.Background(), runtime.BeginRequest{Request: charge("k"), BeginID: "b", Connection: runtime.Connection{Executor: "lock"}})
			return err
		}, false, ""},
		{"Verifier", func(b *bench) {
			changed(b)
			b.opts.Trust.Verifier = func(string) runtime.Verifier { panic("no verifiers") }
		}, replay, false, tga.ConfirmationMismatch},
		{"Verifier", func(b *bench) {
			changed(b)
			b.opts.Trust.Verifier = func(string) runtime.Verifier { return bad{} }
		}, replay, false, tga.ConfirmationMismatch},
		{"Prober", func(b *bench) {
			probing(b)
			b.opts.Trust.Prober = func(string, string) runtime.Prober { panic("no probers") }
		}, call, false, tga.EffectInDoubt},
		{"Prober", func(b *bench) { probing(b); b.opts.Trust.Prober = func(string, string) runtime.Prober { return bad{} } }, call, false, tga.EffectInDoubt},
		{"Outcome", func(b *bench) { b.opts.Trust.Outcome = func(runtime.Call, *runtime.Reply) error { panic("no rule") } }, call, false, ""},
		{"Redact", func(b *bench) { b.opts.Redact = badRedactor{true} }, call, true, ""},
		{"Redact", func(b *bench) { b.opts.Redact = badRedactor{false} }, call, false, ""},
		{"Capabilities", func(b *bench) { asked(b); b.opts.Trust.Capabilities = bad{} }, approve, true, ""},
		{"Capabilities", func(b *bench) { asked(b); b.opts.Trust.Capabilities = &unreadable{} }, approve, true, tga.CapabilityInvalid},
		{"Supervisor", func(b *bench) {
			asked(b)
			b.opts.Trust.Supervisor = func(string) runtime.TokenChecker { panic("no supervisors") }
		}, signed, true, tga.CapabilityInvalid},
		{"Supervisor", func(b *bench) {
			asked(b)
			b.opts.Trust.Supervisor = func(string) runtime.TokenChecker { return bad{} }
		}, signed, true, ""},
		{"Schema", func(b *bench) {
			asked(b)
			b.opts.Trust.Schema = func(context.Context, string, string) (tga.Digest, error) { panic("no schema") }
		}, approve, true, ""},
		{"Inverse", func(b *bench) {
			b.opts.Trust.Inverse = func(*tga.ToolCall, *tga.ToolEffect, []byte) (runtime.Inverse, bool, error) { panic("no way back") }
		}, func(b *bench, _ string) error {
			res := b.mustCall(charge("k"))
			_, err := b.rt.Compensate(context.Background(), res.TraceID, "ann")
			return err
		}, true, ""},
		{"Receipt", func(b *bench) {
			b.opts.Receipt = func(context.Context, tga.ID) (runtime.Receipt, error) { panic("no key") }
		}, func(b *bench, _ string) error {
			_, err := b.rt.Receipt(context.Background(), b.mustCall(charge("k")).TraceID)
			return err
		}, true, ""},
	}
	walked := map[string]bool{}
	for _, r := range rows {
		walked[r.hook] = true
		for _, repanic := range []bool{false, true} {
			var log logged
			b := setup(t, licence(ledger.Probe), r.set, func(b *bench) {
				b.opts.Repanic, b.opts.Logger = repanic, slog.New(slog.NewTextHandler(&log, nil))
			})
			var err error
			went := func() (went any) {
				defer func() { went = recover() }()
				err = r.do(b, r.hook)
				return nil
			}()
			caught, _ := went.(*runtime.PanicError)
			if went == nil {
				errors.As(err, &caught)
			}
			if (went != nil) != (repanic && r.goesOn) || (caught != nil) != r.goesOn || caught != nil && len(caught.Stack) == 0 {
				t.Errorf("%s, repanic %v: panic %v, error %v", r.hook, repanic, went, err)
			}
			if went == nil && r.code != "" && !errors.Is(err, r.code) || !r.goesOn && r.code == "" && err != nil {
				t.Errorf("%s: error %v, want %q", r.hook, err, r.code)
			}
			if text := log.String(); !strings.Contains(text, "panic_test.go") || !strings.Contains(text, r.hook) {
				t.Errorf("%s: the log has no stack of it: %.300s", r.hook, text)
			}
			// No lease is left behind.
			for o, err := range b.db.OpenTraces(t.Context()) {
				if err != nil || b.db.Holder(o.TraceID) != ledger.HolderGone {
					t.Errorf("%s, repanic %v: trace %s is held (%v)", r.hook, repanic, o.TraceID, err)
				}
			}
			b.close()
		}
	}
	for _, of := range []reflect.Type{reflect.TypeFor[runtime.Options](), reflect.TypeFor[runtime.Trust]()} {
		for i := range of.NumField() {
			f := of.Field(i)
			hook := f.Type.Kind() == reflect.Func || f.Type.Kind() == reflect.Interface
			if hook && !walked[f.Name] && f.Name != "Clock" && f.Name != "Monotonic" && f.Name != "NewID" && f.Name != "Rand" { // those are for tests
				t.Errorf("%s.%s is walked by no row", of.Name(), f.Name)
			}
		}
	}
}

// TestStackOfAPanicIsInItsNote: the note of the doubt has the stack of the panic, of bounded length.
func TestStackOfAPanicIsInItsNote(t *testing.T) {
	b := setup(t, park, func(b *bench) {
		b.opts.Logger = slog.New(slog.DiscardHandler)
		b.tools = runtime.DispatcherFunc(func(context.Context, runtime.Call) (runtime.Reply, error) {
			var deep func(n int)
			deep = func(n int) {
				if n == 0 {
					panic(strings.Repeat("long ", 1000))
				}
				deep(n - 1)
			}
			deep(200)
			return runtime.Reply{}, nil
		})
	})
	res, err := b.call(charge("k"))
	wantCode(t, err, tga.EffectInDoubt)
	trace, err := b.db.Load(t.Context(), res.TraceID)
	if err != nil || len(trace.Notes) != 1 {
		t.Fatalf("%+v, %v", trace.Notes, err)
	}
	body := string(trace.Notes[0].Body)
	if !strings.Contains(body, "panic_test.go") || len(body) > 8000 {
		t.Errorf("%d bytes: %.300s", len(body), body)
	}
}

// TestBeginFollowsRepanicAsCallDoes: so does whatever else is asked of the runtime.
func TestBeginFollowsRepanicAsCallDoes(t *testing.T) {
	for _, in := range []string{"check", "decide"} {
		for _, repanic := range []bool{false, true} {
			b := setup(t, park, func(b *bench) {
				b.opts.Repanic, b.opts.Logger = repanic, slog.New(slog.DiscardHandler)
			})
			p := panicking{b.tool, in}
			rt, err := runtime.New(b.db, p, p, b.opts)
			if err != nil {
				t.Fatal(err)
			}
			for name, do := range map[string]func() error{
				"Call": func() error { _, err := rt.Call(t.Context(), charge("k")); return err },
				"Begin": func() error {
					_, err := rt.Begin(t.Context(), runtime.BeginRequest{Request: charge("k"), BeginID: "b"})
					return err
				},
			} {
				went := func() (went any) {
					defer func() { went = recover() }()
					err = do()
					return nil
				}()
				var caught *runtime.PanicError
				if (went != nil) != repanic || went == nil && !errors.As(err, &caught) {
					t.Errorf("%s, %s, repanic %v: panic %v, error %v", name, in, repanic, went, err)
				}
			}
			b.close()
		}
	}
}

// badRedactor panics at what comes in, or at what goes out.
type badRedactor struct{ in bool }

func (r badRedactor) Args(call runtime.Call) ([]byte, bool, error) {
	if r.in {
		panic("no arguments")
	}
	return call.Args, false, nil
}

func (badRedactor) Reply(runtime.Call, runtime.Reply) (runtime.Reply, bool, error) {
	panic("no reply")
}

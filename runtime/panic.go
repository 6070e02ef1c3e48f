package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// PanicError is a panic of something that the embedder passed to [New]. A panic in a
// Dispatcher's Dispatch means doubt: the call may have run.
type PanicError struct {
	In    string // what panicked: "Dispatcher.Dispatch", "Supervisor.Decide", …
	Value any
	Stack []byte
}

func (p *PanicError) Error() string { return fmt.Sprintf("%s panicked: %v", p.In, p.Value) }

// Unwrap returns the value if it is an error.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// catch turns a panic of f into an error, and logs its stack.
// It does not stop runtime.Goexit: then the goroutine ends, and the trace shows that the call is in doubt.
func catch[T any](log *slog.Logger, in string, f func() (T, error)) (v T, err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		caught := logged(log, in, p)
		// A panic says nothing about the call, even if its value wraps ErrNotSent.
		if !plain(caught) {
			caught.Value = fmt.Sprint(p)
		}
		err = caught
	}()
	if v, err = f(); err != nil {
		look(err)
	}
	return v, err
}

// look asks an error what this package asks of errors. The methods of an error may panic, such as those of
// a nil pointer that was returned as an error. They do so here for the first time, where the panic is caught.
func look(err error) (notSent bool) {
	_ = err.Error() // only whether it panics matters: these two return a text and a code, and no error
	_ = tga.CodeOf(err)
	return errors.Is(err, ErrNotSent)
}

// plain reports whether an error can be looked at, and is not ErrNotSent.
func plain(err error) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return !look(err)
}

// contain calls f and logs the stack of a panic, which goes no further.
func contain(log *slog.Logger, in string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			logged(log, in, p)
		}
	}()
	f()
}

// logged logs a panic. The deferred function that recovered it calls logged.
func logged(log *slog.Logger, in string, p any) *PanicError {
	caught := &PanicError{In: in, Value: p, Stack: debug.Stack()}
	log.Error("panic", "in", in, "value", fmt.Sprint(p), "stack", string(caught.Stack))
	return caught
}

// goOn panics again for a panic that became an error, if [Options].Repanic is set. Every exported
// method that calls code of the embedder and returns an error defers goOn first, so that it
// runs last: by then everything is recorded in the trace, and the lease is released.
func (rt *Runtime) goOn(err *error) {
	var p *PanicError
	if rt.opts.Repanic && errors.As(*err, &p) {
		panic(p)
	}
}

// maxStack is how many characters of a panic's stack are kept in the note of its attempt.
const maxStack = 4000

// guardAll puts catch around all code of the embedder that this package calls. It is
// the only place that does so: the loop sees errors only, and no panics. For the same reason it is here
// that this code gets copies (own.go).
func guardAll(tools *Dispatcher, supervisor *Supervisor, opts *Options) {
	log := opts.Logger
	*tools = guardedTools{*tools, log}
	if pure, ok := (*supervisor).(PureSupervisor); ok {
		*supervisor = guardedPure{guardedSupervisor{pure, log}}
	} else {
		*supervisor = guardedSupervisor{*supervisor, log}
	}
	opts.Trust.guard(log)
	if f := opts.Observe; f != nil {
		opts.Observe = func(e Event) { contain(log, "Options.Observe", func() { f(e) }) }
	}
	if opts.Tracer != nil {
		opts.Tracer = guardedTracer{opts.Tracer, log}
	}
	if f := opts.Receipt; f != nil {
		opts.Receipt = func(ctx context.Context, trace tga.ID) (Receipt, error) {
			return catch(log, "Options.Receipt", func() (Receipt, error) { return f(ctx, trace) })
		}
	}
	lock := opts.Lock
	opts.Lock = func(path string) ledger.Liveness {
		l, err := catch(log, "Options.Lock", func() (ledger.Liveness, error) { return lock(path), nil })
		if err != nil {
			return ledger.HolderUnknown
		}
		return l
	}
	if opts.Redact != nil {
		opts.Redact = guardedRedactor{opts.Redact, log}
	}
	policy := opts.Policy
	opts.Policy = func(server, tool string) Policy {
		// If the policy panics, nothing is attested: a write tool whose calls in doubt wait.
		p, err := catch(log, "Options.Policy", func() (Policy, error) { return policy(server, tool), nil })
		if err != nil {
			return Policy{Licence: ledger.Licence{Kind: ledger.Park}, LicenceSet: true}
		}
		return p
	}
}

// guard puts catch around the functions and interfaces of Trust.
func (t *Trust) guard(log *slog.Logger) {
	if f := t.Verifier; f != nil {
		t.Verifier = func(resourceType string) Verifier {
			v, err := catch(log, "Trust.Verifier", func() (Verifier, error) { return f(resourceType), nil })
			if err != nil {
				return failedVerifier{err}
			}
			if v == nil {
				return nil
			}
			return guardedVerifier{v, log}
		}
	}
	if f := t.Prober; f != nil {
		t.Prober = func(server, tool string) Prober {
			p, err := catch(log, "Trust.Prober", func() (Prober, error) { return f(server, tool), nil })
			if err != nil || p == nil {
				return nil
			}
			return guardedProber{p, log}
		}
	}
	if f := t.Outcome; f != nil {
		t.Outcome = func(call Call, reply *Reply) error {
			*reply = reply.own()
			_, err := catch(log, "Trust.Outcome", func() (struct{}, error) { return struct{}{}, f(call.own(), reply) })
			return err
		}
	}
	if c := t.Capabilities; c != nil {
		t.Capabilities = guardedCapabilities{c, log}
	}
	if f := t.Supervisor; f != nil {
		t.Supervisor = func(who string) TokenChecker {
			c, err := catch(log, "Trust.Supervisor", func() (TokenChecker, error) { return f(who), nil })
			if err != nil {
				return failedChecker{err} // it refuses every approval of that supervisor
			}
			if c == nil {
				return nil
			}
			return guardedChecker{c, log}
		}
	}
	if f := t.Schema; f != nil {
		t.Schema = func(ctx context.Context, server, tool string) (tga.Digest, error) {
			return catch(log, "Trust.Schema", func() (tga.Digest, error) { return f(ctx, server, tool) })
		}
	}
	if f := t.Inverse; f != nil {
		t.Inverse = func(call *tga.ToolCall, effect *tga.ToolEffect, result []byte) (in Inverse, ok bool, err error) {
			in, err = catch(log, "Trust.Inverse", func() (in Inverse, err error) {
				in, ok, err = f(ownCall(call), ownEffect(effect), bytes.Clone(result))
				return in, err
			})
			return in, ok, err
		}
	}
}

type guardedTools struct {
	next Dispatcher
	log  *slog.Logger
}

func (g guardedTools) Dispatch(ctx context.Context, call Call) (Reply, error) {
	return catch(g.log, "Dispatcher.Dispatch", func() (Reply, error) { return g.next.Dispatch(ctx, call.own()) })
}

func (g guardedTools) Check(ctx context.Context, call Call) error {
	_, err := catch(g.log, "Checker.Check", func() (struct{}, error) { return struct{}{}, Check(ctx, g.next, call.own()) })
	return err
}

func (g guardedTools) Prepare(ctx context.Context, call Call) ([]chain.Attachment, error) {
	p, ok := g.next.(Preparer)
	if !ok {
		return nil, nil
	}
	return catch(g.log, "Preparer.Prepare", func() ([]chain.Attachment, error) { return p.Prepare(ctx, call.own()) })
}

type guardedSupervisor struct {
	next Supervisor
	log  *slog.Logger
}

func (g guardedSupervisor) Decide(ctx context.Context, request *tga.Artifact) (Verdict, error) {
	return catch(g.log, "Supervisor.Decide", func() (Verdict, error) { return g.next.Decide(ctx, ownRequest(request)) })
}

type guardedPure struct{ guardedSupervisor }

func (guardedPure) Pure() {}

type guardedVerifier struct {
	next Verifier
	log  *slog.Logger
}

func (g guardedVerifier) Verify(ctx context.Context, change tga.StateChange) (f Finding, e Evidence, err error) {
	f, err = catch(g.log, "Verifier.Verify", func() (f Finding, err error) {
		f, e, err = g.next.Verify(ctx, change)
		return f, err
	})
	if err == nil && f > Changed {
		err = tga.Errorf(tga.ValidationError, "the verifier's finding is %d, which is none", uint8(f))
	}
	e.Detail = bytes.Clone(e.Detail)
	return f, e, err
}

type failedVerifier struct{ err error }

func (f failedVerifier) Verify(context.Context, tga.StateChange) (Finding, Evidence, error) {
	return CannotTell, Evidence{}, f.err
}

type guardedChecker struct {
	next TokenChecker
	log  *slog.Logger
}

func (g guardedChecker) Check(ctx context.Context, token string, grant Grant) error {
	_, err := catch(g.log, "TokenChecker.Check", func() (struct{}, error) { return struct{}{}, g.next.Check(ctx, token, grant) })
	return err
}

type failedChecker struct{ err error }

func (f failedChecker) Check(context.Context, string, Grant) error {
	return tga.Errorf(tga.CapabilityInvalid, "the supervisor's keys cannot be had: %w", f.err)
}

type guardedProber struct {
	next Prober
	log  *slog.Logger
}

func (g guardedProber) Probe(ctx context.Context, call Call) (Probed, error) {
	p, err := catch(g.log, "Prober.Probe", func() (Probed, error) { return g.next.Probe(ctx, call.own()) })
	p.Evidence.Detail = bytes.Clone(p.Evidence.Detail)
	return p, err
}

type guardedCapabilities struct {
	next Capabilities
	log  *slog.Logger
}

func (g guardedCapabilities) Mint(ctx context.Context, grant Grant) (string, error) {
	return catch(g.log, "Capabilities.Mint", func() (string, error) { return g.next.Mint(ctx, grant) })
}

func (g guardedCapabilities) Check(ctx context.Context, token string, grant Grant) error {
	_, err := catch(g.log, "Capabilities.Check", func() (struct{}, error) { return struct{}{}, g.next.Check(ctx, token, grant) })
	return err
}

type guardedRedactor struct {
	Redactor
	log *slog.Logger
}

func (g guardedRedactor) Args(call Call) (kept []byte, redacted bool, err error) {
	kept, err = catch(g.log, "Redactor.Args", func() (k []byte, err error) {
		k, redacted, err = g.Redactor.Args(call.own())
		return k, err
	})
	return kept, redacted, err
}

func (g guardedRedactor) Reply(call Call, reply Reply) (kept Reply, redacted bool, err error) {
	kept, err = catch(g.log, "Redactor.Reply", func() (k Reply, err error) {
		k, redacted, err = g.Redactor.Reply(call.own(), reply.own())
		return k, err
	})
	return kept.own(), redacted, err
}

package runtime_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/dispatch"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// preparing is a tool whose preparation fails while why is set.
type preparing struct {
	*tool
	why error
}

func (p *preparing) Prepare(context.Context, runtime.Call) ([]chain.Attachment, error) {
	return nil, p.why
}

// refuser makes a bench whose next call is refused with a code, and undoes that.
type refuser func(b *bench, code tga.Code) (lift func())

// refusedIn makes a refusal before the call is prepared; such refusals differ only in their code.
func refusedIn(b *bench, code tga.Code) func() {
	p := &preparing{tool: b.tool, why: tga.Errorf(code, "not now")}
	b.tools = p
	b.start()
	return func() { p.why = nil }
}

// refusedLate makes a refusal after the attempt is marked and before the transport.
func refusedLate(b *bench, code tga.Code) func() {
	b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) {
		return runtime.Reply{}, errors.Join(runtime.ErrNotSent, tga.Errorf(code, "not now"))
	}
	return func() { b.tool.answer = nil }
}

func refusedByBreaker(b *bench, _ tga.Code) func() {
	b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) { return runtime.Reply{}, errDial }
	closed := func() { // its time to open again is of the real clock, and a busy machine takes as long as it likes
		b.tools = dispatch.Breaker(b.tool, dispatch.BreakerOptions{Failures: 1, Open: time.Hour})
		b.start()
	}
	closed()
	if res, _ := b.call(charge("another")); res.State == tga.Pending {
		if _, err := b.rt.Decide(context.Background(), res.TraceID, vote("ann", true)); err != nil {
			b.t.Fatal(err)
		}
	}
	return func() {
		b.tool.answer = nil
		closed()
	}
}

func refusedByCapability(b *bench, _ tga.Code) func() {
	b.opts.Trust.RequireCapability = true
	b.start()
	return func() {
		b.opts.Trust.RequireCapability = false
		b.start()
	}
}

func refusedByDeadline(b *bench, _ tga.Code) func() { return func() {} }

// TestRefusalWithoutAttemptLeavesTheKeyAlone tests every way in which a call is refused before a
// byte of it is sent, for calls that are durable already and calls that are not. Once the reason
// is gone, a call with the same key runs.
func TestRefusalWithoutAttemptLeavesTheKeyAlone(t *testing.T) {
	serial.Test(t)
	type row struct {
		name   string
		code   tga.Code
		refuse refuser
		late   bool // an attempt was marked: the key has a record, of class not_sent
	}
	rows := []row{
		{"deadline", tga.ToolTimeout, refusedByDeadline, false},
		{"no capability", tga.CapabilityInvalid, refusedByCapability, false},
		{"open breaker", tga.CircuitOpen, refusedByBreaker, false},
	}
	for _, info := range tga.Codes() {
		switch info.Code {
		case tga.StoreUnavailable, tga.StateConcurrentExecution, tga.StateLockAcquireFailed, tga.StateRecoveryFailed:
			continue // an error of the store or the lease, and no refusal of the call
		}
		rows = append(rows, row{"prepare " + string(info.Code), info.Code, refusedIn, false})
		rows = append(rows, row{"transport " + string(info.Code), info.Code, refusedLate, true})
	}
	for _, r := range rows {
		for _, durable := range []bool{false, true} {
			name := r.name
			if durable {
				name += ", approved before"
			}
			t.Run(name, func(t *testing.T) {
				b := setup(t, park)
				if durable {
					b.sup = runtime.Rules{Rules: []runtime.Rule{{Decision: tga.NeedsApproval}}}
				}
				b.start()
				lift := r.refuse(b, r.code)
				req := charge("order-1")
				if r.name == "deadline" {
					req.Deadline = b.clock().Add(time.Minute)
				}
				call := func(req runtime.Request) (runtime.Result, error) {
					if !durable && !req.Deadline.IsZero() {
						b.advance(time.Hour)
					}
					res, err := b.call(req)
					if !durable {
						return res, err
					}
					wantCode(t, err, tga.EscalationRequired)
					if !req.Deadline.IsZero() {
						b.advance(time.Hour)
					}
					return b.rt.Decide(context.Background(), res.TraceID, vote("ann", true))
				}
				sends := b.tool.sends()
				res, err := call(req)
				code := tga.CodeOf(err)
				if err == nil {
					code = res.ErrorCode
				}
				if durable && !req.Deadline.IsZero() && res.State == tga.Denied {
					code = r.code // the question to people expired with the call's deadline
				}
				if want := r.code; code != want && !(r.late && want == tga.EffectInDoubt && code == tga.ToolError) {
					t.Fatalf("refused with %q: %+v, %v", code, res, err)
				}
				record, err := b.db.Record(context.Background(), ledger.Key{Namespace: tga.DefaultNamespace, Server: req.Server, Tool: req.Tool, Key: req.Key})
				if err != nil || (record != nil) != r.late || record != nil && record.Class != ledger.ClassNotSent {
					t.Errorf("record %+v, %v", record, err)
				}
				if !r.late && b.tool.sends() != sends {
					t.Error("a refused call reached the tool")
				}
				lift()
				if res, err := call(charge("order-1")); err != nil || res.State != tga.Completed || !res.ServedFrom.IsZero() {
					t.Errorf("the same key: %+v, %v", res, err)
				}
			})
		}
	}
}

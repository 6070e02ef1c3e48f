//go:build unix

package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// hit is the result of one kill.
type hit struct {
	Point    int    `json:"point"`
	Tool     string `json:"tool"`
	Killed   string `json:"killed"`   // when
	Window   string `json:"window"`   // in which the log says the call was
	Recovery string `json:"recovery"` // what was decided then
	Charges  uint64 `json:"charges"`  // for this key, by the tool server's journal
	Received uint64 `json:"received"` // calls that reached the tool server, likewise
	InDoubt  bool   `json:"in_doubt"`
	State    string `json:"state"`
	Seq      uint64 `json:"sequence_number"`
	TraceID  string `json:"trace_id"`
	Key      string `json:"idempotency_key"`
	OK       bool   `json:"ok"`
	Wrong    string `json:"wrong,omitempty"` // which claim is not so

	trace tga.ID
}

// windows are the crash windows, in the order of a call's life (docs/SEMANTICS.md).
var windows = []struct{ name, text string }{
	{"W0", "before the request is durable"},
	{"W1", "request durable, no decision"},
	{"W2", "decision durable, no call"},
	{"W3", "call durable, no attempt"},
	{"W4", "attempt durable, no effect"},
	{"W5", "effect durable, no answer yet"},
}

// request is the call of a point.
func (p point) request(tool string) runtime.Request {
	r := runtime.Request{
		TraceID: newID(), Server: "payments", Tool: tool,
		Args: []byte(fmt.Sprintf(`{"account":"acme","amount":%d,"delay_ms":%d}`, 1000+p.N, answerAfter.Milliseconds())),
		Key:  fmt.Sprintf("%s-point-%d", tool, p.N),
	}
	if p.On == pending {
		r.Risk = tga.RiskHigh
	}
	return r
}

func newID() tga.ID { return tga.ID(uuid.Must(uuid.NewV7())) }

// strike makes a call, kills the daemon at a point of it, reads the state of the call from
// the log, starts the daemon again, and repeats the call.
func (w *world) strike(ctx context.Context, tool string, p point) (hit, error) {
	req := p.request(tool)
	h := hit{Point: p.N, Tool: tool, Killed: p.String(), TraceID: req.TraceID.String(), Key: req.Key, trace: req.TraceID}

	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	second, acknowledged, err := w.killDuring(ctx, req, p)
	if err != nil {
		return h, err
	}
	if p.On == queued {
		// Look at the call that waits. If there is doubt, it is about the first call.
		req = second
		h.TraceID = req.TraceID.String()
	}
	if h.Window, err = w.window(ctx, req.TraceID); err != nil {
		return h, err
	}
	if err := w.start(ctx); err != nil {
		return h, err
	}
	res, again := w.client.Call(ctx, req)
	if errors.Is(again, tga.EscalationRequired) {
		h.Recovery = "waited for a person, sent"
		res, again = w.client.Decide(ctx, req.TraceID, wire.DecideRequest{Approve: true, Rationale: "the demo's approver says yes"})
	}
	h.InDoubt = errors.Is(again, tga.EffectInDoubt) || res.ErrorCode == tga.EffectInDoubt
	if again != nil && !h.InDoubt {
		return h, fmt.Errorf("point %d, repeat of the call: %w", p.N, again)
	}
	h.State, h.Seq = res.State.String(), res.Seq
	if h.Recovery == "" {
		h.Recovery = recovery(h, res)
	}
	count, err := w.charges(tool, req.Key)
	if err != nil {
		return h, err
	}
	h.Charges, h.Received = count.Charges, count.Received
	h.Wrong = w.wrong(ctx, h, res, acknowledged)
	h.OK = h.Wrong == ""
	return h, nil
}

// killDuring makes the call and kills the daemon at the point. For a queued point it makes a
// second call with the same key, which waits for the first. It returns the second call, and
// the answer of either call if there was one before the kill.
func (w *world) killDuring(ctx context.Context, req runtime.Request, p point) (second runtime.Request, acknowledged []byte, err error) {
	type reply struct {
		res runtime.Result
		err error
	}
	answers := make(chan reply, 2)
	call := func(req runtime.Request) {
		res, err := w.client.Call(ctx, req)
		answers <- reply{res, err}
	}
	calls := 1
	go call(req)
	second = req
	if p.On == queued {
		if !w.awaitState(ctx, req.TraceID, tga.Executing) {
			return second, nil, fmt.Errorf("point %d: the first call does not get to %s", p.N, tga.Executing)
		}
		second.TraceID = newID()
		calls = 2
		go call(second)
	}
	if !w.await(ctx, p.On, req.Tool, req.Key, req.TraceID, second.TraceID) {
		return second, nil, fmt.Errorf("point %d: waited in vain for %q", p.N, p.On)
	}
	time.Sleep(p.After)
	if err := w.kill(); err != nil {
		return second, nil, err
	}
	for range calls {
		if r := <-answers; r.err == nil && r.res.State == tga.Completed {
			acknowledged = r.res.Value
		}
	}
	return second, acknowledged, nil
}

// window reads from the log of the dead daemon in which crash window a call is.
func (w *world) window(ctx context.Context, trace tga.ID) (_ string, err error) {
	db, err := engine.OpenReadOnly(w.data, engine.Options{})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	t, err := db.Load(ctx, trace)
	if errors.Is(err, tga.NotFound) {
		return "W0", nil
	}
	if err != nil {
		return "", err
	}
	switch t.Head.State {
	case tga.Pending:
		return "W1", nil
	case tga.Authorized:
		return "W2", nil
	case tga.Executing:
		if story.InDoubt(t) {
			return "W4", nil
		}
		return "W3", nil
	}
	return "W5", nil
}

// recovery says in words what was decided about a call.
func recovery(h hit, res runtime.Result) string {
	switch {
	case h.InDoubt && h.Window == "W2":
		return "refused: first in doubt"
	case h.InDoubt:
		return "in doubt, not sent again"
	case h.Window == "W0":
		return "nothing there: sent now"
	case h.Window == "W5":
		return "answered from the record"
	case !res.ServedFrom.IsZero():
		return "served the first's effect"
	case res.Attempts > 1:
		return "sent again, same key"
	}
	return "went on, sent"
}

// wrong names the claim that a hit contradicts; "" if there is none.
func (w *world) wrong(ctx context.Context, h hit, res runtime.Result, acknowledged []byte) string {
	switch {
	case h.Charges > 1:
		return "charged more than once"
	case !h.InDoubt && res.State != tga.Completed:
		return "neither completed nor in doubt"
	case !h.InDoubt && h.Charges != 1:
		return "completed without a charge"
	case h.InDoubt && h.Received > 1:
		return "in doubt and sent again"
	case acknowledged != nil && string(acknowledged) != string(res.Value):
		return "an acknowledged answer is gone"
	}
	if !h.InDoubt {
		return ""
	}
	list, err := w.client.InDoubt(ctx)
	if err != nil {
		return err.Error()
	}
	for _, t := range list {
		if t.TraceID == h.trace {
			return ""
		}
	}
	return "in doubt and not listed"
}

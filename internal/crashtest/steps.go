package crashtest

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

func amountArgs(n int) []byte { return fmt.Appendf(nil, `{"amount":%d}`, n) }

// Step is one thing that callers and operators do. After a crash the same step is done
// again, as a caller does who got no answer.
type Step struct {
	Name string
	Do   func(p *Process, key string)
}

// ignore drops the error of a step. Errors are expected (the store may have failed, a call
// may be in doubt); the properties judge whether they did harm.
func ignore[T any](T, error) {}

func call(server, licence, behaviour string) func(*Process, string) {
	return func(p *Process, key string) { ignore(p.Call(0, Request(server, licence+"."+behaviour, key, 5))) }
}

// Steps returns the life cycle of a tool with a licence.
func Steps(licence string) []Step {
	tool := func(behaviour string) string { return licence + "." + behaviour }
	return []Step{
		{"call", call(Allowed, licence, Answers)},
		{"repeat", func(p *Process, key string) {
			ignore(p.Call(0, Request(Allowed, tool(Answers), key, 5)))
			ignore(p.Call(0, Request(Allowed, tool(Answers), key, 5)))
			ignore(p.Call(0, Request(Allowed, tool(Answers), key, 6))) // another request
		}},
		{"lost reply", func(p *Process, key string) {
			res, err := p.Call(0, Request(Allowed, tool(LosesReply), key, 5))
			if errors.Is(err, tga.EffectInDoubt) {
				ignore(p.RT.Resolve(context.Background(), res.TraceID, runtime.Resolution{
					Reply: runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{"asked":true}`)},
					Who:   "operator", Evidence: []byte("the server's books"),
				}))
			}
		}},
		{"begin", func(p *Process, key string) { p.begin(Request(Allowed, tool(Answers), key, 5), "begin-"+key, true) }},
		{"people", func(p *Process, key string) {
			res, err := p.Call(0, Request(People, tool(Answers), key, 5))
			if errors.Is(err, tga.EscalationRequired) {
				p.vote(res.TraceID)
			}
		}},
		{"lost call", func(p *Process, key string) {
			res, err := p.Call(0, Request(Allowed, tool(LosesCall), key, 5))
			if errors.Is(err, tga.EffectInDoubt) {
				ignore(p.RT.Abandon(context.Background(), res.TraceID, "operator", "nobody knows"))
			}
		}},
		{"checkpoint", func(p *Process, key string) {
			res, err := p.Call(0, Request(Allowed, tool(Long), key, 5))
			if err == nil {
				_ = p.Checkpoint(res.TraceID) // as ignore
			}
		}},
		{"overtaken", func(p *Process, key string) {
			res, err := p.Call(0, Request(Allowed, tool(Answers), key, 5))
			if err == nil {
				p.overtaken(res.TraceID)
			}
		}},
		{"unreached", func(p *Process, key string) {
			for range 2 { // nothing was sent, so the repeat is
				ignore(p.Call(0, Request(Allowed, tool(Unreached), key, 5)))
			}
		}},
		{"lost and unreached", func(p *Process, key string) {
			for range 2 { // one may have run, so the repeat is not another call
				ignore(p.Call(0, Request(Allowed, tool(Gone), key, 5)))
			}
		}},
		{"refused", func(p *Process, key string) {
			req := Request(Allowed, tool(Refuses), key, 5)
			ignore(p.Call(0, req))
			req.Retry = true
			ignore(p.Call(0, req))
		}},
		{"not sent", func(p *Process, key string) {
			p.begin(Request(Allowed, tool(Answers), key, 5), "first-"+key, false)
			p.begin(Request(Allowed, tool(Answers), key, 5), "second-"+key, true)
		}},
		{"failed", call(Allowed, licence, Fails)},
		{"denied", call(Denied, licence, Answers)},
		{"left in doubt", func(p *Process, key string) {
			req := Request(Allowed, tool(LosesReply), key, 5)
			ignore(p.Call(0, req))
			req.Retry = true // no licence: doubt is no definite non-execution
			ignore(p.Call(0, req))
		}},
		{"left waiting", call(People, licence, Answers)},
	}
}

// Core returns the steps whose crash windows differ: few enough for all pairs.
func Core(licence string) []Step { return Steps(licence)[:5] }

// Archive returns a life cycle of which a part is archived.
func Archive(licence string) []Step {
	tool := licence + "." + Answers
	return append(Core(licence)[:3], Step{"archive", func(p *Process, key string) {
		ignore(p.Call(0, Request(Allowed, tool, key, 5)))
		ignore(p.DB.SealTraces(context.Background(), tga.MillisOf(p.World.Clock())+1))
		ignore(p.Call(0, Request(Allowed, tool, key, 5)))
	}})
}

// Watched returns a life cycle of which somebody asks for the result all the time: what is
// shown must be on disk.
func Watched(licence string) []Step {
	return []Step{{"watched", func(p *Process, key string) {
		req := Request(Allowed, licence+"."+Answers, key, 5)
		req.TraceID = idOf(key)
		called, watched := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(watched)
			for {
				res, err := p.RT.Result(context.Background(), req.TraceID)
				if err == nil && res.State.Terminal() {
					p.World.log(Event{Kind: Returned, Key: key, Tool: req.Tool, Args: string(req.Args), Caller: 1, Trace: req.TraceID, Value: res.Value})
					return
				}
				select {
				case <-called:
					return
				default:
					goruntime.Gosched()
				}
			}
		}()
		ignore(p.Call(0, req))
		close(called)
		<-watched
	}}}
}

// idOf is a UUIDv7 that depends on a key alone.
func idOf(key string) tga.ID {
	d := tga.Sum([]byte(key))
	return tga.MakeID([16]byte(d[:16]))
}

// beginPatience is how long a remote executor waits while another call has its key. Without it the
// wait could be endless: a permit of another executor stays fresh until the world's clock moves, and
// nobody moves the clock meanwhile.
const beginPatience = 2 * time.Second

func (p *Process) mayBegin(req runtime.Request, id string) (runtime.Begun, error) {
	ctx, cancel := context.WithTimeout(context.Background(), beginPatience)
	defer cancel()
	return p.RT.Begin(ctx, runtime.BeginRequest{Request: req, BeginID: id})
}

// begin is a remote executor. If it is told to send, it sends the attempt once and finishes
// it.
func (p *Process) begin(req runtime.Request, id string, send bool) {
	b, err := p.mayBegin(req, id)
	if err != nil || b.Standing != runtime.BeginSend {
		return
	}
	trace := b.Result.TraceID
	if !send {
		ignore(p.RT.NotSent(context.Background(), trace, b.Permit, "changed its mind", 0))
		return
	}
	if p.World.sent(trace, b.Attempt) {
		// This executor sent the attempt before the crash and knows it: it sends one
		// attempt once. It goes on with what it was told then.
		p.finish(trace, b.Permit, req)
		return
	}
	reply, err := p.World.receive(runtime.Call{
		TraceID: trace, ToolCallID: b.Result.ToolCallID, Attempt: b.Attempt,
		Server: req.Server, Tool: req.Tool, Args: req.Args, Key: b.Key,
	}, false)
	if err == nil {
		ignore(p.RT.Finish(context.Background(), trace, b.Permit, runtime.Finished{Reply: reply}))
	}
}

func (p *Process) finish(trace tga.ID, permit runtime.Permit, req runtime.Request) {
	_, behaviour := licenceOf(req.Tool)
	reply := answer(behaviour, runtime.Call{Args: req.Args, Key: req.Key})
	ignore(p.RT.Finish(context.Background(), trace, permit, runtime.Finished{Reply: reply}))
}

func (p *Process) vote(trace tga.ID) {
	for _, who := range []string{"ada", "grace"} {
		ignore(p.RT.Decide(context.Background(), trace, runtime.Vote{Who: who, Approve: true, Rationale: "looked at it, fine"}))
	}
}

// sent reports whether an attempt of a trace reached its server.
func (w *World) sent(trace tga.ID, attempt uint32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if e.Kind == Sent && e.Trace == trace && e.Call.Attempt == attempt {
			return true
		}
	}
	return false
}

package crashtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Behaviours and servers of the life cycle that uses answers from outside.
const (
	Changes  = "changes"  // acts, and says what it changed, which stands
	Vanishes = "vanishes" // likewise, and it does not stand later
	Busy     = "busy"     // says of the first two sends of a key that it did not execute them
	Undoes   = "undoes"   // undoes what another tool did

	Hasty = "hasty" // server: an approval is too late at once
)

// probed is the licence of a tool whose server can be asked: it says whether it acted
// for a key, and refuses the attempts made so far if it did not.
const probed = "asked"

// thing is the resource type that has a verifier.
const thing = "thing"

// trust returns the probers, verifiers and inverses of a world's runtime.
func (w *World) trust() runtime.Trust {
	return runtime.Trust{
		Prober: func(_, tool string) runtime.Prober {
			if licence, _ := licenceOf(tool); licence == probed {
				return prober{w}
			}
			return nil
		},
		Verifier: func(kind string) runtime.Verifier {
			if kind == thing {
				return verifier{w}
			}
			return nil
		},
		Inverse: func(call *tga.ToolCall, _ *tga.ToolEffect, _ []byte) (runtime.Inverse, bool, error) {
			licence, behaviour := licenceOf(call.Call.ToolName)
			args := fmt.Appendf(nil, `{"of":%q}`, call.IdempotencyKey)
			return runtime.Inverse{Server: Allowed, Tool: licence + "." + Undoes, Args: args}, behaviour == Answers, nil
		},
	}
}

// prober asks the tool servers of a world. They answer what the journal says.
type prober struct{ w *World }

func (p prober) Probe(_ context.Context, call runtime.Call) (runtime.Probed, error) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.point("probe", call.Key)
	_, behaviour := licenceOf(call.Tool)
	late := -1
	for i, e := range p.w.events {
		if e.Key != call.Key || e.Tool != call.Tool {
			continue
		}
		if e.Kind == Acted {
			return runtime.Probed{Answer: ledger.ProbeRan, Reply: answer(behaviour, call), Evidence: runtime.Evidence{Source: "the journal", Detail: []byte(`{"acted":true}`)}}, nil
		}
		if e.Kind == Sent && behaviour == Late {
			late = i
		}
	}
	if late >= 0 {
		// It had not run when the question came, and nothing prevented it from running afterwards.
		e := p.w.events[late]
		e.Kind = Acted
		p.w.events = append(p.w.events, e)
		return runtime.Probed{Answer: ledger.ProbeNotRan}, nil
	}
	return runtime.Probed{Answer: ledger.ProbeNotRan, Fenced: true}, nil
}

// verifier looks at the things of a world.
type verifier struct{ w *World }

func (v verifier) Verify(_ context.Context, c tga.StateChange) (runtime.Finding, runtime.Evidence, error) {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	v.w.point("verify", c.ResourceID)
	if strings.HasPrefix(c.ResourceID, Vanishes) {
		return runtime.Gone, runtime.Evidence{Source: "the world", Detail: []byte(`{"there":false}`)}, nil
	}
	return runtime.Exists, runtime.Evidence{Source: "the world", Detail: []byte(`{"there":true}`)}, nil
}

// changesOf is what a tool of this behaviour says it changed.
func changesOf(behaviour string, call runtime.Call) []tga.StateChange {
	if behaviour != Changes && behaviour != Vanishes {
		return nil
	}
	return []tga.StateChange{{ResourceType: thing, ResourceID: behaviour + "-" + call.Key, Operation: "create"}}
}

// TrustSteps are a life cycle that uses answers from outside: questions to tool servers,
// confirmations, people, new attempts, compensation.
func TrustSteps(licence string) []Step {
	tool := func(behaviour string) string { return licence + "." + behaviour }
	timers := func(p *Process, after time.Duration) {
		p.World.Advance(after)
		ignore(p.RT.FireTimers(context.Background()))
	}
	return []Step{
		{"lost reply, asked about", call(Allowed, probed, LosesReply)},
		{"lost call, asked about", call(Allowed, probed, LosesCall)},
		{"late call, asked about", call(Allowed, probed, Late)},
		{"remote, asked about", func(p *Process, key string) {
			p.begin(Request(Allowed, probed+"."+LosesReply, key, 5), "begin-"+key, true)
			p.World.Advance(time.Minute) // the executor's permit is no longer fresh
			res, err := p.RT.Begin(context.Background(), runtime.BeginRequest{Request: Request(Allowed, probed+"."+LosesReply, key, 5), BeginID: "other-" + key})
			if err == nil && res.Standing == runtime.BeginServe {
				return
			}
			ignore(p.RT.Recover(context.Background(), res.Result.TraceID))
		}},
		{"confirmed replay", func(p *Process, key string) {
			req := Request(Allowed, tool(Changes), key, 5)
			ignore(p.Call(0, req))
			req.Replay = true
			ignore(p.Call(0, req))
		}},
		{"person confirms", func(p *Process, key string) {
			req := Request(Allowed, tool(Vanishes), key, 5)
			res, err := p.Call(0, req)
			if err != nil {
				return
			}
			origin := res.TraceID
			if !res.ServedFrom.IsZero() {
				origin = res.ServedFrom
			}
			req.Replay = true
			if _, err := p.Call(0, req); errors.Is(err, tga.ConfirmationRequired) {
				p.vote(origin)
			}
		}},
		{"new attempts", func(p *Process, key string) {
			ignore(p.Call(0, Request(Allowed, tool(Busy), key, 5)))
			timers(p, time.Hour)
			timers(p, time.Hour)
		}},
		{"undone", func(p *Process, key string) {
			req := Request(Allowed, tool(Answers), key, 5)
			res, err := p.Call(0, req)
			if err != nil {
				return
			}
			origin := res.TraceID
			if !res.ServedFrom.IsZero() {
				origin = res.ServedFrom
			}
			ignore(p.RT.Compensate(context.Background(), origin, "operator"))
			ignore(p.Call(0, req))
		}},
		{"too late", func(p *Process, key string) {
			ignore(p.Call(0, Request(Hasty, tool(Answers), key, 5)))
			timers(p, time.Second)
		}},
		{"left to a person", func(p *Process, key string) {
			req := Request(Allowed, tool(Vanishes), key, 5)
			ignore(p.Call(0, req))
			req.Replay = true
			ignore(p.Call(0, req))
		}},
	}
}

// TrustTier crashes the life cycle of [TrustSteps] before each operation, question and
// answer, and inside each recovery.
func TrustTier(r *Run) {
	for round := uint64(0); ; round++ {
		for _, v := range shuffled(r.Seed+round, variants()) {
			if v.licence == "probe" || v.licence == "read_only" || r.Over() {
				continue // the first is asked, without a name for who can be; the second has nothing to undo
			}
			s := Scenario{Name: "trust " + v.name, Conf: v.conf, Licences: []string{v.licence}, Steps: TrustSteps}
			r.Explore(s, r.Seed+round, Losses, 1, Thoroughness{Depth: 2, Nested: 11, Again: 16, Retry: 8})
		}
		r.Say("trust round %d, seed %d: %d crash points, %d recoveries, %d double", round, r.Seed+round, r.Counts.CrashPoints, r.Counts.Recoveries, r.Counts.DoubleCrashes)
		if r.Deadline.IsZero() || r.Over() {
			return
		}
	}
}

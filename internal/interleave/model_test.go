package interleave

import (
	"context"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// claim is what a model says that a tool answered. It knows nothing of it.
const claim = `{"model":"it ran"}`

// model settles what it finds in doubt by a peer's right to settle, and by that peer's leave. It
// first says that the call did not run, which is not a model's to say. gives says that it then
// gives the call up; another one says that it ran. It has looked at nothing.
func model(name string, tries int, gives bool) script {
	return script{name: name, model: true, run: func(l *life) {
		for l.again(tries) {
			l.forget()
			list, err := l.w.rt.InDoubt(l.ctx)
			if err != nil {
				return
			}
			for _, c := range list {
				l.settles(c.TraceID, gives)
			}
		}
	}}
}

func (l *life) settles(trace tga.ID, gives bool) {
	r := runtime.Resolution{Who: l.script.name, Via: runtime.ViaModel, Evidence: []byte("it says so")}
	r.Reply = runtime.Reply{Status: tga.StatusFailure, Class: ledger.ClassRetryable}
	_, err := l.w.rt.Resolve(l.ctx, trace, r)
	l.learn("did not run", code(err))
	if gives {
		_, err = l.w.rt.AbandonVia(l.ctx, trace, l.script.name, runtime.ViaModel, "given up")
	} else {
		r.Reply = runtime.Reply{Status: tga.StatusSuccess, Result: []byte(claim)}
		_, err = l.w.rt.Resolve(l.ctx, trace, r)
	}
	l.learn("settled", code(err))
}

// asModel holds an effect that a model's word makes to two things: it says that a model decided,
// and it frees no key.
func (w *world) asModel(l *life, trace tga.ID, effect *tga.Artifact) {
	if !l.script.model {
		return
	}
	if effect.Meta.String(tga.MetaResolvedVia) != runtime.ViaModel {
		w.broken("a model ended %s, and the record does not say that it was a model", short(trace))
	}
	if ledger.ClassOf(effect).Releases() {
		w.broken("a model ended %s as %v: its word licenses a send", short(trace), ledger.ClassOf(effect))
	}
	if gives := ledger.ClassOf(effect) == ledger.ClassPermanent; gives {
		w.abandoned[trace] = true
	}
}

// claimed reports whether a model has said what became of a call.
func (w *world) claimed(trace tga.ID) bool {
	t, err := w.store.Load(context.Background(), trace)
	return err == nil && t.Effect != nil && t.Effect.Meta.String(tga.MetaResolvedVia) == runtime.ViaModel
}

// unclaimed checks a permission that a client without keys got: none of its calls with the same
// arguments was settled by a model. Whether that one ran is as unknown as before, and only a
// person has the same call run again.
// A call that only reads is sent again by anybody.
func (w *world) unclaimed(l *life, trace tga.ID, args string) {
	if w.Policy.Licence.Kind == ledger.ReadOnly {
		return
	}
	for _, a := range w.minted {
		if a.Request == nil || a.TraceID == trace || int(a.TraceID[14]) != l.id || string(a.Request.Proposal.Args) != args {
			continue
		}
		if w.claimed(a.TraceID) {
			w.broken("%s may send %s, and a model has settled %s, the same call", l.script.name, short(trace), short(a.TraceID))
		}
	}
}

func firstID(a, b tga.ID) tga.ID {
	if !a.IsZero() {
		return a
	}
	return b
}

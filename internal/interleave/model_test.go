package interleave

import (
	"context"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// claim is the tool's answer that a model makes up.
const claim = `{"model":"it ran"}`

// model settles calls in doubt, for a peer that has the right to settle and lets a model use it. It
// first says that the call did not run, which a model may not say. Then it abandons the call, if
// gives is true, or says that it ran. It has not looked at the world.
func model(name string, tries int, gives bool) script {
	return script{name: name, model: true, run: func(l *life) {
		for l.again(tries) {
			l.forget()
			list, err := l.rt().InDoubt(l.ctx)
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
	_, err := l.rt().Resolve(l.ctx, trace, r)
	l.learn("did not run", code(err))
	if gives {
		_, err = l.rt().AbandonVia(l.ctx, trace, l.script.name, runtime.ViaModel, "given up")
	} else {
		r.Reply = runtime.Reply{Status: tga.StatusSuccess, Result: []byte(claim)}
		_, err = l.rt().Resolve(l.ctx, trace, r)
	}
	l.learn("settled", code(err))
}

// asModel checks an effect that a model has settled: the effect says that a model decided, and it
// frees no key.
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

// unclaimed checks a permission for a client without keys: none of its calls with the same
// arguments was settled by a model. A model's word leaves open whether that call ran, so only a
// person may let the same call run again. A call that only reads may always be sent again.
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

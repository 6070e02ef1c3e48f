package interleave

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// thing is what the tool changes in the world, in a scenario that says what becomes of it.
var thing = tga.StateChange{ResourceType: "thing", ResourceID: "t", Operation: "create"}

// finds is what a look at the thing finds, first and after each of the bounds' losses: it stands, or not.
var finds = []runtime.Finding{runtime.Exists, runtime.Changed, runtime.Gone}

// Verify implements [runtime.Verifier].
func (w *world) Verify(ctx context.Context, _ tga.StateChange) (runtime.Finding, runtime.Evidence, error) {
	l := lifeOf(ctx)
	l.do("looks whether the thing stands")
	l.found = 1 + w.lost
	l.learn("found", uint64(l.found))
	return finds[w.lost], runtime.Evidence{Source: "a look"}, nil
}

// questions notes which changes people are asked about: those that the asker has found.
func (w *world) questions(l *life, q *runtime.Approval) {
	if w.votes.mismatch[l.found] == "" {
		w.votes.mismatch[l.found] = q.Mismatch.String()
	}
}

// relies holds an answer that is served of an earlier call to the world: whoever serves it looked, and what it
// found stands, or the last word about just that is a yes, of somebody who neither made the earlier call nor
// wants to rely on it.
func (w *world) relies(l *life, trace tga.ID, effect *tga.Artifact) {
	from := effect.Meta.String(tga.MetaReplayedFrom)
	if w.Losses == 0 || from == "" || !slices.ContainsFunc(w.actors, func(a *actor) bool { return a.id == int(trace[14]) && a.script.relies }) {
		return
	}
	if l.found == 0 {
		w.broken("%s is served, and nobody looked at the world", short(trace))
	}
	if l.found <= 1 {
		return
	}
	origin, err := tga.ParseID(from)
	if err != nil {
		panic(err)
	}
	for _, c := range slices.Backward(w.votes.cast[origin]) {
		if c.shown != w.votes.mismatch[l.found] {
			continue
		}
		if c.who == w.from(origin) || c.who == w.from(trace) {
			continue
		}
		if !c.approve {
			break
		}
		return
	}
	w.broken("%s is served a record whose changes are %v, and nobody else said that it may: %v", short(trace), finds[l.found-1], w.votes.cast[origin])
}

// replayer makes the call again as if its effect had just happened.
func replayer(name, key, args string, tries int) script {
	return script{name: name, relies: true, run: func(l *life) {
		for l.again(tries) {
			l.forget()
			req := l.request(key, args)
			req.Replay = true
			res, err := l.rt().Call(l.ctx, req)
			if l.w.told(l, key, args, res, err) {
				return
			}
		}
	}}
}

// confirmed checks a trace that is AUTHORIZED when nobody can move any more: it waits for people, who are
// asked about the record that it wants to be served.
func (w *world) confirmed(trace tga.ID) {
	if w.Losses > 0 {
		for a, err := range w.store.Attachments(context.Background(), chain.AttachApproval, nil) {
			var q runtime.Approval
			if err != nil || json.Unmarshal(a.Value, &q) != nil {
				w.broken("what waits cannot be read: %v", err)
			}
			if q.Kind == runtime.AskConfirmation && slices.Contains(q.Waiting, trace) {
				return
			}
		}
	}
	w.broken("%s is left AUTHORIZED, and nobody is asked about what it waits for", short(trace))
}

func (v votes) hashQuestions(h *hasher) {
	for i := range len(finds) + 1 {
		h.text(fmt.Sprint(i, v.mismatch[i]))
	}
}

package interleave

import (
	"context"
	"fmt"
	"strings"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// What is checked, and where:
//
//	each send       the record of its key is reserved by its trace and this attempt is the
//	                newest, durable and never sent before; likewise each permit
//	                                                                [world.sending] [world.permitted]
//	each receipt    one effect a key, with a tool that behaves as its licence says; never
//	                two requests under one key                                   [network.receive]
//	each answer     a success is the tool's own answer; a failure is of a call that did not
//	                run and cannot run any more; all who ask hear the same       [world.told]
//	each effect     nothing happens oftener than the clients of shims meant it  [world.happened]
//	each delivery   the answer of a call that ran, and of no other call that was meant [world.shows]
//	each first send what the rules of this start and of the question want, by people who were
//	                shown the tool as it is; nobody's own vote         [world.mandated]
//	each replay     whoever serves it looked, and what was found stands or another person said yes
//	                                                                             [world.relies]
//	each list       a call leaves the list of undelivered calls where somebody said that its
//	                answer was delivered, or it did not run, and then never comes back
//	                                                                              [world.lists]
//	each word       of a model that settles: it is recorded as one, it frees no key, and the
//	                client whose call it settled is not told to send that call again
//	                                                            [world.asModel] [world.unclaimed]
//	each end        every trace is terminal, in doubt with a durable attempt, or a remote
//	                executor's; the record is what the log says; what was told stands
//	                                                                             [world.quiet]

// answer is what somebody was told about a key.
type answer struct {
	trace tga.ID
	state tga.State
	value string
}

// sending checks that everything that must be durable before a send by the process is durable.
// looked says that the sender found its lease to be current.
func (w *world) sending(call runtime.Call, looked bool) {
	mark := fmt.Sprint(short(call.TraceID), " attempt ", call.Attempt)
	if w.sent[mark] {
		w.broken("%s is sent twice", mark)
	}
	w.sent[mark] = true
	t, err := w.store.Load(context.Background(), call.TraceID)
	if err != nil {
		w.broken("%s is sent, and its trace cannot be read: %v", mark, err)
		return
	}
	if by, _, ended := runtime.EndedBy(t); ended && by == runtime.ByPerson && looked && call.Attempt > 1 {
		return // a person who saw the call run ended it in between: the re-send is licensed
	}
	w.maySend(mark, call.TraceID, call.Attempt, call.Key)
	w.mandated(mark, call.TraceID)
	if t.Request.Meta.String(tga.MetaExecutor) == tga.AttemptExternal {
		w.broken("%s, of a call that a remote executor began, is sent by the process", mark)
	}
}

// permitted checks the same for the permission of a remote executor, at the moment when it is
// given. How long the executor then takes is not checked; its licence covers that.
//
// Between the read of the record and the answer, a person who saw an earlier attempt run may end
// the call. The re-send is licensed all the same. ended are the calls that had ended when the
// executor asked: no permission may be given for one of them. Two executions that differ in ended
// also differ in what the executor has read since, so ended need not be part of the state.
func (w *world) permitted(b runtime.Begun, key string, ended map[tga.ID]int) {
	_, before := ended[b.Result.TraceID]
	if _, now := w.ended[b.Result.TraceID]; now && !before && b.Attempt > 1 {
		t, err := w.store.Load(context.Background(), b.Result.TraceID)
		if err != nil {
			w.broken("%s was permitted, and cannot be read: %v", short(b.Result.TraceID), err)
			return
		}
		if by, _, over := runtime.EndedBy(t); over && by == runtime.ByPerson && !ledger.ClassOf(t.Effect).Releases() {
			return
		}
	}
	mark := fmt.Sprint(short(b.Result.TraceID), " attempt ", b.Attempt)
	w.maySend(mark, b.Result.TraceID, b.Attempt, key)
	w.mandated(mark, b.Result.TraceID)
}

// unique checks that no two artifacts have one id.
func (w *world) unique(list []chain.NewArtifact) {
	for _, a := range list {
		if is := w.minted[a.Artifact.ID]; is != nil && is.Digest != a.Artifact.Digest {
			w.broken("%s is the id of two artifacts", a.Artifact.ID)
		}
		w.minted[a.Artifact.ID] = a.Artifact
	}
}

// newest checks a permission that its executor does not use: it must be for the newest attempt.
// Otherwise another executor could send the newest attempt beside it.
func (w *world) newest(b runtime.Begun, key string) {
	r, err := w.store.Record(context.Background(), ledger.Key{Namespace: tga.DefaultNamespace, Server: server, Tool: tool, Key: key})
	if err != nil || r == nil || r.TraceID == b.Result.TraceID && r.Attempts.Count != b.Attempt {
		w.broken("%s attempt %d is permitted, and its record is %+v (%v)", short(b.Result.TraceID), b.Attempt, r, err)
	}
}

func (w *world) maySend(mark string, trace tga.ID, attempt uint32, key string) {
	r, err := w.store.Record(context.Background(), ledger.Key{Namespace: tga.DefaultNamespace, Server: server, Tool: tool, Key: key})
	switch {
	case err != nil || r == nil:
		w.broken("%s may be sent, and its key has no record (%v)", mark, err)
	case r.TraceID != trace:
		w.broken("%s may be sent, and its key is %s's", mark, short(r.TraceID))
	case r.Status != ledger.Reserved:
		w.broken("%s may be sent, and its key is %s", mark, r.Status)
	case r.Attempts.Count != attempt:
		w.broken("%s may be sent, and %d attempts are durable", mark, r.Attempts.Count)
	}
}

// told notes an answer to a caller and compares it with the world. It reports whether the call is
// over for that caller.
func (w *world) told(l *life, key, args string, res runtime.Result, err error) bool {
	switch tga.CodeOf(err) {
	case "":
	case tga.IdempotencyKeyConflict:
		if w.net.args[key] == args {
			w.broken("%s was told of a conflict with its own request", l.script.name)
		}
		return true
	default:
		return false
	}
	origin := firstID(res.ServedFrom, res.TraceID)
	ran, _, _ := w.net.look(origin)
	switch res.State {
	case tga.Completed:
		value := string(res.Value)
		if w.claimed(origin) {
			if value != claim {
				w.broken("%s was told %s, and a model said %s", l.script.name, value, claim)
			}
			break
		}
		if !ran || !strings.Contains(value, `"done":"`+key+`"`) {
			w.broken("%s was told %s, which the tool never said (ran: %v)", l.script.name, value, ran)
		}
		if w.net.args[key] != args {
			w.broken("%s asked for %s and was served %s", l.script.name, args, w.net.args[key])
		}
	case tga.Failed:
		if m := w.mayHaveRun(origin); m != nil && !w.abandoned[origin] {
			w.broken("%s was told that %s failed (%s), and attempt %d ran: %v, may still arrive: %v", l.script.name, short(origin), res.ErrorCode, m.Attempt, m.acted, m.flying)
		}
	}
	w.answers = append(w.answers, answer{res.TraceID, res.State, string(res.Value)})
	return true
}

// quiet checks the end of an execution, when no actor can move any more.
func (w *world) quiet() {
	ctx := context.Background()
	for _, a := range w.actors {
		if !a.over {
			w.broken("%s waits for ever", a.script.name)
		}
	}
	for o, err := range w.store.OpenTraces(ctx) {
		if err != nil {
			w.broken("open traces: %v", err)
			return
		}
		t, err := w.store.Load(ctx, o.TraceID)
		if err != nil {
			w.broken("load %s: %v", short(o.TraceID), err)
			return
		}
		if t.Request.Meta.String(tga.MetaExecutor) == tga.AttemptExternal {
			continue
		}
		switch t.Head.State {
		case tga.Executing:
			r, err := w.store.Record(ctx, ledger.KeyOf(t.Namespace, t.Call))
			if err != nil || r == nil || !r.InDoubt() {
				w.broken("%s is %s, and nothing is in doubt (%v)", short(o.TraceID), t.Head.State, err)
			}
		case tga.Pending:
			w.waiting(o.TraceID)
		case tga.Authorized:
			w.confirmed(o.TraceID)
		default:
			w.broken("%s is left %s", short(o.TraceID), t.Head.State)
		}
	}
	w.unrun()
	w.askedOnce()
	for _, told := range w.answers {
		t, err := w.store.Load(ctx, told.trace)
		if err != nil || t.Head.State != told.state {
			w.broken("%s was told to be %s, and is not (%v)", short(told.trace), told.state, err)
		}
	}
}

// ends notes that an effect was appended. A person must not be able to say that the call did not
// run while the sender of one of its attempts is still at work: bytes on the wire cannot be
// called back, whenever the person looked.
func (w *world) ends(trace tga.ID, effect *tga.Artifact) {
	w.ended[trace] = len(w.net.messages)
	t, err := w.store.Load(context.Background(), trace)
	if err != nil {
		w.broken("%s was ended, and cannot be read: %v", short(trace), err)
		return
	}
	if by, _, _ := runtime.EndedBy(t); by != runtime.ByPerson || !ledger.ClassOf(effect).Releases() {
		return
	}
	for _, m := range w.net.messages {
		if m.TraceID == trace && m.atWork() {
			w.broken("a person ended %s as %v, and the sender of attempt %d is at work", short(trace), ledger.ClassOf(effect), m.Attempt)
		}
	}
}

// mayHaveRun returns a send of a trace that ran or may still arrive, nil if there is none. A person says how
// many attempts there were when they looked, so a wrong word of a person excuses no send of the process or of
// a remote executor. There is one exception: a peer that appends its own call may have sent it after the person
// looked and before the person's word came, and may be gone since ([world.ends]). Nobody permits such a send,
// so no rule of the log can detect that the word is older. For that case the person is responsible.
func (w *world) mayHaveRun(trace tga.ID) *message {
	t, err := w.store.Load(context.Background(), trace)
	if err != nil {
		w.broken("load %s: %v", short(trace), err)
		return nil
	}
	by, _, _ := runtime.EndedBy(t)
	for i, m := range w.net.messages {
		if m.TraceID != trace || !m.acted && !m.flying {
			continue
		}
		if m.own && by == runtime.ByPerson && w.looked[trace] <= i && i < w.ended[trace] {
			continue
		}
		return m
	}
	return nil
}

// unrun checks that calls that are recorded as not executed were not executed, and will not be.
func (w *world) unrun() {
	for _, sent := range w.net.messages {
		t, err := w.store.Load(context.Background(), sent.TraceID)
		if err != nil || t.Effect == nil {
			continue // it is checked above that open traces can be read
		}
		switch ledger.ClassOf(t.Effect) {
		case ledger.ClassNotSent, ledger.ClassRetryable:
			if m := w.mayHaveRun(sent.TraceID); m != nil {
				w.broken("%s is recorded as %v, and attempt %d ran: %v, may still arrive: %v", short(m.TraceID), ledger.ClassOf(t.Effect), m.Attempt, m.acted, m.flying)
			}
		}
	}
}

package interleave

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// client is a client that makes some calls without keys, one after the other. A process of its own
// sends them (package mcpfront). When that process dies, the client starts another one and repeats
// the call that it has no answer for.
type client struct {
	name  string
	means []string // the arguments of each call
	tries int      // of each call
	// rides says that the begin of the next call, if there is one, reports that the answer was
	// delivered ([runtime.BeginRequest.Delivered]), instead of a message of its own.
	rides bool
	// hasty says that the process also reports the answer of a call in doubt as delivered. The
	// daemon must refuse that report, and a begin that carries it.
	hasty bool
}

// shim is a client of identical calls whose process reports each delivery separately.
func shim(name, args string, calls, tries int) script {
	return client{name: name, means: slices.Repeat([]string{args}, calls), tries: tries}.script()
}

// hasty is a client whose process reports an answer as delivered that did not come.
func hasty(name string, tries int, means ...string) script {
	return client{name: name, means: means, tries: tries, rides: true, hasty: true}.script()
}

// rider is a client whose process reports a delivery with the next begin.
func rider(name string, tries int, means ...string) script {
	return client{name: name, means: means, tries: tries, rides: true}.script()
}

func (c client) script() script {
	return script{name: c.name, run: func(l *life) {
		l.live()
		for l.number("call") < len(c.means) || l.memory["owed"] != "" {
			if !l.again(c.tries) {
				return
			}
			l.forget()
			switch {
			case l.number("call") == len(c.means):
				l.note(l.owed())
			case l.memory["answer"] != "" || l.work(c.means[l.number("call")], c.hasty):
				l.deliver(c.rides)
			}
		}
	}}
}

func (l *life) number(name string) int {
	n, err := strconv.Atoi("0" + l.memory[name])
	if err != nil {
		panic(err)
	}
	return n
}

func (l *life) count(name string) { l.memory[name] = strconv.Itoa(l.number(name) + 1) }

// conn is the name of the client's end, and of the lock that its process holds.
func (l *life) conn() string { return fmt.Sprint(l.script.name, " process ", l.number("deaths")) }

// live takes the lock of the shim's process.
func (l *life) live() { l.w.alive[l.conn()] = true }

// dies returns the death of the shim's process. The daemon goes on with what it was asked. What
// the process knew is lost, but its client still knows which call it wants.
func (l *life) dies() func() {
	return func() {
		l.w.left.Deaths--
		delete(l.w.alive, l.conn())
		l.count("deaths")
		for _, k := range []string{"message", "trace", "permit", "outcome", "answer", "asked", "owed", "id", "begin"} {
			delete(l.memory, k)
		}
		if m := l.w.net.byName(l.waits); m != nil {
			m.waiting = false
		}
		l.dying = true
		close(l.gate)
		l.stop()
		l.actor.spawn()
	}
}

// lock tells the runtime whether the holder of a process's lock is alive.
func (w *world) lock(path string) ledger.Liveness {
	if w.alive[path] {
		return ledger.HolderAlive
	}
	return ledger.HolderGone
}

// work begins the call, sends it if it may, and reports the result. It returns true if there is
// an answer for the client.
func (l *life) work(args string, hasty bool) bool {
	if l.memory["trace"] == "" {
		notes := l.owed()
		if len(notes) > 0 {
			// The client has its answer and goes on. A process that dies here leaves no note.
			l.mayDie = l.dies()
			l.do("begins the next call")
			l.mayDie = nil
		}
		asked, ended := l.asks(), maps.Clone(l.w.ended)
		id := l.proposes()
		l.w.gives(notes)
		b, err := l.rt().Begin(l.ctx, runtime.BeginRequest{
			Request: runtime.Request{TraceID: id, Server: server, Tool: tool, Args: []byte(args)},
			BeginID: fmt.Sprint(l.conn(), " call ", l.number("call"), " begin ", l.number("begin")), Connection: runtime.Connection{ID: l.conn(), Lock: l.conn(), Executor: l.conn()},
			Delivered: notes,
		})
		if err == nil {
			l.w.begunWith(notes)
			delete(l.memory, "owed")
			l.memory["id"] = b.Result.TraceID.String()
		}
		l.intends(args)
		switch {
		case err != nil:
			return false
		case b.Standing == runtime.BeginServe && b.Result.State == tga.Completed:
			l.memory["answer"], l.memory["trace"] = string(b.Result.Value), b.Result.TraceID.String()
			return true
		case b.Standing == runtime.BeginInDoubt, b.Standing == runtime.BeginStale, b.Standing == runtime.BeginServe:
			// The client is told what is known, and goes on to its next call.
			l.nextCall()
			l.memory["tries"] = "0"
			return false
		case b.Standing != runtime.BeginSend:
			return false
		}
		l.w.permitted(b, b.Key, ended)
		l.w.unclaimed(l, b.Result.TraceID, args)
		l.memory["trace"], l.memory["permit"] = b.Result.TraceID.String(), b.Permit.String()
		l.do(fmt.Sprintf("sends %s, attempt %d", short(b.Result.TraceID), b.Attempt))
		if l.tooLate(asked, b.SendWithin) {
			trace, permit := l.ids()
			_, err := l.rt().NotSent(l.ctx, trace, permit, "", 0)
			l.learn("not sent", code(err))
			delete(l.memory, "outcome")
			l.anew()
			return false
		}
		m := l.w.net.send(runtime.Call{
			TraceID: b.Result.TraceID, Attempt: b.Attempt, Server: server, Tool: tool, Key: b.Key, Args: []byte(args),
		}, l.conn())
		m.permit, l.memory["message"] = true, m.name()
	}
	if m := l.w.net.byName(l.memory["message"]); m != nil && l.memory["outcome"] == "" {
		ctx, cancel := context.WithTimeout(l.ctx, runtime.DefaultSendTimeout)
		defer cancel()
		l.waits, l.mayDie = m.name(), l.dies()
		reply, err := l.w.net.wait(ctx, l, m)
		l.waits, l.mayDie = "", nil
		delete(l.memory, "message")
		if err != nil {
			// The outcome is not known. If the client repeats the call, it is told so.
			if hasty {
				l.memory["owed"] = l.memory["trace"]
				l.nextCall()
			}
			l.giveUp()
			return false
		}
		l.memory["outcome"] = string(reply.Result)
	}
	if l.memory["outcome"] == "" {
		l.anew()
		return false
	}
	return l.finishOwn()
}

// proposes returns the trace id that the process proposes for the call. Until the call is sent, the
// id and the name of the begin stay the same, also after an answer was lost or the daemon said to
// wait.
func (l *life) proposes() tga.ID {
	if l.memory["id"] == "" {
		l.memory["id"] = l.newID().String()
		l.keeps()
	}
	id, err := tga.ParseID(l.memory["id"])
	if err != nil {
		panic(err)
	}
	return id
}

// anew makes the next begin a new one, for the same call.
func (l *life) anew() {
	delete(l.memory, "trace")
	l.count("begin")
}

// nextCall says that the client goes on to its next call.
func (l *life) nextCall() {
	l.count("call")
	delete(l.memory, "id")
	delete(l.memory, "begin")
}

// intends counts each call that the client wants once, however often it is repeated.
func (l *life) intends(args string) {
	if l.memory["meant"] != l.memory["call"]+"." {
		l.memory["meant"] = l.memory["call"] + "."
		l.w.meant[args]++
	}
}

func (l *life) ids() (tga.ID, runtime.Permit) {
	trace, err := tga.ParseID(l.memory["trace"])
	if err != nil {
		panic(err)
	}
	permit, err := runtime.ParsePermit(firstOf(l.memory["permit"], fmt.Sprintf("%032x", 0)))
	if err != nil {
		panic(err)
	}
	return trace, permit
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func (l *life) giveUp() {
	trace, permit := l.ids()
	l.learn("gave up", code(l.rt().GiveUp(l.ctx, trace, permit, "its answer did not come", 0)))
	l.anew()
}

func (l *life) finishOwn() bool {
	trace, permit := l.ids()
	res, err := l.rt().Finish(l.ctx, trace, permit, runtime.Finished{
		Reply: runtime.Reply{Status: tga.StatusSuccess, Result: []byte(l.memory["outcome"])},
	})
	switch {
	case err == nil && res.State == tga.Completed:
		l.memory["answer"] = string(res.Value)
		return true
	case tga.CodeOf(err) == tga.StateInvalidTransition:
		l.memory["answer"] = l.memory["outcome"] // somebody ended it otherwise
		return true
	}
	return false
}

// deliver gives the answer to the client, and then reports that to the daemon until the daemon
// has confirmed it. With rides it keeps the report for the next begin.
func (l *life) deliver(rides bool) {
	l.mayDie = l.dies()
	l.do("answers its client")
	l.mayDie = nil
	trace, _ := l.ids()
	if l.memory["shown"] != l.memory["call"]+"." {
		l.memory["shown"] = l.memory["call"] + "."
		l.w.shows(l, trace)
	}
	if rides {
		l.memory["owed"] = trace.String()
	} else if !l.note([]tga.ID{trace}) {
		return
	}
	for _, k := range []string{"trace", "permit", "outcome", "answer"} {
		delete(l.memory, k)
	}
	l.memory["tries"] = "0"
	l.nextCall()
}

// owed returns the trace whose answer the client has, but the daemon may not know that. A begin that
// fails leaves it owed, because nobody knows whether the report was noted.
func (l *life) owed() []tga.ID {
	if l.memory["owed"] == "" {
		return nil
	}
	trace, err := tga.ParseID(l.memory["owed"])
	if err != nil {
		panic(err)
	}
	return []tga.ID{trace}
}

// note reports deliveries to the daemon in a separate message. It returns whether the daemon knows.
func (l *life) note(traces []tga.ID) bool {
	l.w.gives(traces)
	for _, trace := range traces {
		err := l.rt().Delivered(l.ctx, trace)
		switch {
		case err == nil:
			l.w.noted(trace)
		case tga.CodeOf(err) != tga.StateInvalidTransition:
			l.learn("undelivered", code(err))
			return false
		}
	}
	delete(l.memory, "owed")
	return true
}

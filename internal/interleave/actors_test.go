package interleave

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

const (
	server = "payments"
	tool   = "charge"
)

func (l *life) request(key, args string) runtime.Request {
	return runtime.Request{Server: server, Tool: tool, Key: key, Args: []byte(args), Submitter: l.script.name}
}

// again reports whether the actor's client has another try, and counts that try.
func (l *life) again(tries int) bool {
	n, err := strconv.Atoi("0" + l.memory["tries"])
	if err != nil {
		panic(err)
	}
	l.memory["tries"] = strconv.Itoa(n + 1)
	return n < tries
}

// caller makes a call, and makes it again with the same key while it has no answer.
func caller(name, key, args string, tries int) script {
	return script{name: name, run: func(l *life) {
		for l.again(tries) {
			l.forget()
			res, err := l.rt().Call(l.ctx, l.request(key, args))
			if l.w.told(l, key, args, res, err) {
				return
			}
		}
	}}
}

// executor sends a call itself. Its process and its memory survive the crashes of the daemon. It
// sends an attempt at most once.
func executor(name, key, args string, tries int) script {
	return script{name: name, begins: true, run: func(l *life) {
		for l.again(tries) {
			l.forget()
			if l.memory["outcome"] == "" && !l.perform(name, key, args) {
				continue
			}
			if l.report(key, args) {
				return
			}
		}
	}}
}

// perform asks for a permit and sends. It returns false if it may not send, or does not know
// the outcome of its send.
func (l *life) perform(name, key, args string) bool {
	m := l.w.net.byName(l.memory["message"])
	if m == nil {
		asked, ended := l.asks(), maps.Clone(l.w.ended)
		b, err := l.rt().Begin(l.ctx, runtime.BeginRequest{Request: l.request(key, args), BeginID: name + "'s own name of its begin"})
		if err != nil || b.Standing != runtime.BeginSend {
			if b.Standing == runtime.BeginServe || b.Standing == runtime.BeginDenied {
				l.w.told(l, key, args, b.Result, nil)
				l.memory["tries"] = "99"
			}
			return false
		}
		sent := fmt.Sprint(b.Result.TraceID, b.Attempt)
		if l.memory["sent"] == sent {
			// It was sent, and the outcome is not known. A person who saw it run may end the
			// call while this permit is on its way.
			l.w.newest(b, key)
			return false
		}
		l.w.permitted(b, key, ended)
		l.do(fmt.Sprintf("sends %s, attempt %d", short(b.Result.TraceID), b.Attempt))
		l.memory["trace"], l.memory["permit"] = b.Result.TraceID.String(), b.Permit.String()
		if l.tooLate(asked, b.SendWithin) {
			return true
		}
		l.memory["sent"] = sent
		m = l.w.net.send(runtime.Call{
			TraceID: b.Result.TraceID, Attempt: b.Attempt, Server: server, Tool: tool, Key: b.Key, Args: []byte(args),
		}, name)
		m.permit, l.memory["message"] = true, m.name()
	}
	ctx, cancel := context.WithTimeout(l.ctx, runtime.DefaultSendTimeout)
	defer cancel()
	reply, err := l.w.net.wait(ctx, l, m)
	delete(l.memory, "message")
	switch {
	case err == nil:
		l.memory["outcome"] = string(reply.Result)
	case errors.Is(err, runtime.ErrNotSent):
		l.memory["outcome"] = "not sent"
	default:
		return false
	}
	return true
}

// asks remembers when the executor first asked for its next permit: the answer may be lost, and
// the same permit be returned when it asks again.
func (l *life) asks() time.Duration {
	if l.memory["asked"] == "" {
		l.memory["asked"] = time.Since(l.w.start).String()
	}
	asked, err := time.ParseDuration(l.memory["asked"])
	if err != nil {
		panic(err)
	}
	return asked
}

// tooLate reports whether an executor must not send any more, because it was stopped for too long or its
// permit is stale. It then returns the permit.
func (l *life) tooLate(asked, within time.Duration) bool {
	delete(l.memory, "asked")
	if within == 0 || within > runtime.DefaultSendTimeout {
		within = runtime.DefaultSendTimeout
	}
	if time.Since(l.w.start)-asked < within {
		return false
	}
	l.memory["outcome"] = "not sent"
	return true
}

// report tells the daemon the outcome of the send.
func (l *life) report(key, args string) bool {
	trace, err := tga.ParseID(l.memory["trace"])
	if err != nil {
		panic(err)
	}
	permit, err := runtime.ParsePermit(l.memory["permit"])
	if err != nil {
		panic(err)
	}
	if l.memory["outcome"] == "not sent" {
		if _, err := l.rt().NotSent(l.ctx, trace, permit, "", 0); tga.CodeOf(err) == tga.StateLockAcquireFailed {
			return false
		}
		return true
	}
	res, err := l.rt().Finish(l.ctx, trace, permit, runtime.Finished{
		Reply: runtime.Reply{Status: tga.StatusSuccess, Result: []byte(l.memory["outcome"])},
	})
	if tga.CodeOf(err) == tga.StateInvalidTransition {
		return true // somebody ended it otherwise; the reply is kept as a note
	}
	return l.w.told(l, key, args, res, err)
}

// abandoner gives up what it finds in doubt.
func abandoner(name string, tries int) script {
	return script{name: name, run: func(l *life) {
		for l.again(tries) {
			l.forget()
			list, err := l.rt().InDoubt(l.ctx)
			if err != nil {
				return
			}
			for _, c := range list {
				if _, err := l.rt().Abandon(l.ctx, c.TraceID, name, "given up"); err == nil {
					l.w.abandoned[c.TraceID] = true
				}
			}
		}
	}}
}

// resolver is a person who looks at the world and resolves calls in doubt accordingly. It skips
// calls that are still on their way.
func resolver(name string, tries int) script {
	return script{name: name, looks: true, run: func(l *life) {
		for l.again(tries) {
			l.forget()
			list, err := l.rt().InDoubt(l.ctx)
			if err != nil {
				return
			}
			for _, c := range list {
				ran, answer, flying := l.w.net.look(c.TraceID)
				l.w.looked[c.TraceID] = len(l.w.net.messages)
				r := runtime.Resolution{Who: name, Evidence: []byte("looked at the tool's own journal"), Attempts: c.Record.Attempts.Count}
				switch {
				case flying:
					continue
				case ran:
					r.Reply = runtime.Reply{Status: tga.StatusSuccess, Result: []byte(answer)}
				default:
					r.Reply = runtime.Reply{Status: tga.StatusFailure, Class: ledger.ClassRetryable}
				}
				// What it saw is of now. Only this resolution may come later.
				if _, err := l.rt().Resolve(l.ctx, c.TraceID, r); err != nil {
					l.learn("refused", code(err))
				}
			}
		}
	}}
}

// recovery continues each open trace, as a daemon does when it starts.
func recovery(l *life) {
	open, err := l.rt().Classify(l.ctx)
	if err != nil {
		return
	}
	for _, c := range open {
		if c.Held || c.Err != nil {
			if c.Err != nil {
				l.w.broken("trace %s is quarantined: %v", short(c.TraceID), c.Err)
			}
			continue
		}
		if _, err := l.rt().Recover(l.ctx, c.TraceID); err != nil {
			l.learn("refused", code(err))
		}
	}
}

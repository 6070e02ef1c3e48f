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

// A tool is named licence.behaviour: what its operator attests, and how its server
// behaves. A server keeps what is attested: under dedupe_key it acts once for a key, under
// dedupe_args once for equal arguments, under read_only never. Under the other licences it
// acts each time it is asked, which is the worst case.
//
// Behaviours: the server …
const (
	Answers    = "answers"     // acts and answers
	LosesCall  = "loses_call"  // neither acts on the first send of a key nor answers it
	Late       = "late"        // as loses_call, and acts on that send when it is asked about it
	LosesReply = "loses_reply" // acts on the first send of a key and does not answer it
	Unreached  = "unreached"   // gets no byte of the first send of a process
	Gone       = "gone"        // as loses_reply, and then gets no byte of the next send
	Refuses    = "refuses"     // says that it did not execute the call
	Fails      = "fails"       // acts, and says that it failed for good
	Long       = "long"        // acts, and answers with more than an entry holds inline
)

// none stands for a tool about which the operator says nothing. It differs from an explicit
// park under profile spec-9.3.
const none = "none"

func licenceOf(tool string) (name, behaviour string) {
	name, behaviour, _ = strings.Cut(tool, ".")
	return name, behaviour
}

// policy is the operator's configuration of every tool.
func policy(_, tool string) runtime.Policy {
	name, _ := licenceOf(tool)
	l, set := licences[name]
	p := runtime.Policy{Licence: l, LicenceSet: set, Resends: -1}
	if l.Kind == ledger.ReadOnly {
		p.Class = tga.ClassRead
	}
	switch _, behaviour := licenceOf(tool); behaviour {
	case Vanishes:
		p.Replay = runtime.ReplayHuman
	case Busy:
		p.Retry = runtime.Backoff{First: time.Minute, Max: time.Minute, Attempts: 3}
	}
	if name == probed {
		p.Resends = 1 // after a fenced no
	}
	return p
}

var errNoAnswer = errors.New("the connection was reset after the call was written")

// Dispatch plays the tool servers. Each send and each effect is in the journal before
// anything else happens because of it.
func (w *World) Dispatch(_ context.Context, call runtime.Call) (runtime.Reply, error) {
	return w.receive(call, true)
}

// receive is a server that gets a call, from the dispatcher or from a remote executor.
func (w *World) receive(call runtime.Call, dispatched bool) (runtime.Reply, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	licence, behaviour := licenceOf(call.Tool)
	w.point("send", call.Key)
	was := w.soFar(call, licence)
	if dispatched && !was.tried && (behaviour == Unreached || behaviour == Gone && was.sends > 0) {
		w.events = append(w.events, Event{Kind: Unanswered, Trace: call.TraceID, Key: call.Key, Tool: call.Tool})
		return runtime.Reply{}, fmt.Errorf("dial: %w", runtime.ErrNotSent)
	}
	e := Event{Trace: call.TraceID, Key: call.Key, Tool: call.Tool, Call: call, At: w.now, Remote: !dispatched}
	e.Kind = Sent
	w.events = append(w.events, e)
	w.point("act", call.Key)
	first := was.sends == 0
	if behaviour == Busy && was.sends < 2 {
		return answer(Refuses, call), nil
	}
	if (behaviour == LosesCall || behaviour == Late) && first {
		return runtime.Reply{}, errNoAnswer
	}
	if licence != "read_only" && !was.acted && behaviour != Refuses {
		e.Kind = Acted
		w.events = append(w.events, e)
		w.point("answer", call.Key)
	}
	if (behaviour == LosesReply || behaviour == Gone) && first {
		return runtime.Reply{}, errNoAnswer
	}
	return answer(behaviour, call), nil
}

// past is what the world has seen of a call, as its server remembers it.
type past struct {
	sends int
	acted bool // and will not act again
	tried bool // the first send of this process came to nothing
}

// soFar reads from the events what a server knows about a call. The licence of its tool
// decides whether it acts only once.
func (w *World) soFar(call runtime.Call, licence string) (p past) {
	for _, e := range w.events {
		switch {
		case e.Kind == Opened:
			p.tried = false
		case e.Kind == Acted:
			p.acted = p.acted || w.remembers(&e, call, licence)
		case e.Key != call.Key || e.Tool != call.Tool:
		case e.Kind == Sent:
			p.sends++
		case e.Kind == Unanswered:
			p.tried = true
		}
	}
	return p
}

// remembers reports whether a server would recognise a call as one that it has acted on.
func (w *World) remembers(acted *Event, call runtime.Call, licence string) bool {
	if acted.Tool != call.Tool {
		return false
	}
	same := acted.Key == call.Key
	switch licence {
	case "dedupe_args":
		return same || string(acted.Call.Args) == string(call.Args)
	case "dedupe_key":
		return same && w.now-acted.At < tga.Millis(window.Milliseconds()) // then it has forgotten the key
	}
	return same && licence == none
}

// answer is a server's answer to a call. It depends only on the behaviour, the key and the
// arguments, so a server that deduplicates gives the same answer again.
func answer(behaviour string, call runtime.Call) runtime.Reply {
	r := runtime.Reply{Status: tga.StatusSuccess, Result: fmt.Appendf(nil, `{"args":%s,"key":%q}`, call.Args, call.Key)}
	r.Changes = changesOf(behaviour, call)
	switch behaviour {
	case Refuses:
		r.Status, r.Class, r.ErrorCode, r.ErrorMessage = tga.StatusDenied, ledger.ClassRetryable, string(tga.RateLimited), "come back later"
	case Fails:
		r.Status, r.ErrorCode, r.ErrorMessage = tga.StatusFailure, string(tga.ToolError), "insufficient funds"
	case Long:
		r.Result = fmt.Appendf(nil, `{"args":%s,"key":%q,"text":"%s"}`, call.Args, call.Key, strings.Repeat("0123456789abcdef", 2500))
	}
	return r
}

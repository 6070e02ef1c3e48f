package attempt

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Open is an unfinished call: the tool server has answered it without ending it, because it
// wants input or goes on as a task. The record is on the shelf until the effect is recorded. It
// has the permit that records the effect, so the next shim can continue after this one is killed.
type Open struct {
	Tool    string `json:"tool"`
	Key     string `json:"key"` // [Attempt.Key]
	Trace   string `json:"trace"`
	Permit  string `json:"permit"`
	Attempt uint32 `json:"attempt"`
	SentKey string `json:"sent_key"` // the key that the tool server got
	Task    string `json:"task,omitempty"`
	// Subject is the identity of the caller, if credentials are forwarded: the call continues
	// only with credentials of the same subject.
	Subject string `json:"subject,omitempty"`
	// Protocol are the params of a question about the task, without the task's id: the members
	// that a revision without a handshake wants in each request.
	Protocol string `json:"protocol,omitempty"`
	// Derived says that the call has no key of its own: once the client has the final answer,
	// the same call again is a new call.
	Derived bool `json:"derived,omitempty"`
	// Legs are the messages that were sent for the call. The key is the digest of the message's
	// input: each message is sent once. The value is its answer, "" while there is none.
	Legs map[string]string `json:"legs"`
}

// OpenPrefix begins the names of unfinished calls on the shelf.
const OpenPrefix = "open "

// openName names the record of an unfinished call on the shelf. It has the trace, because every
// shim that continues the call knows that.
func openName(trace string) string { return OpenPrefix + trace }

// MaxLeg is the longest answer, in bytes, that is kept for a repeat.
const MaxLeg = 256 << 10

// ParseOpen reads the record of an unfinished call. It returns nil if there is none.
func ParseOpen(kept []byte) *Open {
	var o Open
	if kept == nil || json.Unmarshal(kept, &o) != nil {
		return nil
	}
	return &o
}

func (s *Desk) keepOpen(o *Open) error {
	raw, err := json.Marshal(o)
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "note an unfinished call: %w", err)
	}
	return s.Shelf.Change(s.Life, openName(o.Trace), func([]byte) []byte { return raw })
}

func (s *Desk) dropOpen(o *Open) {
	if err := s.Lose(s.Life, o); err != nil {
		s.Log.Warn("could not remove the record of a call that has ended", "trace", o.Trace, "error", err)
	}
}

// Lose removes the record of an unfinished call. Nobody asks about its task any more: if it has not ended, it stays in doubt.
func (s *Desk) Lose(ctx context.Context, o *Open) error {
	return s.Shelf.Change(ctx, openName(o.Trace), func([]byte) []byte { return nil })
}

// Begun returns the attempt of the record.
func (o *Open) Begun() (runtime.Begun, error) {
	id, err := tga.ParseID(o.Trace)
	if err != nil {
		return runtime.Begun{}, err
	}
	permit, err := runtime.ParsePermit(o.Permit)
	return runtime.Begun{
		Standing: runtime.BeginSend, Result: runtime.Result{TraceID: id}, Permit: permit, Attempt: o.Attempt, Key: o.SentKey,
	}, err
}

// leg identifies a message of a call by the digest of its input.
func (q *Call) leg() string {
	sum := tga.Sum(q.Params.Input)
	return sum.String()
}

// unfinished handles an answer that ends the request but not the call. It writes the record
// before the client has the answer.
func (a *Attempt) unfinished(b runtime.Begun, f *frames.Frame, ans answer) (done bool, doubt string) {
	o := ParseOpen(a.s.Shelf.Get(openName(b.Result.TraceID.String())))
	if o == nil {
		o = &Open{
			Tool: a.q.Params.Tool, Key: a.Key, Trace: b.Result.TraceID.String(), Permit: b.Permit.String(),
			Attempt: b.Attempt, SentKey: b.Key, Derived: a.q.Derived, Subject: a.q.Subject, Protocol: string(a.q.Params.Protocol()), Legs: map[string]string{},
		}
	}
	o.Task = ans.Task
	if len(ans.value) > MaxLeg || ans.value == nil {
		f.Close()
		return false, "its answer is not final and too long to be kept"
	}
	o.Legs[a.q.leg()] = string(ans.value)
	if err := a.s.keepOpen(o); err != nil {
		f.Close()
		return false, err.Error()
	}
	if o.Task != "" {
		a.q.By.Poll(o, true)
	}
	a.Out = Outcome{Frame: f, Value: ans.value, Trace: b.Result.TraceID}
	return true, ""
}

// goOn continues an unfinished call, of this shim or an earlier one, if the shelf has a record
// of it. A repeated message gets the answer that was kept; a message with new input is sent
// under the permit of the record. goOn reports whether there was such a call. If the log has
// given a permit for a re-send, goOn returns that permit as not sent.
func (a *Attempt) goOn(ctx context.Context, out runtime.Begun) (done bool) {
	if a.Keyless {
		return false
	}
	kept, err := a.s.Shelf.Look(ctx, openName(out.Result.TraceID.String()))
	if err != nil {
		a.s.Log.Warn("an unfinished call was not looked for", "trace", out.Result.TraceID, "error", err)
		return false
	}
	// A record of another trace is left over: a crash came before it was removed.
	o := ParseOpen(kept)
	if o == nil || o.Trace != out.Result.TraceID.String() {
		return false
	}
	b, err := o.Begun()
	if err != nil {
		a.refused(err)
		return true
	}
	if out.Standing == runtime.BeginSend {
		a.NotSent(ctx, out, errors.New("the call goes on as it is"))
		a.Out = Outcome{}
	}
	a.setTrace(b.Result.TraceID)
	leg := a.q.leg()
	if answer, sent := o.Legs[leg]; sent {
		if answer == "" {
			a.inDoubt("it was interrupted while the tool server had its input")
			return true
		}
		if o.Task != "" && !a.q.By.Poll(o, false) {
			a.inDoubt("it went on as a task, and the tool server has given the task's id to another call")
			return true
		}
		a.Out = Outcome{Value: []byte(answer), Trace: b.Result.TraceID}
		return true
	}
	if a.q.NoSend {
		a.inDoubt("it was cancelled before the tool server had its input")
		return true
	}
	o.Legs[leg] = ""
	if err := a.s.keepOpen(o); err != nil {
		a.refused(err)
		return true
	}
	a.continues = true
	ok, doubt := a.send(ctx, b)
	if !ok && doubt == "" { // the tool server wants other headers
		a.unsent = false
		ok, doubt = a.send(ctx, b)
	}
	if !ok {
		a.inDoubt(doubt)
		return true
	}
	if a.Out.Final {
		a.s.dropOpen(o)
	} else if a.unsent {
		delete(o.Legs, leg)
		if err := a.s.keepOpen(o); err != nil {
			a.s.Log.Warn("an unfinished call was not noted", "trace", o.Trace, "error", err)
		}
	}
	return true
}

// Settle records the effect of a task.
func (s *Desk) Settle(o *Open, reply runtime.Reply) error {
	b, err := o.Begun()
	if err != nil {
		return err
	}
	err = asklog.Persist(s.Life, func(ctx context.Context) error {
		_, err := s.finish(ctx, b, reply)
		return err
	})
	if err == nil || errors.Is(err, tga.StateInvalidTransition) {
		s.dropOpen(o) // the effect is recorded, by this shim or by somebody else
		return nil
	}
	return err
}

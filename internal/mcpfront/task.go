package mcpfront

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/mcpanswer"
	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpfront/wait"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// openCall is a call that the tool server has answered without ending it: it wants input,
// or works on as a task. It is on the shelf until its effect is recorded, with the permit
// that records it, so that a shim that follows a killed one can go on.
type openCall struct {
	Tool    string `json:"tool"`
	Key     string `json:"key"` // of the attempt: its name here
	Trace   string `json:"trace"`
	Permit  string `json:"permit"`
	Attempt uint32 `json:"attempt"`
	SentKey string `json:"sent_key"` // that the tool server saw
	Task    string `json:"task,omitempty"`
	// Protocol are the params of a question about the task but for its id: what a revision
	// without a handshake wants in each request.
	Protocol string `json:"protocol,omitempty"`
	// Derived says that the same call again is another one once the client has the final
	// answer.
	Derived bool `json:"derived,omitempty"`
	// Legs are the messages that were sent for the call, by the digest of the input in
	// them: each is sent once. The value is its answer, "" while there is none.
	Legs map[string]string `json:"legs"`
}

// openPrefix begins the names of unfinished calls on the shelf.
const openPrefix = "open "

// openName names the record of an unfinished call on the shelf: by its trace, which is the
// same for who goes on with it.
func openName(trace string) string { return openPrefix + trace }

// maxLeg bounds an answer that is kept to be repeated.
const maxLeg = 256 << 10

// parseOpen reads the record of an unfinished call, nil where there is none.
func parseOpen(kept []byte) *openCall {
	var o openCall
	if kept == nil || json.Unmarshal(kept, &o) != nil {
		return nil
	}
	return &o
}

func (s *Shim) keepOpen(o *openCall) error {
	raw, err := json.Marshal(o)
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "note an unfinished call: %w", err)
	}
	return s.shelf.Change(s.life, openName(o.Trace), func([]byte) []byte { return raw })
}

func (s *Shim) dropOpen(o *openCall) {
	if err := s.shelf.Change(s.life, openName(o.Trace), func([]byte) []byte { return nil }); err != nil {
		s.log.Warn("an unfinished call that is over was not struck out", "trace", o.Trace, "error", err)
	}
}

// begun is the attempt that the record stands for.
func (o *openCall) begun() (runtime.Begun, error) {
	id, err := tga.ParseID(o.Trace)
	if err != nil {
		return runtime.Begun{}, err
	}
	permit, err := runtime.ParsePermit(o.Permit)
	return runtime.Begun{
		Standing: runtime.BeginSend, Result: runtime.Result{TraceID: id}, Permit: permit, Attempt: o.Attempt, Key: o.SentKey,
	}, err
}

// leg names a message of a call by the input in it.
func (q *call) leg() string {
	sum := tga.Sum(q.params.Input)
	return sum.String()
}

// unfinished takes an answer that ends the request and not the call. The record is
// written before the client has the answer.
func (a *attempt) unfinished(ctx context.Context, b runtime.Begun, f *frames.Frame, ans answer) (done bool, doubt string) {
	o := parseOpen(a.s.shelf.Get(openName(b.Result.TraceID.String())))
	if o == nil {
		o = &openCall{
			Tool: a.q.params.Tool, Key: a.key, Trace: b.Result.TraceID.String(), Permit: b.Permit.String(),
			Attempt: b.Attempt, SentKey: b.Key, Derived: a.q.derived, Protocol: string(a.q.params.Protocol()), Legs: map[string]string{},
		}
	}
	o.Task = ans.Task
	if len(ans.value) > maxLeg || ans.value == nil {
		f.Close()
		return false, "its answer is not final and too long to be kept"
	}
	o.Legs[a.q.leg()] = string(ans.value)
	if err := a.s.keepOpen(o); err != nil {
		f.Close()
		return false, err.Error()
	}
	if o.Task != "" {
		a.q.conv.polls.poll(o)
	}
	a.out = outcome{frame: f, value: ans.value, trace: b.Result.TraceID}
	return true, ""
}

// goOn takes up an unfinished call, of this shim or another one, where the log says that
// an attempt of it is out: a repeat gets the answer that there was, a message with new
// input is sent under the same permit. It reports whether there was such a call. A permit
// that the log has given for another send goes back.
func (a *attempt) goOn(ctx context.Context, out runtime.Begun) (done bool) {
	if a.keyless {
		return false
	}
	kept, err := a.s.shelf.Look(ctx, openName(out.Result.TraceID.String()))
	if err != nil {
		a.s.log.Warn("an unfinished call was not looked for", "trace", out.Result.TraceID, "error", err)
		return false
	}
	// A record of another trace is one that a crash kept from being struck out.
	o := parseOpen(kept)
	if o == nil || o.Trace != out.Result.TraceID.String() {
		return false
	}
	b, err := o.begun()
	if err != nil {
		a.refused(err)
		return true
	}
	if out.Standing == runtime.BeginSend {
		a.notSent(ctx, out, errors.New("the call goes on as it is"))
		a.out = outcome{}
	}
	a.setTrace(b.Result.TraceID)
	leg := a.q.leg()
	if answer, sent := o.Legs[leg]; sent {
		if answer == "" {
			a.inDoubt("it was interrupted while the tool server had its input")
			return true
		}
		a.out = outcome{value: []byte(answer), trace: b.Result.TraceID}
		if o.Task != "" {
			a.q.conv.polls.poll(o)
		}
		return true
	}
	o.Legs[leg] = ""
	if err := a.s.keepOpen(o); err != nil {
		a.refused(err)
		return true
	}
	ok, doubt := a.send(ctx, b)
	if !ok {
		a.inDoubt(doubt)
		return true
	}
	if a.out.final {
		a.s.dropOpen(o)
	} else if a.out.code != "" && !a.q.sent.Load() {
		delete(o.Legs, leg) // it certainly did not go out
		if err := a.s.keepOpen(o); err != nil {
			a.s.log.Warn("an unfinished call was not noted", "trace", o.Trace, "error", err)
		}
	}
	return true
}

// Spacing of the questions about a task.
const (
	pollLeast   = 20 * time.Millisecond
	pollDefault = time.Second
	pollMost    = 30 * time.Second
)

// taskPolls are the tasks of the tool server's that are asked about until they are over.
type taskPolls struct {
	c       *conv
	resumed sync.Once
	mu      sync.Mutex
	tasks   map[string]*openCall // under way, by the tool server's name for them
}

// resume asks about the tasks that an earlier shim left. It is called when the client has
// made its handshake, or its first call.
func (g *taskPolls) resume() {
	g.resumed.Do(func() {
		// Elsewhere: the log may be away, and the client's next message is not to wait.
		g.c.s.work.Go(func() {
			if err := g.c.s.shelf.Load(g.c.life); err != nil {
				g.c.s.log.Warn("tasks of an earlier shim were not looked for", "error", err)
			}
			g.c.s.expireTasks()
			for _, value := range g.c.s.shelf.With(openPrefix) {
				if o := parseOpen(value); o != nil && o.Task != "" {
					g.poll(o)
				}
			}
		})
	})
}

// poll asks about a task until its effect is recorded, whether or not the client does.
func (g *taskPolls) poll(o *openCall) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.tasks[o.Task] != nil {
		return
	}
	if g.tasks == nil {
		g.tasks = map[string]*openCall{}
	}
	g.tasks[o.Task] = o
	g.c.s.work.Go(func() {
		pause := pollLeast
		for {
			if !wait.Rest(g.c.life, pause) {
				return
			}
			done, next, err := g.ask(o)
			if err != nil {
				g.c.s.log.Warn("a task cannot be asked about; its call stays in doubt", "task", o.Task, "trace", o.Trace, "error", err)
				return
			}
			if done {
				return
			}
			pause = next
		}
	})
}

// ask asks about a task once, and records its effect when it is over.
func (g *taskPolls) ask(o *openCall) (done bool, next time.Duration, err error) {
	l, err := g.c.await(g.c.life)
	if err != nil {
		return false, pollDefault, nil // a later tool server may know it
	}
	ctx, cancel := context.WithTimeout(g.c.life, pollMost)
	defer cancel()
	params := say.With([]byte(cmp.Or(o.Protocol, "{}")), "taskId", tga.AppendString(nil, o.Task))
	f, err := g.c.request(ctx, l, "tasks/get", params)
	if err != nil {
		return false, pollDefault, nil
	}
	defer f.Close()
	if !f.Result.Present() {
		said, err := f.Bytes(f.Fault, maxLeg)
		return false, 0, errors.Join(fmt.Errorf("the tool server answers %.200s", said), err)
	}
	result, err := f.Bytes(f.Result, g.c.s.opts.MaxKeepBytes)
	if err != nil {
		return false, 0, err
	}
	next = pollDefault
	for _, name := range []string{"/pollIntervalMs", "/pollInterval"} {
		var ms int64
		if json.Unmarshal(mcpraw.At(result, name), &ms) == nil && ms > 0 {
			next = min(max(time.Duration(ms)*time.Millisecond, pollLeast), pollMost)
		}
	}
	reply, over := taskReply(result)
	if over && reply.Status == tga.StatusSuccess && reply.Result == nil {
		// Revision 2025-11-25 gives the result apart.
		r, err := g.c.request(ctx, l, "tasks/result", params)
		if err != nil {
			return false, next, nil
		}
		defer r.Close()
		ans, err := readAnswer(r, 1, g.c.s.opts.MaxKeepBytes)
		if err != nil || ans.Meaning != mcpraw.IsEffect {
			return false, next, err
		}
		reply = ans.Reply
	}
	if !over {
		return false, next, nil
	}
	return true, 0, g.c.s.settle(o, reply)
}

// taskReply reads what a task has come to.
func taskReply(task []byte) (reply runtime.Reply, over bool) {
	switch mcpraw.ScalarText(mcpraw.At(task, "/status")) {
	case "completed":
		reply = mcpanswer.ReadResult(mcpraw.At(task, "/result")).Reply
		reply.Status, reply.Result = cmp.Or(reply.Status, tga.StatusSuccess), mcpraw.At(task, "/result")
		return reply, true
	case "failed":
		reply.Status, reply.ErrorCode, reply.Result = tga.StatusFailure, string(tga.ToolError), mcpraw.At(task, "/error")
		reply.ErrorMessage = clip.Runes("the task failed: "+mcpraw.ScalarText(mcpraw.At(task, "/statusMessage")), mcpanswer.MaxMessage)
		return reply, true
	case "cancelled":
		reply.Status, reply.ErrorCode, reply.ErrorMessage = tga.StatusFailure, string(tga.ToolError), "the task was cancelled; what it did before is not undone"
		return reply, true
	}
	return reply, false
}

// settle records the effect of a task.
func (s *Shim) settle(o *openCall, reply runtime.Reply) error {
	b, err := o.begun()
	if err != nil {
		return err
	}
	err = asklog.Persist(s.life, func(ctx context.Context) error {
		_, err := s.opts.Log.Finish(ctx, b.Result.TraceID, b.Permit, runtime.Finished{Reply: reply, Who: "tgad mcp"})
		return err
	})
	if err == nil || errors.Is(err, tga.StateInvalidTransition) {
		s.dropOpen(o) // recorded, by this shim or somebody else
		return nil
	}
	return err
}

// taskOf returns the unfinished call that a request of the client's asks about.
func (g *taskPolls) taskOf(f *frames.Frame) *openCall {
	if f.Method != "tasks/get" && f.Method != "tasks/result" {
		return nil
	}
	params, err := f.Bytes(f.Params, frames.SpillBytes)
	if err != nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tasks[mcpraw.ScalarText(mcpraw.At(params, "/taskId"))]
}

// giveTask hands the client the answer about a task. A final one is recorded first; with
// its delivery the occurrence of the call is over.
func (g *taskPolls) giveTask(w *waiting, f *frames.Frame) {
	var reply runtime.Reply
	over := false
	if result, err := f.Bytes(f.Result, g.c.s.opts.MaxKeepBytes); err == nil && f.Result.Present() {
		if w.method == "tasks/get" {
			reply, over = taskReply(result)
			over = over && (reply.Result != nil || reply.Status != tga.StatusSuccess)
		} else if ans, err := readAnswer(f, 1, g.c.s.opts.MaxKeepBytes); err == nil && ans.Meaning == mcpraw.IsEffect {
			reply, over = ans.Reply, true
		}
	}
	if !over {
		g.c.give(w.batch, f)
		return
	}
	if err := g.c.s.settle(w.task, reply); err != nil {
		g.c.s.log.Error("the effect of a task was not recorded", "trace", w.task.Trace, "error", err)
	}
	b, err := w.task.begun()
	if !w.task.Derived || err != nil {
		g.c.give(w.batch, f)
		return
	}
	defer f.Close()
	_ = g.c.deliverIn(w.batch, w.task.Key, b.Result.TraceID, func() error { return g.c.send(w.batch, &f.Envelope, f) })
}

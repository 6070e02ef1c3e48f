package mcpfront

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tgad/tgad/internal/mcpanswer"
	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/attempt"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpfront/wait"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Pauses between the questions about a task.
const (
	pollLeast   = 20 * time.Millisecond
	pollDefault = time.Second
	pollMost    = 30 * time.Second
)

// taskPolls asks about the tasks of the tool server until they are over.
type taskPolls struct {
	c       *conv
	resumed sync.Once
	looked  *wait.Latch // the tasks that an earlier shim left are known
	mu      sync.Mutex
	// tasks has, by the tool server's id, the tasks whose end the client has not got. A tool server that was
	// started again may use an id again: the id stands for the newest call's task.
	tasks map[string]*attempt.Open
	// lost has the traces of calls whose task's id was given to another call, until their records are removed.
	lost map[string]bool
}

// resume begins to ask about the tasks that an earlier shim left. It is called when the client
// has made its handshake or its first call.
func (g *taskPolls) resume() {
	g.resumed.Do(func() {
		// In a goroutine: the log may be away, and the client's next message must not wait.
		g.c.s.Work.Go(func() {
			defer g.looked.Set()
			if err := g.c.s.Shelf.Load(g.c.life); err != nil {
				g.c.s.Log.Warn("tasks of an earlier shim are looked for once the log can be asked", "error", err)
				g.looked.Set() // until then questions about a task pass to the tool server
				if err := asklog.Persist(g.c.life, g.c.s.Shelf.Load); err != nil {
					g.c.s.Log.Warn("tasks of an earlier shim were not looked for", "error", err)
				}
			}
			g.c.s.tasks.Expire()
			left := g.c.s.Shelf.With(attempt.OpenPrefix)
			for _, name := range slices.Backward(slices.Sorted(maps.Keys(left))) { // the newest traces first
				// For another user the tool server may have another task with the same id.
				o := attempt.ParseOpen(left[name])
				if o != nil && o.Task != "" && o.Subject == g.c.subject && !g.poll(o, false) {
					g.c.s.Work.Go(func() { g.lose(o) }) // in a goroutine: the log may be away, and the client's questions wait for looked
				}
			}
		})
	})
}

// early holds back a question about a task until the tasks of an earlier shim are known: the answer may be the effect of
// one of their calls, and must be recorded before the client has it. It reports whether it took the question.
func (g *taskPolls) early(f *frames.Frame, b *batchReply) bool {
	if !asksAboutTask[f.Method] || g.looked.Is() {
		return false
	}
	g.resume()
	g.c.work.Go(func() {
		select {
		case <-g.looked.C:
		case <-g.c.life.Done():
		}
		g.c.pass(f, b)
	})
	return true
}

// asksAboutTask lists the methods whose answer may hold the outcome of a task.
var asksAboutTask = map[string]bool{"tasks/get": true, "tasks/result": true}

// poll asks about a task until its effect is recorded, even if the client does not ask. made says that the tool server
// has just made the task. poll returns false if the task's id stands for another call's task.
func (g *taskPolls) poll(o *attempt.Open, made bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	have := g.tasks[o.Task]
	switch {
	case have != nil && have.Trace == o.Trace:
		return true
	case !made && (have != nil || g.lost[o.Trace]):
		return false
	}
	if g.tasks == nil {
		g.tasks = map[string]*attempt.Open{}
	}
	o.Legs = nil // only the record on the shelf needs them
	g.tasks[o.Task] = o
	g.c.s.Work.Go(func() {
		pause, trouble := pollLeast, ""
		for {
			if !wait.Rest(g.c.life, pause) || !g.current(o) {
				return
			}
			done, next, err := g.ask(o)
			if errors.Is(err, errTaskLater) {
				if text := err.Error(); text != trouble {
					g.c.s.Log.Warn("a task cannot be asked about now", "task", o.Task, "trace", o.Trace, "error", err)
					trouble = text
				}
				pause = min(max(2*pause, pollDefault), pollMost)
				continue
			}
			if err != nil {
				g.c.s.Log.Warn("a task cannot be asked about; its call stays in doubt", "task", o.Task, "trace", o.Trace, "error", err)
				return
			}
			if done {
				return
			}
			pause, trouble = next, ""
		}
	})
	return true
}

// current reports whether the id of a task still stands for it, and the client has not got its end.
func (g *taskPolls) current(o *attempt.Open) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tasks[o.Task] == o
}

// forget removes a task whose end the client has.
func (g *taskPolls) forget(o *attempt.Open) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.tasks[o.Task] == o {
		delete(g.tasks, o.Task)
	}
}

// errTaskLater says that the tool server answered with an error although it may know the task;
// it may be busy. The question is asked again.
var errTaskLater = errors.New("the tool server does not answer for a task")

// ask asks about a task once, and records its effect if the task is over.
func (g *taskPolls) ask(o *attempt.Open) (done bool, next time.Duration, err error) {
	reply, over, next, err := g.look(o)
	if err != nil || !over {
		return false, next, err
	}
	if !g.current(o) {
		return true, 0, nil // what came is the end of another call's task, or the client's question has settled it
	}
	return true, 0, g.c.s.Settle(o, reply)
}

// look asks about a task once. If the task is over, reply is its effect.
func (g *taskPolls) look(o *attempt.Open) (reply runtime.Reply, over bool, next time.Duration, err error) {
	next = pollDefault
	l, err := g.c.await(g.c.life)
	if err != nil {
		return reply, false, next, nil // a later tool server may know it
	}
	ctx, cancel := context.WithTimeout(g.c.life, pollMost)
	defer cancel()
	params := say.With([]byte(cmp.Or(o.Protocol, "{}")), "taskId", tga.AppendString(nil, o.Task))
	f, err := g.c.request(ctx, l, "tasks/get", params)
	if err != nil {
		return reply, false, next, nil
	}
	defer f.Close()
	if !f.Result.Present() {
		said, err := f.Bytes(f.Fault, attempt.MaxLeg)
		if err == nil && mcpanswer.ReadFault(said, 1).Meaning != mcpraw.IsRefusal {
			return reply, false, 0, fmt.Errorf("%w: %.200s", errTaskLater, said)
		}
		return reply, false, 0, errors.Join(fmt.Errorf("the tool server answers %.200s", said), err)
	}
	task, reply, over, err := g.read(f, f.Result)
	if err != nil {
		return reply, false, 0, err
	}
	for _, name := range []string{"/pollIntervalMs", "/pollInterval"} {
		var ms int64
		if json.Unmarshal(mcpraw.At(task, name), &ms) == nil && ms > 0 {
			next = min(max(time.Duration(ms)*time.Millisecond, pollLeast), pollMost)
		}
	}
	if !over || isWhole(reply) {
		return reply, over, next, nil
	}
	// In revision 2025-11-25 the result takes a request of its own. Also a task that has failed may have one.
	failed := reply.Status != tga.StatusSuccess
	r, err := g.c.request(ctx, l, "tasks/result", params)
	if err != nil {
		return reply, failed, next, nil
	}
	defer r.Close()
	ans, err := attempt.ReadAnswer(r, 1, g.c.s.opts.MaxKeepBytes)
	effect := err == nil && ans.Meaning == mcpraw.IsEffect
	if failed && (!effect || ans.Reply.Status == tga.StatusSuccess) {
		return reply, true, next, nil // the tool server says nothing of how it failed
	}
	return ans.Reply, effect, next, err
}

// taskOf returns the unfinished call that a request of the client asks about, nil if there is
// none. LIMIT_EXCEEDED: nobody can tell, because the params are too long to be read. If such a request were passed on, the client
// could get the end of a task before it is recorded.
func (g *taskPolls) taskOf(f *frames.Frame) (*attempt.Open, error) {
	if !asksAboutTask[f.Method] {
		return nil, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.tasks) == 0 {
		return nil, nil
	}
	params, err := f.Bytes(f.Params, toolcall.MaxParams)
	return g.tasks[mcpraw.ScalarText(mcpraw.At(params, "/taskId"))], err
}

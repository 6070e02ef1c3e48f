package mcpfront

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/mcpanswer"
	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/attempt"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// The end of a task of the tool server's is the effect of a call. Whichever message tells of it, the shim records it before the
// client has that message.

// toldOfTask lists the notifications that tell of a task: of revision 2026-07-28, and of 2025-11-25.
var toldOfTask = map[string]bool{"notifications/tasks": true, "notifications/tasks/status": true}

// taskReply reads the status of a task. over says that the task has ended; then reply is its
// effect.
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
		reply.Status, reply.ErrorCode, reply.ErrorMessage = tga.StatusFailure, string(tga.ToolError), taskCancelled
		return reply, true
	}
	return reply, false
}

// arrived looks at the answer to a call, in the order of the tool server's messages. If the answer gives the call a task with the
// id of another call's task, that id does not stand for the other one any more: an answer about it that comes from now on is none
// about the other one, although the log does not know the new task yet.
func (g *taskPolls) arrived(q *call, f *frames.Frame) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.tasks) == 0 || !f.Result.Present() || int64(len(f.Head)) != f.Size {
		return
	}
	ans := mcpanswer.ReadResult(f.Head[f.Result.From:f.Result.To])
	have := g.tasks[ans.Task]
	if ans.Meaning != mcpraw.IsTask || have == nil || have.Trace == q.Attempt().Trace().String() {
		return
	}
	g.c.s.Log.Warn("the tool server gave a task's id to another call; if the first task had not ended, its call stays in doubt",
		"task", have.Task, "trace", have.Trace, "other", q.Attempt().Trace())
	delete(g.tasks, ans.Task)
	if g.lost == nil {
		g.lost = map[string]bool{}
	}
	g.lost[have.Trace] = true
	g.c.s.Work.Go(func() { g.lose(have) }) // in a goroutine: it asks the log
}

// lose removes the record of a call whose task's id stands for another call's task. Otherwise, when that task is over, a repeat of
// the call or the next shim would ask about the id, and record the other call's effect.
func (g *taskPolls) lose(o *attempt.Open) {
	if err := asklog.Persist(g.c.s.Life, func(ctx context.Context) error { return g.c.s.Lose(ctx, o) }); err != nil {
		g.c.s.Log.Warn("the record of a task whose id another call has was not removed", "task", o.Task, "trace", o.Trace, "error", err)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.lost, o.Trace)
}

// taskCancelled is the error message of a task that was cancelled.
const taskCancelled = "the task was cancelled; what it did before is not undone"

// isWhole reports whether the end of a task has its effect. That of a task that is completed or has failed may take a question of its own.
func isWhole(end runtime.Reply) bool {
	return end.Result != nil || end.Truncated || end.ErrorMessage == taskCancelled
}

// read reads what a part of a message says of a task. If that is too long to keep, task lacks the result or the error that makes it
// so, and of that, length and digest are recorded.
func (g *taskPolls) read(f *frames.Frame, at mcpraw.Span) (task []byte, reply runtime.Reply, over bool, err error) {
	keep := g.c.s.opts.MaxKeepBytes
	if at.To-at.From <= keep {
		task, err = f.Bytes(at, keep)
		reply, over = taskReply(task)
		return task, reply, over, err
	}
	var s mcpraw.Scanner // a task has its result and its error where an answer has them
	if _, err := io.Copy(&s, f.Reader(at)); err != nil {
		return nil, reply, false, tga.Errorf(tga.StoreUnavailable, "read a spilled message: %w", err)
	}
	e := s.Finish()
	long := slices.DeleteFunc([]mcpraw.Span{e.Result, e.Fault}, func(p mcpraw.Span) bool { return p.To-p.From <= keep })
	slices.SortFunc(long, func(a, b mcpraw.Span) int { return cmp.Compare(a.From, b.From) })
	from := at.From
	for _, p := range append(long, mcpraw.Span{From: at.To - at.From, To: at.To - at.From}) {
		piece, err := f.Bytes(mcpraw.Span{From: from, To: at.From + p.From}, toolcall.MaxParams)
		if err != nil {
			return nil, reply, false, err
		}
		task, from = append(task, piece...), at.From+p.To
		if from != at.To {
			task = append(task, "null"...)
		}
	}
	reply, over = taskReply(task)
	effect := e.Result
	if reply.Status != tga.StatusSuccess {
		effect = e.Fault
	}
	if over && slices.Contains(long, effect) {
		var whole bool
		if reply, whole, err = attempt.LongReply(f, mcpraw.Span{From: at.From + effect.From, To: at.From + effect.To}, keep); err == nil && !whole {
			err = tga.Errorf(tga.LimitExceeded, "a message of %d bytes was not kept", f.Size)
		}
	}
	return task, reply, over, err
}

// answered reads whether the answer to a client's question tells of the end of the task.
func (g *taskPolls) answered(w *waiting, f *frames.Frame) (reply runtime.Reply, over bool, err error) {
	switch {
	case w.method == "tasks/get" && f.Result.Present():
		_, reply, over, err = g.read(f, f.Result)
		if err == nil && over && !isWhole(reply) && reply.Status != tga.StatusSuccess {
			reply, over, _, err = g.look(w.task)
			return reply, over, err
		}
		return reply, over && isWhole(reply), err
	case w.method == "tasks/get":
		return reply, false, nil
	case f.Result.Present():
		ans, err := attempt.ReadAnswer(f, 1, g.c.s.opts.MaxKeepBytes)
		return ans.Reply, ans.Meaning == mcpraw.IsEffect, err
	}
	// It is the call's own error, or one about the question. The task's status says which.
	reply, over, _, err = g.look(w.task)
	return reply, err == nil && over && reply.Status != tga.StatusSuccess, nil
}

// giveTask gives the client the answer about a task. A final answer is recorded first, and its
// delivery is noted: from then on the same call is a new call.
func (g *taskPolls) giveTask(w *waiting, f *frames.Frame) {
	reply, over, err := g.answered(w, f)
	if err == nil && over {
		err = g.c.s.Settle(w.task, reply)
	}
	switch {
	case err != nil:
		g.c.s.Log.Error("the effect of a task was not recorded", "trace", w.task.Trace, "error", err)
		f.Close()
		g.c.fail(w.id, w.batch, mcpraw.CodeGone, tga.CodeOf(err), w.task.Trace, "the task has ended, and tgad could not record its end: "+err.Error())
	case over:
		g.deliver(w.task, w.batch, f)
	default:
		g.c.give(w.batch, f)
	}
}

// deliver gives the client a message with the recorded end of a task, and notes that.
func (g *taskPolls) deliver(o *attempt.Open, to *batchReply, f *frames.Frame) {
	defer g.forget(o)
	b, err := o.Begun()
	if !o.Derived || err != nil {
		g.c.give(to, f)
		return
	}
	defer f.Close()
	to.notRead(g.c, f.RawID, g.c.deliverIn(to, o.Key, b.Result.TraceID, func() error { return g.c.send(to, &f.Envelope, f) }))
}

// told handles a notification about a task. An end is recorded before the client hears of it; one that cannot be recorded is not
// told. told reports whether it took the notification.
func (g *taskPolls) told(f *frames.Frame) bool {
	switch {
	case !toldOfTask[f.Method] || !f.Params.Present():
		return false
	case !g.looked.Is(): // it may be a task that an earlier shim left
		g.resume()
		g.c.work.Go(func() {
			select {
			case <-g.looked.C:
				g.c.subs.notified(f)
			case <-g.c.life.Done():
				f.Close()
			}
		})
		return true
	}
	task, reply, over, err := g.read(f, f.Params)
	g.mu.Lock()
	o := g.tasks[mcpraw.ScalarText(mcpraw.At(task, "/taskId"))]
	unfinished := len(g.tasks)
	g.mu.Unlock()
	if err == nil && (!over || o == nil) || err != nil && unfinished == 0 {
		return false
	}
	g.c.giving(nil)
	g.c.work.Go(func() { // in a goroutine: it asks the log, and the tool server's next message must not wait for that
		defer g.c.given()
		if err == nil && !isWhole(reply) {
			reply, over, _, err = g.look(o)
		}
		if err == nil && !over {
			err = errors.New("the tool server does not say what it is")
		}
		if err == nil {
			err = g.c.s.Settle(o, reply)
		}
		switch {
		case err != nil:
			g.c.s.Log.Error("the client is not told of the end of a task, which was not recorded", "error", err)
			f.Close()
		case say.SubscriptionID(f) != nil:
			g.deliver(o, nil, f)
		default:
			g.c.toClient(f) // whether it reaches the client is not known: the client can ask
		}
	})
	return true
}

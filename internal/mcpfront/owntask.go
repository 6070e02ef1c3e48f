package mcpfront

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/tgad/tgad/internal/mcpfront/attempt"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/owntask"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// TaskMode says whether the shim makes tasks of its own (package owntask).
type TaskMode int

// The modes of [Options]. TasksAuto makes tasks if the tool server has none of its own.
const (
	TasksAuto TaskMode = iota
	TasksOn
	TasksOff
)

// ParseTaskMode reads auto, on or off.
func ParseTaskMode(s string) (TaskMode, error) {
	for m, name := range []string{"auto", "on", "off"} {
		if s == name {
			return TaskMode(m), nil
		}
	}
	return 0, tga.Errorf(tga.ValidationError, "tasks %q: want auto, on or off", s)
}

// taskAnswers answers a client's questions about tasks of the shim's own.
type taskAnswers struct {
	c      *conv
	theirs atomic.Int32 // whether the tool server has tasks of its own
}

// offersTasks reports whether a call may become a task of the shim's own.
func (d *taskAnswers) offersTasks(p *toolcall.Params) bool {
	return d.c.s.opts.Tasks != TasksOff && len(p.Raw) <= attempt.MaxLeg && owntask.Declared(p.Raw) && !d.serverHasTasks(p)
}

// What is known about the tool server's own tasks.
const (
	tasksUnknown = iota
	tasksNone
	tasksTheirs
)

// serverHasTasks reports whether the tool server has tasks of its own. If no answer to
// server/discover has passed yet, it asks the tool server. In the mode on it does not ask.
func (d *taskAnswers) serverHasTasks(p *toolcall.Params) bool {
	if d.c.s.opts.Tasks == TasksOn {
		return false
	}
	if known := d.theirs.Load(); known != tasksUnknown {
		return known == tasksTheirs
	}
	ctx, cancel := context.WithTimeout(d.c.life, d.c.s.opts.StartTimeout)
	defer cancel()
	l, err := d.c.await(ctx)
	if err != nil {
		return true // not known: the call gets no task, only its answer
	}
	f, err := d.c.request(ctx, l, "server/discover", p.Protocol())
	if err != nil {
		return true
	}
	defer f.Close()
	return d.discovered(f) == tasksTheirs
}

// discovered reads an answer to server/discover. A tool server without that method has no
// extensions either.
func (d *taskAnswers) discovered(f *frames.Frame) int32 {
	known := int32(tasksNone)
	if f.Result.Present() {
		result, err := f.Bytes(f.Result, frames.SpillBytes)
		if err != nil {
			return tasksTheirs
		}
		if mcpraw.At(result, "/capabilities/extensions/"+tga.EscapeToken(owntask.Extension)) != nil {
			known = tasksTheirs
		}
	}
	d.theirs.Store(known)
	return known
}

// declare adds the tasks extension to the capabilities in an answer to server/discover.
func (d *taskAnswers) declare(f *frames.Frame) *frames.Frame {
	known := d.discovered(f)
	if known == tasksTheirs || d.c.s.opts.Tasks == TasksOff || !f.Result.Present() || int64(len(f.Head)) != f.Size {
		return f
	}
	result, err := f.Bytes(f.Result, frames.SpillBytes)
	if err != nil {
		return f
	}
	add := `"` + owntask.Extension + `":{}`
	for _, place := range []struct{ at, before, after string }{
		{"/capabilities/extensions", "", ""}, {"/capabilities", `"extensions":{`, "}"}, {"", `"capabilities":{"extensions":{`, "}}"},
	} {
		from, to, ok := mcpraw.Locate(result, place.at)
		if !ok || result[from] != '{' {
			continue
		}
		what := place.before + add + place.after
		if len(strings.TrimSpace(string(result[from+1:to-1]))) > 0 {
			what += ","
		}
		at := f.Result.From + int64(from) + 1
		return frames.Replace(f, mcpraw.Span{From: at, To: at}, []byte(what))
	}
	return f
}

// toTask makes a task of a begun call and answers the client with it. It returns false if no
// task could be made; then the call gets its own answer.
func (q *call) toTask(a *attempt.Attempt) bool {
	if a.Done.Is() {
		return false
	}
	t := q.conv.s.tasks.Make(a, &q.Call)
	if t == nil {
		return false
	}
	q.tasked.Store(true)
	_ = q.reply(`,"result":`, t.Show("task", owntask.Working)) // a client that is gone is seen by send
	return true
}

// take handles a request about a task of the shim's own. It reports whether the request is one.
func (d *taskAnswers) take(f *frames.Frame, b *batchReply) bool {
	if f.Method != "tasks/get" && f.Method != "tasks/update" && f.Method != "tasks/cancel" || !f.Params.Present() {
		return false
	}
	params, err := f.Bytes(f.Params, frames.SpillBytes)
	if err != nil {
		return false
	}
	name, ours := strings.CutPrefix(mcpraw.ScalarText(mcpraw.At(params, "/taskId")), owntask.Prefix)
	if !ours {
		return false
	}
	defer f.Close()
	w := &waiting{id: f.RawID, method: f.Method, batch: b}
	if err := d.c.register(w); err != nil {
		d.c.fail(f.RawID, b, mcpraw.CodeInvalidRequest, "", "", err.Error())
		return true
	}
	params = append([]byte(nil), params...)
	d.c.work.Go(func() { d.answer(w, name, params) })
	return true
}

// undeclared refuses a request about tasks that does not declare the tasks extension.
func (d *taskAnswers) undeclared(w *waiting) {
	_ = d.c.answer(w, `,"error":`, []byte(`{"code":`+strconv.Itoa(mcpraw.CodeCapability)+
		`,"message":"tgad: the request does not declare the tasks extension","data":{"requiredCapabilities":{"extensions":{"`+owntask.Extension+`":{}}}}}`))
}

func (d *taskAnswers) answer(w *waiting, name string, params []byte) {
	defer d.c.unregister(w)
	fail := func(code int, err error) {
		d.c.unregister(w)
		d.c.fail(w.id, w.batch, code, tga.CodeOf(err), "", err.Error())
	}
	if !owntask.Declared(params) {
		d.c.unregister(w)
		d.undeclared(w)
		return
	}
	id, err := tga.ParseID(name)
	if err != nil {
		fail(mcpraw.CodeInvalidParams, tga.Errorf(tga.NotFound, "there is no task of this id"))
		return
	}
	t, err := d.taskAt(id)
	switch {
	case errors.Is(err, tga.NotFound):
		fail(mcpraw.CodeInvalidParams, err)
		return
	case err != nil:
		fail(mcpraw.CodeGone, err)
		return
	}
	done := []byte(`{"resultType":"complete"}`)
	switch w.method {
	case "tasks/cancel":
		err = d.c.s.tasks.Cancel(t)
	case "tasks/update":
		err = d.updateTask(id, t, mcpraw.At(params, "/inputResponses"))
	default:
		d.tell(w, t)
		return
	}
	if err != nil {
		fail(mcpraw.CodeInvalidParams, err)
		return
	}
	d.c.unregister(w)
	_ = d.c.answer(w, `,"result":`, done)
}

// answer answers a request of the client with value. kind names the member, result or error.
func (c *conv) answer(w *waiting, kind string, value []byte) error {
	env := mcpraw.Envelope{RawID: w.id, ID: mcpraw.Span{From: 0, To: 1}}
	return c.send(w.batch, &env, frames.Text(`{"jsonrpc":"2.0","id":`), frames.Text(w.id), frames.Text(kind), frames.Text(value), frames.Text("}"))
}

// tell answers tasks/get.
func (d *taskAnswers) tell(w *waiting, t *owntask.Task) {
	d.report(t, w.batch, func(standing string) error {
		d.c.unregister(w)
		return d.c.answer(w, `,"result":`, t.Show("complete", standing))
	})
}

// report calls tell with the status of a task. It reports whether the task is over.
func (d *taskAnswers) report(t *owntask.Task, b *batchReply, tell func(standing string) error) (over bool) {
	return d.c.s.tasks.Report(t, func(standing, key string, trace tga.ID) {
		if key == "" {
			_ = tell(standing) // a client that is gone is seen by send
			return
		}
		_ = d.c.deliverIn(b, key, trace, func() error { return tell(standing) })
	})
}

// taskAt returns a task. If this shim does not work on it, taskAt takes it up. The error is
// NOT_FOUND if no such task was made, or if it was made too long ago.
func (d *taskAnswers) taskAt(id tga.ID) (*owntask.Task, error) {
	s := d.c.s
	if s.opts.ForwardAuth != "" {
		return nil, tga.Errorf(tga.NotFound, "there is no task of this id: whose it is could not be told")
	}
	t, rec, err := s.tasks.Look(d.c.life, id)
	if t != nil || err != nil {
		return t, err
	}
	if t, err = d.revive(id, rec); err != nil {
		return nil, err
	}
	if err := t.Await(d.c.life); err != nil {
		return nil, err
	}
	return t, nil
}

// revive takes up a task's call under the task's own trace.
func (d *taskAnswers) revive(id tga.ID, rec owntask.Record) (*owntask.Task, error) {
	raw := []byte(rec.Params)
	p, err := toolcall.Parse(raw)
	if err != nil {
		return nil, err
	}
	line := append([]byte(`{"jsonrpc":"2.0","id":"`+ownPrefix+frames.Nonce()+`","method":"tools/call","params":`), raw...)
	f := frames.NewFrame(append(line, '}'))
	q, err := d.c.newCall(f, p, d.c.s.opts.Tools(p.Tool), nil)
	f.Close()
	if err != nil {
		return nil, err
	}
	q.Derived = rec.Derived
	q.Trace, q.LedgerKey, q.NoSend = id, rec.Key, rec.Cancelled
	if err := errors.Join(q.unchanged(), q.mirror()); err != nil {
		return nil, err
	}
	if err := d.c.register(q.w); err != nil {
		return nil, tga.Errorf(tga.LimitExceeded, "%w", err)
	}
	s := d.c.s
	a, err := s.TakeUp(&q.Call, rec.Name)
	if err != nil {
		return nil, err
	}
	t, first := s.tasks.Revive(id, a, rec)
	if !first {
		d.c.unregister(q.w) // another request was first
		return t, nil
	}
	s.LaunchAs(owntask.Shelf+id.String(), a)
	q.leave(a, true)
	return t, nil
}

// updateTask continues a task that wants input. It stores the client's input with the task
// before the client is told that it was accepted.
func (d *taskAnswers) updateTask(id tga.ID, t *owntask.Task, said []byte) error {
	again, err := d.c.s.tasks.Update(t, said)
	if err == nil && again != nil {
		_, err = d.revive(id, *again)
	}
	return err
}

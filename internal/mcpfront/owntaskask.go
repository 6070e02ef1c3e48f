package mcpfront

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/attempt"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpfront/wait"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// taskAnswers are the answers to what a client asks about tasks of the shim's own.
type taskAnswers struct {
	c      *conv
	theirs atomic.Int32 // whether the tool server has tasks of its own
}

// take takes a request about a task of the shim's. It reports whether it is one.
func (d *taskAnswers) take(f *frames.Frame, b *batchReply) bool {
	if f.Method != "tasks/get" && f.Method != "tasks/update" && f.Method != "tasks/cancel" || !f.Params.Present() {
		return false
	}
	params, err := f.Bytes(f.Params, frames.SpillBytes)
	if err != nil {
		return false
	}
	name, ours := strings.CutPrefix(mcpraw.ScalarText(mcpraw.At(params, "/taskId")), ownTaskPrefix)
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

// undeclared refuses a request about tasks whose client does not say that it knows them.
func (d *taskAnswers) undeclared(w *waiting) {
	_ = d.c.answer(w, `,"error":`, []byte(`{"code":`+strconv.Itoa(mcpraw.CodeCapability)+
		`,"message":"tgad: the request does not declare the tasks extension","data":{"requiredCapabilities":{"extensions":{"`+tasksExtension+`":{}}}}}`))
}

func (d *taskAnswers) answer(w *waiting, name string, params []byte) {
	defer d.c.unregister(w)
	fail := func(code int, err error) {
		d.c.unregister(w)
		d.c.fail(w.id, w.batch, code, tga.CodeOf(err), "", err.Error())
	}
	if !declaresTasks(params) {
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
		err = d.c.s.cancelTask(t)
	case "tasks/update":
		err = d.updateTask(t, mcpraw.At(params, "/inputResponses"))
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

// answer answers a request of the client's: kind is the member that value is of.
func (c *conv) answer(w *waiting, kind string, value []byte) error {
	env := mcpraw.Envelope{RawID: w.id, ID: mcpraw.Span{From: 0, To: 1}}
	return c.send(w.batch, &env, frames.Text(`{"jsonrpc":"2.0","id":`), frames.Text(w.id), frames.Text(kind), frames.Text(value), frames.Text("}"))
}

// tell answers tasks/get.
func (d *taskAnswers) tell(w *waiting, t *ownTask) {
	d.report(t, w.batch, func(standing string) error {
		d.c.unregister(w)
		return d.c.answer(w, `,"result":`, t.show("complete", standing))
	})
}

// report tells somebody what a task has come to. What did not run is noted first: it is not
// to run because somebody asks again. It reports whether the task is over.
func (d *taskAnswers) report(t *ownTask, b *batchReply, tell func(standing string) error) (over bool) {
	said, is := t.standing()
	if is == taskUnsent && t.record().End == "" {
		if err := d.c.s.keepTask(t, func(r *taskRecord) { r.End = said }); err != nil {
			said, is = `"status":"working","statusMessage":"waiting for tgad's log"`, taskOpen
		}
	}
	if is != taskOpen && is != taskAwaited {
		defer d.c.s.forgetTask(t) // who asks again is answered by the log
	}
	over = is == taskEffect || is == taskUnsent || is == taskAsk && !strings.HasPrefix(said, `"status":"working"`)
	rec := t.record()
	if is != taskEffect || !rec.Derived {
		_ = tell(said) // a client that is gone is seen by send
		return over
	}
	_ = d.c.deliverIn(b, rec.Name, t.id, func() error { return tell(said) })
	return over
}

// taskAt returns a task, taking it up where this shim is not at it: NOT_FOUND where none
// was made, or too long ago.
func (d *taskAnswers) taskAt(id tga.ID) (*ownTask, error) {
	s := d.c.s
	if s.opts.ForwardAuth != "" {
		return nil, tga.Errorf(tga.NotFound, "there is no task of this id: whose it is could not be told")
	}
	s.mu.Lock()
	t := s.tasks[id]
	s.mu.Unlock()
	if t != nil {
		return t, nil
	}
	var raw []byte
	until := time.Now().Add(s.opts.LogTimeout)
	for pause := (wait.Pause{}); ; {
		err := s.Shelf.Load(d.c.life)
		if err == nil {
			raw, err = s.Shelf.Look(d.c.life, taskName+id.String())
		}
		if err == nil {
			break
		}
		if !errors.Is(err, tga.StoreUnavailable) || time.Now().After(until) {
			return nil, err
		}
		if !wait.Rest(d.c.life, pause.Next()) {
			return nil, attempt.ErrOver
		}
	}
	var rec taskRecord
	if raw == nil || json.Unmarshal(raw, &rec) != nil || time.Since(rec.Created) > taskLife {
		return nil, tga.Errorf(tga.NotFound, "there is no task of this id, or no more")
	}
	if rec.End != "" {
		return &ownTask{id: id, rec: rec}, nil
	}
	t, err := d.revive(id, rec)
	if err != nil {
		return nil, err
	}
	select {
	case <-t.a.Done.C:
	case <-t.a.Named.C:
	case <-d.c.life.Done():
		return nil, attempt.ErrOver
	}
	return t, nil
}

// revive goes on with a task's call under the trace that it has.
func (d *taskAnswers) revive(id tga.ID, rec taskRecord) (*ownTask, error) {
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
	t := &ownTask{id: id, a: a, rec: rec, revived: true, stop: wait.NewLatch()}
	if have := s.hold(t); have != t {
		d.c.unregister(q.w) // another request was first
		return have, nil
	}
	s.LaunchAs(taskName+id.String(), a)
	q.leave(a, true)
	return t, nil
}

// cancelTask notes that the client wants no more of a task and tells the tool server. A
// call that was sent may still have its effect.
func (s *Shim) cancelTask(t *ownTask) error {
	if t.record().End != "" {
		return nil
	}
	if err := s.keepTask(t, func(r *taskRecord) { r.Cancelled = true }); err != nil {
		return err
	}
	if !t.stop.Is() {
		t.a.Withdraw()
	}
	t.stop.Set()
	return nil
}

// updateTask goes on with a task that wants input. What the client says is noted with the
// task before it is told so; the same again is one message.
func (d *taskAnswers) updateTask(t *ownTask, said []byte) error {
	_, is := t.standing()
	if is != taskAwaited {
		return nil // the input is not asked for, or no more
	}
	if said == nil {
		return tga.Errorf(tga.ValidationError, "the member is required").At("/params/inputResponses")
	}
	more := append([]byte(`"inputResponses":`), said...)
	if state := mcpraw.At(t.a.Out.Value, "/requestState"); state != nil {
		more = append(append(more, `,"requestState":`...), state...)
	}
	plain, err := toolcall.WithoutInput([]byte(t.record().Params))
	if err != nil {
		return err
	}
	params := string(plain[:len(plain)-1]) + "," + string(more) + "}"
	if len(params) > attempt.MaxLeg {
		return tga.Errorf(tga.LimitExceeded, "the call and its input have %d bytes, over %d", len(params), attempt.MaxLeg)
	}
	if err := d.c.s.keepTask(t, func(r *taskRecord) { r.Params, r.Key = params, t.a.LedgerKey() }); err != nil {
		return err
	}
	d.c.s.forgetTask(t)
	_, err = d.revive(t.id, t.record())
	return err
}

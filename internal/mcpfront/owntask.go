package mcpfront

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/attempt"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpfront/wait"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// Tasks of the shim's own (extension io.modelcontextprotocol/tasks, revision 2026-07-28).
// A client that declares the extension gets a task's id for a governed write call, once
// the call's trace and the task's record are in the log's store. What the task has come to
// is never noted here: it is the standing of the trace. A shim that is asked about a task
// which it is not at takes the call up again under its own trace id and key, so that the
// log serves what is recorded, says in doubt, or permits a send that never was.

// TaskMode says whether the shim makes tasks of its own.
type TaskMode int

// The modes of [Options]. Auto makes them where the tool server has none.
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

const (
	tasksExtension = "io.modelcontextprotocol/tasks"
	// ownTaskPrefix begins the ids of the shim's own tasks; a trace id follows.
	ownTaskPrefix = "tgad-"
	taskName      = "task " // begins their names on the shelf
	// taskLife is how long a task can be asked about, from its creation. Its trace stays.
	taskLife = 7 * 24 * time.Hour
	// maxOwnTasks bounds the tasks that are kept about one tool server. Beyond it a call is
	// answered itself, which the extension leaves to the server.
	maxOwnTasks = 4096
	ownTaskPoll = 500 * time.Millisecond
)

// taskRecord is what another shim must know to take a task up. Params are as they came:
// a call that was never sent is sent with the bytes that were asked for.
type taskRecord struct {
	Trace   string    `json:"trace"`
	Tool    string    `json:"tool"`
	Name    string    `json:"name"` // of the call in this package
	Key     string    `json:"key,omitempty"`
	Derived bool      `json:"derived,omitempty"`
	Params  string    `json:"params"`
	Created time.Time `json:"created"`
	// Cancelled says that the client wants no send any more.
	Cancelled bool `json:"cancelled,omitempty"`
	// End is what was told of a call that certainly did not run: it is not to run because
	// somebody asks again.
	End string `json:"end,omitempty"`
}

// ownTask is a task that this shim is at.
type ownTask struct {
	id      tga.ID
	a       *attempt.Attempt
	revived bool // its answer comes from the log
	ended   atomic.Int64
	stop    *wait.Latch // the client has cancelled it

	mu  sync.Mutex
	rec taskRecord
}

func (t *ownTask) record() taskRecord {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rec
}

// declaresTasks reports whether a request says that its client understands tasks.
func declaresTasks(params []byte) bool {
	return mcpraw.RevisionOf(params).Stateless() &&
		mcpraw.At(params, "/_meta/"+tga.EscapeToken(say.MetaCapabilities)+"/extensions/"+tga.EscapeToken(tasksExtension)) != nil
}

// offersTasks reports whether a call may become a task of the shim's.
func (d *taskAnswers) offersTasks(p *toolcall.Params) bool {
	return d.c.s.opts.Tasks != TasksOff && len(p.Raw) <= attempt.MaxLeg && declaresTasks(p.Raw) && !d.serverHasTasks(p)
}

// What is known about the tool server's own tasks.
const (
	tasksUnknown = iota
	tasksNone
	tasksTheirs
)

// serverHasTasks asks a tool server whose client has not discovered it. In the mode on
// nobody asks.
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
		return true // nothing is known: the call is answered itself
	}
	f, err := d.c.request(ctx, l, "server/discover", p.Protocol())
	if err != nil {
		return true
	}
	defer f.Close()
	return d.discovered(f) == tasksTheirs
}

// discovered looks at an answer to server/discover. A tool server that has no such method
// has no extensions either.
func (d *taskAnswers) discovered(f *frames.Frame) int32 {
	known := int32(tasksNone)
	if f.Result.Present() {
		result, err := f.Bytes(f.Result, frames.SpillBytes)
		if err != nil {
			return tasksTheirs
		}
		if mcpraw.At(result, "/capabilities/extensions/"+tga.EscapeToken(tasksExtension)) != nil {
			known = tasksTheirs
		}
	}
	d.theirs.Store(known)
	return known
}

// declare adds the extension to what a tool server says it can.
func (d *taskAnswers) declare(f *frames.Frame) *frames.Frame {
	known := d.discovered(f)
	if known == tasksTheirs || d.c.s.opts.Tasks == TasksOff || !f.Result.Present() || int64(len(f.Head)) != f.Size {
		return f
	}
	result, err := f.Bytes(f.Result, frames.SpillBytes)
	if err != nil {
		return f
	}
	add := `"` + tasksExtension + `":{}`
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

// toTask makes a task of a call that was begun, and tells the client. It reports whether
// there is one; else the call is answered itself.
func (q *call) toTask(a *attempt.Attempt) bool {
	if a.Done.Is() {
		return false
	}
	s := q.conv.s
	t := &ownTask{id: a.Trace(), a: a, stop: wait.NewLatch()}
	t.rec = taskRecord{
		Trace: t.id.String(), Tool: q.Params.Tool, Name: a.Key, Key: a.Key, Derived: q.Derived,
		Params: string(q.Params.Raw), Created: time.Now().UTC(),
	}
	if q.Derived {
		t.rec.Key = t.id.String() // that the log gave it
	}
	if t = s.hold(t); t == nil {
		return false
	}
	if err := s.keepTask(t, func(*taskRecord) {}); err != nil {
		s.forgetTask(t)
		t.stop.Set()
		s.Log.Warn("a task was not noted; its call is answered itself", "trace", t.id, "error", err)
		return false
	}
	q.tasked.Store(true)
	_ = q.reply(`,"result":`, t.show("task", `"status":"working"`)) // a client that is gone is seen by send
	return true
}

// hold enters a task and keeps its attempt from ending for want of somebody who waits. A
// task of the same trace that is there already is the one. Nil where there are too many.
func (s *Shim) hold(t *ownTask) *ownTask {
	full := !t.revived && s.Shelf.Count(taskName) >= maxOwnTasks // before the lock: the log may be slow
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.tasks[t.id]; have != nil {
		return have
	}
	if full || !t.a.Enter() {
		return nil
	}
	s.tasks[t.id] = t
	t.a.Tasked.Store(true)
	s.Work.Go(func() {
		select {
		case <-t.a.Done.C:
		case <-t.stop.C:
		}
		t.a.Exit()
		<-t.a.Done.C
		t.ended.Store(time.Now().UnixNano())
	})
	return t
}

// keepTask changes a task's record and returns once the store has it.
func (s *Shim) keepTask(t *ownTask, f func(*taskRecord)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	rec := t.rec
	f(&rec)
	raw, err := json.Marshal(rec)
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "note a task: %w", err)
	}
	if err := s.Shelf.Change(s.Life, taskName+rec.Trace, func([]byte) []byte { return raw }); err != nil {
		return err
	}
	t.rec = rec
	return nil
}

// show makes a result about a task: of the type that a call or that a question has, or
// none for a notification.
func (t *ownTask) show(kind, standing string) []byte {
	rec := t.record()
	updated := rec.Created
	if at := t.ended.Load(); at != 0 {
		updated = time.Unix(0, at).UTC()
	}
	const stamp = "2006-01-02T15:04:05.000Z"
	result := ""
	if kind != "" {
		result = fmt.Sprintf(`"resultType":%q,`, kind)
	}
	return fmt.Appendf(nil, `{%s"taskId":%q,"createdAt":%q,"lastUpdatedAt":%q,"ttlMs":%d,"pollIntervalMs":%d,%s}`,
		result, ownTaskPrefix+rec.Trace, rec.Created.Format(stamp), updated.Format(stamp), taskLife.Milliseconds(), ownTaskPoll.Milliseconds(), standing)
}

// moves returns what is closed when a task may have come to something else. done is nil
// where this shim is not at it.
func (t *ownTask) moves() (moved, done <-chan struct{}) {
	if t.a == nil {
		return nil, nil
	}
	return t.a.Moves()
}

// Standings of a task.
type taskStanding int

const (
	taskOpen    taskStanding = iota // this shim is at it
	taskEffect                      // it has its effect: with its delivery the occurrence is over
	taskUnsent                      // it did not run, and is not to
	taskAwaited                     // it wants input
	taskAsk                         // nobody here is at it: the log is asked the next time
)

// standing says what a task has come to, as members of its result.
func (t *ownTask) standing() (said string, is taskStanding) {
	rec := t.record()
	if rec.End != "" {
		return rec.End, taskUnsent
	}
	if !t.a.Done.Is() {
		return working(t.a.Standing()), taskOpen
	}
	o := &t.a.Out
	switch {
	case o.Words != "":
		return t.told(o, rec.Cancelled)
	case o.Final && o.Value == nil:
		return t.completed(tga.LimitExceeded, "The call has run and its answer was too long to be kept. It is not run again."), taskEffect
	case o.Final && o.Fault:
		return `"status":"failed","error":` + string(o.Value), taskEffect
	case o.Final && t.revived:
		return `"status":"completed","result":` + string(say.Replayed(o.Value, o.Trace, o.Digest, o.Redacted)), taskEffect
	case o.Final:
		return `"status":"completed","result":` + string(o.Value), taskEffect
	}
	if asked := mcpraw.At(o.Value, "/inputRequests"); asked != nil && mcpraw.ScalarText(mcpraw.At(o.Value, "/resultType")) == "input_required" {
		return `"status":"input_required","inputRequests":` + string(asked), taskAwaited
	}
	return working("the tool server works on"), taskAsk // as a task of its own
}

// told is the standing of a task whose call came to no answer of the tool server's, but to words.
func (t *ownTask) told(o *attempt.Outcome, cancelled bool) (said string, is taskStanding) {
	unsent := o.Code == tga.ToolError || o.Code == tga.EscalationRequired && cancelled
	switch {
	case o.Final:
		return t.completed(o.Code, o.Words), taskEffect
	case unsent && cancelled:
		return withWords("cancelled", o.Words), taskUnsent
	case unsent:
		return t.completed(o.Code, o.Words), taskUnsent
	case o.Code == tga.StoreUnavailable || o.Code == tga.IdempotencyKeyInFlight || o.Code == tga.EscalationRequired:
		return working(o.Words), taskAsk
	case o.RPC != 0:
		b := append([]byte(`"status":"failed","error":{"code":`), strconv.Itoa(o.RPC)...)
		return string(tga.AppendString(append(b, `,"message":`...), "tgad: "+o.Words)) + "}", taskAsk
	}
	return t.completed(o.Code, o.Words), taskAsk // in doubt or denied, as the log has it
}

func (t *ownTask) completed(code tga.Code, words string) string {
	return `"status":"completed","result":` + string(say.ToolError(mcpraw.Newest, code, t.id.String(), words))
}

func working(words string) string { return withWords("working", words) }

func withWords(status, words string) string {
	return string(tga.AppendString([]byte(`"status":"`+status+`","statusMessage":`), words))
}

func (s *Shim) forgetTask(t *ownTask) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tasks[t.id] == t {
		delete(s.tasks, t.id)
		t.a.Present.Remove()
	}
}

// expireTasks strikes out tasks that nobody can ask about any more.
func (s *Shim) expireTasks() {
	for name, raw := range s.Shelf.With(taskName) {
		var rec taskRecord
		if json.Unmarshal(raw, &rec) == nil && time.Since(rec.Created) <= taskLife {
			continue
		}
		if err := s.Shelf.Change(s.Life, name, func([]byte) []byte { return nil }); err != nil {
			s.Log.Warn("a task that is too old was not struck out", "error", err)
			return
		}
	}
}

// Package owntask implements the tasks that an MCP shim makes itself (extension
// io.modelcontextprotocol/tasks, revision 2026-07-28): their records, and their status.
//
// A client that declares the extension gets a task's id for a governed write call, once the
// call's trace and the task's record are in the log's store. The record does not hold the
// task's outcome, which is that of the trace; only a call that certainly did not run is marked
// (Record.End). If a shim is asked about a task that it is not working on, it takes the call up
// again under the same trace id and key. So the log serves what is recorded, says in doubt, or
// permits a send that was never made.
package owntask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/attempt"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpfront/wait"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

const (
	Extension = "io.modelcontextprotocol/tasks"
	// Prefix begins the ids of tasks; a trace id follows.
	Prefix = "tgad-"
	Shelf  = "task " // begins the names of task records on the shelf
	// Life is how long a task can be asked about, from its creation. Its trace stays.
	Life = 7 * 24 * time.Hour
	// Most is the largest number of task records for one tool server. Beyond it a call gets its
	// answer and no task; the extension allows the server that choice.
	Most = 4096
	poll = 500 * time.Millisecond
)

// Record is what another shim needs to take up a task. Params are the bytes that the client
// sent, so that a call that was never sent is sent with these bytes.
type Record struct {
	Trace   string    `json:"trace"`
	Tool    string    `json:"tool"`
	Name    string    `json:"name"` // [attempt.Attempt.Key] of the call
	Key     string    `json:"key,omitempty"`
	Derived bool      `json:"derived,omitempty"`
	Params  string    `json:"params"`
	Created time.Time `json:"created"`
	// Cancelled says that the client cancelled the task: do not send the call any more.
	Cancelled bool `json:"cancelled,omitempty"`
	// End is the final status of a call that certainly did not run, as the client was told. It
	// keeps a later question about the task from running the call.
	End string `json:"end,omitempty"`
}

// Task is a task that this shim works on, or whose end is known.
type Task struct {
	id      tga.ID
	a       *attempt.Attempt // nil if the end is known
	revived bool             // its answer comes from the log
	ended   atomic.Int64
	stop    *wait.Latch // the client has cancelled it

	mu  sync.Mutex
	rec Record
}

func (t *Task) record() Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rec
}

// Set holds the tasks that a shim works on, by trace.
type Set struct {
	desk    *attempt.Desk
	patient time.Duration // with a log that is away

	mu  sync.Mutex
	all map[tga.ID]*Task
}

// NewSet makes a set of no tasks.
func NewSet(desk *attempt.Desk, patient time.Duration) *Set {
	return &Set{desk: desk, patient: patient, all: map[tga.ID]*Task{}}
}

// Declared reports whether a request says that its client understands tasks.
func Declared(params []byte) bool {
	return mcpraw.RevisionOf(params).Stateless() &&
		mcpraw.At(params, "/_meta/"+tga.EscapeToken(say.MetaCapabilities)+"/extensions/"+tga.EscapeToken(Extension)) != nil
}

// Make makes a task of a begun call. It returns nil if it cannot: then the call gets its own
// answer.
func (s *Set) Make(a *attempt.Attempt, q *attempt.Call) *Task {
	t := &Task{id: a.Trace(), a: a, stop: wait.NewLatch()}
	t.rec = Record{
		Trace: t.id.String(), Tool: q.Params.Tool, Name: a.Key, Key: a.Key, Derived: q.Derived,
		Params: string(q.Params.Raw), Created: time.Now().UTC(),
	}
	if q.Derived {
		t.rec.Key = t.id.String() // the log gives a call with a derived key this ledger key
	}
	if t = s.hold(t); t == nil {
		return nil
	}
	if err := s.keep(t, func(*Record) {}); err != nil {
		s.release(t)
		s.desk.Log.Warn("a task was not noted; its call is answered itself", "trace", t.id, "error", err)
		return nil
	}
	return t
}

// Revive enters a task whose call was taken up. It returns the task of that trace. first is
// false if another request has already entered one; then that task is returned.
func (s *Set) Revive(id tga.ID, a *attempt.Attempt, rec Record) (t *Task, first bool) {
	t = &Task{id: id, a: a, rec: rec, revived: true, stop: wait.NewLatch()}
	have := s.hold(t)
	return have, have == t
}

// hold enters a task, and waits for its attempt so that the attempt does not end for lack of a
// caller. If a task of the same trace is entered already, hold returns that one. It returns nil
// if there are too many tasks or the attempt is ending.
func (s *Set) hold(t *Task) *Task {
	full := !t.revived && s.desk.Shelf.Count(Shelf) >= Most // before the lock: the log may be slow
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.all[t.id]; have != nil {
		return have
	}
	if full || !t.a.Enter() {
		return nil
	}
	s.all[t.id] = t
	t.a.Tasked.Store(true)
	s.desk.Work.Go(func() {
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

// keep changes a task's record and returns once the store has it.
func (s *Set) keep(t *Task, f func(*Record)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	rec := t.rec
	f(&rec)
	raw, err := json.Marshal(rec)
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "note a task: %w", err)
	}
	if err := s.desk.Shelf.Change(s.desk.Life, Shelf+rec.Trace, func([]byte) []byte { return raw }); err != nil {
		return err
	}
	t.rec = rec
	return nil
}

// forget removes a task whose attempt is over.
func (s *Set) forget(t *Task) {
	if s.remove(t) {
		t.a.Present.Remove()
	}
}

// release removes a task that was not made. Its attempt goes on for the call alone, and ends the client's presence itself.
func (s *Set) release(t *Task) {
	s.remove(t)
	t.a.Tasked.Store(false)
	t.stop.Set()
}

func (s *Set) remove(t *Task) (was bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was = s.all[t.id] == t
	if was {
		delete(s.all, t.id)
	}
	return was
}

// Look returns a task that this shim works on, or whose end is known. Otherwise it returns the
// record by which to take the task up. The error is NOT_FOUND if no such task was made, or if
// it was made too long ago.
func (s *Set) Look(ctx context.Context, id tga.ID) (*Task, Record, error) {
	var rec Record
	s.mu.Lock()
	t := s.all[id]
	s.mu.Unlock()
	if t != nil {
		return t, rec, nil
	}
	var raw []byte
	until := time.Now().Add(s.patient)
	for pause := (wait.Pause{}); ; {
		err := s.desk.Shelf.Load(ctx)
		if err == nil {
			raw, err = s.desk.Shelf.Look(ctx, Shelf+id.String())
		}
		if err == nil {
			break
		}
		if !errors.Is(err, tga.StoreUnavailable) || time.Now().After(until) {
			return nil, rec, err
		}
		if !wait.Rest(ctx, pause.Next()) {
			return nil, rec, attempt.ErrOver
		}
	}
	if raw == nil || json.Unmarshal(raw, &rec) != nil || time.Since(rec.Created) > Life {
		return nil, rec, tga.Errorf(tga.NotFound, "there is no task of this id, or no more")
	}
	if rec.End != "" {
		return &Task{id: id, rec: rec}, rec, nil
	}
	return nil, rec, nil
}

// Await waits until the log has the task's trace, or the attempt is over.
func (t *Task) Await(ctx context.Context) error {
	select {
	case <-t.a.Done.C:
	case <-t.a.Named.C:
	case <-ctx.Done():
		return attempt.ErrOver
	}
	return nil
}

// Moves returns two channels: moved is closed when the task's status may have changed, done
// when its attempt is over. Both are nil if no attempt of this shim works on the task.
func (t *Task) Moves() (moved, done <-chan struct{}) {
	if t.a == nil {
		return nil, nil
	}
	return t.a.Moves()
}

// Working is the status of a task about which no more is known.
const Working = `"status":"working"`

// Show makes a result about a task. kind is its resultType: "task" in answer to a call,
// "complete" in answer to a question, "" for a notification.
func (t *Task) Show(kind, standing string) []byte {
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
		result, Prefix+rec.Trace, rec.Created.Format(stamp), updated.Format(stamp), Life.Milliseconds(), poll.Milliseconds(), standing)
}

// Report calls tell with the status of a task, and reports whether the task is over. That a
// call did not run is stored first, so that a later question does not run it. If key is not
// "", it names a call that counts as delivered once the status is delivered.
func (s *Set) Report(t *Task, tell func(standing, key string, trace tga.ID)) (over bool) {
	said, is := t.standing()
	if is == unsent && t.record().End == "" {
		if err := s.keep(t, func(r *Record) { r.End = said }); err != nil {
			said, is = `"status":"working","statusMessage":"waiting for tgad's log"`, open
		}
	}
	if is != open && is != awaited {
		defer s.forget(t) // the next question takes the task up again and asks the log
	}
	key := ""
	if rec := t.record(); is == effect && rec.Derived {
		key = rec.Name
	}
	tell(said, key, t.id)
	return is == effect || is == unsent || is == ask && !strings.HasPrefix(said, Working)
}

// Cancel notes that the client cancelled a task, and tells the tool server. A call that was
// sent may still have its effect.
func (s *Set) Cancel(t *Task) error {
	if t.record().End != "" {
		return nil
	}
	if err := s.keep(t, func(r *Record) { r.Cancelled = true }); err != nil {
		return err
	}
	if !t.stop.Is() {
		t.a.Withdraw()
	}
	t.stop.Set()
	return nil
}

// Update stores a client's input with a task that wants input, and forgets the task. again is the
// record by which to take it up, nil if it wants no input. The same input again is one message: it
// is sent once.
func (s *Set) Update(t *Task, said []byte) (again *Record, err error) {
	if _, is := t.standing(); is != awaited {
		return nil, nil // the task does not want input, or no longer
	}
	if said == nil {
		return nil, tga.Errorf(tga.ValidationError, "the member is required").At("/params/inputResponses")
	}
	more := append([]byte(`"inputResponses":`), said...)
	if state := mcpraw.At(t.a.Out.Value, "/requestState"); state != nil {
		more = append(append(more, `,"requestState":`...), state...)
	}
	plain, err := toolcall.WithoutInput([]byte(t.record().Params))
	if err != nil {
		return nil, err
	}
	params := string(plain[:len(plain)-1]) + "," + string(more) + "}"
	if len(params) > attempt.MaxLeg {
		return nil, tga.Errorf(tga.LimitExceeded, "the call and its input have %d bytes, over %d", len(params), attempt.MaxLeg)
	}
	if err := s.keep(t, func(r *Record) { r.Params, r.Key = params, t.a.LedgerKey() }); err != nil {
		return nil, err
	}
	s.forget(t)
	rec := t.record()
	return &rec, nil
}

// Expire removes the records of tasks that are too old to be asked about.
func (s *Set) Expire() {
	for name, raw := range s.desk.Shelf.With(Shelf) {
		var rec Record
		if json.Unmarshal(raw, &rec) == nil && time.Since(rec.Created) <= Life {
			continue
		}
		if err := s.desk.Shelf.Change(s.desk.Life, name, func([]byte) []byte { return nil }); err != nil {
			s.desk.Log.Warn("could not remove the record of an expired task", "error", err)
			return
		}
	}
}

// standing is the state of a task.
type standing int

const (
	open    standing = iota // an attempt of this shim works on the task
	effect                  // the call has its effect, which remains to be delivered
	unsent                  // the call did not run, and must not run later
	awaited                 // the task wants input
	ask                     // no attempt of this shim works on it: the next question asks the log
)

// standing returns the status of a task, as members of its result.
func (t *Task) standing() (said string, is standing) {
	rec := t.record()
	if rec.End != "" {
		return rec.End, unsent
	}
	if !t.a.Done.Is() {
		return working(t.a.Standing()), open
	}
	o := &t.a.Out
	switch {
	case o.Words != "":
		return t.told(o, rec.Cancelled)
	case o.Final && o.Value == nil:
		return t.completed(tga.LimitExceeded, "The call has run and its answer was too long to be kept. It is not run again."), effect
	case o.Fault && !o.Final:
		return `"status":"failed","error":` + string(o.Value), unsent
	case o.Fault:
		return `"status":"failed","error":` + string(o.Value), effect
	case o.Final && t.revived:
		return `"status":"completed","result":` + string(say.Replayed(o.Value, o.Trace, o.Digest, o.Redacted)), effect
	case o.Final:
		return `"status":"completed","result":` + string(o.Value), effect
	}
	if asked := mcpraw.At(o.Value, "/inputRequests"); asked != nil && mcpraw.ScalarText(mcpraw.At(o.Value, "/resultType")) == "input_required" {
		return `"status":"input_required","inputRequests":` + string(asked), awaited
	}
	return working("the tool server works on"), ask // the tool server made a task of its own
}

// told is the status of a task whose call ended with words of the shim and no answer of the tool server.
func (t *Task) told(o *attempt.Outcome, cancelled bool) (said string, is standing) {
	notSent := o.Code == tga.ToolError || o.Code == tga.EscalationRequired && cancelled
	switch {
	case o.Final:
		return t.completed(o.Code, o.Words), effect
	case notSent && cancelled:
		return withWords("cancelled", o.Words), unsent
	case notSent:
		return t.completed(o.Code, o.Words), unsent
	case o.Code == tga.StoreUnavailable || o.Code == tga.IdempotencyKeyInFlight || o.Code == tga.EscalationRequired:
		return working(o.Words), ask
	case o.RPC != 0:
		b := append([]byte(`"status":"failed","error":{"code":`), strconv.Itoa(o.RPC)...)
		return string(tga.AppendString(append(b, `,"message":`...), "tgad: "+o.Words)) + "}", ask
	}
	return t.completed(o.Code, o.Words), ask // in doubt or denied, as the log has it
}

func (t *Task) completed(code tga.Code, words string) string {
	return `"status":"completed","result":` + string(say.ToolError(mcpraw.Newest, code, t.id.String(), words))
}

func working(words string) string { return withWords("working", words) }

func withWords(status, words string) string {
	return string(tga.AppendString([]byte(`"status":"`+status+`","statusMessage":`), words))
}

// Package owntask has the tasks of an MCP shim's own (extension io.modelcontextprotocol/tasks,
// revision 2026-07-28): what is kept of them, what they have come to, and what is said of them.
//
// A client that declares the extension gets a task's id for a governed write call, once
// the call's trace and the task's record are in the log's store. What the task has come to
// is never noted here: it is the standing of the trace. A shim that is asked about a task
// which it is not at takes the call up again under its own trace id and key, so that the
// log serves what is recorded, says in doubt, or permits a send that never was.
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
	Shelf  = "task " // begins their names on the shelf
	// Life is how long a task can be asked about, from its creation. Its trace stays.
	Life = 7 * 24 * time.Hour
	// Most bounds the tasks that are kept about one tool server. Beyond it a call is
	// answered itself, which the extension leaves to the server.
	Most = 4096
	poll = 500 * time.Millisecond
)

// Record is what another shim must know to take a task up. Params are as they came:
// a call that was never sent is sent with the bytes that were asked for.
type Record struct {
	Trace   string    `json:"trace"`
	Tool    string    `json:"tool"`
	Name    string    `json:"name"` // of the call in package attempt
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

// Task is a task that this shim is at, or whose end is known.
type Task struct {
	id      tga.ID
	a       *attempt.Attempt // nil where the end is known
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

// Set has the tasks that a shim is at, by their traces.
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

// Make makes a task of a call that was begun. Nil is none: the call is answered itself.
func (s *Set) Make(a *attempt.Attempt, q *attempt.Call) *Task {
	t := &Task{id: a.Trace(), a: a, stop: wait.NewLatch()}
	t.rec = Record{
		Trace: t.id.String(), Tool: q.Params.Tool, Name: a.Key, Key: a.Key, Derived: q.Derived,
		Params: string(q.Params.Raw), Created: time.Now().UTC(),
	}
	if q.Derived {
		t.rec.Key = t.id.String() // that the log gave it
	}
	if t = s.hold(t); t == nil {
		return nil
	}
	if err := s.keep(t, func(*Record) {}); err != nil {
		s.forget(t)
		t.stop.Set()
		s.desk.Log.Warn("a task was not noted; its call is answered itself", "trace", t.id, "error", err)
		return nil
	}
	return t
}

// Revive enters a task whose call was taken up. It returns the task of that trace, which is
// another one where somebody was first.
func (s *Set) Revive(id tga.ID, a *attempt.Attempt, rec Record) (t *Task, first bool) {
	t = &Task{id: id, a: a, rec: rec, revived: true, stop: wait.NewLatch()}
	have := s.hold(t)
	return have, have == t
}

// hold enters a task and keeps its attempt from ending for want of somebody who waits. A
// task of the same trace that is there already is the one. Nil where there are too many.
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

func (s *Set) forget(t *Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[t.id] == t {
		delete(s.all, t.id)
		t.a.Present.Remove()
	}
}

// Look returns a task that this shim is at, or whose end is known, or else the record that
// says how to take it up. NOT_FOUND where none was made, or too long ago.
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

// Await returns once a task has a trace that the log knows.
func (t *Task) Await(ctx context.Context) error {
	select {
	case <-t.a.Done.C:
	case <-t.a.Named.C:
	case <-ctx.Done():
		return attempt.ErrOver
	}
	return nil
}

// Moves returns what is closed when a task may have come to something else. done is nil
// where this shim is not at it.
func (t *Task) Moves() (moved, done <-chan struct{}) {
	if t.a == nil {
		return nil, nil
	}
	return t.a.Moves()
}

// Working is the standing of a task of which no more is said.
const Working = `"status":"working"`

// Show makes a result about a task: of the type that a call or that a question has, or
// none for a notification.
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

// Report tells somebody what a task has come to. What did not run is noted first: it is not
// to run because somebody asks again. It reports whether the task is over. key is that of
// the call whose occurrence is over when this is delivered; "" is none.
func (s *Set) Report(t *Task, tell func(standing, key string, trace tga.ID)) (over bool) {
	said, is := t.standing()
	if is == unsent && t.record().End == "" {
		if err := s.keep(t, func(r *Record) { r.End = said }); err != nil {
			said, is = `"status":"working","statusMessage":"waiting for tgad's log"`, open
		}
	}
	if is != open && is != awaited {
		defer s.forget(t) // who asks again is answered by the log
	}
	key := ""
	if rec := t.record(); is == effect && rec.Derived {
		key = rec.Name
	}
	tell(said, key, t.id)
	return is == effect || is == unsent || is == ask && !strings.HasPrefix(said, Working)
}

// Cancel notes that the client wants no more of a task and tells the tool server. A
// call that was sent may still have its effect.
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

// Update notes with a task what its client says where the task wants input, and forgets it: again
// is the record to take it up by, nil where it wants none. The same input again is one message.
func (s *Set) Update(t *Task, said []byte) (again *Record, err error) {
	if _, is := t.standing(); is != awaited {
		return nil, nil // the input is not asked for, or no more
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

// Expire strikes out tasks that nobody can ask about any more.
func (s *Set) Expire() {
	for name, raw := range s.desk.Shelf.With(Shelf) {
		var rec Record
		if json.Unmarshal(raw, &rec) == nil && time.Since(rec.Created) <= Life {
			continue
		}
		if err := s.desk.Shelf.Change(s.desk.Life, name, func([]byte) []byte { return nil }); err != nil {
			s.desk.Log.Warn("a task that is too old was not struck out", "error", err)
			return
		}
	}
}

// Standings of a task.
type standing int

const (
	open    standing = iota // this shim is at it
	effect                  // it has its effect: with its delivery the occurrence is over
	unsent                  // it did not run, and is not to
	awaited                 // it wants input
	ask                     // nobody here is at it: the log is asked the next time
)

// standing says what a task has come to, as members of its result.
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
	case o.Final && o.Fault:
		return `"status":"failed","error":` + string(o.Value), effect
	case o.Final && t.revived:
		return `"status":"completed","result":` + string(say.Replayed(o.Value, o.Trace, o.Digest, o.Redacted)), effect
	case o.Final:
		return `"status":"completed","result":` + string(o.Value), effect
	}
	if asked := mcpraw.At(o.Value, "/inputRequests"); asked != nil && mcpraw.ScalarText(mcpraw.At(o.Value, "/resultType")) == "input_required" {
		return `"status":"input_required","inputRequests":` + string(asked), awaited
	}
	return working("the tool server works on"), ask // as a task of its own
}

// told is the standing of a task whose call came to no answer of the tool server's, but to words.
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

//go:build linux

package proc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// victimTask tells a victim process what to do.
type victimTask struct {
	Store   string
	Socket  string // of the oracle
	World   string
	Profile ledger.Profile
	Seed    uint64
	At      int // the point at which What is done; 0 = none
	What    action
	Cached  bool // the log is written through the kernel's cache
	Traced  bool // a tracer waits for the system calls of the filter
	Callers int  // at once, of a crowd; 0 = the plan
	Life    int  // of the crowd, counted from 0
	Bug     string
}

// ack is one line that a victim prints: what it asked of its store, or was told.
type ack struct {
	Said  string
	Trace tga.ID `json:",omitzero"`

	// submitted: what an append is asked for.
	Artifacts []tga.Digest    `json:",omitempty"`
	Tool      string          `json:",omitempty"` // of a request
	NewNotes  []chain.NewNote `json:",omitempty"`
	// appended: what is durable from then on.
	Entries []entryAck `json:",omitempty"`
	Notes   []noteAck  `json:",omitempty"`
	// sealed.
	Seq    uint64     `json:",omitempty"`
	Digest tga.Digest `json:",omitzero"`
	// answered: what the caller was told.
	State string     `json:",omitempty"`
	Value tga.Digest `json:",omitzero"` // of the answer
	Code  tga.Code   `json:",omitempty"`
	// closed.
	Points int64   `json:",omitempty"` // how many there were
	Writes []int64 `json:",omitempty"` // those before a write
}

// entryAck and noteAck are the parts of an entry and of a note that the properties look at.
type entryAck struct {
	Seq    uint64
	Digest tga.Digest
	Type   tga.ArtifactType
	To     tga.State
	Key    string
}

type noteAck struct {
	Number uint32
	Digest tga.Digest
	Kind   tga.NoteKind
}

const (
	opened    = "opened"
	submitted = "submitted"
	appended  = "appended"
	refused   = "refused"
	sealed    = "sealed"
	answered  = "answered"
	closed    = "closed"
)

// say prints an acknowledgement with one write, so that the pipe has all of it or nothing.
func say(a ack) {
	b, err := json.Marshal(a)
	if err == nil {
		_, err = os.Stdout.Write(append(b, '\n'))
	}
	if err != nil {
		// What cannot be printed was not acknowledged, so end the process.
		fmt.Fprintln(os.Stderr, "say:", err)
		os.Exit(exitBroken)
	}
}

// storeOptions are the options of every store here. The sizes are small, so that a life
// makes few file-system calls and a kill can be tried at each of them.
func storeOptions(fs vfs.FS) engine.Options {
	return engine.Options{FS: fs, MemTableBytes: 256 << 10, LowWaterBytes: 1, FirstSegmentBytes: 64 << 10}
}

// runVictim recovers the store and carries out the plan. A first start and a start after a
// kill do the same.
func runVictim(task victimTask) error {
	if task.Traced {
		if err := installFilter(); err != nil {
			return err
		}
	}
	p := &points{at: int64(task.At), what: task.What}
	fs := pointFS{FS: vfs.Default, p: p, cached: task.Cached, forget: forgets(task.Bug)}
	db, err := engine.Open(task.Store, storeOptions(fs))
	if err != nil {
		return err
	}
	if err := unlock(task.Bug, task.Store); err != nil {
		return err
	}
	say(ack{Said: opened})
	var tools runtime.Dispatcher = &dialer{socket: task.Socket, world: task.World, p: p}
	store, tools := plant(task.Bug, db, tools)
	told := teller{store}
	supervisor, opts := options(task.Profile)
	opts.Policy = policyOf(task.Bug)
	rt, err := runtime.New(told, tools, supervisor, opts)
	if err != nil {
		return err
	}
	ctx := context.Background()
	if _, err := rt.RecoverAll(ctx, 1); err != nil {
		return err
	}
	outside := &dialer{socket: task.Socket, world: task.World, p: p, remote: true}
	if task.Callers > 0 {
		err = crowd(ctx, rt, told, outside, task)
	} else {
		for _, c := range plan(task.Seed) {
			if err = live(ctx, rt, told, outside, c); err != nil {
				break
			}
		}
	}
	if err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	say(ack{Said: closed, Points: p.n.Load(), Writes: p.writes})
	return nil
}

// live makes one call and prints its result. outside connects remote executors and operators
// to the oracle.
func live(ctx context.Context, rt *runtime.Runtime, store runtime.Store, outside *dialer, c call) error {
	var res runtime.Result
	var err error
	if c.How == executor {
		res, err = execute(ctx, rt, outside, c)
	} else {
		res, err = rt.Call(ctx, c.request())
	}
	switch {
	case errors.Is(err, tga.EscalationRequired):
		say(answer(res, err))
		res, err = rt.Decide(ctx, c.Trace, runtime.Vote{Who: "approver", Approve: true, Rationale: "the plan wants a yes"})
	case errors.Is(err, tga.EffectInDoubt) && c.How == operator:
		say(answer(res, err))
		res, err = operate(ctx, rt, outside, c)
	}
	say(answer(res, err))
	if !c.Seal || err != nil {
		return nil
	}
	lease, err := store.Acquire(ctx, c.Trace)
	if err != nil {
		return err
	}
	defer store.Release(lease)
	_, err = store.WriteCheckpoint(ctx, lease)
	return err
}

func (c call) request() runtime.Request {
	return runtime.Request{TraceID: c.Trace, Server: c.Server, Tool: c.Tool, Key: c.Key, Args: []byte(c.Args)}
}

// execute is a remote executor. It sends an attempt once. It asks the oracle what it has sent
// already, because it may have been killed.
func execute(ctx context.Context, rt *runtime.Runtime, outside *dialer, c call) (runtime.Result, error) {
	b, err := rt.Begin(ctx, runtime.BeginRequest{Request: c.request(), BeginID: "executor of " + c.Trace.String()})
	if err != nil || b.Standing != runtime.BeginSend {
		return b.Result, err
	}
	told, err := outside.ask(c.Trace, b.Attempt)
	if err != nil {
		return b.Result, err
	}
	reply := runtime.Reply{Status: tga.StatusSuccess, Result: []byte(resultOf(c.Tool, c.Key))}
	if !told.Came {
		reply, err = outside.Dispatch(ctx, runtime.Call{
			TraceID: c.Trace, ToolCallID: b.Result.ToolCallID, Attempt: b.Attempt,
			Server: c.Server, Tool: c.Tool, Args: []byte(c.Args), Key: b.Key,
		})
	}
	if err != nil {
		return b.Result, err
	}
	return rt.Finish(ctx, c.Trace, b.Permit, runtime.Finished{Reply: reply})
}

// operate is an operator who settles a call in doubt by what the oracle says.
func operate(ctx context.Context, rt *runtime.Runtime, outside *dialer, c call) (runtime.Result, error) {
	told, err := outside.ask(c.Trace, 1)
	if err != nil {
		return runtime.Result{TraceID: c.Trace}, err
	}
	if !told.Acted {
		return rt.Abandon(ctx, c.Trace, "operator", "the server knows nothing of it")
	}
	return rt.Resolve(ctx, c.Trace, runtime.Resolution{
		Reply: runtime.Reply{Status: tga.StatusSuccess, Result: []byte(resultOf(c.Tool, c.Key))},
		Who:   "operator", Evidence: []byte("the server's books"),
	})
}

func answer(res runtime.Result, err error) ack {
	a := ack{Said: answered, Trace: res.TraceID, State: res.State.String(), Code: tga.CodeOf(err)}
	if res.Value != nil {
		a.Value = tga.Sum(res.Value)
	}
	return a
}

// teller is a store that prints what it was asked and what it acknowledged.
type teller struct{ runtime.Store }

func (s teller) Append(ctx context.Context, l chain.Lease, b chain.Batch) (chain.Appended, error) {
	a := ack{Said: submitted, Trace: l.TraceID, NewNotes: b.Notes}
	for _, n := range b.Artifacts {
		a.Artifacts = append(a.Artifacts, n.Artifact.Digest)
		if n.Artifact.Request != nil {
			a.Tool = n.Artifact.Request.Proposal.ToolName
		}
	}
	say(a)
	done, err := s.Store.Append(ctx, l, b)
	switch {
	case err == nil:
		sayAppended(l.TraceID, done)
	case tga.CodeOf(err) != tga.StoreUnavailable:
		say(ack{Said: refused, Trace: l.TraceID})
	}
	return done, err
}

func sayAppended(trace tga.ID, done chain.Appended) {
	a := ack{Said: appended, Trace: trace}
	for _, e := range done.Entries {
		a.Entries = append(a.Entries, entryAck{e.Seq, e.Digest, e.Type, e.To, e.IdempotencyKey})
	}
	for _, n := range done.Notes {
		a.Notes = append(a.Notes, noteAck{n.Number, n.Digest, n.Kind})
	}
	say(a)
}

func (s teller) WriteCheckpoint(ctx context.Context, l chain.Lease) (tga.Checkpoint, error) {
	cp, err := s.Store.WriteCheckpoint(ctx, l)
	if err == nil {
		say(ack{Said: sealed, Trace: l.TraceID, Seq: cp.State.LastSeq, Digest: cp.State.LastDigest})
	}
	return cp, err
}

// dialer sends calls to the oracle, one connection each and one write on it.
type dialer struct {
	socket, world string
	p             *points // nil where nobody counts
	remote        bool    // it is a remote executor's
}

func (d *dialer) point() {
	if d.p != nil {
		d.p.pass(nil)
	}
}

// Dispatch sends a call. Only a failed dial is a certain non-execution.
func (d *dialer) Dispatch(ctx context.Context, c runtime.Call) (runtime.Reply, error) {
	d.point()
	var dial net.Dialer
	conn, err := dial.DialContext(ctx, "unix", d.socket)
	if err != nil {
		return runtime.Reply{}, fmt.Errorf("%w: %w", runtime.ErrNotSent, err)
	}
	defer conn.Close()
	if until, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(until); err != nil {
			return runtime.Reply{}, err
		}
	}
	b, err := json.Marshal(request{World: d.world, event: event{
		Trace: c.TraceID.String(), Call: c.ToolCallID.String(), Attempt: c.Attempt,
		Server: c.Server, Tool: c.Tool, Key: c.Key, Args: string(c.Args), Remote: d.remote,
	}})
	if err != nil {
		return runtime.Reply{}, err
	}
	d.point()
	if _, err := conn.Write(append(b, '\n')); err != nil {
		return runtime.Reply{}, err
	}
	d.point()
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		return runtime.Reply{}, err
	}
	d.point()
	var r reply
	if err := json.Unmarshal(line, &r); err != nil {
		return runtime.Reply{}, err
	}
	return runtime.Reply{Status: tga.StatusSuccess, Result: []byte(r.Result)}, nil
}

// settle waits until the oracle has handled everything that was sent to it before.
func (d *dialer) settle() error {
	_, err := d.exchange(request{Sync: true})
	return err
}

// ask asks the oracle whether an attempt arrived and whether it acted for the trace. The
// oracle answers after it has handled everything that was sent to it before.
func (d *dialer) ask(trace tga.ID, attempt uint32) (reply, error) {
	return d.exchange(request{World: d.world, Asked: true, event: event{Trace: trace.String(), Attempt: attempt}})
}

func (d *dialer) exchange(q request) (r reply, err error) {
	b, err := json.Marshal(q)
	if err != nil {
		return r, err
	}
	conn, err := net.DialTimeout("unix", d.socket, 5*time.Second)
	if err != nil {
		return r, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return r, err
	}
	if _, err := conn.Write(append(b, '\n')); err != nil {
		return r, err
	}
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(line, &r)
}

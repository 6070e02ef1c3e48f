//go:build linux

package proc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/crashtest"
	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// lab is a directory for victims, with an oracle that outlives them.
type lab struct {
	dir    string
	socket string
	oracle *child
	worlds atomic.Int64

	stores  string // where they lie
	saveDir string // where they go that failed, "" = nowhere
	saved   atomic.Int64
}

// newLab starts an oracle in dir, which must be short enough for a socket's name.
func newLab(dir string) (*lab, error) {
	l := &lab{dir: dir, socket: filepath.Join(dir, "oracle.sock")}
	return l, l.startOracle(0)
}

// startOracle starts the oracle and waits until it listens. It dies before step dieAt.
func (l *lab) startOracle(dieAt int) error {
	c, err := start(task{Oracle: &oracleTask{Socket: l.socket, Dir: l.dir, DieAt: dieAt}}, filepath.Join(l.dir, "oracle.stderr"), nil)
	if err != nil {
		return err
	}
	l.oracle = c
	if line, err := bufio.NewReader(c.out).ReadString('\n'); err != nil || line != "ready\n" {
		return errors.Join(fmt.Errorf("the oracle says %q: %w", line, err), l.stopOracle())
	}
	return nil
}

func (l *lab) stopOracle() error {
	if l.oracle == nil {
		return nil
	}
	l.oracle.kill()
	_, err := l.oracle.wait(false)
	err = errors.Join(err, l.oracle.close())
	l.oracle = nil
	return err
}

func (l *lab) close() error { return l.stopOracle() }

// world is one store, its journal at the oracle, and what was acknowledged.
type world struct {
	lab   *lab
	name  string
	store string // directory
	// storeName is its name in the directory above it, which a copy of a disk keeps.
	storeName string
	journal   string // directory of the oracle's journal
	profile   ledger.Profile
	seed      uint64
	bug       string
	cached    bool // its log is written through the kernel's cache

	path   []string // the kills so far
	events []crashtest.Event
	read   int   // lines of the journal that are in events
	acks   []ack // answered, of all lives
}

// newWorld makes a world with an empty store in parent.
func (l *lab) newWorld(parent string, profile ledger.Profile, seed uint64) *world {
	name := fmt.Sprintf("w%d", l.worlds.Add(1))
	return &world{
		lab: l, name: name, store: filepath.Join(parent, name), storeName: name, journal: l.dir,
		profile: profile, seed: seed,
	}
}

// remove deletes the files of the world.
func (w *world) remove() error {
	return errors.Join(os.RemoveAll(w.store), os.RemoveAll(w.stderr()), w.removeJournal())
}

func (w *world) removeJournal() error {
	err := os.Remove(filepath.Join(w.journal, w.name+".journal"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func (w *world) stderr() string { return filepath.Join(w.lab.dir, w.name+".stderr") }

func (w *world) task(what action, at int) victimTask {
	return victimTask{
		Store: w.store, Socket: w.lab.socket, World: w.name, Profile: w.profile, Seed: w.seed,
		At: at, What: what, Cached: w.cached || what == tearHere, Bug: w.bug,
	}
}

// note adds to the events what a life did: what reached the oracle, and what was
// acknowledged. The order of these two within a life is not known, and does not matter:
// what was on disk when the life began is noted before it.
func (w *world) note(acks []ack) error {
	w.begin()
	return w.went(acks)
}

// begin notes that a process opens the store.
func (w *world) begin() { w.events = append(w.events, crashtest.Event{Kind: crashtest.Opened}) }

// went adds what the current life did since the last call.
func (w *world) went(acks []ack) error {
	journal, err := readJournal(w.journal, w.name)
	if err != nil {
		return err
	}
	for _, e := range journal[min(w.read, len(journal)):] {
		ev, err := e.crashEvent()
		if err != nil {
			return err
		}
		w.events = append(w.events, ev)
	}
	w.read = len(journal)
	asked := map[tga.ID]int{} // the newest append of each trace, which are one after the other
	for _, a := range acks {
		switch a.Said {
		case submitted:
			asked[a.Trace] = len(w.events)
			w.events = append(w.events, crashtest.Event{Kind: crashtest.Submitted, Trace: a.Trace, Batch: a.batch()})
		case appended:
			w.events = append(w.events, a.acknowledged())
		case refused:
			w.events = append(w.events, crashtest.Event{Kind: crashtest.Refused, Trace: a.Trace, Batched: asked[a.Trace]})
		case sealed:
			w.events = append(w.events, crashtest.Event{Kind: crashtest.Sealed, Trace: a.Trace, Seal: tga.Checkpoint{
				TraceID: a.Trace, Seq: a.Seq, State: tga.CheckpointState{TraceID: a.Trace, LastSeq: a.Seq, LastDigest: a.Digest},
			}})
		case answered:
			w.acks = append(w.acks, a)
		}
	}
	return nil
}

func (e event) crashEvent() (crashtest.Event, error) {
	trace, err1 := tga.ParseID(e.Trace)
	id, err2 := tga.ParseID(e.Call)
	ev := crashtest.Event{Kind: crashtest.Sent, Trace: trace, Key: e.Key, Tool: e.Tool, Remote: e.Remote, Call: runtime.Call{
		TraceID: trace, ToolCallID: id, Attempt: e.Attempt, Server: e.Server, Tool: e.Tool, Args: []byte(e.Args), Key: e.Key,
	}}
	if e.Kind == effect {
		ev.Kind = crashtest.Acted
	}
	return ev, errors.Join(err1, err2)
}

func (a ack) acknowledged() crashtest.Event {
	ev := crashtest.Event{Kind: crashtest.Acknowledged, Trace: a.Trace}
	for _, e := range a.Entries {
		ev.Entries = append(ev.Entries, tga.LogEntry{TraceID: a.Trace, Seq: e.Seq, Digest: e.Digest, Type: e.Type, To: e.To, IdempotencyKey: e.Key})
	}
	for _, n := range a.Notes {
		ev.Notes = append(ev.Notes, tga.Note{TraceID: a.Trace, Number: n.Number, Digest: n.Digest, Kind: n.Kind})
	}
	return ev
}

// batch returns the parts of a batch that the properties look at.
func (a ack) batch() chain.Batch {
	b := chain.Batch{Notes: a.NewNotes}
	for i, d := range a.Artifacts {
		artifact := &tga.Artifact{Digest: d}
		if i == 0 && a.Tool != "" {
			artifact.Request = &tga.ActionRequest{Proposal: tga.Proposal{ToolName: a.Tool}}
		}
		b.Artifacts = append(b.Artifacts, chain.NewArtifact{Artifact: artifact})
	}
	return b
}

// where says how to reproduce the state of the world.
func (w *world) where() string {
	return fmt.Sprintf("profile %d seed %d: %s", w.profile, w.seed, strings.Join(w.path, ", then "))
}

// process makes a process of package crashtest from a store, to observe and judge it.
func (w *world) process(db *engine.DB) (*crashtest.Process, error) {
	supervisor, opts := options(w.profile)
	rt, err := runtime.New(db, &dialer{socket: w.lab.socket, world: w.name}, supervisor, opts)
	if err != nil {
		return nil, err
	}
	img := crashtest.Image{FS: crashmem.New(), Events: w.events, Now: max(tga.MillisOf(time.Now()), db.NewestTS())}
	return &crashtest.Process{World: img.World(), DB: db, RT: rt, Conf: crashtest.Config{Profile: w.profile}}, nil
}

// inspect reads the store of a dead victim without recovering anything, and judges it. It
// notes which effects are durable: after such an effect its key must not be sent.
func (w *world) inspect(v *verdict) (err error) {
	forks.RLock()
	defer forks.RUnlock()
	db, err := engine.OpenReadOnly(w.store, storeOptions(nil))
	if errors.Is(err, tga.NotFound) {
		return nil // killed before there was a store
	}
	if err != nil {
		v.fail(w, "L1", "the store cannot be read: %v", err)
		return nil
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	p, err := w.process(db)
	if err != nil {
		return err
	}
	o := p.Observe()
	before := len(v.bad)
	v.judge(w, o)
	if err := w.save(v, before); err != nil {
		return err
	}
	for id, s := range o.Traces {
		if s.Trace != nil && s.Trace.Effect != nil && s.Trace.Call != nil {
			w.events = append(w.events, crashtest.Event{Kind: crashtest.Ended, Trace: id, Key: s.Key.Key, Tool: s.Key.Tool})
		}
	}
	return nil
}

// conclude recovers the store twice and judges what it then holds.
func (w *world) conclude(v *verdict) (err error) {
	if err := (&dialer{socket: w.lab.socket}).settle(); err != nil {
		return fmt.Errorf("the oracle: %w", err)
	}
	forks.RLock()
	defer forks.RUnlock()
	failures := len(v.bad)
	defer func() { err = errors.Join(err, w.save(v, failures)) }()
	db, err := engine.Open(w.store, storeOptions(nil))
	if err != nil {
		v.fail(w, "L1", "the store does not open: %v", err)
		return nil
	}
	defer func() {
		if e := db.Close(); e != nil {
			v.fail(w, "L1", "the store does not close: %v", e)
		}
	}()
	p, err := w.process(db)
	if err != nil {
		return err
	}
	var before *crashtest.Observed
	for range 2 {
		if _, err := p.RT.RecoverAll(context.Background(), 4); err != nil {
			v.fail(w, "L1", "recovery: %v", err)
			return nil
		}
		if err := w.note(nil); err != nil {
			return err
		}
		if p, err = w.process(db); err != nil {
			return err
		}
		o := p.Observe()
		o.Recovered = true
		if before == nil {
			v.judge(w, o)
			v.counts.recoveries++
		} else {
			w.same(v, before, o)
		}
		before = o
	}
	w.answers(v, p, before)
	w.licensed(v)
	return nil
}

// maxSaved bounds how many stores a tier saves.
const maxSaved = 10

// save keeps the current store, the oracle's journal and the violations, if there are more
// violations than before.
func (w *world) save(v *verdict, before int) error {
	if w.lab.saveDir == "" || len(v.bad) == before || w.lab.saved.Add(1) > maxSaved {
		return nil
	}
	dir := filepath.Join(w.lab.saveDir, fmt.Sprintf("process-%s-%d", w.name, w.lab.saved.Load()))
	err := errors.Join(os.MkdirAll(dir, 0o750), copyDir(filepath.Join(dir, "store"), w.store))
	if b, e := os.ReadFile(filepath.Join(w.journal, w.name+".journal")); e == nil {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "journal"), b, 0o640))
	}
	text, e := json.MarshalIndent(v.bad[before:], "", " ")
	if e == nil {
		e = os.WriteFile(filepath.Join(dir, "failure.json"), text, 0o640)
	}
	return errors.Join(err, e)
}

// same compares the store after two recoveries (L3).
func (w *world) same(v *verdict, a, b *crashtest.Observed) {
	for id, s := range b.Traces {
		was := a.Traces[id]
		switch {
		case was == nil || len(was.Entries) != len(s.Entries):
			v.fail(w, "L3", "trace %s: a second recovery changed the log", id)
		case (was.Record == nil) != (s.Record == nil), s.Record != nil && (was.Record.Status != s.Record.Status || was.Record.EffectDigest != s.Record.EffectDigest):
			v.fail(w, "L3", "trace %s: a second recovery changed the ledger record", id)
		}
	}
}

// answers asks again for everything that a caller was told (S6), and compares the log with
// the oracle: the log must not claim an effect that did not happen.
func (w *world) answers(v *verdict, p *crashtest.Process, o *crashtest.Observed) {
	for _, a := range w.acks {
		state, err := tga.ParseState(a.State)
		if err != nil || !state.Terminal() {
			continue
		}
		now, err := p.RT.Result(context.Background(), a.Trace)
		if b := answer(now, nil); err != nil || b.State != a.State || b.Value != a.Value {
			v.fail(w, "S6", "trace %s: answered was %s with value %s, now it is %s with %s: %v", a.Trace, a.State, a.Value, b.State, b.Value, err)
		}
	}
	acted := map[string]bool{}
	for _, e := range w.events {
		if e.Kind == crashtest.Acted {
			acted[actedFor(e.Tool, e.Key, string(e.Call.Args))] = true
		}
	}
	for id, s := range o.Traces {
		if s.Trace == nil || s.Trace.Effect == nil || s.Trace.Call == nil || ledger.NeverSent(s.Trace.Call) {
			continue
		}
		c := s.Trace.Call.Call.Call
		done := s.Trace.Effect.Effect.Outcome.Status == tga.StatusSuccess
		if done && !effectless(c.ToolName) && !acted[actedFor(c.ToolName, s.Key.Key, string(c.Args))] {
			v.fail(w, "S7", "trace %s is COMPLETED and the oracle did not act", id)
		}
	}
}

// actedFor names what a tool acted for: the key or, if it deduplicates by arguments, those.
func actedFor(tool, key, args string) string {
	if licenceOf(tool) == "dedupe_args" {
		return tool + "\x00" + args
	}
	return tool + "\x00" + key
}

// licensed counts the sends of a trace after its first. Unlicensed ones are reported as
// violations elsewhere.
func (w *world) licensed(v *verdict) {
	sent := map[tga.ID]bool{}
	for _, e := range w.events {
		if e.Kind == crashtest.Sent {
			if sent[e.Trace] {
				v.counts.licensedResends++
			}
			sent[e.Trace] = true
		}
	}
}

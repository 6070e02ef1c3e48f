package retention_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/internal/retention"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// stand is a store that counts how often it was asked to erase.
type stand struct {
	*testing.T
	*engine.DB
	now     tga.Millis
	erasing func([]tga.ID) error // called before the store erases; nil = no call
	asked   int
}

func (s *stand) Erase(ctx context.Context, what engine.Erasure) (engine.Erased, error) {
	s.asked++
	if s.erasing != nil {
		if err := s.erasing(what.Traces); err != nil {
			return engine.Erased{}, err
		}
	}
	return s.DB.Erase(ctx, what)
}

func newStand(t *testing.T) *stand {
	s := &stand{T: t, now: 1_750_000_000_000}
	var err error
	s.DB, err = engine.Open(filepath.Join(t.TempDir(), "data"), engine.Options{
		Create: true, FirstSegmentBytes: 64 << 10, MemTableBytes: 1 << 20, CacheBytes: 1 << 20, LowWaterBytes: 1, Logger: slog.New(slog.DiscardHandler),
		Clock: func() time.Time { return time.UnixMilli(int64(s.now)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.DB.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// add appends a trace in the given state at the given time.
func (s *stand) add(o chaintest.Options) tga.ID {
	s.Helper()
	id := chaintest.ID(o.Seed, 0)
	if o.Key == "" {
		o.Key = id.String()
	}
	lease, err := s.Acquire(s.Context(), id)
	if err != nil {
		s.Fatal(err)
	}
	defer s.Release(lease)
	var batch chain.Batch
	for _, a := range chaintest.Artifacts(o) {
		made := chain.NewArtifact{Artifact: a}
		if a.Type == tga.EffectType {
			made.Documents = o.Documents
		}
		batch.Artifacts = append(batch.Artifacts, made)
		if a.Type == tga.CallType && a.Meta[tga.MetaAttempt] == tga.AttemptNone {
			continue // this call is never sent, so it commits together with its effect
		}
		if _, err := s.Append(s.Context(), lease, batch); err != nil {
			s.Fatal(err)
		}
		batch.Artifacts = nil
	}
	return id
}

func (s *stand) run(p *retention.Policy) retention.Done {
	s.Helper()
	done, err := p.Run(s.Context(), s, s.now, false)
	if err != nil {
		s.Fatal(err)
	}
	return done
}

// erased reports whether the content of a trace is gone completely.
func (s *stand) erased(id tga.ID) bool {
	s.Helper()
	for e, err := range s.Entries(s.Context(), id, 0) {
		if err != nil {
			s.Fatal(err)
		}
		if e.Artifact != nil {
			return false
		}
	}
	return true
}

// archived returns the traces in the files of an archive. Each file must verify.
func archived(t *testing.T, dir string) (traces map[tga.ID]int) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	traces = map[tga.ID]int{}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".ndjson") {
			continue
		}
		raw, err := os.Open(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		_, err = ndjson.VerifyEach(raw, ndjson.Watch{Single: true, Entry: func(e *chain.Entry) {
			if e.Seq == 1 {
				traces[e.TraceID]++
			}
		}})
		if err = errors.Join(err, raw.Close()); err != nil {
			t.Errorf("%s: %v", f.Name(), err)
		}
	}
	return traces
}

const day = 24 * time.Hour

func (s *stand) later(d time.Duration) { s.now += tga.Millis(d.Milliseconds()) }

// TestFirstRuleDecides: each selector alone; a rule that keeps before a rule that erases; a rule for which a
// trace is too young before a rule for which it is old enough; and an age exactly at the limit.
func TestFirstRuleDecides(t *testing.T) {
	s := newStand(t)
	done := s.add(chaintest.Options{Seed: 1})
	failed := s.add(chaintest.Options{Seed: 2, Status: "FAILURE"})
	denied := s.add(chaintest.Options{Seed: 3, Verdict: "DENY"})
	other := s.add(chaintest.Options{Seed: 4, Meta: tga.Meta{tga.MetaNamespace: "other"}})
	all := []tga.ID{done, failed, denied, other}
	s.later(day)
	listed := map[tga.ID]chain.Listing{}
	for l, err := range s.Traces(t.Context(), tga.ID{}) {
		if err != nil || l.Err != nil {
			t.Fatal(err, l.Err)
		}
		listed[l.TraceID] = l.Listing
	}
	server, tool := listed[done].Server, listed[done].Tool
	erase := retention.Rule{EraseAfter: day, Drop: true}
	with := func(change func(*retention.Rule)) retention.Rule {
		r := erase
		change(&r)
		return r
	}
	keep := func(change func(*retention.Rule)) retention.Rule {
		var r retention.Rule
		change(&r)
		return r
	}
	for _, c := range []struct {
		name  string
		rules []retention.Rule
		due   [][]tga.ID
	}{
		{"no rule", nil, nil},
		{"any", []retention.Rule{erase}, [][]tga.ID{all}},
		{"a moment too young", []retention.Rule{with(func(r *retention.Rule) { r.EraseAfter++; r.EraseAfter += time.Millisecond })}, [][]tga.ID{nil}},
		{"namespace", []retention.Rule{with(func(r *retention.Rule) { r.Namespace = "other" })}, [][]tga.ID{{other}}},
		{"server", []retention.Rule{with(func(r *retention.Rule) { r.Server = server })}, [][]tga.ID{all}},
		{"another server", []retention.Rule{with(func(r *retention.Rule) { r.Server = server + "2" })}, [][]tga.ID{nil}},
		{"tool", []retention.Rule{with(func(r *retention.Rule) { r.Tool = tool })}, [][]tga.ID{all}},
		{"another tool", []retention.Rule{with(func(r *retention.Rule) { r.Tool = tool + "2" })}, [][]tga.ID{nil}},
		{"states", []retention.Rule{with(func(r *retention.Rule) { r.States = []tga.State{tga.Failed, tga.Denied} })}, [][]tga.ID{{failed, denied}}},
		{"kept before erased", []retention.Rule{keep(func(r *retention.Rule) { r.Namespace = "other" }), erase}, [][]tga.ID{nil, {done, failed, denied}}},
		{"too young for the first", []retention.Rule{with(func(r *retention.Rule) { r.Namespace, r.EraseAfter = "other", 2*day }), erase}, [][]tga.ID{nil, {done, failed, denied}}},
		{"class", []retention.Rule{with(func(r *retention.Rule) { r.Classes = []ledger.Class{ledger.ClassCommitted, ledger.ClassSuccess} })}, [][]tga.ID{{done, other}}},
	} {
		got, err := (&retention.Policy{Rules: c.rules}).Run(t.Context(), s, s.now, true)
		if err != nil {
			t.Fatal(c.name, err)
		}
		for i, want := range c.due {
			if got.Rules[i].Due != len(want) {
				t.Errorf("%s: rule %d: %d traces are due, want %d", c.name, i+1, got.Rules[i].Due, len(want))
			}
		}
	}
	if s.asked > 0 {
		t.Errorf("%d erasures while nothing was to be done", s.asked)
	}
	s.run(&retention.Policy{Rules: []retention.Rule{with(func(r *retention.Rule) { r.States = []tga.State{tga.Failed} }), with(func(r *retention.Rule) { r.Namespace = "other" })}})
	for _, id := range all {
		if want := id == failed || id == other; s.erased(id) != want {
			t.Errorf("%v: erased is %v, want %v", listed[id], !want, want)
		}
	}
}

// TestNothingIsErasedBeforeItIsArchived: before traces are erased, they are in a durable, complete file. If
// no such file can be written, nothing is erased. A run that ended in the middle leaves nothing that stops
// the next run.
func TestNothingIsErasedBeforeItIsArchived(t *testing.T) {
	s := newStand(t)
	var all []tga.ID
	for i := range 5 {
		all = append(all, s.add(chaintest.Options{Seed: uint64(1 + i), Documents: []chain.Document{{Pointer: tga.PointerResult, Data: []byte(`"paid"`)}}}))
	}
	slices.SortFunc(all, func(a, b tga.ID) int { return bytes.Compare(a[:], b[:]) }) // in the order of the store's list
	s.later(day)
	dir := filepath.Join(t.TempDir(), "a", "rchive")
	p := &retention.Policy{Archive: dir, Rules: []retention.Rule{{EraseAfter: day}}}

	s.erasing = func(ids []tga.ID) error {
		in := archived(t, dir)
		for _, id := range ids {
			if in[id] == 0 {
				t.Errorf("trace %s is to be erased, and no file has it", id)
			}
		}
		return tga.Errorf(tga.StoreUnavailable, "planted")
	}
	if _, err := p.Run(t.Context(), s, s.now, false); tga.CodeOf(err) != tga.StoreUnavailable || s.asked != 1 {
		t.Fatal(err, s.asked)
	}
	s.erasing = nil
	if in := archived(t, dir); len(in) > 0 {
		t.Errorf("an erasure that was refused leaves a file with %d traces", len(in))
	}

	// A directory that takes no file, a file in place of the directory, and a directory with the rest of an
	// earlier run.
	refused := func(what string, prepare, repair func() error) {
		t.Helper()
		if err := prepare(); err != nil {
			t.Fatal(err)
		}
		before := s.asked
		if _, err := p.Run(t.Context(), s, s.now, false); tga.CodeOf(err) != tga.StoreUnavailable || !strings.Contains(err.Error(), "Nothing was erased") || s.asked != before {
			t.Errorf("%s: %v, %d erasures", what, err, s.asked-before)
		}
		if err := repair(); err != nil {
			t.Fatal(err)
		}
	}
	aside := dir + ".aside"
	name := filepath.Join(dir, time.UnixMilli(int64(s.now)).UTC().Format("2006-01-02T150405Z")+"-"+all[0].String()+".ndjson")
	refused("the directory is a file", func() error { return errors.Join(os.Rename(dir, aside), os.WriteFile(dir, nil, 0o600)) },
		func() error { return errors.Join(os.Remove(dir), os.Rename(aside, dir)) })
	part := filepath.Join(dir, all[0].String()+".part")
	refused("a directory has the name", func() error { return os.MkdirAll(filepath.Join(part, "x"), 0o700) }, func() error { return os.RemoveAll(part) })
	for what, change := range map[string]func(*os.File) error{
		"a byte of it is another one": func(f *os.File) error { _, err := f.WriteAt([]byte{'#'}, 200); return err },
		"it is cut":                   func(f *os.File) error { return f.Truncate(100) },
		"it is empty":                 func(f *os.File) error { return f.Truncate(0) },
	} {
		undo := retention.Damage(func(f *os.File) {
			if err := change(f); err != nil {
				t.Error(err)
			}
		})
		refused(what, func() error { return nil }, func() error { undo(); return nil })
		if left, _ := filepath.Glob(filepath.Join(dir, "*.part")); len(left) > 0 {
			t.Errorf("%s: left: %v", what, left)
		}
	}

	if err := errors.Join(os.WriteFile(part, []byte("half"), 0o600), os.WriteFile(name, []byte("of the same second"), 0o600)); err != nil {
		t.Fatal(err)
	}
	done := s.run(p)
	if b, err := os.ReadFile(name); err != nil || string(b) != "of the same second" {
		t.Errorf("the file of an earlier run: %q, %v", b, err)
	}
	if err := os.Remove(name); err != nil {
		t.Error(err)
	}
	if r := done.Rules[0]; r.Due != 5 || r.Erased != 5 || r.Archived == "" {
		t.Errorf("%+v", r)
	}
	if info, err := os.Stat(done.Rules[0].Archived); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.part")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	in := archived(t, dir)
	for _, id := range all {
		if in[id] != 1 || !s.erased(id) {
			t.Errorf("trace %s is in %d files, want 1; erased is %v", id, in[id], s.erased(id))
		}
	}
	if rep, err := s.Check(t.Context()); err != nil || len(rep.Problems) > 0 {
		t.Errorf("%v %+v", err, rep.Problems)
	}
	if done := s.run(p); done.Rules[0].Due != 0 || done.Looked != 5 {
		t.Errorf("once more: %+v", done)
	}
}

// TestOpenCallsAreLeft: each state in which a call may still continue, and a call that a run holds.
func TestOpenCallsAreLeft(t *testing.T) {
	s := newStand(t)
	for n := 1; n <= 3; n++ {
		s.add(chaintest.Options{Seed: uint64(n), Entries: n})
	}
	held, ended := s.add(chaintest.Options{Seed: 4}), s.add(chaintest.Options{Seed: 5})
	s.later(day)
	lease, err := s.Acquire(t.Context(), held)
	if err != nil {
		t.Fatal(err)
	}
	p := &retention.Policy{Rules: []retention.Rule{{EraseAfter: time.Millisecond, Drop: true}}}
	if done := s.run(p); done.Looked != 5 || done.Rules[0] != (retention.Ruled{Due: 2, Erased: 1}) || s.erased(held) || !s.erased(ended) {
		t.Errorf("%+v", done)
	}
	archiving := &retention.Policy{Archive: t.TempDir(), Rules: []retention.Rule{{EraseAfter: time.Millisecond}}}
	if done := s.run(archiving); done.Rules[0] != (retention.Ruled{Due: 1}) || len(archived(t, archiving.Archive)) > 0 {
		t.Errorf("what somebody is at is archived: %+v", done)
	}
	s.Release(lease)
	if done := s.run(p); done.Rules[0] != (retention.Ruled{Due: 1, Erased: 1}) || !s.erased(held) {
		t.Errorf("once nobody is at it: %+v", done)
	}
}

// TestSealAfter: older traces are archived within the store, and can be erased from there too.
func TestSealAfter(t *testing.T) {
	s := newStand(t)
	old := s.add(chaintest.Options{Seed: 1})
	s.later(day)
	young := s.add(chaintest.Options{Seed: 2})
	if done := s.run(&retention.Policy{SealAfter: time.Hour}); done.Sealed != 1 || done.Looked != 0 {
		t.Errorf("%+v", done)
	}
	done := s.run(&retention.Policy{Rules: []retention.Rule{{EraseAfter: time.Hour, Drop: true}}})
	if done.Rules[0].Erased != 1 || !s.erased(old) || s.erased(young) {
		t.Errorf("%+v", done)
	}
}

// TestUnreadableTraceIsLeft: the store's answer about an unreadable trace is planted here; the tests of
// package engine make real damage.
func TestUnreadableTraceIsLeft(t *testing.T) {
	s := newStand(t)
	bad, good := s.add(chaintest.Options{Seed: 1}), s.add(chaintest.Options{Seed: 2})
	s.later(day)
	dir := t.TempDir()
	p := &retention.Policy{Archive: dir, Rules: []retention.Rule{{EraseAfter: time.Hour}}}
	done, err := p.Run(t.Context(), damaged{s, bad}, s.now, false)
	if err != nil || done.Rules[0].Erased != 1 || s.erased(bad) || !s.erased(good) {
		t.Errorf("%+v %v", done, err)
	}
	if in := archived(t, dir); len(in) != 1 || in[good] != 1 {
		t.Errorf("%v", in)
	}
}

// damaged is a store with one trace, whose entries do not verify.
type damaged struct {
	*stand
	bad tga.ID
}

func (d damaged) Entries(ctx context.Context, id tga.ID, after uint64) iter.Seq2[chain.Entry, error] {
	if id == d.bad {
		return func(yield func(chain.Entry, error) bool) {
			yield(chain.Entry{}, tga.Errorf(tga.StateRecoveryFailed, "planted").In(id))
		}
	}
	return d.stand.Entries(ctx, id, after)
}

// TestLongListIsTakenUpAgain: the next run takes the traces that one run left.
func TestLongListIsTakenUpAgain(t *testing.T) {
	s := newStand(t)
	const n = 7
	for i := range n {
		s.add(chaintest.Options{Seed: uint64(1 + i)})
	}
	s.later(day)
	retention.SetMostDue(t, 3)
	p := &retention.Policy{Archive: t.TempDir(), Rules: []retention.Rule{{EraseAfter: day}}}
	var said []string
	for more := true; more; s.later(time.Second) {
		done := s.run(p)
		said = append(said, fmt.Sprint(done.Rules[0].Erased, done.More))
		more = done.More
	}
	if got := strings.Join(said, ", "); got != "3 true, 3 true, 1 false" {
		t.Error(got)
	}
	if in := archived(t, p.Archive); len(in) != n {
		t.Errorf("%d traces are archived", len(in))
	}
}

// TestClassIsOfTheTraceItself: the record of a key is that of its newest call. An earlier trace with the key
// is judged by its own outcome.
func TestClassIsOfTheTraceItself(t *testing.T) {
	s := newStand(t)
	refused := s.add(chaintest.Options{Seed: 1, Key: "order-1", Verdict: tga.Deny})
	failed := s.add(chaintest.Options{Seed: 2, Key: "order-2", Status: tga.StatusError, Calls: tga.Meta{tga.MetaAttempt: tga.AttemptNone}})
	done := s.add(chaintest.Options{Seed: 3, Key: "order-1"})
	again := s.add(chaintest.Options{Seed: 4, Key: "order-2"})
	s.later(day)
	s.run(&retention.Policy{Rules: []retention.Rule{
		{Classes: []ledger.Class{ledger.ClassCommitted}, EraseAfter: time.Hour, Drop: true},
	}})
	for id, gone := range map[tga.ID]bool{refused: false, failed: false, done: true, again: true} {
		if s.erased(id) != gone {
			t.Errorf("trace %s is erased: %v, want %v", id, !gone, gone)
		}
	}
	s.run(&retention.Policy{Rules: []retention.Rule{
		{Classes: []ledger.Class{ledger.ClassPermanent}, EraseAfter: time.Hour, Drop: true},
	}})
	if !s.erased(failed) || s.erased(refused) {
		t.Errorf("the call that was never sent is erased: %v, the refused one: %v", s.erased(failed), s.erased(refused))
	}
}

// TestTraceOverTheLimitsIsLeft: a trace that cannot be exported, here because its arguments are nested too
// deeply, is left. The other traces of the rule are archived and erased.
func TestTraceOverTheLimitsIsLeft(t *testing.T) {
	s := newStand(t)
	small := s.add(chaintest.Options{Seed: 1})
	levels := ndjson.MaxDepth
	deep := s.add(chaintest.Options{Seed: 2, Args: `{"a":` + strings.Repeat("[", levels) + strings.Repeat("]", levels) + `}`})
	other := s.add(chaintest.Options{Seed: 3})
	s.later(day)
	dir := t.TempDir()
	done := s.run(&retention.Policy{Archive: dir, Rules: []retention.Rule{{EraseAfter: time.Hour}}})
	if done.Rules[0].Erased != 2 || s.erased(deep) || !s.erased(small) || !s.erased(other) {
		t.Errorf("%+v", done)
	}
	if in := archived(t, dir); len(in) != 2 || in[small] != 1 || in[other] != 1 {
		t.Errorf("%v", in)
	}
}

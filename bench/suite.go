package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"

	"github.com/tgad/tgad/bench/internal/load"
	"github.com/tgad/tgad/bench/internal/measure"
	"github.com/tgad/tgad/runtime/dispatch/httpcall"
)

// suite is one group of cases that are measured interleaved, and what they run on.
type suite struct {
	options
	dir      string
	only     *regexp.Regexp
	progress io.Writer

	subjects []*measure.Subject
	limits   []*measure.Subject
	facts    []string
	closers  []func() error
}

func (s *suite) closing(f func() error) { s.closers = append(s.closers, f) }

func (s *suite) close() error {
	var err error
	for i := len(s.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, s.closers[i]())
	}
	return err
}

func (s *suite) wanted(subject *measure.Subject) bool {
	return s.only.MatchString(fmt.Sprintf("%s/%d/%d", subject.Case, subject.Writers, subject.Bytes))
}

// any reports whether one of the cases is wanted. Only then is what they need prepared.
func (s *suite) any(cases ...string) bool {
	for _, name := range cases {
		if s.only.MatchString(name + "/1/1024") {
			return true
		}
	}
	return false
}

// add adds the subjects that are wanted. A limit is added only if a subject that is
// compared with it is.
func (s *suite) add(subjects ...*measure.Subject) {
	for _, subject := range subjects {
		if isLimit := subject.Case == measure.LimitCase || subject.Case == shaCase; isLimit {
			s.limits = append(s.limits, subject)
		} else if s.wanted(subject) {
			s.subjects = append(s.subjects, subject)
		}
	}
}

// run measures what was added, each limit before the others of its point.
func (s *suite) run() ([]measure.Line, error) {
	if len(s.subjects) == 0 {
		return nil, nil
	}
	var all []*measure.Subject
	taken := map[*measure.Subject]bool{}
	for _, subject := range s.subjects {
		if limit := measure.LimitOf(s.limits, subject); limit != nil && !taken[limit] {
			taken[limit] = true
			all = append(all, limit)
		}
		all = append(all, subject)
	}
	return measure.Run(all, s.rounds, s.slice, s.progress)
}

// anyOf reports whether a case is wanted at one of the points.
func (s *suite) anyOf(name string, points []point) bool {
	for _, p := range points {
		if s.only.MatchString(fmt.Sprintf("%s/%d/%d", name, p.writers, p.size)) {
			return true
		}
	}
	return false
}

// submitDepth is how many appends the single goroutine of the case submit keeps under way.
const submitDepth = 16

// point is a number of writers and a size at which writes are measured.
type point struct{ writers, size int }

func (s *suite) points() []point {
	if s.short {
		return []point{{1, 1 << 10}, {16, 1 << 10}, {64, 1 << 10}}
	}
	return []point{
		{1, 1 << 10}, {16, 1 << 10}, {64, 1 << 10}, {256, 1 << 10},
		{1, 256}, {64, 256}, {1, 16 << 10}, {64, 16 << 10}, {1, 256 << 10}, {64, 256 << 10},
	}
}

// writes adds the cases that sync. All cases of one size share a store, so that all of them
// meet the same compactions.
func (s *suite) writes() error {
	limit, err := measure.NewLimit(s.dir, 64<<20)
	if err != nil {
		return err
	}
	s.closing(limit.Close)
	tool, err := newToolServer()
	if err != nil {
		return err
	}
	s.closing(tool.srv.Close)
	var real recorded
	if s.only.MatchString("index_apply/1/1024") || s.anyOf("log_append", s.points()) {
		if real, err = record(filepath.Join(s.dir, "recorded"), 1<<10, 256); err != nil {
			return err
		}
		if err := s.indexApply(real, 1<<10); err != nil {
			return err
		}
	}
	stores := map[int]*load.Store{}
	for _, p := range s.points() {
		db := stores[p.size]
		if db == nil {
			if db, err = load.OpenStore(filepath.Join(s.dir, fmt.Sprint("store-", p.size)), p.size); err != nil {
				return err
			}
			stores[p.size] = db
			s.closing(func() error { return db.DB.Close() })
		}
		s.add(limit.Subject(p.writers, p.size), db.Append(p.writers))
		if p.size == 1<<10 {
			if err := s.layers(real, p.writers, p.size); err != nil {
				return err
			}
		}
		if p.size != 1<<10 && (p.size != 16<<10 || p.writers != 1) {
			continue
		}
		s.pair(db, p.writers)
		if p.writers == 1 {
			s.add(db.Submit(submitDepth))
		}
		if err := s.calls(db, tool, p.writers); err != nil {
			return err
		}
		if p.size == 1<<10 && (p.writers == 1 || p.writers == 16) {
			if err := s.turns(db, p.writers); err != nil {
				return err
			}
		}
	}
	if err := s.appendSigned(); err != nil {
		return err
	}
	if err := s.farCalls(stores[1<<10]); err != nil {
		return err
	}
	if s.any("seen") {
		facts, err := s.seen(s.rounds, 2000)
		if err != nil {
			return err
		}
		s.facts = append(s.facts, facts...)
	}
	return s.socket(tool)
}

// pair adds fused and effect, of which the second works on what the first leaves.
func (s *suite) pair(db *load.Store, writers int) {
	fused, effect := db.Fused(writers)
	if s.wanted(fused) || s.wanted(effect) {
		s.subjects = append(s.subjects, fused, effect)
	}
}

func (s *suite) calls(db *load.Store, tool *toolServer, writers int) error {
	call, err := db.Call("call", writers, load.Noop)
	if err != nil {
		return err
	}
	s.add(call)
	http, err := httpcall.New(tool.url, httpcall.Options{})
	if err != nil {
		return err
	}
	overHTTP, err := db.Call("call_http", writers, http)
	if err != nil {
		return err
	}
	s.add(overHTTP)
	return nil
}

// turns adds whole turns of an agent: turns without calls, which cost the journal and the
// governed question, and turns with two calls.
func (s *suite) turns(db *load.Store, writers int) error {
	for _, calls := range []int{0, 2} {
		subject, err := db.Turn(writers, calls)
		if err != nil {
			return err
		}
		s.add(subject)
	}
	return nil
}

// socket adds the cases that go through the daemon.
func (s *suite) socket(tool *toolServer) error {
	if !s.any("call_socket", "call_socket_batch", "socket_added") {
		return nil
	}
	d, err := serve(filepath.Join(s.dir, "daemon"), tool.url, 1<<10, "", nil)
	if err != nil {
		return err
	}
	s.closing(d.close)
	if s.any("socket_added") {
		facts, err := d.added(s.rounds, 100)
		if err != nil {
			return err
		}
		s.facts = append(s.facts, facts...)
	}
	s.add(d.call(1), d.batch(1), d.call(64))
	if !s.short {
		s.add(d.batch(16))
	}
	return nil
}

// mostBackedUp is the largest number of traces of a store that is copied in every round:
// a copy is checked whole.
const mostBackedUp = 10_000

// mostCopied is the largest number of traces of a store that is copied once, to measure its
// size on disk. The copy takes as much again, and is checked trace by trace.
const mostCopied = 1_000_000

// reads adds the cases about traces that are already stored.
func (s *suite) reads() error {
	limit, err := measure.NewLimit(s.dir, 16<<20)
	if err != nil {
		return err
	}
	s.closing(limit.Close)
	s.add(limit.Subject(1, 1<<10))
	sizes := []int{1 << 10, 16 << 10}
	if !s.short {
		sizes = []int{256, 1 << 10, 16 << 10, 256 << 10}
	}
	for _, size := range sizes {
		c, err := newChains(16, size)
		if err != nil {
			return err
		}
		s.add(c.sha256(), c.verify())
	}
	if err := s.whole(min(s.options.history, 25_000)); err != nil {
		return err
	}
	if err := s.evidence(min(s.options.history, mostProved)); err != nil {
		return err
	}
	if err := s.hostileTail(); err != nil {
		return err
	}
	if !s.any("ledger_hit_hot", "ledger_hit_cold", "ledger_miss", "replay", "recover", "open", "backup") {
		return nil
	}
	for n := max(s.options.history/100, 1000); n < s.options.history; n *= 10 {
		h, err := s.history(n)
		if err != nil {
			return err
		}
		s.add(h.open())
		if 10*n > mostBackedUp {
			s.add(h.backup(filepath.Join(s.dir, "copy-of-less")))
		}
	}
	h, err := s.history(s.options.history)
	if err != nil {
		return err
	}
	return s.readsOf(h)
}

// history makes a store with n finished traces.
func (s *suite) history(n int) (*history, error) {
	fmt.Fprintf(s.progress, "fill a store with %d finished and %d open traces\n", n, s.openTraces)
	h, err := newHistory(filepath.Join(s.dir, fmt.Sprint("history-", n)), 1<<10, n, s.openTraces)
	if err != nil {
		return nil, err
	}
	s.closing(func() error { return h.DB.Close() })
	return h, nil
}

func (s *suite) readsOf(h *history) error {
	copies := filepath.Join(s.dir, "copy")
	if h.traces <= mostCopied {
		perEntry, err := h.space(copies)
		if err != nil {
			return err
		}
		s.facts = append(s.facts, fmt.Sprintf("space     %.0f bytes on disk per entry of 1 KiB, with index, ledger and order (%d traces)", perEntry, h.traces))
	}
	replay, err := h.replay()
	if err != nil {
		return err
	}
	recovers, err := h.recovers()
	if err != nil {
		return err
	}
	s.add(h.lookup(true), h.lookup(false), h.miss(), replay, recovers, h.open())
	if h.traces <= mostBackedUp {
		s.add(h.backup(copies))
	}
	return nil
}

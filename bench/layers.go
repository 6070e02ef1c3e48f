package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/bench/internal/load"
	"github.com/tgad/tgad/bench/internal/measure"
	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// op is an operation of a log, copied out, with its body.
type op struct {
	wal.Op
	body []byte
}

// recorded are the operations of real appends as the engine has written them into its log,
// one slice for each append.
type recorded [][]op

// record makes so many appends in a new store, and reads their operations back from its log.
func record(dir string, size, appends int) (out recorded, err error) {
	s, err := load.OpenStore(dir, size)
	if err != nil {
		return nil, err
	}
	append1 := s.Append(1).Op
	for range appends {
		if _, err := append1(0); err != nil {
			return nil, errors.Join(err, s.DB.Close())
		}
	}
	if err := s.DB.Close(); err != nil {
		return nil, err
	}
	log, err := wal.Open(wal.Options{FS: vfs.Default, Dir: filepath.Join(dir, "log"), Random: random})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	var one []op
	_, err = log.Scan(wal.Position{}, func(r *wal.Record) error {
		return r.Ops(func(o *wal.Op) error {
			c := op{Op: *o}
			c.Key, c.Value = append([]byte(nil), o.Key...), append([]byte(nil), o.Value...)
			if o.Place == wal.Inline {
				body, err := log.Read(o.Ref, c.Key)
				if err != nil {
					return err
				}
				c.body = append([]byte(nil), body...)
			}
			one = append(one, c)
			if o.Kind != wal.Order { // the last one of an append
				return nil
			}
			if len(one) > 1 && one[0].body != nil {
				out = append(out, one)
			}
			one = nil
			return nil
		})
	})
	if err == nil && len(out) < appends/2 {
		err = fmt.Errorf("the log of %d appends has %d", appends, len(out))
	}
	return out, err
}

func random(b []byte) error {
	_, err := rand.Read(b)
	return err
}

// fill puts the operations of an append into o.
func fill(o *wal.Ops, ops []op) {
	for i := range ops {
		switch x := &ops[i]; {
		case x.Kind == wal.Order:
			o.Order(x.Value)
		case x.Kind == wal.Delete:
			o.Delete(x.Key)
		case x.Kind == wal.Insert:
			o.Insert(x.Key, x.Value)
		case x.Place == wal.Inline:
			o.PutBody(x.Key, x.Value, x.body)
		default:
			o.Put(x.Key, x.Value)
		}
	}
}

// bareLog is the log with a group commit like that of the engine's committer, and nothing
// else.
type bareLog struct {
	log  *wal.Log
	mu   sync.Mutex
	work sync.Cond
	next *bareGroup
	shut bool
	done chan struct{}
}

type bareGroup struct {
	ops  []*wal.Ops
	err  error
	done chan struct{}
}

// bareGroupMost bounds a group as the engine does, in bytes.
const bareGroupMost = 2 << 20

func newBareLog(dir string) (*bareLog, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	log, err := wal.Create(wal.Options{FS: vfs.Default, Dir: dir, Random: random, FirstSize: 64 << 20}, tga.ID{1}, tga.ID{2})
	if err != nil {
		return nil, err
	}
	l := &bareLog{log: log, next: newBareGroup(), done: make(chan struct{})}
	l.work.L = &l.mu
	go l.run()
	return l, nil
}

func newBareGroup() *bareGroup { return &bareGroup{done: make(chan struct{})} }

func (l *bareLog) append(o *wal.Ops) error {
	l.mu.Lock()
	g := l.next
	g.ops = append(g.ops, o)
	l.mu.Unlock()
	l.work.Signal()
	<-g.done
	return g.err
}

func (l *bareLog) run() {
	defer close(l.done)
	var record wal.Group
	for {
		l.mu.Lock()
		for len(l.next.ops) == 0 && !l.shut {
			l.work.Wait()
		}
		g := l.next
		l.next = newBareGroup()
		l.mu.Unlock()
		if len(g.ops) == 0 {
			return
		}
		record.Reset()
		for _, o := range g.ops {
			if g.err == nil && !record.Add(o, bareGroupMost) {
				_, g.err = l.log.Append(&record)
				record.Reset()
				record.Add(o, bareGroupMost)
			}
		}
		if g.err == nil {
			_, g.err = l.log.Append(&record)
		}
		close(g.done)
	}
}

func (l *bareLog) close() error {
	l.mu.Lock()
	l.shut = true
	l.mu.Unlock()
	l.work.Signal()
	<-l.done
	return l.log.Close()
}

// subject is the case log_append: it makes the operations of real appends durable. Their
// frames are encoded beforehand.
func (l *bareLog) subject(r recorded, writers, size int) *measure.Subject {
	ops, at := make([]wal.Ops, writers), make([]int, writers)
	return &measure.Subject{Case: "log_append", Writers: writers, Bytes: size, Note: "the log alone",
		Syncs: func() uint64 { return uint64(l.log.Syncs()) },
		Op: func(w int) (time.Duration, error) {
			start := time.Now()
			ops[w].Reset()
			fill(&ops[w], r[(w*7+at[w])%len(r)])
			at[w]++
			err := l.append(&ops[w])
			return time.Since(start), err
		}}
}

// applied is how many appends the group of index_apply has.
const applied = 64

// indexApply measures how long the rows of a group of appends take to go into Pebble, with
// the settings of the engine's index, without Pebble's own log and without a sync.
func (s *suite) indexApply(r recorded, size int) error {
	o := &pebble.Options{
		DisableWAL: true, FormatMajorVersion: pebble.FormatValueSeparation,
		MemTableSize: 16 << 20, MemTableStopWritesThreshold: 4,
		L0CompactionThreshold: 8, L0StopWritesThreshold: 32, LBaseMaxBytes: 256 << 20, CacheSize: 64 << 20,
		Logger: silent{},
	}
	for i := range o.Levels {
		o.Levels[i].BlockSize, o.Levels[i].FilterPolicy = 16<<10, bloom.FilterPolicy(10)
	}
	db, err := pebble.Open(filepath.Join(s.dir, "index"), o)
	if err != nil {
		return err
	}
	s.closing(db.Close)
	b, n := db.NewBatch(), uint64(0)
	s.closing(b.Close)
	var key [64]byte
	s.add(&measure.Subject{Case: "index_apply", Writers: 1, Bytes: size, Each: applied, Against: nothing, Note: fmt.Sprintf("the rows of %d appends", applied),
		Op: func(int) (time.Duration, error) {
			start := time.Now()
			for range applied {
				n++
				for _, x := range r[n%uint64(len(r))] {
					if x.Kind == wal.Order {
						continue
					}
					k := key[:copy(key[:], x.Key)]
					// Another trace each time round, and its four entries beside each other.
					binary.BigEndian.PutUint64(k[9:], binary.BigEndian.Uint64(k[9:])^(n/uint64(len(r))*0x9E3779B97F4A7C15))
					if err := rowOf(b, k, &x); err != nil {
						return 0, err
					}
				}
			}
			if err := b.Set([]byte("mposition"), key[:61], nil); err != nil {
				return 0, err
			}
			err := b.Commit(pebble.NoSync)
			b.Reset()
			return time.Since(start), err
		}})
	return nil
}

// rowOf puts a row of the length that the engine's has.
func rowOf(b *pebble.Batch, key []byte, x *op) error {
	var row [21]byte
	switch {
	case x.Kind == wal.Delete:
		return b.Delete(key, nil)
	case x.Place == wal.Inline:
		row[0] = 2
		binary.BigEndian.PutUint32(row[13:], x.Ref.Length)
		binary.BigEndian.PutUint32(row[17:], x.Ref.Sum)
		return b.Set(key, row[:], nil)
	}
	return b.Set(key, append([]byte{1}, x.Value...), nil)
}

type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// layers adds the cases of the log and of the index by themselves.
func (s *suite) layers(r recorded, writers, size int) error {
	if !s.only.MatchString(fmt.Sprintf("log_append/%d/%d", writers, size)) {
		return nil
	}
	l, err := newBareLog(filepath.Join(s.dir, fmt.Sprintf("log-%d-%d", size, writers)))
	if err != nil {
		return err
	}
	s.closing(l.close)
	s.add(l.subject(r, writers, size))
	return nil
}

// whole adds the cases about the files of a store as a whole, of so many finished traces.
func (s *suite) whole(traces int) error {
	const size = 1 << 10
	entries := 4 * traces
	if s.only.MatchString(fmt.Sprintf("rebuild/1/%d", size)) {
		dir := filepath.Join(s.dir, "rebuild")
		db, err := load.OpenStore(dir, size)
		if err == nil {
			err = errors.Join(db.Fill(traces, true), db.DB.Close())
		}
		if err != nil {
			return err
		}
		s.add(once("rebuild", size, entries, func() (time.Duration, string, error) {
			start := time.Now()
			_, err := engine.RebuildIndex(context.Background(), dir, engine.Options{}, nil)
			return time.Since(start), fmt.Sprintf("index of %d entries; CPU per entry", entries), err
		}))
	}
	if s.only.MatchString(fmt.Sprintf("seal/1/%d", size)) {
		s.add(s.seal(size, traces))
	}
	if s.only.MatchString(fmt.Sprintf("open_after_kill/1/%d", size)) {
		return s.openAfterKill(size, traces)
	}
	return nil
}

// nothing is the limit of a case that does not sync for each of its operations.
const nothing = "nothing"

// once is a subject that does its work once in each slice. The work counts as each
// operations.
func once(name string, size, each int, do func() (time.Duration, string, error)) *measure.Subject {
	s := &measure.Subject{Case: name, Writers: 1, Bytes: size, Each: each, Against: nothing}
	var did bool
	s.Before = func() error { did = false; return nil }
	s.Op = func(int) (time.Duration, error) {
		if did {
			return 0, measure.ErrDrained
		}
		did = true
		took, note, err := do()
		s.Note = note
		return took, err
	}
	return s
}

// seal measures archiving: finished traces go to archives, and segments of the log are
// rewritten without them. Each slice uses a new store with small segments, so that nearly
// all of them are full.
func (s *suite) seal(size, traces int) *measure.Subject {
	var db *engine.DB
	var dir string
	n := 0
	subject := once("seal", size, 4*traces, func() (time.Duration, string, error) {
		before, err := bytesUnder(dir)
		if err != nil {
			return 0, "", err
		}
		start := time.Now()
		done, err := db.SealTraces(context.Background(), tga.MillisOf(time.Now().Add(time.Hour)))
		took := time.Since(start)
		if err == nil && done.Traces != traces {
			err = fmt.Errorf("archived %d traces of %d", done.Traces, traces)
		}
		if err != nil {
			return took, "", err
		}
		after, err := bytesUnder(dir)
		return took, fmt.Sprintf("%d entries, %.1f MB to %.1f: %.2f", 4*traces, float64(before)/1e6, float64(after)/1e6, float64(after)/float64(before)), err
	})
	ready := subject.Before
	subject.Before = func() error {
		if db != nil {
			if err := errors.Join(db.Close(), os.RemoveAll(dir)); err != nil {
				return err
			}
		}
		n++
		dir = filepath.Join(s.dir, fmt.Sprint("seal-", n))
		var err error
		if db, err = engine.Open(dir, engine.Options{FirstSegmentBytes: 1 << 20, SegmentBytes: 1 << 20, RewriteShare: -1}); err != nil {
			return err
		}
		return errors.Join((&load.Store{Dir: dir, DB: db, Size: size}).Fill(traces, true), ready())
	}
	s.closing(func() error {
		if db == nil {
			return nil
		}
		return db.Close()
	})
	return subject
}

// openAfterKill measures the open of a store that was not closed. The files that a kill
// leaves are imitated by a copy that is made while the store is open, after its last append.
func (s *suite) openAfterKill(size, traces int) error {
	src, dst := filepath.Join(s.dir, "running"), filepath.Join(s.dir, "killed")
	// Turn rewriting off: otherwise the copy could miss a file that was in the list of the
	// directory.
	open, err := engine.Open(src, engine.Options{RewriteShare: -1})
	if err != nil {
		return err
	}
	db := &load.Store{Dir: src, DB: open, Size: size}
	s.closing(db.DB.Close)
	if err := db.Fill(traces, true); err != nil {
		return err
	}
	subject := once("open_after_kill", size, 1, func() (time.Duration, string, error) {
		start := time.Now()
		db, err := engine.Open(dst, engine.Options{})
		took := time.Since(start)
		if err == nil && db.Stats().Frozen != "" {
			err = errors.New("a store that was killed opens frozen")
		}
		if err != nil {
			return took, "", err
		}
		return took, fmt.Sprintf("%d entries behind the index", 4*traces), db.Close()
	})
	ready := subject.Before
	subject.Before = func() error {
		if err := os.RemoveAll(dst); err != nil {
			return err
		}
		return errors.Join(os.CopyFS(dst, os.DirFS(src)), ready())
	}
	s.add(subject)
	return nil
}

func bytesUnder(dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	return sum, err
}

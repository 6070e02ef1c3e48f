package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tgad/tgad/bench/internal/load"
	"github.com/tgad/tgad/bench/internal/measure"
	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// history is a store with finished traces in it, opened with caches so small that a
// trace or a record is read from its tables.
type history struct {
	*load.Store
	traces int
	first  uint64 // number of the first of the makers that filled it
}

// few is how many traces and records a history is opened to keep in memory, and how many
// keys are hot.
const few = 16

// newHistory makes a store with finished traces and some that are open.
func newHistory(dir string, size, finished, open int) (*history, error) {
	s, err := load.OpenStore(dir, size)
	if err != nil {
		return nil, err
	}
	h := &history{Store: s, traces: finished}
	probe := s.Makers(1)[0].Next()
	if _, err := fmt.Sscanf(probe.Key, "order-%d-", &h.first); err != nil {
		return nil, err
	}
	h.first++
	if err := s.Fill(finished, true); err != nil {
		return nil, err
	}
	if err := s.Fill(open, false); err != nil {
		return nil, err
	}
	return h, h.reopen()
}

func (h *history) reopen() error {
	err := h.DB.Close()
	if err != nil {
		return err
	}
	h.DB, err = engine.Open(h.Dir, engine.Options{TraceCacheCount: few, CacheBytes: 4 << 20})
	return err
}

// key returns a ledger key that the history has settled: the n-th of some maker.
func (h *history) key() ledger.Key {
	const writers = 64
	maker := h.first + uint64(rand.IntN(writers))
	// A maker makes one trace to measure its artifacts before it makes those of the store.
	n := 2 + rand.IntN(max(h.traces/writers, 1))
	return ledger.Key{Namespace: tga.DefaultNamespace, Server: "payments", Tool: "charge", Key: fmt.Sprintf("order-%d-%d", maker, n)}
}

// lookup measures reads of settled records: hot among 16 of them, cold among all, with
// nothing of the store's tables in memory when a slice begins.
func (h *history) lookup(hot bool) *measure.Subject {
	name, before := "ledger_hit_cold", h.dropPages
	keys := make([]ledger.Key, few)
	if hot {
		name, before = "ledger_hit_hot", nil
		for i := range keys {
			keys[i] = h.key()
		}
	}
	s := h.Subject(name, 1, func(int) (time.Duration, error) {
		key := keys[rand.IntN(len(keys))]
		if !hot {
			key = h.key()
		}
		start := time.Now()
		record, err := h.DB.Record(context.Background(), key)
		took := time.Since(start)
		if err == nil && (record == nil || record.Status != ledger.Settled) {
			err = fmt.Errorf("key %q has no settled record", key.Key)
		}
		return took, err
	})
	s.Before, s.Note = before, fmt.Sprintf("%d records", h.traces)
	return s
}

// miss measures the question that every new call begins with: a key never used.
func (h *history) miss() *measure.Subject {
	n := 0
	s := h.Subject("ledger_miss", 1, func(int) (time.Duration, error) {
		n++
		key := ledger.Key{Namespace: tga.DefaultNamespace, Server: "payments", Tool: "charge", Key: fmt.Sprintf("never-%d", n)}
		start := time.Now()
		record, err := h.DB.Record(context.Background(), key)
		took := time.Since(start)
		if err == nil && record != nil {
			err = fmt.Errorf("key %q has a record", key.Key)
		}
		return took, err
	})
	s.Note = fmt.Sprintf("%d records", h.traces)
	return s
}

// dropPages has the kernel forget what it caches of the store's files.
func (h *history) dropPages() error {
	return filepath.WalkDir(h.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a compaction removed it meanwhile
		}
		if err != nil {
			return err
		}
		return errors.Join(unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
	})
}

// open measures Open and the classification of every open trace, without a tool.
func (h *history) open() *measure.Subject {
	size := int(h.DB.Stats().DiskBytes)
	return &measure.Subject{Case: "open", Writers: 1, Bytes: size, Note: fmt.Sprintf("%d finished", h.traces), Op: func(int) (time.Duration, error) {
		if err := h.DB.Close(); err != nil {
			return 0, err
		}
		start := time.Now()
		db, err := engine.Open(h.Dir, engine.Options{})
		if err != nil {
			return 0, err
		}
		rt, err := runtime.New(db, load.Noop, runtime.AllowAll, runtime.Options{})
		if err == nil {
			_, err = rt.Classify(context.Background())
		}
		took := time.Since(start)
		h.DB = db
		return took, errors.Join(err, h.reopen()) // with the small caches of the other cases
	}}
}

// recovers measures the recovery of one trace in doubt whose tool may be asked again:
// its replay, a durable mark of the attempt, the send, the effect.
func (h *history) recovers() (*measure.Subject, error) {
	var queue []tga.ID
	maker := h.Makers(1)[0]
	policy := runtime.Policy{Licence: ledger.Licence{Kind: ledger.DedupeArgs}, LicenceSet: true}
	s := h.Subject("recover", 1, func(int) (time.Duration, error) {
		if len(queue) == 0 {
			return 0, measure.ErrDrained
		}
		id := queue[0]
		queue = queue[1:]
		// A store is opened anew between slices of another case.
		rt, err := runtime.New(h.DB, load.Noop, runtime.AllowAll, runtime.Options{Policy: func(string, string) runtime.Policy { return policy }})
		if err != nil {
			return 0, err
		}
		start := time.Now()
		res, err := rt.Recover(context.Background(), id)
		if err == nil {
			err = res.Err()
		}
		return time.Since(start), err
	})
	s.Before = func() error {
		for len(queue) < 200 {
			t := maker.Next()
			lease, err := h.DB.Acquire(context.Background(), t.ID)
			if err != nil {
				return err
			}
			if _, err := h.Commit(lease, t.Begin); err != nil {
				return err
			}
			h.DB.Release(lease)
			queue = append(queue, t.ID)
		}
		return nil
	}
	s.Note = fmt.Sprintf("%d finished", h.traces)
	return s, nil
}

// replay measures the fold of a trace from what the tables have of it.
func (h *history) replay() (*measure.Subject, error) {
	ids, err := h.sample(1000)
	if err != nil {
		return nil, err
	}
	s := h.Subject("replay", 1, func(int) (time.Duration, error) {
		id := ids[rand.IntN(len(ids))]
		start := time.Now()
		_, err := h.DB.Load(context.Background(), id)
		return time.Since(start), err
	})
	s.Note = fmt.Sprintf("%d traces", h.traces)
	return s, nil
}

// sample returns the ids of n traces, from all over the history.
func (h *history) sample(n int) ([]tga.ID, error) {
	var ids []tga.ID
	last := h.DB.Cursor()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for range n {
		for leaf, err := range h.DB.Follow(ctx, uint64(rand.Int64N(int64(last)))) {
			if err != nil {
				return nil, err
			}
			ids = append(ids, leaf.TraceID)
			break
		}
	}
	return ids, nil
}

// backup measures a copy of the open store, which ends with a check of the copy.
func (h *history) backup(to string) *measure.Subject {
	s := h.Subject("backup", 1, func(int) (time.Duration, error) {
		start := time.Now()
		err := h.DB.Backup(context.Background(), to)
		took := time.Since(start)
		return took, errors.Join(err, os.RemoveAll(to))
	})
	s.Note = fmt.Sprintf("%d traces", h.traces)
	return s
}

// space returns the bytes per entry that a copy of the store takes, and the bytes that
// its entries were made of.
func (h *history) space(to string) (perEntry float64, err error) {
	if err := h.DB.Backup(context.Background(), to); err != nil {
		return 0, err
	}
	total := int64(0)
	err = filepath.WalkDir(to, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil && filepath.Ext(d.Name()) != ".log" {
			total += info.Size()
		}
		return err
	})
	return float64(total) / float64(4*h.traces), errors.Join(err, os.RemoveAll(to))
}

package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// The power goes at every write operation of a store's life, with none, a third, two
// thirds or all of the unsynced data kept. Each time the store opens, is not frozen,
// agrees with itself, has every step that was acknowledged, and has at most the one
// more that was under way, whole.
func TestCrashBetweenWrites(t *testing.T) {
	serial.Test(t)
	type crash struct {
		fs    *crashmem.FS
		acked int64
		op    string
		kept  int
	}
	var (
		mu      sync.Mutex
		crashes []crash
		acked   atomic.Int64
		ops     int
	)
	disk := crashmem.New()
	rng := rand.New(rand.NewPCG(9, 3))
	recording := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		ops++
		for _, kept := range []int{0, 30, 70, 100} {
			c := crash{acked: acked.Load(), op: fmt.Sprintf("op %d, %d on %s", ops, op.Kind, op.Path), kept: kept}
			c.fs = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rng})
			crashes = append(crashes, c)
		}
		return nil
	}))

	s := spec{trace: id(1), attempt: "apart", documents: []chain.Document{{Pointer: tga.PointerResult, Data: make([]byte, 100<<10)}}}
	m := s.make(t)
	// The life: each step is one acknowledged commit and what the trace is after it.
	type after struct{ seq, notes uint64 }
	states := []after{{0, 0}}
	db, err := engine.Open("store", options(recording))
	if err != nil {
		t.Fatal(err)
	}
	lease := acquire(t, db, s.trace)
	step := func(b chain.Batch, then after) {
		mu.Lock()
		states = append(states, then)
		mu.Unlock()
		append_(t, db, lease, b)
		acked.Add(1)
	}
	step(m.batch(m.request), after{1, 0})
	step(m.batch(m.decision, m.call), after{3, 0})
	step(chain.Batch{Notes: []chain.NewNote{{Kind: tga.NoteAttempt, Who: "tgad", Body: ledger.Mark{Attempt: 1, Epoch: uint64(lease.Epoch)}.Body()}}}, after{3, 1})
	if _, err := db.WriteCheckpoint(context.Background(), lease); err != nil {
		t.Fatal(err)
	}
	step(m.end(), after{4, 1})
	db.Release(lease)
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := db.SealTraces(context.Background(), start+1); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if db, err = engine.Open("store", options(recording)); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	t.Logf("%d write operations, %d crashes", ops, len(crashes))
	if ops < 50 {
		t.Errorf("only %d operations", ops)
	}
	partial := 0
	for _, c := range crashes {
		name := fmt.Sprintf("%s, %d%% of unsynced kept, %d acknowledged", c.op, c.kept, c.acked)
		db, err := engine.Open("store", options(c.fs))
		if err != nil {
			t.Fatalf("%s: open: %v", name, err)
		}
		if why := db.Stats().Frozen; why != "" {
			t.Fatalf("%s: frozen: %s", name, why)
		}
		rep, err := db.Check(context.Background())
		if err != nil || len(rep.Problems) > 0 {
			t.Fatalf("%s: check: %v %v", name, rep.Problems, err)
		}
		got := after{uint64(rep.Entries), uint64(rep.Notes)}
		want := states[c.acked]
		next := states[min(int(c.acked)+1, len(states)-1)]
		if got != want && got != next {
			t.Fatalf("%s: has %+v, acknowledged %+v, under way %+v", name, got, want, next)
		}
		if got != want {
			partial++
		}
		if err := db.Close(); err != nil {
			t.Fatalf("%s: close: %v", name, err)
		}
	}
	if partial == 0 {
		t.Error("no crash left a commit that was not acknowledged: the test crashes at the wrong moments")
	}
}

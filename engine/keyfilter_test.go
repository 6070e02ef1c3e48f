package engine_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// TestFilterForgetsNoKey sets keys in filters of every size and asks for them, and for other keys. No
// key that was set is denied. As few other keys as promised are taken for keys that may exist.
func TestFilterForgetsNoKey(t *testing.T) {
	serial.Test(t)
	key := func(n uint64) [32]byte { return tga.Sum(binary.BigEndian.AppendUint64(nil, n)) }
	for _, c := range []struct {
		expected, limit, keys uint64
		most                  float64 // of keys that are not there
	}{
		{1, 64 << 20, 40, 0.01},
		{1000, 64 << 20, 1000, 0.01},
		{100_000, 64 << 20, 100_000, 0.01},
		{100_000, 64 << 10, 100_000, 0.13}, // bounded at less than half
		{0, 1, 100, 1},
	} {
		f := engine.NewBloom(c.expected, c.limit)
		for n := range c.keys {
			k := key(n)
			f.Set(&k)
		}
		wrong := 0
		for n := range 2 * c.keys {
			k := key(n)
			has := f.Has(&k)
			if n < c.keys && !has {
				t.Fatalf("%+v: key %d is denied", c, n)
			}
			if n >= c.keys && has {
				wrong++
			}
		}
		if got := float64(wrong) / float64(c.keys); got > c.most {
			t.Errorf("%+v: %.4f of the other keys may be there", c, got)
		}
		if f.Bytes() > max(c.limit, 64) {
			t.Errorf("%+v: %d bytes", c, f.Bytes())
		}
	}
}

// TestFilterIsMadeBesideReservations makes the filter again and again while keys are reserved,
// and asks for each key at once and at the end: none was never used.
func TestFilterIsMadeBesideReservations(t *testing.T) {
	db := open(t, "store", options(vfs.NewMem()))
	stop := make(chan struct{})
	var made sync.WaitGroup
	made.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := engine.MakeFilter(db); err != nil {
				t.Error(err)
				return
			}
		}
	})
	const writers, each = 4, 150
	keyOf := func(n uint64) ledger.Key {
		return spec{trace: id(n), key: fmt.Sprint("key-", n)}.ledgerKey()
	}
	var wrote sync.WaitGroup
	for w := range uint64(writers) {
		wrote.Go(func() {
			for i := range uint64(each) {
				n := 1 + w*each + i
				run(t, db, spec{trace: id(n), key: fmt.Sprint("key-", n)})
				if engine.NeverUsed(db, keyOf(n)) {
					t.Errorf("key %d is denied right after its call", n)
				}
			}
		})
	}
	wrote.Wait()
	close(stop)
	made.Wait()
	for n := range uint64(writers * each) {
		if engine.NeverUsed(db, keyOf(n+1)) {
			t.Errorf("key %d is denied", n+1)
		}
	}
	if !engine.NeverUsed(db, keyOf(1_000_000)) {
		t.Error("the filter answers nothing")
	}
}

// TestIndexWithOtherKeysIsMadeAnew takes a ledger record out of the index, and one in, behind
// its back. The rows are all whole, and the position row is that of the log: only the number
// and the sum of the keys tell.
func TestIndexWithOtherKeysIsMadeAnew(t *testing.T) {
	for _, c := range []string{"gone", "exchanged"} {
		fs := vfs.NewMem()
		db := open(t, "store", options(fs))
		key := func(n uint64) ledger.Key { return spec{trace: id(n), key: fmt.Sprint("key-", n)}.ledgerKey() }
		for n := range uint64(5) {
			run(t, db, spec{trace: id(n + 1), key: fmt.Sprint("key-", n+1)})
		}
		engine.ExchangeLedgerRow(db, key(3), key(9), c == "exchanged")
		// The traces miss their record too. Of a record that has expired nobody does: it is the
		// count, and the sum of the keys, that finds that one gone.
		counted := func(p engine.Problem) bool { return strings.Contains(p.Err.Error(), "or wrong ones; want") }
		if rep, err := db.Check(t.Context()); err != nil || !slices.ContainsFunc(rep.Problems, counted) {
			t.Errorf("%s: verify finds %v, %v", c, rep.Problems, err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		db = open(t, "store", options(fs))
		rec, err := db.Record(context.Background(), key(3))
		if err != nil || rec == nil || rec.TraceID != id(3) {
			t.Errorf("%s: the record is %+v, %v", c, rec, err)
		}
		check(t, db)
	}
}

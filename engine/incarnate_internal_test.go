package engine

import (
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestEpochsGoOnInANewIncarnation: an open that grants more leases than the counter of its incarnation has goes on in the next one.
// Epochs grow, and what was held stays current. Nobody counts as gone who is in this process. After a crash and after a close the
// witness knows the store, and every epoch is of an earlier open.
func TestEpochsGoOnInANewIncarnation(t *testing.T) {
	fs := vfs.NewCrashableMem()
	if err := fs.MkdirAll("w", 0o700); err != nil {
		t.Fatal(err)
	}
	o := Options{FS: fs, WitnessFile: "w/witness"}
	db, err := Open("store", o)
	if err != nil {
		t.Fatal(err)
	}
	db.leases.counter = lastEpochs - 10
	begun := db.leases.newest().Incarnation()
	var held []chain.Lease
	acquire := func(n int) {
		t.Helper()
		lease, err := db.Acquire(t.Context(), chaintest.ID(1, uint64(n)))
		if err != nil {
			t.Fatal(err)
		}
		if len(held) > 0 && lease.Epoch <= held[len(held)-1].Epoch {
			t.Errorf("epoch %#x follows %#x", lease.Epoch, held[len(held)-1].Epoch)
		}
		held = append(held, lease)
	}
	for n := range 12 {
		acquire(n)
	}
	if now := db.leases.newest().Incarnation(); now != begun+1 {
		t.Errorf("incarnation %d after %d", now, begun)
	}
	for _, lease := range held {
		if !db.Current(lease) || db.Departed(lease.Epoch) {
			t.Errorf("lease %#x: current %v, departed %v", lease.Epoch, db.Current(lease), db.Departed(lease.Epoch))
		}
	}
	if _, err := db.Append(t.Context(), held[0], chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: requestOf(t, held[0].TraceID)}}}); err != nil {
		t.Errorf("under an epoch of before: %v", err)
	}
	// Many at once begin one incarnation.
	db.leases.counter = lastEpochs - 1
	var wait sync.WaitGroup
	for n := range 50 {
		wait.Go(func() {
			if _, err := db.Acquire(t.Context(), chaintest.ID(2, uint64(n))); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if now := db.leases.newest().Incarnation(); now != begun+2 {
		t.Errorf("incarnation %d after %d", now, begun)
	}
	last := db.leases.newest()
	again := func(fs vfs.FS, what string) {
		t.Helper()
		next, err := Open("store", Options{FS: fs, WitnessFile: "w/witness"})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		lease, err := next.Acquire(t.Context(), chaintest.ID(1, 1))
		if err != nil || lease.Epoch <= last || !next.Departed(last) || !next.Departed(held[0].Epoch) {
			t.Errorf("%s: epoch %#x after %#x, departed %v, %v: %v", what, lease.Epoch, last, next.Departed(last), next.Departed(held[0].Epoch), err)
		}
		if err := next.Close(); err != nil {
			t.Error(err)
		}
	}
	crashed := fs.CrashClone(vfs.CrashCloneCfg{})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	again(crashed, "crash")
	again(fs, "close")
}

// TestIncarnationThatIsNotWritten: without its witness no further incarnation is begun, and no lease of it is granted.
func TestIncarnationThatIsNotWritten(t *testing.T) {
	fs := vfs.NewMem()
	if err := fs.MkdirAll("w", 0o700); err != nil {
		t.Fatal(err)
	}
	db, err := Open("store", Options{FS: fs, WitnessFile: "w/witness"})
	if err != nil {
		t.Fatal(err)
	}
	db.leases.counter = lastEpochs - 1
	if err := fs.Rename("w", "away"); err != nil {
		t.Fatal(err)
	}
	id := chaintest.ID(1, 1)
	if _, err := db.Acquire(t.Context(), id); tga.CodeOf(err) != tga.StoreUnavailable || db.leases.holds(id) {
		t.Errorf("without the witness: %v, held %v", err, db.leases.holds(id))
	}
	if err := fs.Rename("away", "w"); err != nil {
		t.Fatal(err)
	}
	lease, err := db.Acquire(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Acquire(t.Context(), chaintest.ID(1, 2)); err != nil || uint32(db.leases.newest()) != 1 {
		t.Errorf("the witness is back: epochs %#x and %#x, %v", lease.Epoch, db.leases.newest(), err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

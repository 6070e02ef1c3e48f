package engine

import (
	"errors"
	"testing"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
)

// TestErrorOfAScanIsItsOwn: what the function says that is given the rows is what the scan says,
// and it is given no further row.
func TestErrorOfAScanIsItsOwn(t *testing.T) {
	db, stop := inMemory(t), errors.New("stop")
	var rows int
	err := db.index.scanRows([]byte{0}, nil, func(key, row []byte) error {
		rows++
		return stop
	})
	if !errors.Is(err, stop) || rows != 1 {
		t.Errorf("%v after %d rows", err, rows)
	}
}

// TestTraceThatIsNotThereIsNotKept: the cache of traces keeps what is on disk, and nothing for an id
// that was never used.
func TestTraceThatIsNotThereIsNotKept(t *testing.T) {
	db, id := inMemory(t), tga.ID{1, 6: 0x70, 8: 0x80}
	if f, err := db.traces.fold(id); err != nil || f.Head.Seq != 0 {
		t.Fatalf("%+v, %v", f.Head, err)
	}
	if n, _ := db.cache.used(); n != 0 {
		t.Errorf("%d traces are kept", n)
	}
}

// TestDamagedEntryIsNotAMissingOne: an entry that cannot be decoded is said to be damaged, by its own
// cause; only one that no row has is said not to be there.
func TestDamagedEntryIsNotAMissingOne(t *testing.T) {
	db, id := inMemory(t), tga.ID{1, 6: 0x70, 8: 0x80}
	db.PutRow(keyspace.AppendEntry(nil, id, 1), []byte{rowValue, 1, 2, 3})
	_, err := db.index.entryAt(id, 1)
	wantDamage(t, err, id)
	_, direct := db.index.replay(id)
	if err.Error() != direct.Error() {
		t.Errorf("%v\nand the check of the trace: %v", err, direct)
	}
	if _, missing := db.index.entryAt(tga.ID{2, 6: 0x70, 8: 0x80}, 1); tga.CodeOf(missing) != tga.StateRecoveryFailed || missing.Error() == err.Error() {
		t.Errorf("of one that is not there: %v", missing)
	}
}

func wantDamage(t *testing.T, err error, id tga.ID) {
	t.Helper()
	var e *tga.Error
	if !errors.As(err, &e) || e.Code != tga.StateRecoveryFailed || e.TraceID != id {
		t.Fatalf("%v", err)
	}
}

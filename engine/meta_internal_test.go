package engine

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
)

// TestIncarnationsEnd: the epoch of a lease has 32 bits for the number of the open that gave it. After
// the last one no open may begin again at zero: an old lease would be the newer.
func TestIncarnationsEnd(t *testing.T) {
	const last = 1<<32 - 1
	fs := vfs.NewMem()
	db, err := Open("store", Options{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	w := db.commits.newWriter()
	w.set(keyspace.AppendMeta(nil, metaIncarnation), binary.BigEndian.AppendUint64(nil, last-1))
	if err := errors.Join(db.commits.apply(w), db.Close()); err != nil {
		t.Fatal(err)
	}
	if db, err = Open("store", Options{FS: fs}); err != nil {
		t.Fatalf("the last incarnation: %v", err)
	}
	lease, err := db.Acquire(t.Context(), numbered(1, 1))
	if err != nil || uint64(lease.Epoch)>>32 != last {
		t.Errorf("epoch %#x, %v", lease.Epoch, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if db, err = Open("store", Options{FS: fs}); tga.CodeOf(err) != tga.StoreUnavailable || !strings.Contains(err.Error(), "no incarnation is left") {
		t.Errorf("one more: %v", err)
	}
	if err == nil {
		_ = db.Close()
	}
	if db, err = OpenReadOnly("store", Options{FS: fs}); err != nil {
		t.Fatalf("to be read: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// TestStoreThatIsBeingMadeIsRead: where its identity is there, nothing is missing from it but that a file is
// removed. Where it is not, there is no store yet; without the mark of a beginning it is no store of ours.
func TestStoreThatIsBeingMadeIsRead(t *testing.T) {
	fs := vfs.NewMem()
	db, err := Open("store", Options{FS: fs, RewriteShare: -1})
	if err == nil {
		err = errors.Join(db.Close(), writeBeginning(fs, "store"))
	}
	if err != nil {
		t.Fatal(err)
	}
	if db, err = OpenReadOnly("store", Options{FS: fs}); err != nil {
		t.Fatalf("it is not read: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	db = inMemory(t)
	db.PutRow(keyspace.AppendMeta(nil, metaFormat), nil)
	o := &opening{standing: db.standing, opened: *db.opened}
	o.readOnly = true
	for beginning, want := range map[bool]tga.Code{true: tga.NotFound, false: tga.StateChecksumMismatch} {
		if err := o.identify(found{beginning: beginning}, false); tga.CodeOf(err) != want {
			t.Errorf("without an identity, beginning %v: %v", beginning, err)
		}
	}
}

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

// TestFrozenStoreSaysTheGravestReason: a frozen store that is opened to be read says why it is frozen,
// not that it is only read. That the log was found short matters more than what was noted before.
func TestFrozenStoreSaysTheGravestReason(t *testing.T) {
	for _, c := range []struct {
		name  string
		doubt *tga.Error
		noted string
		want  string
	}{
		{"read only", nil, "", "opened read-only"},
		{"frozen", nil, "seen outside", "seen outside"},
		{"short", damaged("3 appends are missing"), "", "3 appends are missing"},
		{"short and frozen", damaged("3 appends are missing"), "seen outside", "3 appends are missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := inMemory(t)
			if c.noted != "" {
				if err := db.Freeze(c.noted); err != nil {
					t.Fatal(err)
				}
			}
			db.health.frozen.Store(nil) // as a process that opens it finds it
			o := &opening{standing: db.standing, opened: *db.opened}
			o.readOnly = true
			if err := o.readIdentity(found{doubt: c.doubt}); err != nil {
				t.Fatal(err)
			}
			if f := o.health.frozen.Load(); f == nil || !strings.Contains(f.Error(), c.want) {
				t.Errorf("frozen: %v, want %q", f, c.want)
			}
		})
	}
}

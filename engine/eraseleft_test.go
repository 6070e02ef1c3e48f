package engine_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// lacking is a ring that has lost a key.
type lacking struct {
	*chaintest.Ring
	lost chain.KeyID
}

func (r *lacking) Open(dst []byte, key chain.KeyID, sealed, aad []byte) ([]byte, error) {
	if key == r.lost {
		return nil, tga.Errorf(tga.StoreUnavailable, "key %d is damaged", key)
	}
	return r.Ring.Open(dst, key, sealed, aad)
}

func (r *lacking) Shared(key chain.KeyID) (bool, error) {
	if key == r.lost {
		return false, tga.Errorf(tga.StoreUnavailable, "key %d is damaged", key)
	}
	return r.Ring.Shared(key)
}

// TestTraceThatCannotBeReadIsLeft: of a subject all that can be read is erased. What cannot be, because it
// is damaged or its key cannot be had, is told by its id with its code, and erased once it can be read.
func TestTraceThatCannotBeReadIsLeft(t *testing.T) {
	for _, bySubject := range []bool{true, false} {
		for _, open_ := range []bool{true, false} {
			for _, damage := range []string{"damaged", "without its key", "with a damaged key beside it"} {
				t.Run(fmt.Sprintf("by subject %v, open %v, %s", bySubject, open_, damage), func(t *testing.T) {
					ring := &lacking{Ring: &chaintest.Ring{BySubject: bySubject}}
					fs := vfs.NewMem()
					o := options(fs)
					o.Keyring = ring
					db, err := engine.Open("store", o)
					if err != nil {
						t.Fatal(err)
					}
					defer db.Close()
					of := func(n uint64, subject string) spec {
						s := secretive(n, 10)
						s.subject = subject
						return s
					}
					run(t, db, of(1, "alice"), of(2, "alice"), of(3, "bob"))
					bad := of(4, "alice")
					lease := acquire(t, db, bad.trace)
					append_(t, db, lease, bad.make(t).begin())
					if !open_ {
						append_(t, db, lease, bad.make(t).end())
					}
					db.Release(lease)
					tr, err := db.Load(t.Context(), bad.trace)
					if err != nil {
						t.Fatal(err)
					}
					repair := func() { ring.lost = 0; db.DropCaches() }
					want := tga.StoreUnavailable
					switch damage {
					case "damaged":
						db.Put(entryKey(bad.trace, 2), []byte("damage"))
						repair, want = nil, tga.StateRecoveryFailed
					case "without its key":
						if bySubject {
							return // the subject's other traces have that key too
						}
						ring.lost = tr.Key
						db.DropCaches()
					default:
						if open_ {
							return // an open trace refuses the erasure
						}
						// Its evidence has a key of its own.
						found := evidence(t, bad.trace, secret)
						lay(t, db, bad.trace, found)
						at := append([]byte{byte(chain.AttachBlob)}, found.Attachments[0].Key...)
						stored := []byte(db.Dump()[string(at)])
						stored[15] = 99
						db.Put(at, stored)
						ring.lost = 99
					}
					done := erase(t, db, engine.Erasure{Subject: "alice"})
					if done.Traces != 2 || done.Left != 1 || len(done.Unread) != 1 || done.Unread[0].TraceID != bad.trace || tga.CodeOf(done.Unread[0].Err) != want {
						t.Errorf("erased %+v", done)
					}
					// The key of the subject stays where an open call may need it, and where it says whose what is left is.
					if stays := bySubject && (open_ || damage == "with a damaged key beside it"); ring.Destroyed[tr.Key] != (bySubject && !stays) || (done.Shared == 2) != stays {
						t.Errorf("erased %+v, destroyed %v", done, ring.Destroyed)
					}
					for _, n := range []uint64{1, 2} {
						wantErased(t, db, of(n, "alice"))
					}
					if tr, err := db.Load(t.Context(), id(3)); err != nil || tr.Effect == nil {
						t.Errorf("another's trace: %+v, %v", tr, err)
					}
					_, err = db.Erase(t.Context(), engine.Erasure{Traces: []tga.ID{bad.trace}, Who: "w", Reason: "r"})
					wantCode(t, err, want)
					if repair == nil {
						return
					}
					if done := erase(t, db, engine.Erasure{Subject: "alice"}); done.Traces != 0 || done.Left != 1 {
						t.Errorf("again: %+v", done)
					}
					repair()
					if open_ {
						lease := acquire(t, db, bad.trace)
						append_(t, db, lease, bad.make(t).end())
						db.Release(lease)
					}
					done = erase(t, db, engine.Erasure{Subject: "alice"})
					if done.Traces != 1 || done.Left != 0 || !ring.Destroyed[tr.Key] {
						t.Errorf("once it is repaired: %+v, destroyed %v", done, ring.Destroyed)
					}
					wantErased(t, db, bad)
					check(t, db)
				})
			}
		}
	}
}

// TestErasureBesideADamagedSegment: what may stand in a segment of the log that cannot be written anew is
// told. All else is erased, the store opens, and another erasure goes on.
func TestErasureBesideADamagedSegment(t *testing.T) {
	fs := vfs.NewMem()
	db := open(t, "store", readable(fs))
	run(t, db, secretive(1, 10), secretive(2, 10))
	if err := db.NextSegment(); err != nil {
		t.Fatal(err)
	}
	run(t, db, secretive(3, 10))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := fs.List("store/log")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	first := fs.PathJoin("store/log", names[0])
	whole := content(t, fs, first)
	bad := bytes.Clone(whole)
	at := bytes.LastIndex(bad, []byte(secret)) // in the answer of the second trace
	bad[at] ^= 1
	replace(t, fs, first, bad)
	o := readable(fs)
	db, err = engine.Open("store", o)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []uint64{1, 3} {
		done, err := db.Erase(t.Context(), engine.Erasure{Traces: []tga.ID{id(n)}, Who: "operator", Reason: "the customer asked for it"})
		wantCode(t, err, tga.StateChecksumMismatch)
		if done.Traces != 1 {
			t.Errorf("erased %+v", done)
		}
		wantErased(t, db, secretive(n, 10))
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if db, err = engine.Open("store", o); err != nil {
			t.Fatal(err)
		}
	}
	key := keyspace.AppendMeta(nil, "erasing")
	value, err := db.Value(key, []byte(db.Rows()[string(key)])) // another value is damaged
	remembered := string(value)
	if err != nil || !strings.Contains(remembered, id(1).String()) || !strings.Contains(remembered, id(3).String()) {
		t.Errorf("still to be done: %s, want both traces", remembered)
	}
	if found := filesWith(t, fs, "store", secret); len(found) != 1 || !strings.HasPrefix(found[0], first) {
		t.Errorf("it stands in %v, want %s alone", found, first)
	}
	if _, err := db.Erase(t.Context(), engine.Erasure{Subject: "nobody", Who: "w", Reason: "r"}); tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("nothing is said of what may still stand there: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	replace(t, fs, first, whole)
	db = open(t, "store", o) // which finishes it
	for _, n := range []uint64{1, 3} {
		if left := bodiesWith(t, db, secret, id(n)); left > 0 {
			t.Errorf("%d bodies of trace %d have it", left, n)
		}
	}
	if value := db.Dump()[string(keyspace.AppendMeta(nil, "erasing"))]; value != "" {
		t.Errorf("it is still to be finished: %s", value)
	}
	if tr, err := db.Load(t.Context(), id(2)); err != nil || tr.Effect == nil {
		t.Errorf("another's trace: %+v, %v", tr, err)
	}
}

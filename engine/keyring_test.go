package engine_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// secret is a value that a test looks for on the disk.
const secret = "nobody-reads-this-anywhere"

// secretive is a call whose arguments, and whose answer of so many bytes, have the secret.
func secretive(n uint64, size int) spec {
	return spec{trace: id(n), args: `{"secret":"` + secret + `"}`, documents: []chain.Document{
		{Pointer: tga.PointerResult, Data: bytes.Repeat([]byte(secret+" "), 1+size/len(secret))},
	}}
}

// withRing are the options of a store that has a ring.
func withRing(fs vfs.FS, ring *chaintest.Ring) engine.Options {
	o := options(fs)
	o.Keyring = ring
	return o
}

// filesWith lists the files under a directory in which any of the texts stands.
func filesWith(t testing.TB, fs vfs.FS, dir string, texts ...string) (found []string) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		info, err := fs.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // Pebble has removed it
		}
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			found = append(found, filesWith(t, fs, path, texts...)...)
			continue
		}
		f, err := fs.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			if bytes.Contains(b, []byte(text)) {
				found = append(found, path+": "+text[:min(len(text), 20)])
			}
		}
	}
	return found
}

// TestSealedStoreHasNoValueOnDisk: not in the log, not in an archive, a body file or the index;
// and every value is read back, also after a reopen.
func TestSealedStoreHasNoValueOnDisk(t *testing.T) {
	fs, ring := vfs.NewMem(), new(chaintest.Ring)
	sizes := []int{10, 40 << 10, 2 << 20}
	read := func(db *engine.DB) {
		t.Helper()
		for i := range sizes {
			s := secretive(uint64(i+1), sizes[i])
			tr, err := db.Load(t.Context(), s.trace)
			if err != nil {
				t.Fatal(err)
			}
			if tr.Key == 0 || !bytes.Contains(tr.Request.Canonical, []byte(secret)) || !bytes.Equal(tr.Documents[0].Data, s.documents[0].Data) {
				t.Errorf("trace %s is %+v", s.trace, tr)
			}
		}
	}
	db := open(t, "store", withRing(fs, ring))
	for i, size := range sizes {
		run(t, db, secretive(uint64(i+1), size))
	}
	read(db)
	check(t, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, "store", withRing(fs, ring))
	read(db)
	if _, err := db.SealTraces(t.Context(), start+1e9); err != nil {
		t.Fatal(err)
	}
	read(db)
	check(t, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if found := filesWith(t, fs, "store", secret); found != nil {
		t.Errorf("the value stands in %v", found)
	}
}

// TestStoreWithoutItsRing: it opens, its chains are checked, what is sealed cannot be read, and
// nothing is written or answered that could lead to a send.
func TestStoreWithoutItsRing(t *testing.T) {
	fs, ring := vfs.NewMem(), new(chaintest.Ring)
	db := open(t, "store", withRing(fs, ring))
	s, archived, begun := secretive(1, 10), secretive(2, 10), secretive(3, 10)
	run(t, db, s)
	if _, err := db.SealTraces(t.Context(), start+1e9); err != nil {
		t.Fatal(err)
	}
	run(t, db, archived)
	lease := acquire(t, db, begun.trace)
	append_(t, db, lease, begun.make(t).begin())
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	o := withRing(fs, ring)
	o.Keyring = nil
	db = open(t, "store", o)
	for _, s := range []spec{s, archived, begun} {
		_, err := db.Load(t.Context(), s.trace)
		wantCode(t, err, tga.StoreUnavailable)
		_, err = db.Record(t.Context(), s.ledgerKey())
		wantCode(t, err, tga.StoreUnavailable)
		_, err = db.Acquire(t.Context(), s.trace)
		wantCode(t, err, tga.StoreUnavailable)
	}
	_, err := db.Append(t.Context(), chain.Lease{TraceID: id(9), Epoch: 1}, secretive(9, 10).make(t).begin())
	wantCode(t, err, tga.StoreUnavailable)
	if n := 0; true {
		for o, err := range db.OpenTraces(t.Context()) {
			if n++; err != nil || o.TraceID != begun.trace {
				t.Errorf("%+v, %v", o, err)
			}
		}
		if n != 1 {
			t.Errorf("%d open traces", n)
		}
	}
	if rep := check(t, db); rep.Traces != 3 || rep.Archived != 1 || rep.Records != 3 {
		t.Errorf("checked %+v", rep)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, "store", withRing(fs, ring))
	lease = acquire(t, db, begun.trace)
	append_(t, db, lease, begun.make(t).end())
}

// TestRingThatCannotBeAsked: while the ring does not answer, a trace is not at fault and nothing is
// written; then all goes on.
func TestRingThatCannotBeAsked(t *testing.T) {
	fs, ring := vfs.NewMem(), new(chaintest.Ring)
	db := open(t, "store", withRing(fs, ring))
	s := secretive(1, 10)
	m := s.make(t)
	lease := acquire(t, db, s.trace)
	ring.Err = tga.Errorf(tga.StoreUnavailable, "the ring is down")
	_, err := db.Append(t.Context(), lease, m.begin())
	wantCode(t, err, tga.StoreUnavailable)
	ring.Err = nil
	append_(t, db, lease, m.begin())
	ring.Err = tga.Errorf(tga.StoreUnavailable, "the ring is down")
	_, err = db.Append(t.Context(), lease, m.end())
	wantCode(t, err, tga.StoreUnavailable)
	ring.Err = nil
	append_(t, db, lease, m.end())
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, "store", withRing(fs, ring))
	ring.Err = tga.Errorf(tga.StoreUnavailable, "the ring is down")
	_, err = db.Load(t.Context(), s.trace)
	wantCode(t, err, tga.StoreUnavailable)
	ring.Err = nil
	if tr, err := db.Load(t.Context(), s.trace); err != nil || tr.Effect == nil {
		t.Errorf("%+v, %v", tr, err)
	}
}

// TestOneRuleForTheRequestsOfAStore: a store that had its ring before its first record keeps no
// digest of a request; one that got it later keeps the digests that it had. In both the same
// request is the same, and another one a conflict.
func TestOneRuleForTheRequestsOfAStore(t *testing.T) {
	for name, late := range map[string]bool{"from the first record on": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			fs, ring := vfs.NewMem(), new(chaintest.Ring)
			o := withRing(fs, ring)
			if late {
				o.Keyring = nil
			}
			db := open(t, "store", o)
			first := spec{trace: id(1), key: "order-1", class: "not_sent", status: "ERROR"}
			lease := acquire(t, db, first.trace)
			append_(t, db, lease, spec{trace: id(1), key: "order-1", attempt: "apart"}.make(t).begin())
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			db = open(t, "store", withRing(fs, ring))
			plain := tga.RequestDigest(first.make(t).request.Request.Proposal)
			rec, err := db.Record(t.Context(), first.ledgerKey())
			if err != nil || rec == nil || (rec.RequestDigest == plain) != late || rec.RequestDigest != db.RequestDigest(first.make(t).request.Request.Proposal) {
				t.Errorf("record %+v, %v", rec, err)
			}
			for args, code := range map[string]tga.Code{"": tga.IdempotencyKeyInFlight, `{"amount":13}`: tga.IdempotencyKeyConflict} {
				other := spec{trace: id(2), key: "order-1", args: args}
				lease := acquire(t, db, other.trace)
				_, err := db.Append(t.Context(), lease, other.make(t).begin())
				wantCode(t, err, code)
				db.Release(lease)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			other := withRing(fs, nil)
			other.Keyring = otherRing{ring}
			if _, err := engine.Open("store", other); tga.CodeOf(err) != tga.StoreUnavailable {
				t.Errorf("opened with another ring: %v", err)
			}
		})
	}
}

// otherRing has another id.
type otherRing struct{ *chaintest.Ring }

func (otherRing) ID() tga.ID { return id(77) }

// TestKeysOfSubjects: the traces of a subject have one key, in the ring that is to have it so; the
// entries of a trace have one.
func TestKeysOfSubjects(t *testing.T) {
	for _, bySubject := range []bool{true, false} {
		db := open(t, "store", withRing(vfs.NewMem(), &chaintest.Ring{BySubject: bySubject}))
		keys := map[chain.KeyID]int{}
		for n := range uint64(6) {
			s := spec{trace: id(n + 1), subject: []string{"alice", "bob", ""}[n%3]}
			run(t, db, s)
			of := map[chain.KeyID]bool{}
			for e, err := range db.Entries(context.Background(), s.trace, 0) {
				if err != nil {
					t.Fatal(err)
				}
				of[e.Key] = true
				keys[e.Key]++
			}
			if len(of) != 1 || of[0] {
				t.Errorf("trace %d has the keys %v", n, of)
			}
		}
		if want := map[bool]int{true: 4, false: 6}[bySubject]; len(keys) != want {
			t.Errorf("by subject %v: keys %v", bySubject, keys)
		}
	}
}

// burning is a ring that panics at the n-th question from now on.
type burning struct {
	*chaintest.Ring
	n int
}

func (b *burning) burn() {
	if b.n--; b.n == 0 {
		panic("no ring")
	}
}

func (b *burning) Key(namespace, subject string) (chain.KeyID, error) {
	b.burn()
	return b.Ring.Key(namespace, subject)
}

func (b *burning) Seal(dst []byte, key chain.KeyID, plain, aad []byte) ([]byte, error) {
	b.burn()
	return b.Ring.Seal(dst, key, plain, aad)
}

func (b *burning) RequestDigest(d tga.Digest) tga.Digest {
	b.burn()
	return b.Ring.RequestDigest(d)
}

// TestRingThatPanicsLocksNothing: at whichever question the ring of a program panics, an append of the same batch
// goes on afterwards, and so does a wait for every place of the queue.
func TestRingThatPanicsLocksNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ring := &burning{Ring: &chaintest.Ring{}}
	o := options(vfs.NewMem())
	o.Keyring = ring
	db := open(t, "store", o)
	burnt := 0
	for n := 1; ; n++ {
		s := secretive(uint64(n), 10)
		m := s.make(t)
		lease := acquire(t, db, s.trace)
		ring.n = n
		for _, b := range []chain.Batch{m.begin(), m.end()} {
			func() {
				defer func() {
					if recover() != nil {
						burnt++
					}
				}()
				if _, err := db.Append(ctx, lease, b); err != nil {
					t.Fatal(err)
				}
			}()
			if _, err := db.Append(ctx, lease, b); err != nil { // the same again, or for the first time
				t.Fatalf("after a panic at question %d: %v", n, err)
			}
		}
		db.Release(lease)
		if used := engine.RoomUsed(db); used != 0 {
			t.Fatalf("after a panic at question %d: %d places of the queue are taken", n, used)
		}
		if ring.n > 0 {
			break // a call asks no more often
		}
	}
	if burnt < 4 {
		t.Errorf("the ring panicked %d times", burnt)
	}
	ring.n = 0
	check(t, db)
}

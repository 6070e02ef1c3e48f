package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// erase erases, and fails the test where that fails.
func erase(t testing.TB, db *engine.DB, what engine.Erasure) engine.Erased {
	t.Helper()
	what.Who, what.Reason = "operator", "the customer asked for it"
	done, err := db.Erase(context.Background(), what)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// same reports whether an erasure did what it should.
func same(got, want engine.Erased) bool { return reflect.DeepEqual(got, want) }

// wantErased fails the test unless a trace has all that proves it, and nothing that it carried.
func wantErased(t testing.TB, db *engine.DB, s spec) {
	t.Helper()
	m := s.make(t)
	tr, err := db.Load(context.Background(), s.trace)
	if err != nil {
		t.Errorf("trace %s: %v", s.trace, err)
		return
	}
	if tr.Request != nil || tr.Decision != nil || tr.Call != nil || tr.Effect != nil || tr.Documents != nil || tr.Head.State != tga.Completed {
		t.Errorf("trace %s is %+v", s.trace, tr)
	}
	for i, a := range []*tga.Artifact{m.request, m.decision, m.call, m.effect} {
		if tr.Entries[i].ArtifactDigest != a.Digest {
			t.Errorf("trace %s, entry %d: digest %s, was %s", s.trace, i+1, tr.Entries[i].ArtifactDigest, a.Digest)
		}
	}
	if len(tr.Notes) == 0 {
		t.Errorf("trace %s has no note", s.trace)
		return
	}
	n := tr.Notes[len(tr.Notes)-1]
	if n.Kind != tga.NoteErased || n.Who != "operator" || !strings.Contains(string(n.Body), "the customer asked for it") || !strings.Contains(string(n.Body), `"entries":4`) {
		t.Errorf("trace %s: its last note is %+v %s", s.trace, n, n.Body)
	}
}

// bodiesWith counts the bodies that the log still has, whether a row names them or not, in which
// a text stands: all bodies, or those of traces.
func bodiesWith(t testing.TB, db *engine.DB, text string, of ...tga.ID) (found int) {
	t.Helper()
	if err := db.Bodies(func(key, body []byte) {
		mine := len(of) == 0 || len(key) >= 17 && slices.Contains(of, tga.ID(key[1:17]))
		if mine && bytes.Contains(body, []byte(text)) {
			found++
		}
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// burying looks into each file that is removed, and says that no file has two names.
type burying struct {
	vfs.FS
	mu    sync.Mutex
	looks func(name string, b []byte)
}

func (f *burying) Unwrap() vfs.FS { return f.FS }

func (f *burying) Stat(name string) (vfs.FileInfo, error) {
	info, err := f.FS.Stat(name)
	if err == nil {
		info = soleName{info}
	}
	return info, err
}

type soleName struct{ vfs.FileInfo }

func (soleName) Sys() any { return oneLink }

func (f *burying) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if info, err := f.FS.Stat(name); err == nil && f.looks != nil {
		if file, err := f.FS.Open(name); err == nil {
			b := make([]byte, info.Size())
			if _, err := file.ReadAt(b, 0); err == nil {
				f.looks(name, b)
			}
			file.Close()
		}
	}
	return f.FS.Remove(name)
}

// TestErasedIsNowhere: what a trace carried stands nowhere any more: in no file of the store, in
// no body of a packed segment, and in no file that was removed for it. What is beside it stays.
func TestErasedIsNowhere(t *testing.T) {
	serial.Test(t)
	for _, ring := range []*chaintest.Ring{nil, {}} {
		for _, where := range []string{"written last", "in a full segment", "packed", "archived", "archived alone", "archived and packed"} {
			t.Run(fmt.Sprintf("sealed %v, %s", ring != nil, where), func(t *testing.T) {
				fs := &burying{FS: vfs.NewMem()}
				o := withRing(fs, ring)
				if ring == nil {
					o.Keyring = nil
				}
				db := open(t, "store", o)
				sizes := []int{10, 40 << 10, 2 << 20}
				var gone []spec
				for i, size := range sizes {
					gone = append(gone, secretive(uint64(i+1), size))
				}
				stays := spec{trace: id(9), args: `{"keep":"this stays"}`}
				others := []spec{stays}
				if where == "archived alone" {
					others = nil
				}
				run(t, db, append(gone, others...)...)
				later := start + 1e9
				switch where {
				case "in a full segment", "packed":
					run(t, db, spec{trace: id(20), documents: noisy(1, 15000)}, spec{trace: id(21), documents: noisy(2, 15000)})
				case "archived", "archived alone", "archived and packed":
					if _, err := db.SealTraces(t.Context(), later); err != nil {
						t.Fatal(err)
					}
				}
				if strings.Contains(where, "packed") {
					if err := db.NextSegment(); err != nil {
						t.Fatal(err)
					}
					if _, err := db.Rewrite(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if ring == nil && bodiesWith(t, db, secret) == 0 && !strings.Contains(where, "archived") {
					t.Fatal("the value is not found before")
				}
				var ids []tga.ID
				var old []string // sealed bytes
				for _, s := range gone {
					ids = append(ids, s.trace)
					if ring != nil && !strings.Contains(where, "archived") {
						row := db.Dump()[string(entryKey(s.trace, 4))]
						old = append(old, row[len(row)-40:])
					}
				}
				fs.looks = func(name string, b []byte) {
					for _, text := range append(old, secret) {
						if bytes.Contains(b, []byte(text)) {
							t.Errorf("%s is removed with the value in it", name)
						}
					}
				}
				done := erase(t, db, engine.Erasure{Traces: append(ids, ids[0])})
				want := engine.Erased{Traces: 3, Keys: 3}
				if ring == nil {
					want = engine.Erased{Traces: 3, Unsealed: 3}
				}
				if !same(done, want) {
					t.Errorf("erased %+v, want %+v", done, want)
				}
				for range 2 {
					for _, s := range gone {
						wantErased(t, db, s)
					}
					check(t, db)
					for _, text := range append(old, secret) {
						if n := bodiesWith(t, db, text); n > 0 {
							t.Errorf("%d bodies still have it", n)
						}
						if found := filesWith(t, fs, "store", text); found != nil {
							t.Errorf("it stands in %v", found)
						}
					}
					if len(others) > 0 {
						if tr, err := db.Load(t.Context(), stays.trace); err != nil || tr.Request == nil {
							t.Errorf("what stays: %+v, %v", tr, err)
						}
					}
					if err := db.Close(); err != nil {
						t.Fatal(err)
					}
					db = open(t, "store", o)
				}
				if done := erase(t, db, engine.Erasure{Traces: ids}); !same(done, engine.Erased{Already: 3}) {
					t.Errorf("again: %+v", done)
				}
				// It is archived, listed and read like any other.
				if _, err := db.SealTraces(t.Context(), later); err != nil {
					t.Fatal(err)
				}
				listed := 0
				for l, err := range db.Traces(t.Context(), tga.ID{}) {
					if err != nil || l.Err != nil {
						t.Fatal(err, l.Err)
					}
					listed++
				}
				if n := check(t, db).Traces; listed != n {
					t.Errorf("%d of %d traces are listed", listed, n)
				}
				wantErased(t, db, gone[1])
			})
		}
	}
}

// TestErasedKeyIsNeverFreeAgain: the ledger knows the key of an erased call, and refuses another
// send under it.
func TestErasedKeyIsNeverFreeAgain(t *testing.T) {
	for _, ring := range []engine.Keyring{nil, new(chaintest.Ring)} {
		o := options(vfs.NewMem())
		o.Keyring = ring
		db := open(t, "store", o)
		run(t, db, spec{trace: id(1), key: "order-1"})
		erase(t, db, engine.Erasure{Traces: []tga.ID{id(1)}})
		for args, code := range map[string]tga.Code{"": tga.IdempotencyKeyInFlight, `{"amount":13}`: tga.IdempotencyKeyConflict} {
			s := spec{trace: id(2), key: "order-1", args: args}
			lease := acquire(t, db, s.trace)
			_, err := db.Append(t.Context(), lease, s.make(t).begin())
			wantCode(t, err, code)
			db.Release(lease)
		}
		lease := acquire(t, db, id(1))
		_, err := db.Append(t.Context(), lease, spec{trace: id(1)}.make(t).end())
		wantCode(t, err, tga.StateInvalidTransition)
		note := chain.NewNote{Kind: tga.NoteLateReply, Who: "tgad", Body: []byte(`{"attempt":1}`)}
		append_(t, db, lease, chain.Batch{Notes: []chain.NewNote{note}})
	}
}

func TestOnlyWhatHasEndedIsErased(t *testing.T) {
	db := mem(t)
	run(t, db, spec{trace: id(1)}, spec{trace: id(4)})
	begun := acquire(t, db, id(2))
	append_(t, db, begun, spec{trace: id(2)}.make(t).begin())
	db.Release(begun)
	held := acquire(t, db, id(4))
	due := chain.Attachment{Kind: chain.AttachTimer, Key: append(make([]byte, 8), bytesOf(id(1))...), Value: []byte("x")}
	lease := acquire(t, db, id(1))
	append_(t, db, lease, chain.Batch{Attachments: []chain.Attachment{due}})
	db.Release(lease)
	long := strings.Repeat("é", 500)
	for name, c := range map[string]struct {
		what engine.Erasure
		code tga.Code
	}{
		"one that is open":      {engine.Erasure{Traces: []tga.ID{id(2)}, Who: "w", Reason: "r"}, tga.StateInvalidTransition},
		"with one that is open": {engine.Erasure{Traces: []tga.ID{id(1), id(2)}, Who: "w", Reason: "r"}, tga.StateInvalidTransition},
		"one with a timer":      {engine.Erasure{Traces: []tga.ID{id(1)}, Who: "w", Reason: "r"}, tga.StateInvalidTransition},
		"one that is held":      {engine.Erasure{Traces: []tga.ID{id(4)}, Who: "w", Reason: "r"}, tga.StateLockAcquireFailed},
		"one that is not there": {engine.Erasure{Traces: []tga.ID{id(3)}, Who: "w", Reason: "r"}, tga.NotFound},
		"nothing":               {engine.Erasure{Who: "w", Reason: "r"}, tga.ValidationError},
		"two ways":              {engine.Erasure{Traces: []tga.ID{id(1)}, Subject: "s", Who: "w", Reason: "r"}, tga.ValidationError},
		"nobody":                {engine.Erasure{Traces: []tga.ID{id(1)}, Reason: "r"}, tga.ValidationError},
		"for no reason":         {engine.Erasure{Traces: []tga.ID{id(1)}, Who: "w"}, tga.ValidationError},
		"for a long reason":     {engine.Erasure{Traces: []tga.ID{id(1)}, Who: "w", Reason: long + "x"}, tga.ValidationError},
		"by a long name":        {engine.Erasure{Traces: []tga.ID{id(1)}, Who: long[:2*256], Reason: "r"}, tga.ValidationError},
		"too many":              {engine.Erasure{Traces: make([]tga.ID, engine.MaxErasedTraces+1), Who: "w", Reason: "r"}, tga.LimitExceeded},
		"as many as can be":     {engine.Erasure{Traces: make([]tga.ID, engine.MaxErasedTraces), Who: "w", Reason: "r"}, tga.NotFound},
	} {
		_, err := db.Erase(t.Context(), c.what)
		if tga.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	for _, n := range []uint64{1, 4} {
		if tr, err := db.Load(t.Context(), id(n)); err != nil || tr.Request == nil {
			t.Errorf("trace %d: %+v, %v", n, tr, err)
		}
	}
	due.Value = nil
	lease = acquire(t, db, id(1))
	append_(t, db, lease, chain.Batch{Attachments: []chain.Attachment{due}})
	db.Release(lease)
	db.Release(held)
	if _, err := db.Erase(t.Context(), engine.Erasure{Traces: []tga.ID{id(1), id(4)}, Who: long[:2*255], Reason: long}); err != nil {
		t.Error(err)
	}
}

func bytesOf(id tga.ID) []byte { return id[:] }

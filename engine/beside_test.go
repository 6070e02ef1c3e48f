package engine_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// evidence is what a probe of a trace was answered, with the note that names it, as [chain.Batch].
func evidence(t testing.TB, trace tga.ID, text string) chain.Batch {
	t.Helper()
	digest := tga.Sum([]byte(text))
	body, err := json.Marshal(map[string]any{"answer": "unknown", "evidence_digest": digest.String()})
	if err != nil {
		t.Fatal(err)
	}
	return chain.Batch{
		Attachments: []chain.Attachment{{Kind: chain.AttachBlob, Key: keyspace.EvidenceKey(digest, trace), Value: []byte(text)}},
		Notes:       []chain.NewNote{{Kind: tga.NoteDoubt, Who: "tgad", Body: body}},
	}
}

// question is what people are asked about a trace.
func question(trace tga.ID, text string) chain.Batch {
	return chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachApproval, Key: keyspace.ApprovalKey(trace), Value: []byte(text)}}}
}

// lay appends batches to a trace.
func lay(t testing.TB, db *engine.DB, trace tga.ID, batches ...chain.Batch) {
	t.Helper()
	lease := acquire(t, db, trace)
	defer db.Release(lease)
	for _, b := range batches {
		append_(t, db, lease, b)
	}
}

// wantBeside fails the test unless the attachment of a batch is there, by both ways to read it, or is
// not.
func wantBeside(t testing.TB, db *engine.DB, b chain.Batch, there bool) {
	t.Helper()
	a := b.Attachments[0]
	got, err := db.Attachment(t.Context(), a.Kind, a.Key)
	if err != nil || (got != nil) != there || there && !bytes.Equal(got, a.Value) {
		t.Errorf("%c %x is %.40q, %v; there: %v", a.Kind, a.Key, got, err, there)
	}
	found := false
	for l, err := range db.Attachments(t.Context(), a.Kind, a.Key) {
		if found = true; err != nil || !bytes.Equal(l.Value, a.Value) {
			t.Errorf("%c %x is listed as %.40q, %v", a.Kind, a.Key, l.Value, err)
		}
	}
	if found != there {
		t.Errorf("%c %x is listed: %v", a.Kind, a.Key, found)
	}
}

// TestWhatLiesBesideATraceIsSealed: questions to people and evidence are sealed under the key of their
// trace and are nowhere on the disk in the clear. They can be read after a reopen, with a new index,
// and after the segments are rewritten. Without the ring, or while it does not answer, they are
// unavailable. Once the key is destroyed they no longer exist.
func TestWhatLiesBesideATraceIsSealed(t *testing.T) {
	for size, both := range map[int][]bool{10: {true, false}, 40 << 10: {true}, 1200 << 10: {false}} {
		for _, begun := range both {
			t.Run(fmt.Sprintf("%d bytes, with the request %v", size, begun), func(t *testing.T) {
				fs, ring := vfs.NewMem(), new(chaintest.Ring)
				o := withRing(fs, ring)
				db := open(t, "store", o)
				text := strings.Repeat(secret+" ", 1+size/len(secret))
				asked, found := question(id(1), text), evidence(t, id(1), text)
				s := spec{trace: id(1)}
				lease := acquire(t, db, s.trace)
				first := s.make(t).begin()
				if begun {
					first.Attachments = append(asked.Attachments, found.Attachments...)
				}
				append_(t, db, lease, first)
				append_(t, db, lease, s.make(t).end())
				db.Release(lease)
				if !begun {
					lay(t, db, s.trace, asked, found)
				}
				run(t, db, spec{trace: id(2)})
				read := func() {
					t.Helper()
					wantBeside(t, db, asked, true)
					wantBeside(t, db, found, true)
					check(t, db)
				}
				read()
				if err := db.NextSegment(); err != nil {
					t.Fatal(err)
				}
				if _, err := db.Rewrite(t.Context()); err != nil {
					t.Fatal(err)
				}
				read()
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
				if in := filesWith(t, fs, "store", secret); in != nil {
					t.Errorf("the value stands in %v", in)
				}
				if _, err := engine.RebuildIndex(t.Context(), "store", o, nil); err != nil {
					t.Fatal(err)
				}
				db = open(t, "store", o)
				read()
				for _, stored := range []chain.Batch{asked, found} {
					a := stored.Attachments[0]
					if key := engine.ValueKey([]byte(db.Dump()[string(append([]byte{byte(a.Kind)}, a.Key...))])); key != 1 {
						t.Errorf("%c is sealed under key %d", a.Kind, key)
					}
				}
				unavailable := func() {
					t.Helper()
					for _, b := range []chain.Batch{asked, found} {
						_, err := db.Attachment(t.Context(), b.Attachments[0].Kind, b.Attachments[0].Key)
						wantCode(t, err, tga.StoreUnavailable)
						said := 0
						for _, err := range db.Attachments(t.Context(), b.Attachments[0].Kind, nil) {
							wantCode(t, err, tga.StoreUnavailable)
							said++
						}
						if said != 1 {
							t.Errorf("%d are listed", said)
						}
					}
				}
				ring.Err = tga.Errorf(tga.StoreUnavailable, "the ring is down")
				unavailable()
				ring.Err = nil
				read()
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
				without := o
				without.Keyring = nil
				db = open(t, "store", without)
				unavailable()
				check(t, db)
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
				db = open(t, "store", o)
				if err := ring.Destroy(1); err != nil {
					t.Fatal(err)
				}
				wantBeside(t, db, asked, false)
				wantBeside(t, db, found, false)
				check(t, db)
			})
		}
	}
}

// TestEvidenceGoesWithItsTrace: an erasure of a trace erases the evidence that its notes name, and its
// questions to people. Another trace with the same evidence keeps its own copy, whichever of the two
// traces is erased first.
func TestEvidenceGoesWithItsTrace(t *testing.T) {
	for _, ring := range []*chaintest.Ring{nil, {}, {BySubject: true}} {
		for _, order := range [][]uint64{{1, 2}, {2, 1}} {
			t.Run(fmt.Sprintf("sealed %v, %v", ring != nil, order), func(t *testing.T) {
				o := options(vfs.NewMem())
				if o.Keyring = nil; ring != nil {
					o.Keyring = &chaintest.Ring{BySubject: ring.BySubject}
				}
				db := open(t, "store", o)
				text := "evidence with " + secret
				run(t, db, spec{trace: id(1)}, spec{trace: id(2)}, spec{trace: id(3)})
				if err := db.NextSegment(); err != nil {
					t.Fatal(err)
				}
				for n := range uint64(3) {
					lay(t, db, id(n+1), evidence(t, id(n+1), text), question(id(n+1), "do you see "+secret))
				}
				if err := db.NextSegment(); err != nil {
					t.Fatal(err)
				}
				if _, err := db.Rewrite(t.Context()); err != nil { // a packed segment keeps what nobody asks to go
					t.Fatal(err)
				}
				left := []uint64{1, 2, 3}
				for _, n := range order {
					if done := erase(t, db, engine.Erasure{Traces: []tga.ID{id(n)}}); done.Traces != 1 || (done.Keys == 1) != (ring != nil) || (done.Unsealed == 1) != (ring == nil) {
						t.Errorf("erased %+v", done)
					}
					left = without(left, n)
					for m := range uint64(3) {
						there := len(without(left, m+1)) < len(left)
						wantBeside(t, db, evidence(t, id(m+1), text), there)
						wantBeside(t, db, question(id(m+1), "do you see "+secret), there)
					}
					if n := bodiesWith(t, db, secret); ring == nil && n != 2*len(left) || ring != nil && n > 0 {
						t.Errorf("%d bodies have it while %d traces do", n, len(left))
					}
					check(t, db)
				}
			})
		}
	}
}

func without(list []uint64, n uint64) (rest []uint64) {
	for _, m := range list {
		if m != n {
			rest = append(rest, m)
		}
	}
	return rest
}

// TestNodesOfAStateOutliveTheirTrace: a working state's nodes come with an entry, and are the state's:
// they do not go with the key of that trace.
func TestNodesOfAStateOutliveTheirTrace(t *testing.T) {
	ring := new(chaintest.Ring)
	db := open(t, "store", withRing(vfs.NewMem(), ring))
	node := keyspace.NodeKey(id(70), tga.Sum([]byte("node")))
	held := chain.Batch{Attachments: []chain.Attachment{
		{Kind: chain.AttachBlob, Key: keyspace.DigestKey(node), Value: []byte("node")}}}
	s := spec{trace: id(1)}
	first := s.make(t).begin()
	first.Attachments = held.Attachments
	lease := acquire(t, db, s.trace)
	append_(t, db, lease, first)
	append_(t, db, lease, s.make(t).end())
	db.Release(lease)
	erase(t, db, engine.Erasure{Traces: []tga.ID{s.trace}})
	if len(ring.Destroyed) != 1 {
		t.Fatalf("destroyed: %v", ring.Destroyed)
	}
	wantBeside(t, db, held, true)
}

// TestNothingIsLaidBesideAnErasedTrace: the key of an erased trace is destroyed, and a value under a new
// key would never be erased.
func TestNothingIsLaidBesideAnErasedTrace(t *testing.T) {
	db := open(t, "store", withRing(vfs.NewMem(), new(chaintest.Ring)))
	run(t, db, spec{trace: id(1)})
	erase(t, db, engine.Erasure{Traces: []tga.ID{id(1)}})
	lease := acquire(t, db, id(1))
	for _, b := range []chain.Batch{question(id(1), "x"), evidence(t, id(1), "x")} {
		_, err := db.Append(t.Context(), lease, b)
		wantCode(t, err, tga.StateInvalidTransition)
		wantBeside(t, db, b, false)
	}
	gone := question(id(1), "x")
	gone.Attachments[0].Value = nil // what is not there may be removed
	append_(t, db, lease, gone)
}

// TestValuesFromBeforeTheRing: values from before the store got its ring can be read and erased. A later
// append to such a trace is sealed, under a key that is destroyed with the trace.
func TestValuesFromBeforeTheRing(t *testing.T) {
	fs, ring := vfs.NewMem(), new(chaintest.Ring)
	o := withRing(fs, ring)
	o.Keyring = nil
	db := open(t, "store", o)
	marked := "\xffSEALED\x01 is how a sealed value begins"
	old, odd := evidence(t, id(1), "old "+secret), evidence(t, id(1), marked)
	run(t, db, spec{trace: id(1)}, spec{trace: id(2)})
	lay(t, db, id(1), old, odd)
	// A store of format 2 has evidence under its digest alone.
	shared := evidence(t, id(1), "shared "+secret)
	digest := tga.Sum(shared.Attachments[0].Value)
	shared.Attachments[0].Key = keyspace.DigestKey(digest)
	lay(t, db, id(1), shared)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, "store", withRing(fs, ring))
	late, asked := evidence(t, id(1), "late "+secret), question(id(1), "do you see "+secret)
	lay(t, db, id(1), late, asked)
	for _, b := range []chain.Batch{old, odd, shared, late, asked} {
		wantBeside(t, db, b, true)
	}
	if n := bodiesWith(t, db, secret); n != 2 {
		t.Errorf("%d bodies have it in the clear, want the two from before", n)
	}
	done := erase(t, db, engine.Erasure{Traces: []tga.ID{id(1)}})
	if !same(done, engine.Erased{Traces: 1, Keys: 1, Unsealed: 1}) || len(ring.Destroyed) != 1 {
		t.Errorf("erased %+v, destroyed %v", done, ring.Destroyed)
	}
	for _, b := range []chain.Batch{old, odd, shared, late, asked} {
		wantBeside(t, db, b, false)
	}
	if n := bodiesWith(t, db, secret); n != 0 {
		t.Errorf("%d bodies have it", n)
	}
	check(t, db)
}

// TestCheckFindsAValueThatDoesNotOpen: bytes that were moved to another trace are damage.
func TestCheckFindsAValueThatDoesNotOpen(t *testing.T) {
	db := open(t, "store", withRing(vfs.NewMem(), new(chaintest.Ring)))
	run(t, db, spec{trace: id(1)}, spec{trace: id(2)})
	lay(t, db, id(1), question(id(1), "of the first"))
	lay(t, db, id(2), question(id(2), "of the second"))
	check(t, db)
	at := func(n uint64) []byte { return append([]byte{byte(chain.AttachApproval)}, bytesOf(id(n))...) }
	first, second := db.Dump()[string(at(1))], db.Rows()[string(at(2))]
	db.Put(at(2), []byte(first))
	defer db.PutRow(at(2), []byte(second))
	rep, err := db.Check(t.Context())
	if err != nil || len(rep.Problems) != 1 || tga.CodeOf(rep.Problems[0].Err) != tga.StateChecksumMismatch {
		t.Errorf("problems %v, %v", rep.Problems, err)
	}
	_, err = db.Attachment(t.Context(), chain.AttachApproval, bytesOf(id(2)))
	wantCode(t, err, tga.StateChecksumMismatch)
}

// Package sealtest is the suite that every store passes that can be sealed.
package sealtest

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"testing"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Store is a store that can be sealed.
type Store interface {
	runtime.Store
	Erase(ctx context.Context, what chain.Erasure) (chain.Erased, error)
	Cursor() uint64
	Follow(ctx context.Context, after uint64) iter.Seq2[chain.Leaf, error]
	Close() error
}

// Harness is one store that nobody else uses.
type Harness struct {
	// Open opens it, with a ring or without one.
	Open func(ring chain.Keyring) (Store, error)
	// Has says where a text stands in what the store has stored.
	Has func(text string) []string
	// Check fails the test where the store disagrees with itself.
	Check func(Store)
}

// Secret is in every value of a call of this suite.
const Secret = "nobody-reads-this-anywhere"

// Run runs the suite.
func Run(t *testing.T, make func(t *testing.T) Harness) {
	for _, c := range []struct {
		name string
		do   func(*world)
	}{
		{"SealedStoreHasNoValue", sealedStoreHasNoValue},
		{"StoreWithoutItsRing", storeWithoutItsRing},
		{"RingThatCannotBeAsked", ringThatCannotBeAsked},
		{"OneRuleForRequests", oneRuleForRequests},
		{"RingOfAnotherStore", ringOfAnotherStore},
		{"KeysOfSubjects", keysOfSubjects},
		{"MissingKeyIsNotErased", missingKeyIsNotErased},
		{"ErasedIsNowhere", erasedIsNowhere},
		{"ErasedKeyIsNeverFree", erasedKeyIsNeverFree},
		{"OnlyWhatHasEndedIsErased", onlyWhatHasEndedIsErased},
		{"ErasedSubject", erasedSubject},
		{"TraceOfASubject", traceOfASubject},
		{"NoCallIsLostToAnErasure", noCallIsLost},
		{"ErasedStream", erasedStream},
		{"ErasedState", erasedState},
		{"DestroyedKeyOfAStream", destroyedKeyOfAStream},
	} {
		t.Run(c.name, func(t *testing.T) { c.do(&world{T: t, Harness: make(t), make: make}) })
	}
}

var sizes = []int{10, 40 << 10, 2 << 20}

func sealedStoreHasNoValue(w *world) {
	ring := new(chaintest.Ring)
	w.open(ring)
	var calls []*call
	for _, size := range sizes {
		calls = append(calls, w.call("", "", size))
	}
	w.run(calls...)
	w.evidence(calls[0])
	stream, family := storetest.NewID(), storetest.NewID()
	w.lay(stream, family)
	for range 2 {
		w.whole(calls...)
		if evidence, question := w.beside(calls[0]); !bytes.Contains(evidence, []byte(Secret)) || !bytes.Contains(question, []byte(Secret)) {
			w.Errorf("beside the trace: %q, %q", evidence, question)
		}
		w.laid(stream, family, Secret)
		w.nowhere(Secret)
		w.open(ring)
	}
}

func storeWithoutItsRing(w *world) {
	ring := new(chaintest.Ring)
	w.open(ring)
	ended, begun := w.call("", "", 10), w.call("", "", 10)
	w.run(ended)
	lease := w.acquire(begun.TraceID)
	w.append(lease, begun.begin)
	w.s.Release(lease)
	w.open(nil)
	for _, c := range []*call{ended, begun} {
		_, err := w.s.Load(bg, c.TraceID)
		w.want("load", err, tga.StoreUnavailable)
		_, err = w.s.Record(bg, ledger.Key{Namespace: tga.DefaultNamespace, Server: "payments", Tool: "charge", Key: c.Key})
		w.want("record", err, tga.StoreUnavailable)
		_, err = w.s.Acquire(bg, c.TraceID)
		w.want("acquire", err, tga.StoreUnavailable)
	}
	next := w.call("", "", 10)
	_, err := w.s.Append(bg, chain.Lease{TraceID: next.TraceID, Epoch: 1}, next.begin)
	w.want("append", err, tga.StoreUnavailable)
	_, err = w.s.Erase(bg, chain.Erasure{Traces: []tga.ID{ended.TraceID}, Who: "w", Reason: "r"})
	w.want("erase", err, tga.StoreUnavailable)
	n := 0
	for o, err := range w.s.OpenTraces(bg) {
		if n++; err != nil || o.TraceID != begun.TraceID {
			w.Errorf("open: %+v, %v", o, err)
		}
	}
	if n != 1 {
		w.Errorf("%d open traces", n)
	}
	w.Check(w.s)
	w.open(ring)
	lease = w.acquire(begun.TraceID)
	w.append(lease, begun.end)
	w.whole(ended, begun)
}

func ringThatCannotBeAsked(w *world) {
	ring := new(chaintest.Ring)
	w.open(ring)
	c := w.call("", "", 10)
	lease := w.acquire(c.TraceID)
	for _, b := range []chain.Batch{c.begin, c.end} {
		ring.Err = tga.Errorf(tga.StoreUnavailable, "the ring is down")
		_, err := w.s.Append(bg, lease, b)
		w.want("append without the ring", err, tga.StoreUnavailable)
		ring.Err = nil
		w.append(lease, b)
	}
	w.s.Release(lease)
	w.open(ring)
	ring.Err = tga.Errorf(tga.StoreUnavailable, "the ring is down")
	_, err := w.s.Load(bg, c.TraceID)
	w.want("load without the ring", err, tga.StoreUnavailable)
	ring.Err = nil
	w.whole(c)
}

// oneRuleForRequests: a store that had its ring before its first record keeps no digest of a request.
func oneRuleForRequests(w *world) {
	ring := new(chaintest.Ring)
	w.open(ring)
	c := w.call("", "", 10)
	w.run(c)
	plain := tga.RequestDigest(c.Proposal)
	rec, err := w.s.Record(bg, ledger.Key{Namespace: tga.DefaultNamespace, Server: "payments", Tool: "charge", Key: c.Key})
	if err != nil || rec == nil || rec.RequestDigest == plain || rec.RequestDigest != w.s.RequestDigest(c.Proposal) || rec.RequestDigest != ring.RequestDigest(plain) {
		w.Errorf("record %+v, %v; of the request alone %s", rec, err, plain)
	}
	w.nowhere(string(plain[:]))
}

// ringOfAnotherStore: a store that got its ring after its first record keeps the digests that it had, and another ring is refused.
func ringOfAnotherStore(w *world) {
	w.open(nil)
	first := w.call("", "", 10)
	w.run(first)
	if len(w.Has(Secret)) == 0 {
		w.Error("the value is not found where nothing is sealed: nothing would be found where it is")
	}
	ring := new(chaintest.Ring)
	w.open(ring)
	second := w.call("", "", 10)
	w.run(second)
	w.whole(first, second)
	for _, c := range []*call{first, second} {
		plain := tga.RequestDigest(c.Proposal)
		rec, err := w.s.Record(bg, ledger.Key{Namespace: tga.DefaultNamespace, Server: "payments", Tool: "charge", Key: c.Key})
		if err != nil || rec == nil || rec.RequestDigest != plain || rec.RequestDigest != w.s.RequestDigest(c.Proposal) {
			w.Errorf("record %+v, %v", rec, err)
		}
	}
	if err := w.s.Close(); err != nil {
		w.Fatal(err)
	}
	_, err := w.Open(otherRing{ring})
	w.want("open with another ring", err, tga.StoreUnavailable)
	if w.s, err = w.Open(ring); err != nil {
		w.Fatal(err)
	}
	w.whole(second)
}

// otherRing has another id.
type otherRing struct{ *chaintest.Ring }

func (otherRing) ID() tga.ID { return tga.ID{9, 6: 0x70, 8: 0x80} }

func keysOfSubjects(w *world) {
	w.open(&chaintest.Ring{BySubject: true})
	keys := map[chain.KeyID]int{}
	for n := range 6 {
		c := w.call("", []string{"alice", "bob", ""}[n%3], 10)
		w.run(c)
		w.whole(c)
		tr, err := w.s.Load(bg, c.TraceID)
		if err != nil || tr.Key == 0 {
			w.Fatalf("%+v, %v", tr, err)
		}
		keys[tr.Key]++
	}
	if len(keys) != 4 {
		w.Errorf("keys %v", keys)
	}
}

func missingKeyIsNotErased(w *world) {
	ring := new(chaintest.Ring)
	w.open(ring)
	lost, gone := w.call("", "", 10), w.call("", "", 10)
	w.run(lost, gone)
	w.evidence(lost)
	w.evidence(gone)
	keyOf := func(c *call) chain.KeyID {
		tr, err := w.s.Load(bg, c.TraceID)
		if err != nil {
			w.Fatal(err)
		}
		return tr.Key
	}
	missing, destroyed := keyOf(lost), keyOf(gone)
	w.open(ring)
	ring.Lost = missing
	if err := ring.Destroy(destroyed); err != nil {
		w.Fatal(err)
	}
	_, err := w.s.Load(bg, lost.TraceID)
	if w.want("load of what has no key here", err, tga.StoreUnavailable); !errors.Is(err, chain.ErrKeyMissing) {
		w.Errorf("%v does not say that the key alone is missing", err) // and a daemon would not start for it
	}
	value := []byte("evidence of it: " + Secret)
	if b, err := w.s.Attachment(bg, chain.AttachBlob, keyspace.EvidenceKey(tga.Sum(value), lost.TraceID)); b != nil || tga.CodeOf(err) != tga.StoreUnavailable || errors.Is(err, chain.ErrKeyDestroyed) {
		w.Errorf("a value that has no key here: %q, %v", b, err)
	}
	tr, err := w.s.Load(bg, gone.TraceID)
	if err != nil || tr.Request != nil || len(tr.Entries) != 4 {
		w.Errorf("a trace whose key was destroyed: %+v, %v", tr, err)
	}
	if evidence, question := w.beside(gone); evidence != nil || question != nil {
		w.Errorf("beside it: %q, %q", evidence, question)
	}
	ring.Lost = 0
	w.whole(lost)
}

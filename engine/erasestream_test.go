package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// item is an item of a stream, as [chain.Batch].
func item(stream tga.ID, n uint64, text string) chain.Batch {
	return chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachStream, Key: keyspace.StreamKey(stream, n), Value: []byte(text)}}}
}

// TestStreamIsSealedUnderOneKey: the values of a stream, and the nodes of a family, stand nowhere in
// the clear, each owner's under one key: also those that come with a trace, and after a reopen. Item
// 0 is not sealed, and costs no key.
func TestStreamIsSealedUnderOneKey(t *testing.T) {
	fs, ring := vfs.NewMem(), new(chaintest.Ring)
	o := withRing(fs, ring)
	db := open(t, "store", o)
	turn, other := id(50), id(51)
	node := func(n byte) chain.Batch {
		key := keyspace.NodeKey(id(52), tga.Sum([]byte{n}))
		return chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachBlob, Key: keyspace.DigestKey(key), Value: []byte(secret + string(n))}}}
	}
	batches := []chain.Batch{item(turn, 1, "1 "+secret), item(turn, 2, "2 "+secret), node(1), node(2)}
	lay(t, db, turn, batches[0])
	lay(t, db, turn, batches[1])
	lay(t, db, id(52), chain.Batch{Attachments: append(batches[2].Attachments, batches[3].Attachments...)})
	head := item(turn, 0, "a counter")
	lay(t, db, other, head) // of another stream's
	s := spec{trace: id(1)}
	op := item(turn, keyspace.OpsItem|3, "3 "+secret)
	first := s.make(t).begin()
	first.Attachments = op.Attachments
	lease := acquire(t, db, s.trace)
	append_(t, db, lease, first)
	append_(t, db, lease, s.make(t).end())
	db.Release(lease)
	batches = append(batches, op)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if found := filesWith(t, fs, "store", secret); found != nil {
		t.Errorf("the value stands in %v", found)
	}
	db = open(t, "store", o)
	last := item(turn, 4, "4 "+secret)
	lay(t, db, turn, last)
	keys := map[chain.KeyID]int{}
	for _, b := range append(batches, last, head) {
		wantBeside(t, db, b, true)
		a := b.Attachments[0]
		keys[engine.ValueKey([]byte(db.Dump()[string(append([]byte{byte(a.Kind)}, a.Key...))]))]++
	}
	if len(keys) != 3 || keys[0] != 1 || keys[1] != 4 || keys[2] != 2 {
		t.Errorf("values by key: %v", keys)
	}
	if key, err := ring.Key("", ""); err != nil || key != 4 {
		t.Errorf("the next key is %d, %v: want 4, behind those of the stream, the family and the trace", key, err)
	}
}

// TestErasedStream: the values are nowhere, and the key is destroyed; the first item stays, without a
// byte, so that nobody takes the stream for one that never was. What comes after is another key's. A
// turn that has not ended, and a stream that somebody is at, is not erased.
func TestErasedStream(t *testing.T) {
	for _, sealed := range []bool{true, false} {
		for _, packed := range []bool{false, true} {
			t.Run(fmt.Sprintf("sealed %v, packed %v", sealed, packed), func(t *testing.T) {
				fs, ring := &burying{FS: vfs.NewMem()}, new(chaintest.Ring)
				o := withRing(fs, ring)
				if !sealed {
					o.Keyring = nil
				}
				db := open(t, "store", o)
				turn, other, kept := id(50), id(51), keyspace.KeptStream("tenant", "payments")
				text := strings.Repeat(secret+" ", 500)
				opened := chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachStream, Key: keyspace.OpenTurnKey(turn), Value: bytesOf(turn)}}}
				for n := range uint64(3) {
					for _, stream := range []tga.ID{turn, other, kept} {
						lay(t, db, stream, item(stream, n+1, text))
					}
				}
				lay(t, db, turn, opened)
				what := engine.Erasure{Turns: []tga.ID{turn, turn}, Kept: []string{"payments"}, Namespace: "tenant", Who: "operator", Reason: "r"}
				_, err := db.Erase(t.Context(), what)
				wantCode(t, err, tga.StateInvalidTransition)
				opened.Attachments[0].Value = nil
				lay(t, db, turn, opened)
				held := acquire(t, db, kept)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_, err = db.Erase(ctx, what)
				wantCode(t, err, tga.StateLockAcquireFailed)
				db.Release(held)
				for _, nothing := range []engine.Erasure{{Turns: []tga.ID{id(53)}}, {Kept: []string{"payments"}}} {
					nothing.Who, nothing.Reason = "operator", "r"
					_, err = db.Erase(t.Context(), nothing)
					wantCode(t, err, tga.NotFound)
				}
				wantBeside(t, db, item(turn, 3, text), true)
				var unwiped []string
				fs.looks = func(name string, b []byte) {
					if bytes.Contains(b, []byte(secret)) {
						unwiped = append(unwiped, name)
					}
				}
				if packed {
					if err := db.NextSegment(); err != nil {
						t.Fatal(err)
					}
					if _, err := db.Rewrite(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				want := engine.Erased{Turns: 1, Kept: 1, Keys: 2}
				if !sealed {
					want.Keys, want.Unsealed = 0, 2
				}
				if done := erase(t, db, what); !same(done, want) || len(ring.Destroyed) != want.Keys {
					t.Errorf("erased %+v, destroyed %v, want %+v", done, ring.Destroyed, want)
				}
				since := item(kept, 2, "kept since")
				lay(t, db, kept, since)
				wantBeside(t, db, since, true)
				if done := erase(t, db, what); done.Kept != 1 || done.Already != 1 {
					t.Errorf("what was kept since: %+v", done)
				}
				for range 2 {
					for _, stream := range []tga.ID{turn, kept} {
						wantBeside(t, db, item(stream, 1, ""), true)
						wantBeside(t, db, item(stream, 2, text), false)
						wantBeside(t, db, item(stream, 3, text), false)
					}
					for n := range uint64(3) {
						wantBeside(t, db, item(other, n+1, text), true)
					}
					if n := bodiesWith(t, db, secret); n != map[bool]int{true: 0, false: 3}[sealed] {
						t.Errorf("%d bodies have it", n)
					}
					if done := erase(t, db, what); !same(done, engine.Erased{Already: 2}) {
						t.Errorf("again: %+v", done)
					}
					if err := db.Close(); err != nil {
						t.Fatal(err)
					}
					db = open(t, "store", o)
				}
				if sealed && len(unwiped) > 0 {
					t.Errorf("%v are removed with the value in them", unwiped)
				}
			})
		}
	}
}

// TestStreamWhoseKeyWasDestroyed: in a backup from before, an erased item is there without a byte,
// and the stream takes values under another key.
func TestStreamWhoseKeyWasDestroyed(t *testing.T) {
	fs, ring := vfs.NewMem(), new(chaintest.Ring)
	db := open(t, "store", withRing(fs, ring))
	lay(t, db, id(50), item(id(50), 1, "1 "+secret), item(id(50), 2, "2 "+secret))
	if err := db.Backup(t.Context(), "backup"); err != nil {
		t.Fatal(err)
	}
	erase(t, db, engine.Erasure{Turns: []tga.ID{id(50)}})
	if err := engine.Restore(t.Context(), "backup", "restored", withRing(fs, ring)); err != nil {
		t.Fatal(err)
	}
	db = open(t, "restored", withRing(fs, ring))
	wantBeside(t, db, item(id(50), 1, ""), true)
	wantBeside(t, db, item(id(50), 2, ""), true)
	if err := db.Unfreeze(t.Context(), true, "operator"); err != nil {
		t.Fatal(err)
	}
	next := item(id(50), 3, "3 "+secret)
	lay(t, db, id(50), next)
	wantBeside(t, db, next, true)
	check(t, db)
}

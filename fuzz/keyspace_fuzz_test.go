package fuzz

import (
	"bytes"
	"testing"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
)

// FuzzParseKey: a key that parses is the key that its fields make, so two spellings
// of one tuple cannot lie in one store.
func FuzzParseKey(f *testing.F) { fuzzParseKey(f) }

func fuzzParseKey(f fuzzer) {
	id := tga.ID{6: 0x70, 8: 0x80, 15: 1}
	for _, key := range [][]byte{
		keyspace.AppendApproval(nil, id), keyspace.AppendChunk(nil, id, 1, 2), keyspace.AppendCheckpoint(nil, id, 3),
		keyspace.AppendEntry(nil, id, 4), keyspace.AppendGlobal(nil, 5), keyspace.AppendLedger(nil, tga.Sum(nil)),
		keyspace.AppendMeta(nil, "format"), keyspace.AppendNote(nil, id, 6), keyspace.AppendOpen(nil, id),
		keyspace.AppendTimer(nil, 7, id), keyspace.AppendTombstone(nil, id), keyspace.AppendSegment(nil, 8),
		keyspace.AppendStream(nil, id, 9), keyspace.AppendBlob(nil, tga.Sum(nil)),
	} {
		f.Add(key)
	}
	f.Fuzz(bounded(func(t *testing.T, key []byte) {
		if keyspace.Check(key) != nil {
			return
		}
		again, err := rewrite(key)
		if err != nil || !bytes.Equal(again, key) {
			t.Fatalf("key %x checks, parses to the fields of %x, %v", key, again, err)
		}
	}))
}

func rewrite(key []byte) ([]byte, error) {
	switch keyspace.Kind(key[0]) {
	case keyspace.Approval:
		id, err := keyspace.ParseApproval(key)
		return keyspace.AppendApproval(nil, id), err
	case keyspace.Chunk:
		id, seq, chunk, err := keyspace.ParseChunk(key)
		return keyspace.AppendChunk(nil, id, seq, chunk), err
	case keyspace.Checkpoint:
		id, seq, err := keyspace.ParseCheckpoint(key)
		return keyspace.AppendCheckpoint(nil, id, seq), err
	case keyspace.Entry:
		id, seq, err := keyspace.ParseEntry(key)
		return keyspace.AppendEntry(nil, id, seq), err
	case keyspace.Global:
		n, err := keyspace.ParseGlobal(key)
		return keyspace.AppendGlobal(nil, n), err
	case keyspace.BeginID:
		d, err := keyspace.ParseBeginID(key)
		return keyspace.AppendBeginID(nil, d), err
	case keyspace.Ledger:
		d, err := keyspace.ParseLedger(key)
		return keyspace.AppendLedger(nil, d), err
	case keyspace.Meta:
		name, err := keyspace.ParseMeta(key)
		return keyspace.AppendMeta(nil, name), err
	case keyspace.Note:
		id, n, err := keyspace.ParseNote(key)
		return keyspace.AppendNote(nil, id, n), err
	case keyspace.Open:
		id, err := keyspace.ParseOpen(key)
		return keyspace.AppendOpen(nil, id), err
	case keyspace.Timer:
		due, id, err := keyspace.ParseTimer(key)
		return keyspace.AppendTimer(nil, due, id), err
	case keyspace.Tombstone:
		id, err := keyspace.ParseTombstone(key)
		return keyspace.AppendTombstone(nil, id), err
	case keyspace.Segment:
		n, err := keyspace.ParseSegment(key)
		return keyspace.AppendSegment(nil, n), err
	case keyspace.Stream:
		id, seq, err := keyspace.ParseStream(key)
		return keyspace.AppendStream(nil, id, seq), err
	default:
		d, err := keyspace.ParseBlob(key)
		return keyspace.AppendBlob(nil, d), err
	}
}

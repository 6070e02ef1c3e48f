package fuzz

import (
	"bytes"
	"testing"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
)

// FuzzParseKey: a key that parses equals the key that its fields make. So a store cannot have one tuple
// under two keys.
func FuzzParseKey(f *testing.F) { fuzzParseKey(f) }

func fuzzParseKey(f fuzzer) {
	id := tga.ID{6: 0x70, 8: 0x80, 15: 1}
	for _, key := range [][]byte{
		attachment(keyspace.Approval, keyspace.ApprovalKey(id)), keyspace.AppendChunk(nil, id, 1, 2), keyspace.AppendCheckpoint(nil, id, 3),
		keyspace.AppendEntry(nil, id, 4), keyspace.AppendGlobal(nil, 5), keyspace.AppendLedger(nil, tga.Sum(nil)),
		keyspace.AppendMeta(nil, "format"), keyspace.AppendNote(nil, id, 6), keyspace.AppendOpen(nil, id),
		attachment(keyspace.Timer, keyspace.TimerKey(7, id)), keyspace.AppendTombstone(nil, id), keyspace.AppendSegment(nil, 8),
		attachment(keyspace.Stream, keyspace.StreamKey(id, 9)), attachment(keyspace.Blob, keyspace.DigestKey(tga.Sum(nil))),
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
		return keyspace.AppendAttachment(nil, keyspace.Approval, keyspace.ApprovalKey(tga.ID(key[1:])))
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
	case keyspace.BeginID, keyspace.Blob:
		return keyspace.AppendAttachment(nil, keyspace.Kind(key[0]), keyspace.DigestKey([32]byte(key[1:])))
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
		due, id, err := keyspace.ParseTimer(key[1:])
		return attachment(keyspace.Timer, keyspace.TimerKey(due, id)), err
	case keyspace.Tombstone:
		id, err := keyspace.ParseTombstone(key)
		return keyspace.AppendTombstone(nil, id), err
	case keyspace.Segment:
		n, err := keyspace.ParseSegment(key)
		return keyspace.AppendSegment(nil, n), err
	default:
		id, item, err := keyspace.ParseStream(key[1:])
		return attachment(keyspace.Stream, keyspace.StreamKey(id, item)), err
	}
}

func attachment(kind keyspace.Kind, owner []byte) []byte {
	key, err := keyspace.AppendAttachment(nil, kind, owner)
	if err != nil {
		panic(err)
	}
	return key
}

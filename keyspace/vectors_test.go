package keyspace_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
)

var update = flag.Bool("update", false, "rewrite the golden vectors")

const vectorsFile = "../test_vectors/tga/keyspace.json"

type vector struct {
	Name  string `json:"name"`
	Key   string `json:"key"`             // hex
	Lower string `json:"lower,omitempty"` // hex, of the bounds named
	Upper string `json:"upper,omitempty"`
}

// TestKeyVectors holds the codec to its published bytes: a store written by one
// version must be read by the next.
func TestKeyVectors(t *testing.T) {
	id, err := tga.ParseID("01936a8b-4c2d-7000-8000-0000000000ff")
	if err != nil {
		t.Fatal(err)
	}
	last, err := tga.ParseID("ffffffff-ffff-7fff-bfff-ffffffffffff")
	if err != nil {
		t.Fatal(err)
	}
	digest := tga.Sum([]byte("tgad"))
	bounded := func(name string, key, lower, upper []byte) vector {
		return vector{name, hex.EncodeToString(key), hex.EncodeToString(lower), hex.EncodeToString(upper)}
	}
	with := func(name string, key []byte, bounds func(tga.ID) ([]byte, []byte), id tga.ID) vector {
		lower, upper := bounds(id)
		return bounded(name, key, lower, upper)
	}
	chunkLower, chunkUpper := keyspace.ChunkBounds(id, 255)
	dueLower, dueUpper := keyspace.DueBounds(1768503600000)
	plain := func(name string, key []byte) vector { return vector{Name: name, Key: hex.EncodeToString(key)} }
	got := []vector{
		plain("approval", keyspace.AppendApproval(nil, id)),
		bounded("chunk 2 of entry 255, bounds of the entry's chunks", keyspace.AppendChunk(nil, id, 255, 2), chunkLower, chunkUpper),
		with("last chunk, bounds of the trace's chunks", keyspace.AppendChunk(nil, id, 1<<64-1, 1<<16-1), keyspace.TraceChunkBounds, id),
		with("checkpoint 0", keyspace.AppendCheckpoint(nil, id, 0), keyspace.CheckpointBounds, id),
		with("entry 1", keyspace.AppendEntry(nil, id, 1), keyspace.EntryBounds, id),
		with("entry 256 of the last id", keyspace.AppendEntry(nil, last, 256), keyspace.EntryBounds, last),
		plain("global 65536", keyspace.AppendGlobal(nil, 65536)),
		plain("begin id", keyspace.AppendBeginID(nil, digest)),
		plain("ledger", keyspace.AppendLedger(nil, digest)),
		plain("meta format", keyspace.AppendMeta(nil, "format")),
		with("note 1", keyspace.AppendNote(nil, id, 1), keyspace.NoteBounds, id),
		plain("open", keyspace.AppendOpen(nil, id)),
		bounded("timer, bounds of what is due then", keyspace.AppendTimer(nil, 1768503600000, id), dueLower, dueUpper),
		plain("tombstone", keyspace.AppendTombstone(nil, id)),
		plain("segment 3", keyspace.AppendSegment(nil, 3)),
		with("stream item 7", keyspace.AppendStream(nil, id, 7), keyspace.StreamBounds, id),
		plain("blob", keyspace.AppendBlob(nil, digest)),
	}
	if *update {
		b, err := json.MarshalIndent(got, "", "  ")
		if err == nil {
			err = os.WriteFile(vectorsFile, append(b, '\n'), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	var want []vector
	d := json.NewDecoder(bytes.NewReader(file))
	d.DisallowUnknownFields()
	if err := d.Decode(&want); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("%d vectors, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got  %+v\nwant %+v", got[i], want[i])
		}
		key, err := hex.DecodeString(want[i].Key)
		if err != nil {
			t.Fatal(err)
		}
		if err := keyspace.Check(key); err != nil {
			t.Errorf("%s: %v", want[i].Name, err)
		}
	}
}

package keyspace_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/tgad/tgad/internal/golden"
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

// TestKeyVectors compares the codec with its published bytes: a store that one version wrote must be
// readable for the next.
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
	timer := keyspace.TimerKey(1768503600000, id)
	dueLower, _ := keyspace.Bounds(keyspace.Timer)
	_, dueUpper := attachmentBounds(keyspace.Timer, func(tga.ID) []byte { return timer[:8] })(id)
	ofStream := attachmentBounds(keyspace.Stream, keyspace.StreamPrefix)
	plain := func(name string, key []byte) vector { return vector{Name: name, Key: hex.EncodeToString(key)} }
	node := keyspace.NodeKey(id, digest)
	scope := keyspace.ScopeStream("session", "s")
	item := func(name string, key []byte) vector { return plain(name, attachment(t, keyspace.Stream, key)) }
	got := []vector{
		plain("approval", attachment(t, keyspace.Approval, keyspace.ApprovalKey(id))),
		bounded("chunk 2 of entry 255, bounds of the entry's chunks", keyspace.AppendChunk(nil, id, 255, 2), chunkLower, chunkUpper),
		with("last chunk, bounds of the trace's chunks", keyspace.AppendChunk(nil, id, 1<<64-1, 1<<16-1), keyspace.TraceChunkBounds, id),
		with("checkpoint 0", keyspace.AppendCheckpoint(nil, id, 0), keyspace.CheckpointBounds, id),
		with("entry 1", keyspace.AppendEntry(nil, id, 1), keyspace.EntryBounds, id),
		with("entry 256 of the last id", keyspace.AppendEntry(nil, last, 256), keyspace.EntryBounds, last),
		plain("global 65536", keyspace.AppendGlobal(nil, 65536)),
		plain("begin id", attachment(t, keyspace.BeginID, keyspace.DigestKey(digest))),
		plain("ledger", keyspace.AppendLedger(nil, digest)),
		plain("meta format", keyspace.AppendMeta(nil, "format")),
		with("note 1", keyspace.AppendNote(nil, id, 1), keyspace.NoteBounds, id),
		plain("open", keyspace.AppendOpen(nil, id)),
		bounded("timer, bounds of what is due then", attachment(t, keyspace.Timer, timer), dueLower, dueUpper),
		plain("tombstone", keyspace.AppendTombstone(nil, id)),
		plain("segment 3", keyspace.AppendSegment(nil, 3)),
		with("stream item 7", attachment(t, keyspace.Stream, keyspace.StreamKey(id, 7)), ofStream, id),
		plain("evidence of a trace", attachment(t, keyspace.Blob, keyspace.EvidenceKey(digest, id))),
		item("counter of the derived key base of default/payments", keyspace.OccurrenceKey("default", "payments", "base")),
		item("undelivered calls of the identity identity", keyspace.UndeliveredKey("identity")),
		item("lock of a trace's remote executor", keyspace.ExecutorKey(id)),
		item("key of the call that ran instead of a trace's", keyspace.InsteadKey(id)),
		item("kept value name of default/payments", keyspace.KeptKey(keyspace.KeptStream("default", "payments"), "name")),
		item("record 3 of a turn", keyspace.StreamKey(id, 3)),
		item("what call 2 of a turn did to the state", keyspace.StreamKey(id, keyspace.OpsItem|2)),
		item("turn 7 of agent/session", keyspace.StreamKey(keyspace.TurnStream("session", "agent", "session"), 7)),
		item("open turn", keyspace.OpenTurnKey(id)),
		item("delegation 1 of a turn", keyspace.StreamKey(keyspace.TurnStream("delegations", id.String()), 1)),
		item("head of the state of session s", keyspace.StreamKey(scope, 0)),
		item("list of the state of session s with key", keyspace.StreamKey(scope, keyspace.ListItem("key"))),
		item("version 5 of key in the state of session s", keyspace.StreamKey(keyspace.ValueStream(scope, "key"), 5)),
		item("boundary 9 of working state 2", keyspace.StateKey(id, 2, 9)),
		plain("node of a working state", attachment(t, keyspace.Blob, keyspace.DigestKey(node))),
	}
	var layout [][]byte
	for _, v := range got[:17] { // one of each kind
		layout = append(layout, []byte(v.Key))
	}
	golden.HoldFormat(t, "StoreVersion", tga.StoreVersion, layout...)
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

// attachment is a key as the store writes it.
func attachment(t *testing.T, kind keyspace.Kind, owner []byte) []byte {
	t.Helper()
	key, err := keyspace.AppendAttachment(nil, kind, owner)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

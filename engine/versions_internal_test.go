package engine

import (
	"testing"

	"github.com/tgad/tgad/internal/backup/manifest"
	"github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
	"github.com/tgad/tgad/wal/chain"
)

func TestFormatsHaveTheirNumbers(t *testing.T) {
	open := chain.Trace{Namespace: "default", Deadline: 3, Entries: []tga.LogEntry{{}}}
	open.Head.State, open.Entries[0].TS = tga.Authorized, 2
	leaf := Leaf{TraceID: tga.ID{1}, FirstSeq: 2, Entries: 3, FirstNote: 4, Notes: 5, HeadDigest: tga.Digest{6}, NoteDigest: tga.Digest{7}, Committed: 8, NewestTS: 9}
	at := position{line: tga.ID{1}, at: wal.Position{Segment: 2, Start: 3, End: 4, Group: 5, Sum: 6}, keys: 7, sum: 8}
	golden.HoldFormat(t, "StoreValueVersion", tga.StoreValueVersion,
		appendOpenValue(nil, &open), appendLeafValue(nil, &leaf), tombstone{First: 1, Last: 2, Head: tga.Digest{3}, Segment: 4}.appendValue(nil),
		at.appendValue(nil), appendRow(nil, &wal.Op{Value: []byte("value")}),
		appendRow(nil, &wal.Op{Place: wal.Inline, Ref: wal.Ref{Segment: 1, Offset: 2, Length: 3, Sum: 4}}),
		appendRow(nil, &wal.Op{Place: wal.InFile, File: wal.File{ID: tga.ID{1}, Digest: [32]byte{2}, Length: 3}}))
	golden.HoldFormat(t, "BackupVersion", tga.BackupVersion, []byte(manifest.Format), golden.Shape(manifest.Manifest{}))
	golden.HoldFormat(t, "WitnessVersion", tga.WitnessVersion, []byte(witnessFormat), golden.Shape(witness{}))
}

package wal

import (
	"testing"

	"github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/schemas/tga"
)

func TestFormatsHaveTheirNumbers(t *testing.T) {
	id := Identity{Store: tga.ID{1}, Timeline: tga.ID{2}, Number: 3, Salt: 4, Size: 5 << 20}
	golden.HoldFormat(t, "LogSegmentVersion", tga.LogSegmentVersion, appendIdentity(nil, id))

	file := File{ID: tga.ID{6}, Digest: [32]byte{7}, Length: 8}
	var ops Ops
	ops.Insert([]byte("key"), []byte("value"))
	ops.PutBody([]byte("key"), []byte("value"), []byte("body"))
	ops.PutFile([]byte("key"), []byte("value"), file)
	ops.Delete([]byte("key"))
	ops.Order([]byte("leaf"))
	head := header{group: 1, prev: 2, ops: 3, first: 4, committed: 5, ts: 6, opsLen: 7, bodiesLen: 8, opsSum: 9}
	var b [headerLen]byte
	head.put(b[:], &id, identityLen)
	golden.HoldFormat(t, "LogRecordVersion", tga.LogRecordVersion, b[:], ops.ops, ops.bodies)

	// A reader takes these bytes: see TestPackedSegmentIsAsItsVectors.
	_, packed := packedBase(t)
	golden.HoldFormat(t, "LogPackedVersion", tga.LogPackedVersion, packed.bytes())
	golden.HoldFormat(t, "LogBodyVersion", tga.LogBodyVersion, file.header([]byte("key")))
}

package wal

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
)

// TestNoSegmentIsMadeWithoutItsSalt: the salt is all that tells a segment's records from those of
// an earlier use of its number. Where none can be drawn, no segment may be begun.
func TestNoSegmentIsMadeWithoutItsSalt(t *testing.T) {
	b := newBenchOf(t, vfs.NewMem(), MinSegment)
	failed, draws := errors.New("no random bytes"), 0
	b.log.opts.Random = func([]byte) error { draws++; return failed }
	var err error
	for i := 0; i < 40 && err == nil; i++ {
		_, err = b.log.Append(filler(t, 5000))
	}
	if !errors.Is(err, failed) || tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("after %d draws that failed: %v, in segment %d with salt %x", draws, err, b.log.id.Number, b.log.id.Salt)
	}
	if b.log.id.Number != 1 {
		t.Fatalf("segment %d was begun with salt %x", b.log.id.Number, b.log.id.Salt)
	}
}

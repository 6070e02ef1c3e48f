package segment_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/segment"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// patch returns a copy of b with changed bytes in its footer. It makes the digests of the footer and of the
// file right again, so that the footer is a consistent lie.
func patch(b []byte, f func(footer []byte)) []byte {
	b = bytes.Clone(b)
	t := b[len(b)-88:]
	footer := b[binary.BigEndian.Uint64(t) : len(b)-88]
	f(footer)
	sum := tga.Sum(footer)
	copy(t[16:], sum[:])
	sum = tga.Sum(b[:len(b)-40])
	copy(t[48:], sum[:])
	return b
}

// TestLyingFooterIsDetected changes each byte of the footer and makes all digests right again. Verify must
// find each change.
func TestLyingFooterIsDetected(t *testing.T) {
	whole := seal(t, few()...)
	if !bytes.Equal(patch(whole, func([]byte) {}), whole) {
		t.Fatal("patch does not leave a segment as it is")
	}
	n := int(binary.BigEndian.Uint64(whole[len(whole)-80:]))
	for i := range n {
		b := patch(whole, func(footer []byte) { footer[i] ^= 1 })
		_, err := verify(b)
		if tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Fatalf("byte %d of the footer's %d lies: %v", i, n, err)
		}
	}
	// The head digest of the first trace in the index.
	const first = 16 + 2*48 // after the head, the block and the list
	r, err := segment.Open(bytes.NewReader(whole), int64(len(whole)), nil)
	if err != nil {
		t.Fatal(err)
	}
	var info segment.Info
	for info = range r.Index() {
		break
	}
	_, err = verify(patch(whole, func(footer []byte) { footer[first+40] ^= 1 }))
	var te *tga.Error
	if !errors.As(err, &te) || te.TraceID != info.TraceID || te.Seq != info.Last || te.WantDigest != info.HeadDigest ||
		te.GotDigest == te.WantDigest || te.Where != "stored" {
		t.Errorf("a head digest that lies: %+v", te)
	}
}

// TestLyingFooterIsFoundOnLookup: block and trace are good, but they are not the ones that the footer names.
func TestLyingFooterIsFoundOnLookup(t *testing.T) {
	one := few()[0]
	for name, c := range map[string]struct {
		at     int
		digest bool // the error has both digests
	}{
		"digest of the block":     {16 + 16, true},
		"head digest":             {16 + 2*48 + 40, false},
		"number of the last note": {16 + 2*48 + 23, false},
		"id":                      {16 + 2*48 + 15, false},
	} {
		b := patch(seal(t, one), func(footer []byte) { footer[c.at] ^= 1 })
		r, err := segment.Open(bytes.NewReader(b), int64(len(b)), nil)
		if err != nil {
			t.Fatal(err)
		}
		var indexed tga.ID
		for info := range r.Index() {
			indexed = info.TraceID
		}
		_, err = r.Trace(indexed)
		var te *tga.Error
		if !errors.As(err, &te) || te.Code != tga.StateChecksumMismatch || te.TraceID.IsZero() || c.digest != (te.WantDigest != te.GotDigest) {
			t.Errorf("%s: %+v", name, te)
		}
		for _, err := range r.Traces() {
			if tga.CodeOf(err) != tga.StateChecksumMismatch {
				t.Errorf("%s, all traces: %v", name, err)
			}
		}
	}
}

// TestLyingBordersOfBlocksAreTold: the border between two blocks is one byte off. Both blocks keep the
// expected digests, so the error must name their places.
func TestLyingBordersOfBlocksAreTold(t *testing.T) {
	_, err := verify(patch(seal(t, many(20)...), func(footer []byte) {
		for _, at := range []int{16 + 8, 16 + 48} { // length of the first block, offset of the second one
			binary.BigEndian.PutUint64(footer[at:], binary.BigEndian.Uint64(footer[at:])+1)
		}
		binary.BigEndian.PutUint64(footer[16+48+8:], binary.BigEndian.Uint64(footer[16+48+8:])-1)
	}))
	var te *tga.Error
	if !errors.As(err, &te) || te.Code != tga.StateChecksumMismatch || !te.WantDigest.IsZero() || !strings.Contains(te.Message, "footer: block 0 is ") {
		t.Errorf("%+v", te)
	}
}

// TestVerifyNamesTheBadPart: the error names the number of the entry or note whose frame cannot be read.
func TestVerifyNamesTheBadPart(t *testing.T) {
	good := few()[0]
	whole := record(good)
	for n, want := range map[int]string{1: "entry 1: ", 3: "entry 3: ", 5: "note 1: ", 6: "note 2: "} {
		at := 24
		for i := range min(n-1, 4) {
			frame, spill := chain.AppendFrame(nil, &good.Entries[i])
			at += 12 + len(frame) + len(spill)
		}
		if n > 5 {
			at += 4 + len(chain.AppendNoteFrame(nil, &good.Notes[0].Note, good.Notes[0].Committed, good.Notes[0].Epoch))
		}
		if at += 12; n > 4 {
			at -= 8
		}
		b := bytes.Clone(whole)
		b[at] ^= 1 // the magic byte of a frame
		_, err := verify(forge(t, b))
		var te *tga.Error
		if !errors.As(err, &te) || te.TraceID != good.ID || !strings.Contains(te.Message, want) {
			t.Errorf("part %d: %v", n, err)
			continue
		}
		if seq, note := uint64(n), uint32(n-4); n <= 4 && (te.Seq != seq || te.Note != 0) || n > 4 && (te.Note != note || te.Seq != 0) {
			t.Errorf("part %d: seq %d, note %d", n, te.Seq, te.Note)
		}
	}
}

// TestVerifyNamesTheBadTrace puts an entry of another chain into a segment, with right compression and
// digests: only the chain itself is wrong.
func TestVerifyNamesTheBadTrace(t *testing.T) {
	good, bad := few()[0], few()[0]
	other := trace(chaintest.Options{Seed: 1, Key: "order-1", Args: `{"amount":13}`})
	bad.Entries[2] = other.Entries[2]
	b := forge(t, record(good), record(bad))
	_, err := verify(b)
	var te *tga.Error
	if !errors.As(err, &te) || te.Code != tga.StateChecksumMismatch || te.TraceID != bad.ID || te.Seq != 3 ||
		te.WantDigest != good.Entries[1].Digest || te.GotDigest != other.Entries[1].Digest {
		t.Errorf("%v\n%+v", err, te)
	}
}

func TestVerifyNamesTheDamagedBlock(t *testing.T) {
	b := seal(t, many(40)...)
	r, err := segment.Open(bytes.NewReader(b), int64(len(b)), nil)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	_, err = verify(b)
	var te *tga.Error
	if !errors.As(err, &te) || te.TraceID.IsZero() {
		t.Fatalf("%v", err)
	}
	if info, ok := r.Lookup(te.TraceID); !ok || info.Block == 0 {
		t.Errorf("names trace %s, in %+v", te.TraceID, info)
	}
}

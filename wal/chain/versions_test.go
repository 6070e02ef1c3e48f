package chain_test

import (
	"testing"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

func TestFormatsHaveTheirNumbers(t *testing.T) {
	made := chaintest.New(chaintest.Options{Seed: 8, Notes: 2, Documents: manyShapes["three, two spill"].Documents})
	var frames, sealed, notes [][]byte
	for _, e := range made.Entries {
		e.Key = 3
		frame, spill, err := chain.AppendSealedFrame(nil, &e, &chaintest.Ring{})
		if err != nil {
			t.Fatal(err)
		}
		sealed = append(sealed, frame, spill)
		erased := chaintest.Erase(e)
		for _, e := range []*chain.Entry{&e, &erased} {
			frame, spill := chain.AppendFrame(nil, e)
			frames = append(frames, frame, spill)
		}
	}
	for i := range made.Notes {
		notes = append(notes, chain.AppendNoteFrame(nil, &made.Notes[i], 4, 5))
	}
	golden.HoldFormat(t, "EntryFrameVersion", tga.EntryFrameVersion, frames...)
	golden.HoldFormat(t, "SealedFrameVersion", tga.SealedFrameVersion, sealed...)
	golden.HoldFormat(t, "NoteFrameVersion", tga.NoteFrameVersion, notes...)
}

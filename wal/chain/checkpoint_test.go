package chain_test

import (
	"errors"
	"testing"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/schemas/tga"
)

// TestCheckpointThatDisagreesIsRefused: one of an earlier or of the newest entry verifies; one that names another
// trace, another entry, state or plan does not, though its own digests are right.
func TestCheckpointThatDisagreesIsRefused(t *testing.T) {
	tr, earlier := at(t, 4, chaintest.Options{}), at(t, 2, chaintest.Options{}).Checkpoint(chaintest.Start)
	if _, err := tr.VerifyCheckpoint(earlier.AppendCanonical(nil)); err != nil {
		t.Errorf("of an earlier entry: %v", err)
	}
	newest := tr.Checkpoint(chaintest.Start)
	if _, err := tr.VerifyCheckpoint(newest.AppendCanonical(nil)); err != nil || newest.Seq != 4 {
		t.Errorf("of the newest entry, %d: %v", newest.Seq, err)
	}
	for name, change := range map[string]func(*tga.Checkpoint){
		"another trace":               func(c *tga.Checkpoint) { c.TraceID[15]++; c.State.TraceID[15]++ },
		"another trace in its state":  func(c *tga.Checkpoint) { c.State.TraceID[15]++ },
		"another entry in its state":  func(c *tga.Checkpoint) { c.State.LastSeq-- },
		"an entry that is not there":  func(c *tga.Checkpoint) { c.Seq, c.State.LastSeq = 5, 5 },
		"another entry's number":      func(c *tga.Checkpoint) { c.Seq, c.State.LastSeq = 3, 3 },
		"another digest of the entry": func(c *tga.Checkpoint) { c.State.LastDigest[0]++ },
		"another state":               func(c *tga.Checkpoint) { c.State.Current = tga.Failed },
		"another plan":                func(c *tga.Checkpoint) { c.State.PlanID[15]++ },
	} {
		cp := tr.Checkpoint(chaintest.Start)
		change(&cp)
		cp.Seal()
		_, err := tr.VerifyCheckpoint(cp.AppendCanonical(nil))
		var told *tga.Error
		if !errors.As(err, &told) || told.Code != tga.StateChecksumMismatch || told.Where != "stored" || told.TraceID != tr.ID {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := tr.VerifyCheckpoint([]byte("x")); tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("no checkpoint: %v", err)
	}
}

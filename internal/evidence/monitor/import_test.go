package monitor_test

import (
	"path/filepath"
	"testing"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/evidence/monitor"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestImportedStoreIsNoAlarm: a store that was made from an export has the calls of another one, which were
// sent by the rules.
func TestImportedStoreIsNoAlarm(t *testing.T) {
	s := newStand(t)
	unsent := chaintest.New(chaintest.Options{Seed: 4, Entries: 2})
	for _, a := range chaintest.Artifacts(chaintest.Options{Seed: 4, Calls: tga.Meta{tga.MetaAttempt: tga.AttemptNone}, Status: tga.StatusError})[2:] {
		unsent.Append(a, nil)
	}
	twice := chaintest.New(chaintest.Options{Seed: 3, Entries: 3})
	twice.Note(chain.NewNote{Kind: tga.NoteAttempt, Who: "tgad", Body: []byte(`{"attempt":2,"epoch":"1","executor":"local"}`)})
	twice.Append(chaintest.Artifacts(chaintest.Options{Seed: 3})[3], nil)
	told := chaintest.New(chaintest.Options{Seed: 1})
	told.Note(chain.NewNote{Kind: "remark", Who: "tester", Body: []byte(`{}`)})
	erased := chaintest.New(chaintest.Options{Seed: 5})
	for i := range erased.Entries {
		erased.Entries[i] = chaintest.Erase(erased.Entries[i])
	}
	traces := []*chaintest.Trace{
		told, chaintest.New(chaintest.Options{Seed: 2, Entries: 3}), twice, unsent, erased,
		chaintest.New(chaintest.Options{Seed: 6, Verdict: tga.Deny}),
	}
	opts := engine.Options{FS: s.fs, FirstSegmentBytes: 1 << 16, SegmentBytes: 1 << 16}
	err := engine.Import(t.Context(), "store", opts, func(add func([]chain.Entry, []tga.Note) error) error {
		for _, tr := range traces {
			if err := add(tr.Entries, tr.Notes); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.open()
	t.Cleanup(s.close)
	if err := s.db.Unfreeze(t.Context(), true, "me"); err != nil {
		t.Fatal(err)
	}
	s.append(9, "")
	s.covered()
	follow(t, s.monitor(monitor.Options{State: filepath.Join(t.TempDir(), "state")}))
	s.endMonitor()
}

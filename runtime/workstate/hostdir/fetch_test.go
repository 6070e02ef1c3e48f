package hostdir_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/runtime/workstate/hostdir"
	"github.com/tgad/tgad/schemas/tga"
)

// TestFetchBringsOneSnapshot: a fork's directory is restored from a repository of its own.
func TestFetchBringsOneSnapshot(t *testing.T) {
	d, other := open(t, hostdir.Options{}), open(t, hostdir.Options{Exclude: []string{"left", "a/b/"}})
	write(t, d, "a/file", "1", 0o640)
	write(t, d, ".git/HEAD", "ref", 0o644)
	must(t, os.Mkdir(filepath.Join(d.Path(), "empty"), 0o700))
	first, then := snapshot(t, d), tree(t, d.Path())
	write(t, d, "a/file", "2", 0o640)
	second := snapshot(t, d)
	if err := other.Restore(bg, first); !errors.Is(err, tga.SnapshotMismatch) {
		t.Fatalf("a snapshot of another repository: %v, want SNAPSHOT_MISMATCH", err)
	}
	must(t, other.Fetch(bg, d, first), other.Restore(bg, first))
	for _, line := range diff(then, tree(t, other.Path())) {
		t.Error(line)
	}
	if err := other.Restore(bg, second); !errors.Is(err, tga.SnapshotMismatch) {
		t.Errorf("what was not fetched: %v, want SNAPSHOT_MISMATCH", err)
	}
	missing := workstate.NewNode([]byte(`{"tree":"` + strings.Repeat("0", 40) + `"}`))
	if err := other.Fetch(bg, d, missing); !errors.Is(err, tga.SnapshotMismatch) {
		t.Errorf("fetch of what is nowhere: %v, want SNAPSHOT_MISMATCH", err)
	}
	// The family's snapshots lie in several repositories: each keeps its own.
	must(t, d.Collect(bg, []*workstate.Node{first, missing}), d.Restore(bg, first))
	place := other.Place()
	if place.Kind != workstate.PlaceDirectory || place.Path != other.Path() || !slices.Equal(place.Exclude, []string{"a/b", "left"}) {
		t.Errorf("the place is %+v", place)
	}
}

// TestSnapshotRoundTripsThroughJSON: what was exported restores the directory, beside the
// repository that it names a tree of.
func TestSnapshotRoundTripsThroughJSON(t *testing.T) {
	d := open(t, hostdir.Options{})
	write(t, d, "a/file", "1", 0o640)
	r := &workstate.Registry{}
	must(t, workstate.Add(r, d))
	s, err := workstate.New(bg, workstate.NewSession(), r, workstate.Options{})
	must(t, err)
	snap, err := s.Snapshot(bg, workstate.SnapshotOptions{}, "")
	must(t, err)
	then := tree(t, d.Path())
	write(t, d, "a/file", "2", 0o600)
	write(t, d, "b", "2", 0o600)
	_, err = s.Restore(bg, snap, workstate.RestoreOptions{}, "")
	must(t, err)
	for _, line := range diff(then, tree(t, d.Path())) {
		t.Error(line)
	}
}

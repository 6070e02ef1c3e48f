package engine_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestImportToWhereNothingCanBeMade: a disk that takes no directory, as /proc takes none, is an error with a code. An error
// of the caller's own stays what it is.
func TestImportToWhereNothingCanBeMade(t *testing.T) {
	fill := func(func([]chain.Entry, []tga.Note) error) error { return nil }
	if err := engine.Import(t.Context(), "/proc/tgad", engine.Options{}, fill); tga.CodeOf(err) != tga.StoreUnavailable || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	own := errors.New("the caller's own")
	fill = func(func([]chain.Entry, []tga.Note) error) error { return own }
	if err := engine.Import(t.Context(), t.TempDir(), engine.Options{}, fill); !errors.Is(err, own) || tga.CodeOf(err) != "" {
		t.Errorf("%v", err)
	}
}

package evidence

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/schemas/tga"
)

// ReadSigner reads the key that signs for the store in a directory. One inside of the store is
// refused: who copies the store would have it.
func ReadSigner(path, store string) (checkpoint.Signer, error) {
	if within(path, store) {
		return checkpoint.Signer{}, tga.Errorf(tga.ValidationError, "evidence: the key %s lies in the store: who copies the store has it then. Put it elsewhere", path)
	}
	return checkpoint.ReadSigner(path)
}

// FilePlace is a file outside of the store in a directory.
func FilePlace(path, store string) (checkpoint.Target, error) {
	if within(path, store) {
		return nil, tga.Errorf(tga.ValidationError, "evidence: the file %s lies in the store, and would be rolled back with it. Put it on another disk", path)
	}
	return checkpoint.Directory{Path: path}, nil
}

// within says whether a path is in a directory, by the names that links lead to.
func within(path, dir string) bool {
	real := func(p string) string {
		if abs, err := filepath.Abs(p); err == nil {
			p = abs
		}
		for rest := ""; ; {
			if found, err := filepath.EvalSymlinks(p); err == nil || !errors.Is(err, os.ErrNotExist) || filepath.Dir(p) == p {
				return filepath.Join(found, rest)
			}
			p, rest = filepath.Dir(p), filepath.Join(filepath.Base(p), rest)
		}
	}
	rel, err := filepath.Rel(real(dir), real(path))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

package evidence

import (
	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/schemas/tga"
)

// ReadSigner reads the key that signs for the store in a directory. One inside of the store is
// refused: who copies the store would have it.
func ReadSigner(path, store string) (checkpoint.Signer, error) {
	if inside(path, store) {
		return checkpoint.Signer{}, tga.Errorf(tga.ValidationError, "evidence: the key %s lies in the store: who copies the store has it then. Put it elsewhere", path)
	}
	return checkpoint.ReadSigner(path)
}

// inside says whether a path lies in the directory of a store, which one in a database does not have.
func inside(path, store string) bool { return store != "" && access.Within(path, store) }

// FilePlace is a file outside of the store in a directory.
func FilePlace(path, store string) (checkpoint.Target, error) {
	if inside(path, store) {
		return nil, tga.Errorf(tga.ValidationError, "evidence: the file %s lies in the store, and would be rolled back with it. Put it on another disk", path)
	}
	return checkpoint.Directory{Path: path}, nil
}

package evidence

import (
	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/schemas/tga"
)

// ReadSigner reads the key that signs for the store in a directory. It refuses a key inside the
// store's directory: whoever copies the store would have the key.
func ReadSigner(path, store string) (checkpoint.Signer, error) {
	if inside(path, store) {
		return checkpoint.Signer{}, tga.Errorf(tga.ValidationError, "evidence: the key %s lies in the store: who copies the store has it then. Put it elsewhere", path)
	}
	return checkpoint.ReadSigner(path)
}

// inside says whether a path is in the directory of a store. A store in a database has no directory ("").
func inside(path, store string) bool { return store != "" && access.Within(path, store) }

// FilePlace is a file as a place for checkpoints. It must be outside the directory of the store.
func FilePlace(path, store string) (checkpoint.Target, error) {
	if inside(path, store) {
		return nil, tga.Errorf(tga.ValidationError, "evidence: the file %s lies in the store, and would be rolled back with it. Put it on another disk", path)
	}
	return checkpoint.Directory{Path: path}, nil
}

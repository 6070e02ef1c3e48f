package doctor

import (
	"os"
	"strings"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/schemas/tga"
)

// FrozenFor returns why a store takes no writes. It returns "" if the only reason is that the
// store was opened for reading.
func FrozenFor(s engine.Stats) string {
	if strings.HasPrefix(s.Frozen, string(tga.PermissionDenied)) {
		return ""
	}
	return s.Frozen
}

// HasStore reports whether dir holds a store. It does not try to open one, because that would
// leave a lock file in a directory that may have nothing to do with tgad. If the directory
// cannot be read, HasStore returns an error, because it may hold a store.
func HasStore(dir string) (bool, error) {
	if _, err := os.ReadDir(dir); err != nil {
		return false, err
	}
	return engine.IsStore(dir)
}

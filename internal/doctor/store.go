package doctor

import (
	"os"
	"strings"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/schemas/tga"
)

// FrozenFor returns why a store takes no writes, "" where that is only because it was
// opened for reading.
func FrozenFor(s engine.Stats) string {
	if strings.HasPrefix(s.Frozen, string(tga.PermissionDenied)) {
		return ""
	}
	return s.Frozen
}

// HasStore reports whether a store lies in dir. Opening one to find out would leave a
// lock file in a directory that has nothing to do with it. A directory that cannot be read
// may have one: that is an error.
func HasStore(dir string) (bool, error) {
	if _, err := os.ReadDir(dir); err != nil {
		return false, err
	}
	return engine.IsStore(dir)
}

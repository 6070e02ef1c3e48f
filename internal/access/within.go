package access

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// Within says whether a path is in a directory, after links are resolved.
func Within(path, dir string) bool {
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

package access

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// mostLinks bounds how many links to what does not exist are followed, so that links which somebody
// changes meanwhile do not hold the caller.
const mostLinks = 255

// Within says whether a path is in a directory, after links are resolved. It need not exist. A link to
// what does not exist counts as its target: that is where a file would be made.
func Within(path, dir string) bool {
	real := func(p string) string {
		if abs, err := filepath.Abs(p); err == nil {
			p = abs
		}
		links := 0
		for rest := ""; ; {
			found, err := filepath.EvalSymlinks(p)
			if err == nil || !errors.Is(err, os.ErrNotExist) || filepath.Dir(p) == p {
				return filepath.Join(found, rest)
			}
			if target, err := os.Readlink(p); err == nil && links < mostLinks {
				links++
				if !filepath.IsAbs(target) {
					target = filepath.Dir(p) + string(filepath.Separator) + target // as it is: .. leads from where links in it lead
				}
				p = target
				continue
			}
			p, rest = filepath.Dir(p), filepath.Join(filepath.Base(p), rest)
		}
	}
	rel, err := filepath.Rel(real(dir), real(path))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// Target returns what a path leads to if it names a link, and else the path itself. Ask it before a file or a
// directory is replaced by a rename, which would replace the link and leave what the link leads to as it was.
// fs.ErrNotExist: the link leads to what does not exist, for example because a disk is not mounted.
func Target(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return path, nil // an error meets whoever uses the path
	}
	return filepath.EvalSymlinks(path)
}

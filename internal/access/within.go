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

// Target returns what a path leads to if it names a link, and else the path itself. What the link leads to need not
// exist, but the directory of it must. Ask Target before a file or a directory is replaced by a rename, which would
// replace the link and leave what the link leads to as it was.
func Target(path string) (string, error) {
	for range mostLinks {
		target, err := os.Readlink(path)
		if err != nil {
			return path, nil // it is no link; another error meets whoever uses the path
		}
		if !filepath.IsAbs(target) {
			target = filepath.Dir(path) + string(filepath.Separator) + target // as it is: .. leads from where links in it lead
		}
		above, name := filepath.Split(strings.TrimRight(target, string(filepath.Separator)))
		if above, err = filepath.EvalSymlinks(above); err != nil {
			return path, err
		}
		path = filepath.Join(above, name)
	}
	return path, &fs.PathError{Op: "follow", Path: path, Err: errors.New("too many links")}
}

package hostdir

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// identity is what stays the same when a file or directory is moved.
type identity struct {
	Dev   int64 `json:"dev"`
	Ino   int64 `json:"ino"`
	Birth int64 `json:"birth"` // 0 if the file system does not say it
}

// mayBe compares without the time of birth, which costs a system call of its own.
func (i identity) mayBe(s stamp) bool { return i.Dev == s.dev && i.Ino == s.ino }

func (r *repo) homesFile() string { return filepath.Join(r.dir, "tgad.homes") }

// readHomes reads the identities of excluded paths and of the directories above them, as
// the last snapshot saw them.
func (r *repo) readHomes() (map[string]identity, error) {
	homes := map[string]identity{}
	b, err := os.ReadFile(r.homesFile())
	if errors.Is(err, fs.ErrNotExist) {
		return homes, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &homes)
	}
	return homes, err
}

// excluded reports whether a path is excluded or lies below an excluded path. A snapshot can have
// such a path, if it was made before the path was excluded.
func (d *Dir) excluded(name string) bool {
	for ; name != "."; name = filepath.Dir(name) {
		if d.exclude[name] {
			return true
		}
	}
	return false
}

// noteHomes makes the identities of the excluded paths, and of the directories above them,
// durable. If there is nothing at a path now, its last identity is kept: the path may have been
// moved by a call that a later rollback undoes.
func (d *Dir) noteHomes() error {
	now := maps.Clone(d.homes)
	for name := range d.exclude {
		for ; name != "."; name = filepath.Dir(name) {
			info, err := os.Lstat(filepath.Join(d.path, name))
			if err != nil {
				continue // it does not exist; a scan reports what can't be read
			}
			s := stampOf(info)
			now[name] = identity{s.dev, s.ino, birth(filepath.Join(d.path, name))}
		}
	}
	if maps.Equal(now, d.homes) {
		return nil
	}
	b, err := json.Marshal(now)
	if err != nil {
		return err
	}
	if err := d.repo.writeFile(d.repo.homesFile(), b); err != nil {
		return err
	}
	d.homes = now
	return nil
}

// homeOf finds out whether an excluded path was moved to name, which is not excluded: the path
// itself, or a directory above it. It returns the excluded path, or for a directory a map from
// the present places of the excluded paths below it to their old places.
func (d *Dir) homeOf(name string, s stamp) (home string, below map[string]string) {
	for was, id := range d.homes {
		if was == name || !id.mayBe(s) || id.Birth != birth(filepath.Join(d.path, name)) {
			continue
		}
		if d.exclude[was] {
			return was, nil
		}
		for e := range d.exclude {
			if rest, ok := strings.CutPrefix(e, was+string(filepath.Separator)); ok {
				if below == nil {
					below = map[string]string{}
				}
				below[filepath.Join(name, rest)] = e
			}
		}
	}
	return "", below
}

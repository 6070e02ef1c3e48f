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

// identity is what a file or directory keeps when it is moved.
type identity struct {
	Dev   int64 `json:"dev"`
	Ino   int64 `json:"ino"`
	Birth int64 `json:"birth"` // 0 where the file system does not say
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

// excluded says that a path is excluded or lies below one that is: a snapshot can be of a
// time when it was not.
func (d *Dir) excluded(name string) bool {
	for ; name != "."; name = filepath.Dir(name) {
		if d.exclude[name] {
			return true
		}
	}
	return false
}

// noteHomes makes durable who stands at the excluded paths and above them. A path at which
// nothing stands keeps what stood there: it may have been moved by a call that a later
// rollback takes back.
func (d *Dir) noteHomes() error {
	now := maps.Clone(d.homes)
	for name := range d.exclude {
		for ; name != "."; name = filepath.Dir(name) {
			info, err := os.Lstat(filepath.Join(d.path, name))
			if err != nil {
				continue // it is not there, and a scan reports what can't be read
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

// homeOf says of a path that is not excluded whether an excluded one was moved there:
// itself, or with a directory above it. It returns the excluded path, or the pairs of
// where excluded paths below it would stand now and their homes.
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

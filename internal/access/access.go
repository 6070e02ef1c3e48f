// Package access checks who may read and write the files that tgad uses, and makes tgad's own files
// so that only its user can.
//
// # Invariants
//
//	A1 private   a file that tgad makes has mode 0600, a directory 0700, whatever the umask   [Create] [MkdirAll]   TestMadeWhateverTheUmask
//	A2 trusted   a file that another user could have written is not used                      [Of]                  TestWhoMayWriteAndRead
package access

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Modes of the files and directories that tgad makes.
const (
	FileMode fs.FileMode = 0o600
	DirMode  fs.FileMode = 0o700
)

// Process is the process for which files are checked.
type Process struct {
	UID    int
	Groups []int // the effective one and the supplementary ones
}

// Finding says what is wrong with the mode or the owner of a file.
type Finding struct {
	// Refuse says why the file must not be used: a user other than this one and root could have
	// written it. "" = none could.
	Refuse string
	// Warn says what an operator should change: who else can read the file, and whether a group of
	// the process can write it (Kubernetes' fsGroup and a umask of 002 make that common).
	Warn string
}

// Judge checks a file or directory of that mode, owner and group.
func (p Process) Judge(mode fs.FileMode, uid, gid int) Finding {
	var f Finding
	own := slices.Contains(p.Groups, gid)
	switch {
	case uid != p.UID && uid != 0:
		f.Refuse = fmt.Sprintf("it belongs to uid %d, this process is uid %d", uid, p.UID)
	case mode&0o002 != 0:
		f.Refuse = fmt.Sprintf("mode %#o: everybody can write it", mode.Perm())
	case mode&0o020 != 0 && !own:
		f.Refuse = fmt.Sprintf("mode %#o: group %d can write it, and this process is not in that group", mode.Perm(), gid)
	}
	var warn []string
	if mode&0o020 != 0 && own {
		warn = append(warn, fmt.Sprintf("group %d can write it", gid))
	}
	read := fs.FileMode(0o4)
	if mode.IsDir() {
		read = 0o5 // also x: who can enter a directory can open files whose names they know
	}
	switch {
	case mode&read != 0:
		warn = append(warn, "everybody can read it")
	case mode&(read<<3) != 0:
		warn = append(warn, fmt.Sprintf("group %d can read it", gid))
	}
	if len(warn) > 0 {
		f.Warn = fmt.Sprintf("mode %#o: %s", mode.Perm(), strings.Join(warn, ", "))
	}
	return f
}

// Of checks a file or directory for this process. On a system without such owners and modes it finds
// nothing.
func Of(info fs.FileInfo) Finding {
	uid, gid, ok := owner(info)
	if !ok {
		return Finding{}
	}
	return self().Judge(info.Mode(), uid, gid)
}

// Own reports whether a file belongs to this process's user; false if that is not known.
func Own(info fs.FileInfo) bool {
	uid, _, ok := owner(info)
	return ok && uid == os.Geteuid()
}

// Check checks the file or directory at path. It follows links.
func Check(path string) (Finding, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Finding{}, err
	}
	return Of(info), nil
}

// CheckTree checks a directory and the regular files in it. The findings name the path. Warn counts
// the files with a warning and quotes the first.
func CheckTree(dir string) (Finding, error) {
	all, err := Check(dir)
	if err != nil {
		return all, err
	}
	all = all.of(dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return all, err
	}
	warned, first := 0, Finding{}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since the directory was read
		}
		if err != nil {
			return all, err
		}
		f := Of(info).of(filepath.Join(dir, e.Name()))
		all.Refuse = cmp.Or(all.Refuse, f.Refuse)
		if f.Warn != "" {
			if warned++; warned == 1 {
				first = f
			}
		}
	}
	if warned > 0 {
		w := fmt.Sprintf("%d files, the first %s", warned, first.Warn)
		all.Warn = strings.TrimPrefix(all.Warn+"; "+w, "; ")
	}
	return all, nil
}

func (f Finding) of(path string) Finding {
	if f.Refuse != "" {
		f.Refuse = path + ": " + f.Refuse
	}
	if f.Warn != "" {
		f.Warn = path + ": " + f.Warn
	}
	return f
}

// Open opens a regular file for reading, and returns what it is. The information is that of the open
// file, because the path may name another file by now. Open looks at the file before it opens it:
// opening a pipe waits until somebody writes to it.
func Open(path string) (*os.File, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s has mode %v: it is no regular file", path, info.Mode())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	if info, err = f.Stat(); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// ReadFile returns the content of a regular file. It is for the files that tgad keeps in places that it was told: unlike
// [os.ReadFile] it waits for nobody when something else is there.
func ReadFile(path string) ([]byte, error) {
	f, _, err := Open(path)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(f)
	return raw, errors.Join(err, f.Close())
}

// Create makes a new file that only this user can access, and opens it for reading and writing. It
// fails if the file exists.
func Create(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, FileMode)
	if err != nil {
		return nil, err
	}
	// A umask may have removed permissions of the owner. Restore them: otherwise the next open of
	// the file would fail.
	if info, err := f.Stat(); err == nil && info.Mode().Perm() == FileMode {
		return f, nil
	}
	if err := f.Chmod(FileMode); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return f, nil
}

// MkdirAll makes a directory and the missing ones above it, each accessible only for this user. It
// does not change a directory that exists.
func MkdirAll(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return &fs.PathError{Op: "mkdir", Path: dir, Err: errors.New("it is no directory")}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if above := filepath.Dir(dir); above != dir {
		if err := MkdirAll(above); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, DirMode); err != nil {
		if errors.Is(err, fs.ErrExist) {
			if _, err := os.Stat(dir); err == nil {
				return MkdirAll(dir) // another process was faster
			}
		}
		return err
	}
	if info, err = os.Stat(dir); err == nil && info.Mode().Perm() == DirMode {
		return nil
	}
	return os.Chmod(dir, DirMode)
}

// MkdirDurable is [MkdirAll] for a directory that must exist after a power failure, like the files in it.
// It syncs the parent of each directory that it makes. It syncs the parent of dir in any case: an
// earlier process may have made dir and died before the sync.
func MkdirDurable(dir string) error {
	dir = filepath.Clean(dir)
	above := []string{filepath.Dir(dir)}
	for d := above[0]; ; d = filepath.Dir(d) {
		if _, err := os.Lstat(d); !errors.Is(err, fs.ErrNotExist) || filepath.Dir(d) == d {
			break
		}
		above = append(above, filepath.Dir(d))
	}
	if err := MkdirAll(dir); err != nil {
		return err
	}
	for _, d := range above {
		if err := syncDir(d); err != nil {
			return err
		}
	}
	return nil
}

var syncDir = SyncDir // tests replace it to see what is synced

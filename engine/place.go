package engine

import (
	"errors"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine/internal/guard"
	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// A store that is not where it is looked for must not be taken for one that never was: a
// new store would send again what the missing one has recorded. A disk that is not mounted
// leaves an empty directory. So Open makes a store by itself only where there is no
// directory; an empty one takes Options.Create, which is the operator's word.
//
// To make a store takes many writes. The first is the file beginningName, durable before
// anything else is written and removed, durably, before Open returns: a directory that has
// it holds a store that nothing was ever acknowledged in, and the making goes on. It
// appears together with the directory, which is made under another name and renamed: no
// crash of ours leaves an empty directory behind.

// beginningName is in a directory while the store in it is being made for the first time.
const beginningName = "NEW"

// place is what is in a directory before a store is opened there.
type place uint8

const (
	placeAbsent    place = iota // there is no such directory
	placeEmpty                  // it holds nothing, or nothing that counts
	placeBeginning              // the making of a store began here and did not end
	placeStore                  // a store, or what is left of one
	placeForeign                // files that are no store's
)

// noContent are the files that say nothing of a store: what a file system puts into the
// root of a volume, and what lies beside a store: locks, sockets, the state of tgad mcp. No
// copy of a store has them.
var noContent = []string{"lost+found", LockName, "LOCK", SocketName, "run", "mcp", "children", indexName, ballastName, makingName}

// SocketName is the file in a store's directory that names the socket of the daemon that has
// the store. It is the daemon's to write.
const SocketName = "tgad.socket"

// IsStore reports whether a store, or what is left of one, lies in a directory of the
// operating system's. It opens nothing and leaves nothing.
func IsStore(dir string) (bool, error) {
	p, _, err := placeOf(guard.OS(), dir)
	return p == placeStore || p == placeBeginning, err
}

func placeOf(fs vfs.FS, dir string) (p place, others []string, err error) {
	names, err := fs.List(dir)
	if errors.Is(err, os.ErrNotExist) {
		if _, lerr := os.Lstat(dir); lerr == nil && vfs.Root(fs) == vfs.Default {
			// To make it would put a directory in the place of the link.
			return placeAbsent, nil, tga.Errorf(tga.NotFound, "open %s: it is a link to what is not there: is its disk mounted?", dir)
		}
		return placeAbsent, nil, nil
	}
	if err != nil {
		return placeAbsent, nil, tga.Errorf(tga.StoreUnavailable, "open %s: %w", dir, err)
	}
	if slices.Contains(names, beginningName) {
		return placeBeginning, nil, nil
	}
	for _, name := range names {
		switch {
		case ofStore(name), name == logName && wal.IsLog(fs, fs.PathJoin(dir, logName)):
			return placeStore, nil, nil
		case !slices.Contains(noContent, name):
			others = append(others, name)
		}
	}
	if len(others) > 0 {
		slices.Sort(others)
		return placeForeign, others, nil
	}
	return placeEmpty, nil, nil
}

// ofStore reports whether only a store has a file of that name, of this format or of the one
// before it. One is enough: what is missing beside it is for the scan of the log to find out.
func ofStore(name string) bool {
	return name == guard.WatermarkName || strings.HasPrefix(name, "MANIFEST-") || strings.HasPrefix(name, "marker.manifest.")
}

// site is the directory that a store is looked for in, before and after it is locked.
type site struct {
	dir      string
	opts     *Options
	readOnly bool
}

func (o *opening) site(dir string) site { return site{dir, &o.opts, o.readOnly} }

// settle finds out whether there is a store in dir, or whether one may be made, and makes
// the directory where there is none. It leaves nothing in a directory that it refuses.
func (s site) settle() error {
	dir := s.dir
	for {
		p, others, err := placeOf(s.opts.FS, dir)
		switch {
		case err != nil:
			return err
		case p == placeForeign:
			return tga.Errorf(tga.ValidationError, "open %s: it holds %d files that are no store's, %q is one: a store has a directory of its own", dir, len(others), others[0])
		case p == placeStore, p == placeBeginning && s.opts.StoreID.IsZero():
			return nil
		case s.readOnly:
			return tga.Errorf(tga.NotFound, "open %s: there is no store", dir)
		case !s.opts.StoreID.IsZero():
			return tga.Errorf(tga.NotFound, "open %s: there is no store, and it should be store %s: is its disk mounted?", dir, s.opts.StoreID)
		case p == placeEmpty && !s.opts.Create:
			return tga.Errorf(tga.NotFound, "open %s: the directory is empty. If there should be a store, its disk may not be mounted. To make a new one: tgad init --data %s", dir, clip.ShellWord(dir))
		}
		if err := s.witness().ofNone(dir); err != nil || p == placeEmpty {
			return err
		}
		if made, err := beginDir(s.opts.FS, dir); made || err != nil {
			return err
		}
	}
}

// begin marks an empty directory as one in which a store is being made. The directory is
// locked, so no other process makes or has made one since settle looked.
func (s site) begin() error {
	p, _, err := placeOf(s.opts.FS, s.dir)
	if err != nil || p != placeEmpty || s.readOnly || !s.opts.Create {
		return err
	}
	return writeBeginning(s.opts.FS, s.dir)
}

// began ends the making of a store: from now on an empty directory is a lost one.
func (s site) began() error {
	fs := s.opts.FS
	err := fs.Remove(fs.PathJoin(s.dir, beginningName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = syncDir(fs, s.dir)
	}
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "create %s: %w", s.dir, err)
	}
	return nil
}

// checkAccess refuses a store that somebody else could have written, and warns of who can
// read it. What is opened for reading is looked at whoever wrote it.
func (s site) checkAccess(log *slog.Logger) error {
	found, err := access.CheckTree(s.dir)
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "open %s: %w", s.dir, err)
	}
	if found.Refuse != "" && !s.readOnly {
		return tga.Errorf(tga.PermissionDenied, "open %s: %s. Run as the user of the store. If others may write there and none has: chmod -R go= %s", s.dir, found.Refuse, s.dir)
	}
	for _, what := range []string{found.Refuse, found.Warn} {
		if what != "" {
			log.Warn("the store can be read or written by others", "found", what, "remedy", "chmod -R go= "+s.dir)
		}
	}
	return nil
}

// beginDir makes a directory with the mark that a store is being made in it, durably.
// made is false where another process made it first.
func beginDir(fs vfs.FS, dir string) (made bool, err error) {
	fail := func(err error) (bool, error) {
		return false, tga.Errorf(tga.StoreUnavailable, "create %s: %w", dir, err)
	}
	above := fs.PathDir(dir)
	missing := []string{}
	for at := above; ; at = fs.PathDir(at) {
		if _, err := fs.Stat(at); err == nil || fs.PathDir(at) == at {
			break
		}
		missing = append(missing, at)
	}
	if err := fs.MkdirAll(above, access.DirMode); err != nil {
		return fail(err)
	}
	for _, at := range missing {
		if err := syncDir(fs, fs.PathDir(at)); err != nil {
			return fail(err)
		}
	}
	temp := dir + ".new-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatUint(tempDirs.Add(1), 10)
	err = errors.Join(fs.RemoveAll(temp), fs.MkdirAll(temp, access.DirMode))
	if err == nil {
		err = writeBeginning(fs, temp)
	}
	if err == nil {
		if err = fs.Rename(temp, dir); err == nil {
			made, err = true, syncDir(fs, above)
		}
	}
	if err == nil {
		return made, nil
	}
	if !made {
		err = errors.Join(err, fs.RemoveAll(temp))
		if p, _, perr := placeOf(fs, dir); perr == nil && p != placeAbsent {
			return false, nil // that is why the rename failed
		}
	}
	return fail(err)
}

// tempDirs tells the directories apart that this process makes at one time.
var tempDirs atomic.Uint64

func writeBeginning(fs vfs.FS, dir string) error {
	f, err := fs.Create(fs.PathJoin(dir, beginningName), vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write([]byte("A new store is being made here. tgad removes this file once it is.\n"))
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err == nil {
		err = syncDir(fs, dir)
	}
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "create %s: %w", dir, err)
	}
	return nil
}

// pinned refuses a store that is not the one that Options.StoreID names.
func (s site) pinned(id tga.ID) error {
	if want := s.opts.StoreID; !want.IsZero() && id != want {
		return tga.Errorf(tga.NotFound, "open %s: it holds store %s, and it should be store %s", s.dir, id, want)
	}
	return nil
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

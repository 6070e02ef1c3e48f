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
	"github.com/tgad/tgad/internal/diskfs"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// A missing store must not be taken for a new one: a new store would send calls again whose
// effects the missing store has recorded. A disk that is not mounted leaves an empty directory.
// So Open makes a store by itself only if the directory does not exist. In an empty directory it
// needs Options.Create, by which the operator says that a new store is meant.
//
// Making a store takes many writes. The first write is the file beginningName. It is durable
// before anything else is written, and it is durably removed before Open returns. So a directory
// with this file holds a store in which nothing was ever acknowledged, and the next open continues
// to make it. The directory is made under another name, with the file in it, and then renamed. So
// no crash of tgad leaves an empty directory.

// beginningName is in a directory while the store in it is being made for the first time.
const beginningName = "NEW"

// place is what is in a directory before a store is opened there.
type place uint8

const (
	placeAbsent    place = iota // the directory does not exist
	placeEmpty                  // it is empty, or has only files of noContent
	placeBeginning              // the making of a store began here and has not ended
	placeStore                  // a store, or what is left of one
	placeForeign                // files that do not belong to a store
)

// noContent lists files that do not show that a directory has a store: the files that a file
// system puts into the root of a volume, and files beside a store (locks, sockets, the state of
// tgad mcp). A copy of a store does not have them.
var noContent = []string{"lost+found", LockName, "LOCK", SocketName, "run", "mcp", "children", indexName, ballastName, makingName}

// SocketName is the file in a store's directory that names the socket of the daemon that has
// the store open. The daemon writes it.
const SocketName = "tgad.socket"

// IsStore reports whether a directory of the operating system's file system has a store, or the
// remains of one. It opens nothing and writes nothing.
func IsStore(dir string) (bool, error) {
	p, _, err := placeOf(diskfs.OS(), dir)
	return p == placeStore || p == placeBeginning, err
}

func placeOf(fs vfs.FS, dir string) (p place, others []string, err error) {
	names, err := fs.List(dir)
	if errors.Is(err, os.ErrNotExist) {
		if _, lerr := os.Lstat(dir); lerr == nil && vfs.Root(fs) == vfs.Default {
			// dir is a dangling link. Making a store would replace the link by a directory.
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

// ofStore reports whether only a store, of this format or of the one before it, has a file of
// that name. One such file is enough: the scan of the log finds out what is missing.
func ofStore(name string) bool {
	return name == guard.WatermarkName || strings.HasPrefix(name, "MANIFEST-") || strings.HasPrefix(name, "marker.manifest.")
}

// site is the directory in which an open looks for a store, before and after it locks it.
type site struct {
	dir      string
	opts     *Options
	readOnly bool
}

func (o *opening) site(dir string) site { return site{dir, &o.opts, o.readOnly} }

// settle finds out whether dir has a store or whether a store may be made there. If the
// directory does not exist, settle makes it. It writes nothing into a directory that it refuses.
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

// begin marks an empty directory as one in which a store is being made. The directory is locked,
// and begin looks at it again, so no other process can be making a store there.
func (s site) begin() error {
	p, _, err := placeOf(s.opts.FS, s.dir)
	if err != nil || p != placeEmpty || s.readOnly || !s.opts.Create {
		return err
	}
	return writeBeginning(s.opts.FS, s.dir)
}

// began ends the making of a store: from now on an empty directory means a lost store.
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

// checkAccess refuses a store that another user could have written, and warns if others can
// read it. If the store is opened for reading, checkAccess only warns.
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

// beginDir durably makes a directory that has the file beginningName. made is false if another
// process made the directory first.
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
			return false, nil // another process made dir, so the rename failed
		}
	}
	return fail(err)
}

// tempDirs numbers the temporary directories of this process, so that their names differ.
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

// pinned refuses a store other than the one that Options.StoreID names.
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

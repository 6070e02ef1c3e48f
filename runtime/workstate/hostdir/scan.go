package hostdir

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// found describes a file, link or directory at a path.
type found struct {
	mode  string // git's mode; dirMode for a directory
	perm  fs.FileMode
	stamp stamp
}

const (
	dirMode  = "40000"
	fileMode = "100644"
	execMode = "100755"
	linkMode = "120000"
)

// asOpened returns f with the mode and stamp of the file that was opened at its path.
func (f found) asOpened(info fs.FileInfo) found {
	f.perm, f.mode = info.Mode()&permBits, fileMode
	if f.perm&0o100 != 0 {
		f.mode = execMode
	}
	seen := f.stamp.seen
	f.stamp = stampOf(info)
	f.stamp.mode, f.stamp.seen = f.mode, seen
	return f
}

// stamp shows whether a file has changed: every change of a file also changes its ctime, except on the file systems of
// which [scanner.shows] is false.
type stamp struct {
	size, ino, dev int64
	mtime, ctime   int64
	uid, gid       int
	mode           string
	id             string // of the content; "" = not known
	seen           int64  // when the stamp was taken
}

func (s stamp) same(o stamp) bool {
	s.id, s.seen, o.id, o.seen = "", 0, "", 0
	return s == o
}

// settled reports whether the ctime shows every change since the stamp was taken. That is so if
// the clock of the file system had moved on from the ctime when the stamp was taken.
func (s stamp) settled() bool {
	tick := int64(50 * time.Millisecond)
	if s.ctime%int64(time.Second) == 0 {
		tick = int64(2 * time.Second) // a file system with times in seconds
	}
	return s.ctime+tick < s.seen
}

// permBits are the bits that a snapshot keeps.
const permBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// unixPerm returns permission bits as chmod(1) writes them.
func unixPerm(m fs.FileMode) uint32 {
	p := uint32(m.Perm())
	for bit, mode := range specialBits {
		if m&mode != 0 {
			p |= bit
		}
	}
	return p
}

func goPerm(p uint32) fs.FileMode {
	m := fs.FileMode(p & 0o777)
	for bit, mode := range specialBits {
		if p&bit != 0 {
			m |= mode
		}
	}
	return m
}

var specialBits = map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky}

// errMoved says that the directory changed during a scan; then it is scanned again.
var errMoved = errors.New("it changes while it is read")

// standing is the content of the directory that a scan found.
type standing struct {
	all    map[string]found       // files, links and directories, including "."
	alone  map[string]fs.FileMode // paths that are left alone: excluded, or neither file, link nor directory
	strays map[string]string      // paths of alone that are moved excluded paths, and their old places
	ours   []string               // temporary files that an interrupted restore left
	gone   bool                   // a directory vanished before it was listed
}

// scanner reads the directory. It opens everything through an os.Root: if a link replaces a
// directory meanwhile, the scan does not follow it out of the directory.
type scanner struct {
	*standing
	dir     *Dir
	root    *os.Root
	devices map[int64]bool    // whether the times of files there show every change
	moved   map[string]string // present places of excluded paths that moved with a directory, and their old places

	// For a restore, else nil:
	wanted func(name string) bool                    // the snapshot has something there or below
	open   func(name string, perm fs.FileMode) error // makes a directory readable and writable
}

// scan finds everything below the directory. For a restore it also looks for moved excluded
// paths, at the paths where the snapshot has nothing.
func (s *scanner) scan() error {
	s.standing = &standing{all: map[string]found{}, alone: map[string]fs.FileMode{}, strays: map[string]string{}}
	s.moved, s.devices = map[string]string{}, map[int64]bool{}
	info, err := s.root.Lstat(".")
	if err != nil {
		return err
	}
	return s.directory(".", info)
}

// directory adds a directory and its content. A directory that changes while it is listed is
// listed again.
func (s *scanner) directory(rel string, info fs.FileInfo) error {
	f := found{mode: dirMode, perm: info.Mode() & permBits, stamp: stampOf(info)}
	if s.open != nil && f.perm&0o700 != 0o700 {
		if err := s.open(rel, f.perm); err != nil {
			return err
		}
		f.perm |= 0o700
	}
	s.all[rel] = f
	list, err := s.list(rel)
	if err != nil {
		if rel != "." && moving(err) {
			delete(s.all, rel)
			s.gone = true
			return nil
		}
		return err
	}
	for _, e := range list {
		info, err := e.Info()
		if err != nil {
			return err
		}
		if err := s.entry(filepath.Join(rel, e.Name()), info); err != nil {
			return err
		}
	}
	return nil
}

func (s *scanner) list(rel string) (list []fs.DirEntry, err error) {
	f, err := s.root.OpenFile(rel, os.O_RDONLY|noWait, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for range 5 {
		before, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if _, err := f.Seek(0, 0); err != nil {
			return nil, err
		}
		if list, err = f.ReadDir(-1); err != nil {
			return nil, err
		}
		after, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if stampOf(before).same(stampOf(after)) {
			return list, nil
		}
	}
	return list, nil // it changes all the time: each of these names was there at some moment
}

func (s *scanner) entry(name string, info fs.FileInfo) error {
	if strings.HasPrefix(filepath.Base(name), s.dir.prefix) {
		s.ours = append(s.ours, name)
		return nil
	}
	if s.dir.exclude[name] {
		s.alone[name] = info.Mode()
		return nil
	}
	if s.wanted != nil && len(s.dir.homes) > 0 {
		home, below := s.dir.homeOf(name, stampOf(info))
		maps.Copy(s.moved, below)
		if home == "" {
			home = s.moved[name]
		}
		if home != "" && !s.wanted(name) {
			s.alone[name], s.strays[name] = info.Mode(), home
			return nil
		}
	}
	f := found{stamp: stamp{seen: time.Now().UnixNano()}}
	switch {
	case info.IsDir():
		return s.directory(name, info)
	case info.Mode().IsRegular():
		f = f.asOpened(info)
	case info.Mode()&fs.ModeSymlink != 0:
		seen := f.stamp.seen
		f.mode, f.stamp = linkMode, stampOf(info)
		f.stamp.mode, f.stamp.seen = linkMode, seen
	default:
		s.alone[name] = info.Mode()
		return nil
	}
	if old, ok := s.dir.stamps[name]; ok && old.same(f.stamp) && old.settled() && (f.mode == linkMode || s.shows(name, old.dev)) {
		f.stamp.id = old.id
	}
	s.all[name] = f
	return nil
}

// shows reports whether the file system of a file shows each change of it in its times.
func (s *scanner) shows(name string, dev int64) bool {
	shows, known := s.devices[dev]
	if !known {
		shows = showsMappings(filepath.Join(s.dir.path, name))
		s.devices[dev] = shows
	}
	return shows
}

// openRoot opens the directory. It returns fs.ErrNotExist if there is nothing at its path, and an
// inTheWay if there is something else than a directory.
func (d *Dir) openRoot() (*os.Root, error) {
	info, err := os.Lstat(d.path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &inTheWay{d.path, info.Mode()}
	}
	return os.OpenRoot(d.path)
}

// inTheWay is the error for a path that has something of another type than wanted.
type inTheWay struct {
	path string
	mode fs.FileMode
}

func (e *inTheWay) Error() string { return fmt.Sprintf("%s is %s", e.path, kindOf(e.mode)) }

// kindOf names the type of a file.
func kindOf(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m.IsRegular():
		return "a file"
	case m&fs.ModeSymlink != 0:
		return "a link"
	case m&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case m&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}

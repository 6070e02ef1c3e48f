package deliver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tgad/tgad/internal/access"
)

// File is a sink that writes a line for each record. The lines are durable when Put returns. When the next
// line would make the file longer than MaxBytes, or when the next Period has begun, the file is renamed to
// PATH.1, PATH.1 to PATH.2 and so on, up to PATH.KEEP.
type File struct {
	Path     string
	MaxBytes int64         // of one file; a single longer line has a file of its own
	Period   time.Duration // counted from 1970 in UTC: 24h is a file for each day; 0 is none
	Keep     int           // old files that are kept beside the current one
	Clock    func() time.Time

	f    *os.File
	size int64
	last time.Time // of the newest write
	mode fs.FileMode
}

// Put implements [Sink].
func (s *File) Put(_ context.Context, b *Batch) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, s.drop())
		}
	}()
	if err := s.open(); err != nil {
		return err
	}
	var text []byte
	for _, line := range b.Lines {
		now := s.Clock()
		if used := s.size + int64(len(text)); used > 0 && (used+int64(len(line)) > s.MaxBytes || s.period(now) != s.period(s.last)) {
			if err := s.write(text); err != nil {
				return err
			}
			text = text[:0]
			if err := s.rotate(); err != nil {
				return err
			}
		}
		text, s.last = append(text, line...), now
	}
	return s.write(text)
}

// Close implements [Sink].
func (s *File) Close() error {
	if s.f == nil {
		return nil
	}
	err := s.f.Close()
	s.f = nil
	return err
}

func (s *File) period(at time.Time) int64 {
	if s.Period <= 0 {
		return 0
	}
	return at.UnixNano() / int64(s.Period)
}

// open opens the file that has the name now: another program may have moved the open one, or cut it
// short, as logrotate's copytruncate does. It removes a partial line that a crash left; that record
// is delivered again.
func (s *File) open() error {
	there, err := os.Lstat(s.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && !there.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file", s.Path)
	}
	if s.f != nil {
		mine, serr := s.f.Stat()
		if err == nil && serr == nil && os.SameFile(there, mine) && there.Size() == s.size {
			return nil
		}
		if err := s.Close(); err != nil {
			return err
		}
	}
	if there == nil {
		return s.create()
	}
	f, err := os.OpenFile(s.Path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	s.f, s.last, s.mode = f, there.ModTime(), there.Mode().Perm()
	if s.size, err = wholeLines(f, there.Size()); err == nil {
		err = s.cut()
	}
	return err
}

// create makes a new file, with the mode of the one before it.
func (s *File) create() error {
	f, err := access.Create(s.Path)
	if err != nil {
		return err
	}
	s.f, s.size, s.last = f, 0, s.Clock()
	if s.mode != 0 {
		if err := f.Chmod(s.mode); err != nil {
			return err
		}
	}
	return access.SyncDir(filepath.Dir(s.Path))
}

// wholeLines is the length of a file up to its last line end.
func wholeLines(f *os.File, size int64) (int64, error) {
	block := make([]byte, 64<<10)
	for size > 0 {
		from := max(0, size-int64(len(block)))
		part := block[:size-from]
		if _, err := f.ReadAt(part, from); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			return from + int64(i) + 1, nil
		}
		size = from
	}
	return 0, nil
}

// cut removes everything after the last whole line.
func (s *File) cut() error {
	if err := s.f.Truncate(s.size); err != nil {
		return err
	}
	_, err := s.f.Seek(s.size, io.SeekStart)
	return err
}

// write writes lines, and syncs the file.
func (s *File) write(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	if _, err := s.f.Write(text); err != nil {
		return err
	}
	if err := s.f.Sync(); err != nil {
		return err
	}
	s.size += int64(len(text))
	return nil
}

// drop closes the file after an error, and removes a partial line that the error may have left. The next
// Put opens the file again.
func (s *File) drop() error {
	if s.f == nil {
		return nil
	}
	return errors.Join(s.cut(), s.Close())
}

// rotate renames the files and begins a new one. A crash in between leaves a gap in the numbers. Then the
// next rotate moves only the files before the gap.
func (s *File) rotate() error {
	if err := s.Close(); err != nil {
		return err
	}
	name := func(n int) string {
		if n == 0 {
			return s.Path
		}
		return s.Path + "." + strconv.Itoa(n)
	}
	free := 1
	for ; free < s.Keep; free++ {
		if _, err := os.Lstat(name(free)); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return err
		}
	}
	for n := free; n > 0; n-- {
		if err := os.Rename(name(n-1), name(n)); err != nil {
			return err
		}
	}
	return s.create()
}

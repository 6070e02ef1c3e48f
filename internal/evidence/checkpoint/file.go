package checkpoint

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"strconv"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
)

// FileName is the file of kept notes in the directory of the tree.
const FileName = "checkpoints"

// File keeps signed notes, checkpoints and hand-overs, in the order in which they came. Each is a
// line with its length in bytes, the note, and an empty line, so that people can read it.
type File struct {
	mu     sync.Mutex
	f      vfs.File
	name   string
	end    int64
	newest []byte // checkpoint
	err    error
}

// OpenFile opens the kept notes in a directory, or makes the file. A torn end is dropped.
func OpenFile(fs vfs.FS, dir string) (*File, error) {
	k := &File{name: fs.PathJoin(dir, FileName)}
	f, err := fs.OpenReadWrite(k.name, vfs.WriteCategoryUnspecified) // makes it where there is none
	if err == nil {
		var d vfs.File
		if d, err = fs.OpenDir(dir); err == nil {
			err = errors.Join(d.Sync(), d.Close())
		}
	}
	if err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "checkpoints %s: %w", k.name, err)
	}
	k.f = f
	for raw, err := range k.All() {
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		k.end += framed(raw)
		if IsCheckpoint(raw) {
			k.newest = raw
		}
	}
	return k, nil
}

// IsCheckpoint tells a checkpoint from a hand-over.
func IsCheckpoint(raw []byte) bool { return !bytes.HasPrefix(raw, []byte(handOver+"\n")) }

func framed(raw []byte) int64 { return int64(len(strconv.Itoa(len(raw))) + 1 + len(raw) + 1) }

// Append keeps one more note, durably.
func (k *File) Append(raw []byte) error {
	if len(raw) == 0 || len(raw) > MaxBytes {
		return tga.Errorf(tga.LimitExceeded, "signed note of %d bytes: 1 to %d", len(raw), MaxBytes)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return k.err
	}
	b := strconv.AppendInt(nil, int64(len(raw)), 10)
	b = append(append(append(b, '\n'), raw...), '\n')
	_, err := k.f.WriteAt(b, k.end)
	if err == nil {
		err = k.f.Sync()
	}
	if err != nil { // what the file holds is not known any more
		k.err = tga.Errorf(tga.StoreUnavailable, "checkpoints %s: %w", k.name, err)
		return k.err
	}
	k.end += int64(len(b))
	if IsCheckpoint(raw) {
		k.newest = bytes.Clone(raw)
	}
	return nil
}

// Newest returns the newest checkpoint, nil where there is none.
func (k *File) Newest() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.newest
}

// All yields the kept notes, oldest first. The first that is not whole ends it.
func (k *File) All() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		info, err := k.f.Stat()
		if err != nil {
			yield(nil, tga.Errorf(tga.StoreUnavailable, "checkpoints %s: %w", k.name, err))
			return
		}
		for at := int64(0); at < info.Size(); {
			raw, err := k.at(at, info.Size())
			if err != nil {
				yield(nil, err)
				return
			}
			if raw == nil || !yield(raw, nil) {
				return
			}
			at += framed(raw)
		}
	}
}

// at reads the note at an offset, nil where it is not whole.
func (k *File) at(off, size int64) ([]byte, error) {
	b := make([]byte, min(size-off, MaxBytes+16))
	if n, err := k.f.ReadAt(b, off); n < len(b) && !errors.Is(err, io.EOF) {
		return nil, tga.Errorf(tga.StoreUnavailable, "checkpoints %s: %w", k.name, err)
	}
	line, rest, ok := bytes.Cut(b, []byte{'\n'})
	n, err := strconv.Atoi(string(line))
	if !ok || err != nil || n < 1 || n > MaxBytes || strconv.Itoa(n) != string(line) || len(rest) < n+1 || rest[n] != '\n' || rest[n-1] != '\n' {
		return nil, nil
	}
	return rest[:n:n], nil
}

// Close closes the file.
func (k *File) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.f.Close()
	k.err = tga.Errorf(tga.StoreUnavailable, "checkpoints %s are closed", k.name)
	return err
}

package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
)

// FileName is the file of kept notes in the directory of the tree.
const FileName = "checkpoints"

// A file of more than maxFile bytes is replaced by one with the newest keptCheckpoints checkpoints.
// Older checkpoints are of no use here: a checkpoint in other hands proves more.
const (
	keptCheckpoints = 512
	maxFile         = 4 << 20
)

// File keeps signed notes, checkpoints and hand-overs, in the order in which they came. Each is a
// line with the format's number, its length in bytes and its CRC-32C, then the note and an empty
// line, so that people can read it:
//
//	note 1 312 89abcdef
//
// Each is synced before the next is written, so a crash can tear only the last one. A torn note is
// overwritten. If a whole note follows one that is not whole, the file was damaged, and it is
// refused: to continue would overwrite the notes that are left.
//
// A file that has grown long is replaced by one with the newest checkpoints and every other note.
type File struct {
	mu     sync.Mutex
	fs     vfs.FS
	dir    string
	most   int64 // bytes; a longer file is replaced
	keep   int   // checkpoints that the new file has
	f      vfs.File
	name   string
	end    int64
	newest []byte // checkpoint
	moved  bool   // the file has its name, which may not be durable yet
	err    error  // that the file is closed
}

// OpenFile opens the kept notes in a directory, or makes the file. A torn end is dropped; a
// damaged file is STATE_CHECKSUM_MISMATCH.
func OpenFile(fs vfs.FS, dir string) (*File, error) {
	k := &File{fs: fs, dir: dir, most: maxFile, keep: keptCheckpoints, name: fs.PathJoin(dir, FileName)}
	f, err := fs.OpenReadWrite(k.name, vfs.WriteCategoryUnspecified) // makes it where there is none
	if err == nil {
		var d vfs.File
		if d, err = fs.OpenDir(dir); err == nil {
			err = errors.Join(d.Sync(), d.Close())
		}
	}
	if err != nil {
		return nil, k.unavailable(err)
	}
	k.f = f
	for raw, err := range k.All() {
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		k.end += int64(len(frame(raw)))
		if IsCheckpoint(raw) {
			k.newest = raw
		}
	}
	if err := k.torn(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return k, nil
}

// torn refuses a file if there is more after its last whole note than one torn append can leave.
func (k *File) torn() error {
	info, err := k.f.Stat()
	if err != nil {
		return k.unavailable(err)
	}
	const most = MaxBytes + 64 // what an append can leave
	rest := make([]byte, min(info.Size()-k.end, most+1))
	if n, err := k.f.ReadAt(rest, k.end); n < len(rest) {
		return k.unavailable(err)
	}
	damaged := len(rest) > most
	for at := range rest {
		damaged = damaged || parseFrame(rest[at:]) != nil
	}
	// A crash tears one note only. If another one begins after the torn one, the file is damaged.
	if start, length, ok := parseStart(rest); ok && start+length+1 < len(rest) {
		_, _, next := parseStart(rest[start+length+1:])
		damaged = damaged || next
	}
	if damaged {
		return tga.Errorf(tga.StateChecksumMismatch, "evidence: %s: the note at byte %d is damaged, and others stand behind it", k.name, k.end)
	}
	return nil
}

func (k *File) unavailable(err error) error {
	return tga.Errorf(tga.StoreUnavailable, "checkpoints %s: %w", k.name, err)
}

// IsCheckpoint tells a checkpoint from a hand-over and from an acceptance.
func IsCheckpoint(raw []byte) bool { return !IsHandOver(raw) && !IsAcceptance(raw) }

// IsHandOver tells a hand-over from other notes.
func IsHandOver(raw []byte) bool { return bytes.HasPrefix(raw, []byte(handOver+"\n")) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frame is a note in the form that the file has.
func frame(raw []byte) []byte {
	b := fmt.Appendf(nil, "note %d %d %08x\n", tga.EvidenceNotesVersion, len(raw), crc32.Checksum(raw, castagnoli))
	return append(append(b, raw...), '\n')
}

// parseStart returns the lengths of the line that a frame begins with and of the note that it announces.
func parseStart(b []byte) (start, length int, ok bool) {
	line, _, ok := bytes.Cut(b[:min(len(b), 64)], []byte{'\n'})
	if !ok || !bytes.HasPrefix(line, []byte("note ")) {
		return 0, 0, false
	}
	var version int
	var sum uint32
	_, err := fmt.Sscanf(string(line), "note %d %d %x", &version, &length, &sum)
	return len(line) + 1, length, err == nil && length >= 1 && length <= MaxBytes
}

// parseFrame returns the note that b begins with, nil if it is not whole.
func parseFrame(b []byte) []byte {
	start, n, ok := parseStart(b)
	if !ok || len(b) < start+n+1 {
		return nil
	}
	raw := b[start : start+n : start+n]
	if whole := frame(raw); !bytes.Equal(whole, b[:min(len(whole), len(b))]) {
		return nil
	}
	return raw
}

// Append keeps one more note, durably. After an error the note is not kept, as far as is known, and the next Append takes
// its place.
func (k *File) Append(raw []byte) error {
	if len(raw) == 0 || len(raw) > MaxBytes {
		return tga.Errorf(tga.LimitExceeded, "signed note of %d bytes: 1 to %d", len(raw), MaxBytes)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return k.err
	}
	if err := k.shorten(); err != nil {
		return err
	}
	b := frame(raw)
	// A failed write or sync leaves the bytes past the end in doubt, and no others. All of them are written again
	// by the next Append.
	_, err := k.f.WriteAt(b, k.end)
	if err == nil {
		err = k.f.Sync()
	}
	if err != nil {
		return k.unavailable(err)
	}
	k.end += int64(len(b))
	if IsCheckpoint(raw) {
		k.newest = bytes.Clone(raw)
	}
	_ = k.shorten() // the note is kept; the next Append tries again, and returns the error
	return nil
}

// shorten replaces a file that is too long, and makes the name of the new one durable.
func (k *File) shorten() error {
	var err error
	if k.end > k.most {
		err = k.replace()
	}
	if err == nil && k.moved {
		var d vfs.File
		if d, err = k.fs.OpenDir(k.dir); err == nil {
			err = errors.Join(d.Sync(), d.Close())
		}
		k.moved = err != nil
	}
	if err != nil {
		return k.unavailable(err)
	}
	return nil
}

// replace replaces the file by one without the oldest checkpoints. The new file is whole and durable
// before the rename, so a crash leaves one of the two. After an error the old file is still in use.
func (k *File) replace() error {
	var notes [][]byte
	checkpoints := 0
	for raw, err := range k.All() {
		if err != nil {
			return err
		}
		if notes = append(notes, bytes.Clone(raw)); IsCheckpoint(raw) {
			checkpoints++
		}
	}
	var b []byte
	for _, raw := range notes {
		if IsCheckpoint(raw) {
			if checkpoints--; checkpoints >= k.keep {
				continue
			}
		}
		b = append(b, frame(raw)...)
	}
	temp := k.name + ".new"
	f, err := k.fs.Create(temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if _, err = f.Write(b); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = k.fs.Rename(temp, k.name)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	old := k.f
	// Raise the limit if the new file is not much shorter, as when most notes are no checkpoints.
	k.f, k.end, k.most, k.moved = f, int64(len(b)), max(k.most, 2*int64(len(b))), true
	return old.Close()
}

// Newest returns the newest checkpoint, nil where there is none.
func (k *File) Newest() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.newest
}

// All yields the kept notes, oldest first. It ends at the first one that is not whole.
func (k *File) All() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		info, err := k.f.Stat()
		if err != nil {
			yield(nil, k.unavailable(err))
			return
		}
		for at := int64(0); at < info.Size(); {
			b := make([]byte, min(info.Size()-at, MaxBytes+64))
			if n, err := k.f.ReadAt(b, at); n < len(b) {
				yield(nil, k.unavailable(err))
				return
			}
			raw := parseFrame(b)
			if raw == nil || !yield(raw, nil) {
				return
			}
			at += int64(len(frame(raw)))
		}
	}
}

// Close closes the file.
func (k *File) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.f.Close()
	k.err = tga.Errorf(tga.StoreUnavailable, "checkpoints %s are closed", k.name)
	return err
}

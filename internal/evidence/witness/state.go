package witness

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/filelock"
	"github.com/tgad/tgad/schemas/tga"
)

// maxOrigins limits the size of the state, because each write writes all of it.
const maxOrigins = 1024

// entry is what is remembered of one origin.
type entry struct {
	raw []byte // the checkpoint as it was signed
	c   checkpoint.Checkpoint
}

// State is the memory of a witness: the newest checkpoint of each origin, in one file. The file is
// a line with the format's number, the number of origins and the SHA-256 of all that follows, then
// for each origin, in the order of their bytes, a line with a length, the signed checkpoint of that
// length, and an empty line:
//
//	tgad witness state 1 2 89ab…
//	312
//
// The file is replaced as a whole. The new one is durable before it has the name, and the name
// before [State.Raise] returns, so a crash leaves the old file or the new one, and never the old one
// once the new checkpoint was acknowledged. After a failed write it is not known which of them is
// on disk: the state takes nothing more until it is opened again.
type State struct {
	mu   sync.Mutex
	fs   vfs.FS
	path string
	lock io.Closer
	seen map[string]entry
	err  error // of a write
}

// Open opens the state in a file, and locks it. With create, the file must not exist, and Open makes
// it, without any origin. Otherwise it must exist: a witness that began with an empty state, because
// its file is gone or its disk is not mounted, could contradict its own signatures.
//
// NOT_FOUND: there is no file. STATE_CHECKSUM_MISMATCH: it is damaged. FORMAT_TOO_NEW: another
// version wrote it. PERMISSION_DENIED: others can write it. STATE_LOCK_ACQUIRE_FAILED: another
// process has it.
func Open(path string, create bool) (*State, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "state: %w", err)
	}
	if _, err := os.Stat(filepath.Dir(path)); err != nil { // check first: the lock's error would not say this
		return nil, tga.Errorf(tga.NotFound, "state %s: %w: is its disk mounted?", path, err)
	}
	if path, err = access.Target(path); err != nil {
		return nil, tga.Errorf(tga.NotFound, "state: %w: is its disk mounted?", err)
	}
	lock, err := filelock.Lock(path + ".lock")
	if errors.Is(err, filelock.ErrHeld) {
		return nil, tga.Errorf(tga.StateLockAcquireFailed, "state %s: %w", path, err)
	}
	if err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "state %s: %w", path, err)
	}
	found, err := access.Check(path)
	if err == nil && found.Refuse != "" {
		err = tga.Errorf(tga.PermissionDenied, "state %s: %s: others could have made the witness forget", path, found.Refuse)
	} else {
		err = nil // open reports a missing file
	}
	if err == nil {
		var s *State
		if s, err = open(checkpoint.Disk, path, create); err == nil {
			s.lock = lock
			return s, nil
		}
	}
	return nil, errors.Join(err, lock.Close())
}

// open is Open without the lock.
func open(disk vfs.FS, path string, create bool) (*State, error) {
	s := &State{fs: disk, path: path, lock: io.NopCloser(nil), seen: map[string]entry{}}
	f, err := disk.Open(path)
	switch {
	case err == nil && create:
		return nil, errors.Join(tga.Errorf(tga.ValidationError, "state %s is there: leave --create out", path), f.Close())
	case errors.Is(err, fs.ErrNotExist) && create:
		if err := s.write(s.seen); err != nil {
			return nil, err
		}
		return s, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, tga.Errorf(tga.NotFound, "state %s is not there. A witness without its memory would sign a store that was rolled back: if this is its first start, give --create", path)
	case err != nil:
		return nil, s.unavailable(err)
	}
	const most = maxOrigins*(checkpoint.MaxBytes+32) + 128
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, s.unavailable(err)
	}
	if s.seen, err = decode(b); err != nil {
		return nil, tga.Errorf(tga.CodeOf(err), "state %s: %w", path, err)
	}
	return s, nil
}

func (s *State) unavailable(err error) error {
	return tga.Errorf(tga.StoreUnavailable, "state %s: %w", s.path, err)
}

const header = "tgad witness state "

// encode returns the content of the file with these entries.
func encode(seen map[string]entry) []byte {
	var b []byte
	for _, origin := range slices.Sorted(maps.Keys(seen)) {
		b = fmt.Appendf(b, "%d\n", len(seen[origin].raw))
		b = append(append(b, seen[origin].raw...), '\n')
	}
	return append(fmt.Appendf(nil, "%s%d %d %x\n", header, tga.WitnessStateVersion, len(seen), sha256.Sum256(b)), b...)
}

// decode reads a file. The file is damaged unless encode makes the same bytes from its entries.
func decode(b []byte) (map[string]entry, error) {
	damaged := tga.Errorf(tga.StateChecksumMismatch, "the file is damaged. Do not begin with a new one: restore it, and only if it is as new as the newest signature of this witness")
	line, rest, _ := bytes.Cut(b, []byte{'\n'})
	var version, count int
	if n, err := fmt.Sscanf(string(line), header+"%d %d", &version, &count); n < 1 {
		return nil, damaged
	} else if version != tga.WitnessStateVersion {
		return nil, tga.Errorf(tga.FormatTooNew, "the file has version %d, this program reads %d", version, tga.WitnessStateVersion)
	} else if err != nil || count > maxOrigins {
		return nil, damaged
	}
	seen := map[string]entry{}
	for range count {
		line, after, _ := bytes.Cut(rest, []byte{'\n'})
		n, err := strconv.Atoi(string(line))
		if err != nil || n < 0 || n >= len(after) {
			return nil, damaged
		}
		raw := after[:n:n]
		c, err := checkpoint.Unverified(raw)
		if err != nil {
			return nil, damaged
		}
		seen[c.Origin], rest = entry{raw, c}, after[n+1:]
	}
	if !bytes.Equal(encode(seen), b) {
		return nil, damaged
	}
	return seen, nil
}

// Raise remembers a checkpoint if allowed returns nil for the one that is remembered now, or for the
// empty tree if there is none. The caller has checked the signature of the checkpoint. When Raise
// calls done, the checkpoint is durable. Raise holds the lock from allowed to the end of done, so no
// signature can make an older checkpoint look like the newest.
func (s *State) Raise(c checkpoint.Checkpoint, raw []byte, allowed func(seen checkpoint.Checkpoint) error, done func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	before, known := s.seen[c.Origin]
	if !known {
		before.c = checkpoint.Checkpoint{Origin: c.Origin, Head: emptyHead}
	}
	if err := allowed(before.c); err != nil {
		return err
	}
	if known && c == before.c {
		return done() // it is durable already
	}
	if !known && len(s.seen) >= maxOrigins {
		return tga.Errorf(tga.LimitExceeded, "state %s: it has %d origins, and takes no more", s.path, maxOrigins)
	}
	next := maps.Clone(s.seen)
	next[c.Origin] = entry{bytes.Clone(raw), c}
	if s.err = s.write(next); s.err != nil {
		return s.err
	}
	s.seen = next
	return done()
}

// write replaces the file, durably.
func (s *State) write(seen map[string]entry) error {
	if err := checkpoint.Replace(s.fs, s.path, encode(seen)); err != nil {
		return s.unavailable(err)
	}
	return nil
}

// Close waits for a Raise that is under way, and releases the lock of the file.
func (s *State) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = tga.Errorf(tga.StoreUnavailable, "state %s is closed", s.path)
	return s.lock.Close()
}

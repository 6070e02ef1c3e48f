//go:build unix

// Package journal is the memory of the payments tool server: an append-only file that
// says what was received and what was charged. Only the server writes it, so it is
// independent evidence about the programs that call the server.
//
// A line is one JSON object and ends in a newline. If the last line has no newline, its
// writer died before it synced the line and acted on it; the next writer cuts it off. Any
// other line that cannot be read is an error.
//
// Several processes may share a file: each decision is made under an exclusive flock,
// after reading what the others wrote.
package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Op says what a record is about.
type Op string

// Kinds of records.
const (
	Received Op = "recv"   // a call came in; written before anything else
	Charged  Op = "charge" // money moved; N numbers the charges from 1
	Repeated Op = "dup"    // the key had run: the answer of charge N was given again
)

// Record is one line.
type Record struct {
	Op      Op     `json:"op"`
	Tool    string `json:"tool"`
	Key     string `json:"key"` // the idempotency key that came with the call
	Amount  int64  `json:"amount"`
	Account string `json:"account"`
	N       uint64 `json:"n"`
}

// Journal is an open file and the summary of its lines. Methods may be called by many
// goroutines.
type Journal struct {
	path string
	dir  bool // the file's name is known to be durable

	mu   sync.Mutex
	sum  *Summary
	read int64 // bytes of the file that sum covers
	err  error // the first failed write: what is on disk is not known since
}

// Open opens the journal at path, which need not exist.
func Open(path string) (*Journal, error) {
	j := &Journal{path: path, sum: newSummary()}
	return j, j.Update(func(*Tx) error { return nil })
}

// Tx is the exclusive right to read and append.
type Tx struct {
	j *Journal
	f *os.File
}

// Update calls f under the file's lock, with a summary that covers all of the file.
func (j *Journal) Update(f func(*Tx) error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return fmt.Errorf("journal %s is unusable since: %w", j.path, j.err)
	}
	file, err := os.OpenFile(j.path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer file.Close() // releases the lock
	if err := lock(file, unix.LOCK_EX); err != nil {
		return err
	}
	if !j.dir {
		if err := syncDir(filepath.Dir(j.path)); err != nil {
			return err
		}
		j.dir = true
	}
	torn, err := j.catchUp(file)
	if err != nil {
		return err
	}
	if torn {
		if err := errors.Join(file.Truncate(j.read), file.Sync()); err != nil {
			j.err = err
			return err
		}
	}
	return f(&Tx{j: j, f: file})
}

// Summary returns what the journal says so far. It is valid until Update returns.
func (t *Tx) Summary() *Summary { return t.j.sum }

// Append writes r and returns once it is on disk.
func (t *Tx) Append(r Record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if _, err = t.f.Write(line); err == nil {
		err = t.f.Sync()
	}
	if err != nil {
		t.j.err = err
		return err
	}
	t.j.read += int64(len(line))
	t.j.sum.add(r)
	return nil
}

// catchUp adds the lines after j.read to the summary. torn says that bytes without a
// newline follow them.
func (j *Journal) catchUp(f *os.File) (torn bool, err error) {
	b, err := io.ReadAll(io.NewSectionReader(f, j.read, math.MaxInt64-j.read))
	if err != nil {
		return false, fmt.Errorf("journal %s: %w", j.path, err)
	}
	for {
		line, rest, ended := bytes.Cut(b, []byte{'\n'})
		if !ended {
			return len(line) > 0, nil
		}
		var r Record
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&r); err != nil {
			return false, fmt.Errorf("journal %s, at byte %d: %w", j.path, j.read, err)
		}
		j.sum.add(r)
		j.read += int64(len(line)) + 1
		b = rest
	}
}

// Read sums a journal up without changing it.
func Read(path string) (*Summary, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := lock(f, unix.LOCK_SH); err != nil {
		return nil, err
	}
	j := &Journal{path: path, sum: newSummary()}
	if _, err := j.catchUp(f); err != nil {
		return nil, err
	}
	return j.sum, nil
}

// lock waits for the flock of f. The lock ends when the open file is closed, also when the
// process is killed.
func lock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

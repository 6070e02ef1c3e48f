package paper

import (
	"bufio"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tgad/tgad/schemas/tga"
)

// Book is what a shim leaves to its successor of the same slot: small values under names,
// in one file that is only ever appended to. The newest line of a name counts.
//
// It is no part of the log: it is about processes of this machine. A line that is lost
// makes a call wait until its permit is stale, and licenses nothing, so it is not synced.
type Book struct {
	mu    sync.Mutex
	file  *os.File
	read  int64 // how much of the file is in values
	names map[string]string
}

// lineEnd ends a line. What a crash cut short does not have all of it, and is then no
// line even when another has ended it.
const lineEnd = " .\n"

// OpenBook opens the book in a file, or makes it.
func OpenBook(path string) (*Book, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "open the shim's book: %w", err)
	}
	b := &Book{file: f, names: map[string]string{}}
	if err := b.locked(unix.LOCK_SH, b.catchUp); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return b, nil
}

// Close closes the file.
func (b *Book) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.file.Close()
}

// Each calls f with every name that starts with prefix.
func (b *Book) Each(prefix string, f func(name, value string)) error {
	b.mu.Lock()
	err := b.locked(unix.LOCK_SH, b.catchUp)
	found := map[string]string{}
	for n, v := range b.names {
		if strings.HasPrefix(n, prefix) {
			found[n] = v
		}
	}
	b.mu.Unlock()
	for n, v := range found {
		f(n, v)
	}
	return err
}

// Change sets a name to what f makes of its value, "" to forget it. No other shim writes
// in between.
func (b *Book) Change(name string, f func(old string) string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.locked(unix.LOCK_EX, func() error {
		if err := b.catchUp(); err != nil {
			return err
		}
		old := b.names[name]
		value := f(old)
		if value == old {
			return nil
		}
		line := append(appendField(nil, name), ' ')
		line = append(appendField(line, value), lineEnd...)
		if _, err := b.file.Write(line); err != nil {
			return tga.Errorf(tga.StoreUnavailable, "write the shim's book: %w", err)
		}
		return b.catchUp()
	})
}

// locked runs f under the file's lock.
func (b *Book) locked(how int, f func() error) (err error) {
	for {
		err := unix.Flock(int(b.file.Fd()), how)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return tga.Errorf(tga.StoreUnavailable, "lock the shim's book: %w", err)
		}
	}
	defer func() { err = errors.Join(err, unix.Flock(int(b.file.Fd()), unix.LOCK_UN)) }()
	return f()
}

// Shrink empties the file when nothing is in it that counts and it is long. It is for a
// book that one process has alone.
func (b *Book) Shrink() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.names) > 0 || b.read < 1<<20 {
		return nil
	}
	if err := b.file.Truncate(0); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "shorten the shim's book: %w", err)
	}
	b.read = 0
	return nil
}

// catchUp reads what was added since. A last line without its end is one that a crash
// cut short: it says nothing.
func (b *Book) catchUp() error {
	info, err := b.file.Stat()
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "read the shim's book: %w", err)
	}
	in := bufio.NewReader(io.NewSectionReader(b.file, b.read, info.Size()-b.read))
	for {
		line, err := in.ReadString('\n')
		if err == io.EOF {
			if line != "" {
				// Ended by whoever writes next, so that two lines do not become one.
				return b.mend()
			}
			return nil
		}
		if err != nil {
			return tga.Errorf(tga.StoreUnavailable, "read the shim's book: %w", err)
		}
		b.read += int64(len(line))
		body, whole := strings.CutSuffix(line, lineEnd)
		name, value, ok := strings.Cut(body, " ")
		n, err1 := base64.RawURLEncoding.DecodeString(name)
		v, err2 := base64.RawURLEncoding.DecodeString(value)
		if !ok || !whole || err1 != nil || err2 != nil {
			continue
		}
		if len(v) == 0 {
			delete(b.names, string(n))
			continue
		}
		b.names[string(n)] = string(v)
	}
}

// mend ends a line that a crash cut short.
func (b *Book) mend() error {
	if _, err := b.file.Write([]byte("\n")); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "write the shim's book: %w", err)
	}
	info, err := b.file.Stat()
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "read the shim's book: %w", err)
	}
	b.read = info.Size()
	return nil
}

func appendField(b []byte, s string) []byte {
	return base64.RawURLEncoding.AppendEncode(b, []byte(s))
}

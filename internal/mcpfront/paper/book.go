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

// Book has what a shim leaves to the next shim of the same slot: small values under names, in one
// file. Changes are appended to the file, and the newest line of a name counts.
//
// The book is no part of the log: it is about processes of this machine. It is not synced, because
// a lost line licenses nothing; it only makes a repeat wait until the permit is stale.
type Book struct {
	mu    sync.Mutex
	file  *os.File
	read  int64 // how many bytes of the file are in names
	names map[string]string
}

// lineEnd ends a line. A line that a crash cut short lacks a part of it, and does not count even
// after a later write has added a newline.
const lineEnd = " .\n"

// OpenBook opens the book in a file. It creates the file if needed.
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

// Change sets a name's value to what f returns for the old one; "" removes the name. It holds the
// file's lock meanwhile.
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

// Shrink empties the file if it has no names and is long. The caller must be the only process that
// uses the book.
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

// catchUp reads the lines that were added since the last time. A last line without its end was cut
// short by a crash and does not count.
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
				// End that line now, so that the next line does not become a part of it.
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

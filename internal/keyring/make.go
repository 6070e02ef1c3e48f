package keyring

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Create makes a ring in a new file.
func Create(path string, id tga.ID, o Options) error {
	if err := o.KEK.check(); err != nil {
		return err
	}
	o = o.withDefaults()
	if err := outside(path, o.Store); err != nil {
		return err
	}
	random := make([]byte, 12+32)
	if _, err := io.ReadFull(o.Rand, random); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "key ring: random bytes: %w", err)
	}
	h := header{from: o.KEK.from(), id: id}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		return tga.Errorf(tga.ValidationError, "key ring %s is there already, and is not overwritten: without it nothing that it sealed can be read", path)
	}
	w, err := h.wrapping(o)
	if err != nil {
		return err
	}
	h.secret = w.wrap(random[12:], random[:12], 0)
	return place(path, bytes.NewReader(h.encode()))
}

// wrapping gets the KEK for a new header, and stores its wrapped form in the header if there is one.
func (h *header) wrapping(o Options) (wrapping, error) {
	kek, kept, err := o.KEK.new(o.Rand)
	if err != nil {
		return wrapping{}, err
	}
	h.kek = kept
	w, err := newWrapping(kek, h.id)
	if err != nil {
		return w, tga.Errorf(tga.GenericStateError, "key ring: %w", err)
	}
	return w, nil
}

// place writes content to path, durably, completely or not at all.
func place(path string, content io.Reader) error {
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return tga.Errorf(tga.StoreUnavailable, "key ring: %w", err)
	}
	f, err := access.Create(tmp)
	if err == nil {
		_, err = io.Copy(f, content)
		if err == nil {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err == nil {
		err = access.SyncDir(filepath.Dir(path))
	}
	if err == nil {
		return nil
	}
	if e := os.Remove(tmp); !errors.Is(e, os.ErrNotExist) {
		err = errors.Join(err, e)
	}
	if tga.CodeOf(err) != "" { // the error of the content reader
		return err
	}
	return tga.Errorf(tga.StoreUnavailable, "write key ring %s: %w", path, err)
}

// Rotate wraps every key of a ring again, under another key-encryption key. An earlier copy of the
// ring, which has the keys that were destroyed since, then opens only with the old key-encryption
// key. A ring with a damaged slot is not rotated: STATE_CHECKSUM_MISMATCH. After STORE_UNAVAILABLE the ring
// may be rotated: the same call again finds that out, so keep both keys until a call has returned nil.
func Rotate(path string, old, to Options) (err error) {
	if err := to.KEK.check(); err != nil {
		return err
	}
	to = to.withDefaults()
	r, err := Open(path, old)
	if err != nil {
		return rotated(path, to, err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	h := header{from: to.KEK.from(), id: r.id}
	w, err := h.wrapping(to)
	if err != nil {
		return err
	}
	nonce := make([]byte, 12)
	wrap := func(key []byte, n uint64) (out [wrappedLen]byte, err error) {
		if _, err := io.ReadFull(to.Rand, nonce); err != nil {
			return out, tga.Errorf(tga.StoreUnavailable, "key ring: random bytes: %w", err)
		}
		return w.wrap(key, nonce, n), nil
	}
	if h.secret, err = wrap(r.secret, 0); err != nil {
		return err
	}
	in, out := io.Pipe()
	go func() {
		_, err := out.Write(h.encode())
		if err == nil {
			err = r.each(func(n chain.KeyID, s slot, raw []byte, ok bool) error {
				switch {
				case !ok && blank(raw):
					_, err := out.Write(raw)
					return err
				case !ok:
					return damaged("key ring %s: key %d is damaged: the ring is not rotated", path, n)
				case s.state != destroyed:
					key, err := r.wrap.unwrap(s.wrapped, uint64(n))
					if err != nil {
						return damaged("key ring %s: key %d is wrapped under another key: the ring is not rotated", path, n)
					}
					if s.wrapped, err = wrap(key, uint64(n)); err != nil {
						return err
					}
				}
				_, err := out.Write(s.append(nil, uint64(n)))
				return err
			})
		}
		out.CloseWithError(err)
	}()
	err = place(r.path, in)
	in.CloseWithError(io.ErrClosedPipe) // unblocks the writer if place did not read to the end
	return err
}

// rotated returns nil if a ring is wrapped under the new key-encryption key already, and else why it is not
// rotated. A process that ended after it had replaced the file may not have told anybody.
func rotated(path string, to Options, why error) error {
	r, err := Open(path, to)
	if err != nil {
		return why
	}
	if err = errors.Join(access.SyncDir(filepath.Dir(r.path)), r.Close()); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "write key ring %s: %w", path, err)
	}
	return nil
}

// Info describes a ring.
type Info struct {
	ID        tga.ID
	Command   bool // the key-encryption key comes from a command
	Keys      int  // keys that are not destroyed
	Subjects  int  // subjects that have a key
	Destroyed int
	Damaged   int // slots that cannot be read
	Missing   int // keys that the store has used and that only a newer copy of the ring has
}

// Info counts the keys and the slots of the ring.
func (r *Ring) Info() (Info, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable(); err != nil {
		return Info{}, err
	}
	i := Info{ID: r.id, Command: r.opts.KEK.from() == fromProgram, Subjects: len(r.subjects), Missing: int(r.blanks)}
	err := r.each(func(_ chain.KeyID, s slot, raw []byte, ok bool) error {
		switch {
		case !ok && blank(raw):
			// already counted in r.blanks
		case !ok:
			i.Damaged++
		case s.state == destroyed:
			i.Destroyed++
		default:
			i.Keys++
		}
		return nil
	})
	return i, err
}

package keyring

import (
	"encoding/binary"
	"errors"
	"io"
	"os"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/filelock"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// sharing is what a process needs of a ring that other processes of the machine have open too. Each makes batches of its
// own, so no number is given twice. Who changes the file has a lock on it, for as long as that takes. The file beside it, with
// ".changes" at the end, has the number of each slot whose subject or state was changed, 8 bytes each, written before the
// slot is: who has the lock reads what is new there, and looks at those slots again. Nothing of it is needed
// after the processes are gone.
type sharing struct {
	changes *os.File
	seen    int64               // up to where changes was read
	of      map[chain.KeyID]tag // whose the keys of subjects are
}

// share is load for a ring that several processes have open.
func (r *Ring) share() (err error) {
	r.sharing = &sharing{of: map[chain.KeyID]tag{}}
	path := r.path + ".changes"
	if f, err := access.Create(path); err == nil {
		if err := f.Close(); err != nil {
			return tga.Errorf(tga.StoreUnavailable, "key ring: %w", err)
		}
	} else if !errors.Is(err, os.ErrExist) {
		return tga.Errorf(tga.StoreUnavailable, "key ring: %w", err)
	}
	if r.sharing.changes, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "open what was changed of the key ring: %w", err)
	}
	return r.held(func() error {
		size, err := r.sharing.changes.Seek(0, io.SeekEnd)
		if err != nil {
			return tga.Errorf(tga.StoreUnavailable, "read what was changed of the key ring: %w", err)
		}
		r.sharing.seen = size &^ 7 // a crash of the machine may have cut the last number short
		return r.load()
	})
}

// held calls f while no other process changes the ring.
func (r *Ring) held(f func() error) (err error) {
	if err := filelock.Wait(r.file); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "lock key ring %s: %w", r.path, err)
	}
	defer func() {
		if e := filelock.Free(r.file); e != nil {
			r.err = tga.Errorf(tga.StoreUnavailable, "unlock key ring %s: %w", r.path, e)
			err = errors.Join(err, r.err)
		}
	}()
	return f()
}

// alone calls f while no other process changes the ring, and after what they changed is known here. r.mu is held.
func alone[T any](r *Ring, f func() (T, error)) (out T, err error) {
	if r.sharing == nil {
		return f()
	}
	err = r.held(func() error {
		if err := r.catchUp(); err != nil {
			return err
		}
		out, err = f()
		return err
	})
	return out, err
}

// grown looks how many slots other processes have made, without the lock: what is behind a slot that somebody uses is
// not looked at.
func (r *Ring) grown() error {
	info, err := r.file.Stat()
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "read key ring %s: %w", r.path, err)
	}
	r.slots = max(r.slots, uint64(info.Size()-headerLen)/slotLen)
	return nil
}

// catchUp reads what other processes changed.
func (r *Ring) catchUp() error {
	if err := r.measure(); err != nil {
		return err
	}
	s := r.sharing
	b, err := io.ReadAll(io.NewSectionReader(s.changes, s.seen, 1<<40))
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "read what was changed of the key ring: %w", err)
	}
	for ; len(b) >= 8; b = b[8:] {
		if err := r.lookAgain(chain.KeyID(binary.BigEndian.Uint64(b))); err != nil {
			return err
		}
		s.seen += 8
	}
	return nil
}

// lookAgain reads whose a key is now.
func (r *Ring) lookAgain(n chain.KeyID) error {
	was, known := r.sharing.of[n]
	now, err := r.slot(n)
	if err != nil {
		return err
	}
	if known {
		r.forget(n, was)
		delete(r.sharing.of, n)
	}
	switch now.state {
	case ofSubject, retired:
		r.remember(n, now)
	case destroyed:
		delete(r.keys, n)
	}
	return nil
}

// change writes a slot whose subject or state is another one.
func (r *Ring) change(n chain.KeyID, s slot) error {
	if x := r.sharing; x != nil {
		if _, err := x.changes.WriteAt(binary.BigEndian.AppendUint64(nil, uint64(n)), x.seen); err != nil {
			r.err = tga.Errorf(tga.StoreUnavailable, "write what is changed of key ring %s: %w", r.path, err)
			return r.err
		}
		x.seen += 8
	}
	return r.write(n, s)
}

// Marks returns marks of the keys with the numbers after one, of so many numbers; a key that is destroyed, or cannot be read,
// has none. A mark tells a key from another one of that number, in another copy of the ring. It says nothing else of the key.
func (r *Ring) Marks(after chain.KeyID, numbers int) (keys []chain.KeyID, marks [][]byte, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable(); err != nil {
		return nil, nil, err
	}
	if r.sharing != nil {
		if err := r.grown(); err != nil {
			return nil, nil, err
		}
	}
	for n := after + 1; n <= after+chain.KeyID(numbers) && uint64(n) <= r.slots; n++ {
		s, err := r.slot(n)
		if err != nil || s.state == destroyed {
			continue // nobody is given it, or can seal under it
		}
		key, err := r.wrap.unwrap(s.wrapped, uint64(n))
		if err != nil {
			continue
		}
		sum := r.mac("tgad data key v1", binary.BigEndian.AppendUint64(nil, uint64(n)), key)
		clear(key)
		keys, marks = append(keys, n), append(marks, sum[:16])
	}
	return keys, marks, nil
}

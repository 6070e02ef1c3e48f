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

// sharing is the state of a process for a ring that other processes of the machine have open too. Each process makes its own
// batches of keys, so no number is given twice. A process locks the ring's file while it changes it. A second file, with
// ".changes" at the end of its name, lists the number of each slot whose subject or state was changed, 8 bytes each. A number
// is written there before its slot. A process that gets the lock reads the new numbers and then those slots. The second file
// is not needed any more once all processes have ended.
type sharing struct {
	changes *os.File
	seen    int64               // offset up to which changes was read
	of      map[chain.KeyID]tag // subject tags of the subjects' keys
}

// share is load for a ring that several processes may have open.
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

// held calls f with the file lock, so that no other process changes the ring meanwhile.
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

// alone calls f with the file lock, after it has read the changes of other processes. r.mu is held.
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

// grown finds out how many slots other processes have made. It needs no lock: a slot that is in use lies before any slot
// that is still being written.
func (r *Ring) grown() error {
	info, err := r.file.Stat()
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "read key ring %s: %w", r.path, err)
	}
	r.slots = max(r.slots, uint64(info.Size()-headerLen)/slotLen)
	return nil
}

// catchUp reads the changes of other processes.
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

// lookAgain reads the current subject and state of a key.
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

// change writes a slot whose subject or state has changed.
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

// Marks returns the marks of the keys numbered after+1 to after+numbers. A key that is destroyed or cannot be read has no mark.
// Marks of one number differ if two copies of the ring have different keys of that number. A mark reveals nothing else of the key.
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
			continue // this ring cannot seal under it
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

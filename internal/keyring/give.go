package keyring

import (
	"io"
	"slices"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Key returns the key of a new trace: the key of its subject, or the next unused key. The key is
// on disk when Key returns.
func (r *Ring) Key(namespace, subject string) (chain.KeyID, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable(); err != nil {
		return 0, err
	}
	if !r.opts.BySubject || subject == "" {
		return r.take()
	}
	return alone(r, func() (chain.KeyID, error) { return r.ofSubject(r.tagOf(namespace, subject)) })
}

// ofSubject returns the key for new traces of a subject. No other process may change the ring meanwhile.
func (r *Ring) ofSubject(t tag) (chain.KeyID, error) {
	if r.fresh[t] {
		list := r.subjects[t]
		return list[len(list)-1], nil
	}
	n, err := r.taken()
	if err != nil {
		return 0, err
	}
	s, err := r.slot(n)
	if err != nil {
		return 0, err
	}
	s.state, s.tag = ofSubject, t
	if err := r.change(n, s); err != nil {
		return 0, err
	}
	r.remember(n, s)
	return n, nil
}

// take returns the next unused key. r.mu is held.
func (r *Ring) take() (chain.KeyID, error) {
	if r.next > r.made {
		return alone(r, r.taken)
	}
	return r.taken()
}

// taken is take for a caller that keeps other processes from changing the ring. That is needed only
// if the batch is used up.
func (r *Ring) taken() (chain.KeyID, error) {
	if r.next > r.made {
		if err := r.more(); err != nil {
			return 0, err
		}
	}
	n := chain.KeyID(r.next)
	r.next++
	return n, nil
}

// more makes a batch of keys: one write, one sync. r.mu is held.
func (r *Ring) more() error {
	random := make([]byte, r.opts.Batch*(12+32))
	if _, err := io.ReadFull(r.opts.Rand, random); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "key ring: random bytes: %w", err)
	}
	b := make([]byte, 0, r.opts.Batch*slotLen)
	for i := range r.opts.Batch {
		n := r.slots + 1 + uint64(i)
		own := random[i*44:]
		s := slot{state: ofTrace, wrapped: r.wrap.wrap(own[12:44], own[:12], n)}
		b = s.append(b, n)
	}
	clear(random)
	if err := r.put(b, slotAt(chain.KeyID(r.slots+1))); err != nil {
		return err
	}
	r.next, r.slots = r.slots+1, r.slots+uint64(r.opts.Batch)
	r.made = r.slots
	return nil
}

// Last returns the largest number of a key of the ring. If the file of a shared ring cannot be asked now, it is the
// largest number that this process knows: a caller that needs a larger one refuses the ring, and asks again later.
func (r *Ring) Last() chain.KeyID {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sharing != nil && r.usable() == nil {
		_ = r.grown()
	}
	return chain.KeyID(r.slots)
}

// Reserve skips the numbers up to n. It is for a ring that is an older copy: another copy has keys with these
// numbers, and the store has values that they sealed. The slots of these numbers stay blank.
func (r *Ring) Reserve(n chain.KeyID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable(); err != nil {
		return err
	}
	_, err := alone(r, func() (struct{}, error) { return struct{}{}, r.leaveOut(n) })
	return err
}

func (r *Ring) leaveOut(n chain.KeyID) error {
	if uint64(n) <= r.slots {
		return nil
	}
	err := r.file.Truncate(slotAt(n + 1))
	if err == nil {
		err = r.file.Sync()
	}
	if err != nil {
		r.err = tga.Errorf(tga.StoreUnavailable, "write key ring %s: %w", r.path, err)
		return r.err
	}
	r.blanks += uint64(n) - r.slots
	r.slots, r.next, r.made = uint64(n), uint64(n)+1, uint64(n)
	return nil
}

// Missing counts the skipped numbers: the store has used them, and only a newer copy of the ring has their
// keys.
func (r *Ring) Missing() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return int(r.blanks)
}

// Retire returns the keys of a subject that are not destroyed. From then on no new trace gets one of
// them: the next trace of the subject gets another key.
func (r *Ring) Retire(namespace, subject string) ([]chain.KeyID, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable(); err != nil {
		return nil, err
	}
	return alone(r, func() ([]chain.KeyID, error) { return r.retire(r.tagOf(namespace, subject)) })
}

func (r *Ring) retire(t tag) ([]chain.KeyID, error) {
	list := r.subjects[t]
	if r.fresh[t] {
		n := list[len(list)-1]
		s, err := r.slot(n)
		if err != nil {
			return nil, err
		}
		s.state = retired
		if err := r.change(n, s); err != nil {
			return nil, err
		}
		delete(r.fresh, t)
	}
	return slices.Clone(list), nil
}

// Destroy destroys a key for good. Destroying a destroyed key does nothing.
func (r *Ring) Destroy(key chain.KeyID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable(); err != nil {
		return err
	}
	_, err := alone(r, func() (struct{}, error) { return struct{}{}, r.destroy(key) })
	return err
}

func (r *Ring) destroy(key chain.KeyID) error {
	s, err := r.slot(key)
	if err != nil || s.state == destroyed {
		return err
	}
	if err := r.change(key, slot{state: destroyed}); err != nil {
		return err
	}
	delete(r.keys, key)
	if s.tag != (tag{}) {
		r.forget(key, s.tag)
	}
	return nil
}

// forget removes a key from the keys of its subject.
func (r *Ring) forget(key chain.KeyID, t tag) {
	list := r.subjects[t]
	if len(list) > 0 && list[len(list)-1] == key {
		delete(r.fresh, t) // the removed key was the one for new traces
	}
	if list = slices.DeleteFunc(list, func(n chain.KeyID) bool { return n == key }); len(list) == 0 {
		delete(r.subjects, t)
	} else {
		r.subjects[t] = list
	}
}

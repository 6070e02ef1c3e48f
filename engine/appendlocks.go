package engine

import (
	"bytes"
	"context"
	"slices"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// The locks of an append are taken in one order, so that appends never deadlock: first the
// traces by id, then the ledger keys by their bytes.

// lock locks the traces of the parts, all or none.
func (ps parts) lock(ctx context.Context, t *traces) error {
	var few [2]tga.ID
	ids := few[:0]
	for i := range ps {
		ids = append(ids, ps[i].lease.TraceID)
	}
	slices.SortFunc(ids, func(a, b tga.ID) int { return bytes.Compare(a[:], b[:]) })
	for i, id := range ids {
		if err := t.lockQueued(ctx, id); err != nil {
			for _, held := range ids[:i] {
				t.unlock(held)
			}
			return err
		}
	}
	return nil
}

func (ps parts) unlock(t *traces) {
	for i := range ps {
		t.unlock(ps[i].lease.TraceID)
	}
}

// lockKeys computes the ledger keys that the steps touch or rely on, and locks them, all or
// none.
func (ss steps) lockKeys(ctx context.Context, r *records) error {
	var few [2]*step
	with := few[:0]
	for _, s := range ss {
		c := s.change()
		touches, err := c.Touches()
		if err != nil {
			return err
		}
		if touches {
			s.hash = ledger.KeyOf(s.after.Namespace, s.after.Call).Hash()
			with = append(with, s)
		}
	}
	if len(with) == 2 {
		switch bytes.Compare(with[0].hash[:], with[1].hash[:]) {
		case 0:
			return tga.Errorf(tga.ValidationError, "append to traces %s and %s: both have the same ledger key", ss[0].after.ID, ss[1].after.ID).In(ss[0].after.ID)
		case 1:
			with[0], with[1] = with[1], with[0]
		}
	}
	for _, s := range with {
		if err := r.lock(ctx, s.after.ID, s.hash); err != nil {
			ss.unlockKeys(r)
			return err
		}
		s.keyed = true
	}
	return nil
}

// unlockKeys releases the locks of the ledger keys that the steps hold.
func (ss steps) unlockKeys(r *records) {
	for _, s := range ss {
		if s.keyed {
			r.unlock(s.hash)
			s.keyed = false
		}
	}
}

package engine

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tgad/tgad/schemas/tga"
)

var errPageFull = errors.New("page full")

// readError gives an error of Pebble its code.
func readError(err error) error {
	switch {
	case err == nil || tga.CodeOf(err) != "" || errors.Is(err, errPageFull):
		return err
	case pebble.IsCorruptionError(err):
		return indexDamaged(err)
	}
	return tga.Errorf(tga.StoreUnavailable, "read: %w", err)
}

// indexDamaged says that the index is damaged and how to rebuild it. Nothing is lost, because the
// log has everything that the index has.
func indexDamaged(err error) *tga.Error {
	return damaged("the index is damaged: %w. Close the store; tgad index rebuild --data DIR makes the index anew from the log", err)
}

// closing closes a batch that was not committed, and returns err.
func closing(b *pebble.Batch, err error) error {
	if e := b.Close(); e != nil {
		return tga.Errorf(tga.StoreUnavailable, "%v; close the batch: %w", err, e)
	}
	return err
}

// closeBatch closes a batch that is no longer needed.
func closeBatch(b *pebble.Batch) error {
	if err := b.Close(); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "close batch: %w", err)
	}
	return nil
}

// closeView closes a view and keeps the earlier error.
func closeView(v view, err error) error {
	v.unpin()
	if e := v.snapshot.Close(); err == nil && e != nil {
		return tga.Errorf(tga.StoreUnavailable, "close view: %w", e)
	}
	return err
}

package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// readRecord reads the record of a key, nil if the key was never used.
func (s *Store) readRecord(ctx context.Context, hash [32]byte) (record []byte, err error) {
	err = s.ask(ctx, "ledger record", func(ctx context.Context, c *pgxpool.Conn) error {
		record = nil
		err := c.QueryRow(ctx, "SELECT record FROM tgad.ledger WHERE shard = $1 AND hash = $2", s.o.Shard, hash[:]).Scan(&record)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	if err == nil {
		s.records.put(hash, record, nil)
	}
	return record, err
}

// Record implements [runtime.Store].
func (s *Store) Record(ctx context.Context, key ledger.Key) (*ledger.Record, error) {
	if err := s.health.enter(); err != nil {
		return nil, err
	}
	defer s.health.leave()
	if s.health.noRing != nil {
		return nil, s.health.noRing
	}
	record, err := s.readRecord(ctx, key.Hash())
	if record == nil || err != nil {
		return nil, err
	}
	return ledger.DecodeRecord(record)
}

// Await implements [runtime.Store]. It polls for changes by other processes, with growing pauses.
func (s *Store) Await(ctx context.Context, key ledger.Key, seen ledger.Record) error {
	hash := key.Hash()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		// Subscribe before looking: otherwise a change between the look and the wait would be
		// missed. A record changes together with the trace that it names.
		changed, cancel := s.changed.subscribe(seen.TraceID)
		over, err := s.moved(ctx, hash, seen)
		if err == nil && !over {
			select {
			case <-changed:
			case <-time.After(pause):
			case <-ctx.Done():
				err = ctx.Err()
			case <-s.health.stop:
				err = tga.Errorf(tga.StoreUnavailable, "await: the store is closed")
			}
		}
		cancel()
		if err != nil || over {
			return err
		}
	}
}

func (s *Store) moved(ctx context.Context, hash [32]byte, seen ledger.Record) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if err := s.health.enter(); err != nil {
		return false, err
	}
	defer s.health.leave()
	if !seen.Attempts.External && s.Holder(seen.TraceID) == ledger.HolderGone {
		return true, nil
	}
	stored, err := s.readRecord(ctx, hash)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return false, err
	}
	if stored == nil {
		return true, nil
	}
	now, err := ledger.DecodeRecord(stored)
	if err != nil {
		return false, err
	}
	return now.Status != seen.Status || now.TraceID != seen.TraceID || now.Attempts != seen.Attempts, nil
}

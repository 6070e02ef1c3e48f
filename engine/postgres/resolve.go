package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/schemas/tga"
)

// resolve finds out the outcome of an append whose commit had no answer, or ended with a warning. It
// never repeats the append. For each trace it reads the version in a transaction that waits for the
// append if it is under way. The transaction raises the version, so that the database refuses the
// append if it arrives later. Once the transaction has committed without a warning, every earlier
// commit is durable, on a standby too.
//
// The answer is sqlDone if the append is in the log. Otherwise no part of it can get there any more,
// and the caller plans it again.
func (s *Store) resolve(ctx context.Context, j *job) (code string, err error) {
	for _, x := range j.calls {
		there, err := s.look(ctx, x)
		if err != nil {
			return "", err
		}
		if !there {
			// The parts were one transaction, so neither of them is in the log.
			return sqlHead, nil
		}
	}
	return sqlDone, nil
}

// look resolves one part.
func (s *Store) look(ctx context.Context, x *call) (there bool, err error) {
	id := x.lease.TraceID
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		var version, epoch, session int64
		err := s.once(ctx, "look after trace "+id.String(), func(ctx context.Context, c *pgxpool.Conn) error {
			return s.transaction(ctx, c.Conn(), func(b *pgx.Batch) {
				b.Queue("SELECT o_version, o_epoch, o_session FROM tgad.look($1, $2)", s.o.Shard, [16]byte(id)).QueryRow(func(row pgx.Row) error {
					return row.Scan(&version, &epoch, &session)
				})
			})
		})
		if err == nil {
			s.views.remove(id)
			return s.concluded(ctx, x, version, epoch)
		}
		if ctx.Err() != nil {
			return false, err
		}
		// The next look resolves the outcome of a look without an answer, but cannot tell which of
		// the two raised the version.
		x.looked = x.looked || errors.Is(err, errUnknown)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// concluded decides, from the version that a look found, whether the part is in the log.
func (s *Store) concluded(ctx context.Context, x *call, version, epoch int64) (there bool, err error) {
	id := x.lease.TraceID
	if version == x.before.version {
		return false, nil
	}
	st, err := s.stand(ctx, id, false)
	if err != nil {
		return false, err
	}
	t := st.trace
	for i := range x.entries {
		if e := &x.entries[i]; uint64(len(t.Entries)) < e.Seq || t.Entries[e.Seq-1].Digest != e.Digest {
			return false, nil
		}
	}
	for i := range x.notes {
		if n := &x.notes[i]; uint32(len(t.Notes)) < n.Number || t.Notes[n.Number-1].Digest != n.Digest {
			return false, nil
		}
	}
	if len(x.entries) > 0 || len(x.notes) > 0 {
		return true, nil
	}
	// The part has no entry and no note, so the chain does not show it. Nobody else appends under its
	// lease, so a version raised by one shows the append. But an earlier look raises the version too;
	// then it is unknown what raised it.
	if epoch == int64(x.lease.Epoch) && version == x.before.version+1 && !x.looked {
		return true, nil
	}
	return false, tga.Errorf(tga.StoreUnavailable, "the attachments of trace %s may be there or not", id).In(id)
}

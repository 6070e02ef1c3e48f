package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/schemas/tga"
)

// resolve finds out what became of an append whose commit had no answer, or one that was not
// enough. It never repeats the append: it asks each trace for its version, in a transaction that
// waits for the append if that is under way, and that raises the version, so that it is refused if
// it is still to come. Once that transaction has committed without a warning, so has all before
// it, on a standby too.
//
// The answer is sqlDone where the append is there. Where it is not, nothing of it will be, and it
// is planned anew.
func (s *Store) resolve(j *job) (code string, err error) {
	for _, x := range j.calls {
		there, err := s.look(x)
		if err != nil {
			return "", err
		}
		if !there {
			// Both parts are there, or neither: they were one transaction.
			return sqlHead, nil
		}
	}
	return sqlDone, nil
}

// look asks for one part.
func (s *Store) look(x *call) (there bool, err error) {
	id := x.lease.TraceID
	ctx, cancel := context.WithTimeout(context.Background(), s.o.Patience)
	defer cancel()
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
		// A look that has no answer is looked after in the same way: by the next look.
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// concluded says from the version that a look found whether the part is there.
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
	// It left nothing in the chain. Under its lease nobody else appends, and each look before this
	// one raised the version too: then what raised it is not known.
	if epoch == int64(x.lease.Epoch) && version == x.before.version+1 && !x.looked {
		return true, nil
	}
	return false, tga.Errorf(tga.StoreUnavailable, "the attachments of trace %s may be there or not", id).In(id)
}

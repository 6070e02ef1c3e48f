package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/internal/sealrules"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Report is the result of [Fleet.Check].
type Report struct {
	Traces, Entries, Notes int
	Records                int // of the ledger
	Leaves                 int // leaves of the order
	Unread                 int // traces whose keys the key ring lacks; their contents are not verified
	Problems               []Problem
}

// Problem is one inconsistency of the store.
type Problem struct {
	TraceID tga.ID // zero if it concerns no trace
	Err     error
}

// Check reads the whole store and reports every inconsistency. It checks that each trace replays and
// ends at its head; that the ledger record of each key agrees with the log of its trace; and that the
// numbers of the order have no gap and name every entry and note once. It can run beside appends: it
// reads a trace again that changes meanwhile. An error says that Check could not go on.
func (f Fleet) Check(ctx context.Context) (rep Report, err error) {
	c := &checker{s: f.s, ctx: ctx}
	var after tga.ID
	for {
		ids, err := f.traceIDs(ctx, after)
		if err != nil {
			return c.Report, err
		}
		for _, id := range ids {
			if err := c.trace(id); err != nil {
				return c.Report, err
			}
		}
		if len(ids) < listPage {
			break
		}
		after = ids[len(ids)-1]
	}
	for _, step := range []func() error{c.records, c.order} {
		if err := step(); err != nil {
			return c.Report, err
		}
	}
	if c.Unread = len(c.unread); c.Unread > 0 {
		c.Problems = append(c.Problems, Problem{Err: sealrules.NotVerified(c.Unread)})
	}
	return c.Report, nil
}

type checker struct {
	Report
	unread map[tga.ID]bool
	s      *Store
	ctx    context.Context
}

// problem keeps an error, unless it says that the store cannot be read at all.
func (c *checker) problem(id tga.ID, err error) error {
	if err == nil || tga.CodeOf(err) == tga.StoreUnavailable || c.ctx.Err() != nil {
		return errors.Join(err, c.ctx.Err())
	}
	c.Problems = append(c.Problems, Problem{id, err})
	return nil
}

// looks is how often a trace is read if its ledger record does not agree with it. The two are read one
// after the other, and an append may come in between.
const looks = 5

func (c *checker) trace(id tga.ID) error {
	var wrong error
	for range looks {
		st, err := c.whole(id)
		if err != nil {
			c.Traces++
			return c.problem(id, err)
		}
		if wrong, err = c.record(st); err != nil {
			return c.problem(id, err)
		}
		if wrong == nil {
			c.Traces++
			c.Entries += len(st.trace.Entries)
			c.Notes += len(st.trace.Notes)
			return nil
		}
	}
	c.Traces++
	return c.problem(id, wrong)
}

// whole reads a trace from its first entry on.
func (c *checker) whole(id tga.ID) (standing, error) {
	if err := c.s.health.enter(); err != nil {
		return standing{}, err
	}
	defer c.s.health.leave()
	if c.s.health.noRing != nil {
		return view{trace: chain.NewTrace(id)}.goOn(c.ctx, c.s, chain.NoKeys{}) // without the ring the chain can still be checked
	}
	st, err := c.s.stand(c.ctx, id, true)
	if tga.CodeOf(err) != tga.StoreUnavailable || c.s.ringed.ring == nil {
		return st, err
	}
	// The database may be away. Or the ring lacks the key of the trace; then the rest of the trace is checked.
	bare, berr := view{trace: chain.NewTrace(id)}.goOn(c.ctx, c.s, chain.NoKeys{})
	if berr != nil {
		return st, err
	}
	if c.unread == nil {
		c.unread = map[tga.ID]bool{}
	}
	c.unread[id] = true
	return bare, nil
}

// record returns what is wrong with the ledger record of a trace's key, nil if nothing is.
func (c *checker) record(st standing) (wrong, err error) {
	t := st.trace
	if t.Call == nil || ledger.NeverSent(t.Call) {
		return nil, nil
	}
	var call, effect chain.Entry
	for _, e := range st.entries {
		switch e.Type {
		case tga.CallType:
			call = e
		case tga.EffectType:
			effect = e
		}
	}
	want, _, err := ledger.FromTrace(t.Call, call.Seq, uint64(call.Epoch), min(call.TS, call.Committed), t.Effect, effect.Seq, t.Notes)
	if err != nil {
		return err, nil
	}
	want.RequestDigest = c.s.RequestDigest(t.Call.Call.Call)
	got, err := c.s.Record(c.ctx, ledger.KeyOf(t.Namespace, t.Call))
	if err != nil {
		return nil, err
	}
	return want.Check(t.Call.Call.IdempotencyKey, got), nil
}

// records decodes every ledger record, and checks that the trace that it names exists.
func (c *checker) records() error {
	after := []byte{}
	for {
		var hashes, records [][]byte
		var known []bool
		err := c.s.ask(c.ctx, "read the ledger", func(ctx context.Context, conn *pgxpool.Conn) error {
			hashes, records = nil, nil
			rows, err := conn.Query(ctx, "SELECT hash, record FROM tgad.ledger WHERE shard = $1 AND hash > $2 ORDER BY hash LIMIT $3", c.s.o.Shard, after, orderPage)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				var h, r []byte
				if err := rows.Scan(&h, &r); err != nil {
					return err
				}
				hashes, records = append(hashes, h), append(records, r)
			}
			return rows.Err()
		})
		if err != nil {
			return err
		}
		ids := make([][16]byte, len(records))
		for i := range records {
			r, err := ledger.DecodeRecord(records[i])
			if err != nil {
				if err := c.problem(tga.ID{}, err); err != nil {
					return err
				}
				continue
			}
			ids[i] = [16]byte(r.TraceID)
		}
		if err := c.s.ask(c.ctx, "look for traces", func(ctx context.Context, conn *pgxpool.Conn) error {
			return conn.QueryRow(ctx, "SELECT ARRAY(SELECT EXISTS (SELECT 1 FROM tgad.heads h WHERE h.shard = $1 AND h.trace = k.id AND h.seq > 0) FROM unnest($2::uuid[]) WITH ORDINALITY AS k (id, n) ORDER BY n)", c.s.o.Shard, ids).Scan(&known)
		}); err != nil {
			return err
		}
		for i, id := range ids {
			if id != [16]byte{} && !known[i] {
				if err := c.problem(tga.ID(id), damaged("the ledger record of key %x names trace %s, which has no entry", hashes[i], tga.ID(id)).In(tga.ID(id))); err != nil {
					return err
				}
			}
		}
		c.Records += len(records)
		if len(records) < orderPage {
			return nil
		}
		after = hashes[len(hashes)-1]
	}
}

// order checks that the numbers have no gap, and that the leaves, with the appends that have no number yet,
// name every entry and note once: the leaves of a trace follow each other, and the last one ends at its head.
func (c *checker) order() error {
	var leaves, last int64
	var ids [][16]byte
	err := c.s.ask(c.ctx, "check the order", func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, `WITH named AS (
				SELECT trace, sum(entries) AS entries, sum(notes) AS notes, max(first_seq + entries - 1) FILTER (WHERE entries > 0) AS seq, max(first_note + notes - 1) FILTER (WHERE notes > 0) AS note
				FROM (SELECT trace, first_seq, entries, first_note, notes FROM tgad.leaves WHERE shard = $1
					UNION ALL SELECT trace, first_seq, entries, first_note, notes FROM tgad.pending WHERE shard = $1) AS l GROUP BY trace
			)
			SELECT h.trace FROM tgad.heads h LEFT JOIN named n ON n.trace = h.trace WHERE h.shard = $1 AND h.seq + h.note > 0
				AND (coalesce(n.entries, 0), coalesce(n.notes, 0), coalesce(n.seq, 0), coalesce(n.note, 0)) <> (h.seq, h.note, h.seq, h.note)
			UNION SELECT l.trace FROM tgad.leaves l JOIN tgad.entries e ON e.shard = l.shard AND e.trace = l.trace AND e.seq = l.first_seq + l.entries - 1
				WHERE l.shard = $1 AND l.entries > 0 AND substr(e.header, 81, 32) <> l.digest
			UNION SELECT l.trace FROM tgad.leaves l JOIN tgad.notes n ON n.shard = l.shard AND n.trace = l.trace AND n.number = l.first_note + l.notes - 1
				WHERE l.shard = $1 AND l.notes > 0 AND substr(n.frame, 73, 32) <> l.note_digest
			UNION SELECT n.trace FROM named n WHERE n.entries + n.notes > 0 AND NOT EXISTS (SELECT 1 FROM tgad.heads h WHERE h.shard = $1 AND h.trace = n.trace)`, c.s.o.Shard)
		if err != nil {
			return err
		}
		if ids, err = pgx.CollectRows(rows, pgx.RowTo[[16]byte]); err != nil {
			return err
		}
		return conn.QueryRow(ctx, "SELECT count(*), coalesce(max(index), 0) FROM tgad.leaves WHERE shard = $1", c.s.o.Shard).Scan(&leaves, &last)
	})
	if err != nil {
		return err
	}
	c.Leaves = int(leaves)
	for _, id := range ids {
		if err := c.problem(tga.ID(id), damaged("order: the appends of trace %s are not each named once, or not with the digests that its entries and notes have", tga.ID(id)).In(tga.ID(id))); err != nil {
			return err
		}
	}
	if leaves != last {
		return c.problem(tga.ID{}, damaged("order: %d numbers were given, and the newest is %d", leaves, last))
	}
	return nil
}

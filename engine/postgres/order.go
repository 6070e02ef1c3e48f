package postgres

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// order is the newest number of the durable order that this process knows. The database assigns the
// numbers 1, 2, 3, … (tgad.sequence), each only once all earlier numbers exist.
type order struct {
	*database

	mu    sync.Mutex
	last  uint64
	grown chan struct{} // closed and replaced when last grows

	kicks     chan struct{} // signals that an append of this process has committed
	listening sync.Once
	heard     atomic.Pointer[func(string)] // gets the other notifications
}

func (o *order) init(last uint64) {
	o.last, o.grown, o.kicks = last, make(chan struct{}), make(chan struct{}, 1)
}

func (o *order) kick() {
	select {
	case o.kicks <- struct{}{}:
	default:
	}
}

// grow records that every number up to last exists.
func (o *order) grow(last uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if last <= o.last {
		return
	}
	o.last = last
	close(o.grown)
	o.grown = make(chan struct{})
}

func (o *order) known() (last uint64, grown <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last, o.grown
}

const (
	// orderPause is the least time between two rounds of numbers. It bounds the flushes for them.
	orderPause = 20 * time.Millisecond
	// orderPatience is how often a process looks for appends that another process left without
	// numbers, and for numbers of which it got no notification.
	orderPatience = time.Second
	// orderPage is how many numbers are assigned, or leaves read, at once.
	orderPage = 1024
)

// keep assigns numbers until the store closes.
func (o *order) keep() {
	tick := time.NewTicker(orderPatience)
	defer tick.Stop()
	for {
		select {
		case <-o.kicks:
		case <-tick.C:
		case <-o.health.stop:
			return
		}
		if err := o.sequence(o.health.life); err != nil && o.health.life.Err() == nil {
			o.log.Warn("the order was not continued", "error", err)
		}
		select {
		case <-time.After(orderPause):
		case <-o.health.stop:
			return
		}
	}
}

// sequence assigns numbers to committed appends.
func (o *order) sequence(ctx context.Context) error {
	if o.health.frozen.Load() != nil {
		return nil
	}
	for more := true; more; {
		var last *int64
		before, _ := o.known()
		err := o.once(ctx, "continue the order", func(ctx context.Context, c *pgxpool.Conn) error {
			return o.transaction(ctx, c.Conn(), func(b *pgx.Batch) {
				b.Queue("SELECT tgad.sequence($1, $2)", o.o.Shard, orderPage).QueryRow(func(row pgx.Row) error { return row.Scan(&last) })
			})
		})
		if err != nil || last == nil { // last is nil if another process is assigning numbers
			return err
		}
		o.grow(uint64(*last))
		more = uint64(*last) >= before+orderPage
	}
	return nil
}

// Cursor returns the newest number of the order that this process knows of.
func (s *Store) Cursor() uint64 {
	last, _ := s.order.known()
	return last
}

// Follow yields the leaves after a cursor in order, without a gap, and waits for more until ctx
// ends or the store closes; it then yields that error and ends. A leaf is yielded once it and all
// before it are durable.
func (s *Store) Follow(ctx context.Context, after uint64) iter.Seq2[chain.Leaf, error] {
	return func(yield func(chain.Leaf, error) bool) {
		after := after // each range begins there
		s.order.listen()
		for {
			_, grown := s.order.known()
			page, err := s.order.some(ctx, after, orderPage)
			if err != nil {
				yield(chain.Leaf{}, err)
				return
			}
			if len(page) > 0 { // before the first yield: a follower that stops at the first leaf may ask for the newest number
				s.order.grow(page[len(page)-1].Index)
			}
			for _, l := range page {
				if !yield(l, nil) {
					return
				}
				after = l.Index
			}
			if len(page) > 0 {
				continue
			}
			select {
			case <-grown:
				continue
			case <-time.After(orderPatience):
				continue
			case <-ctx.Done():
				err = ctx.Err()
			case <-s.health.stop:
				err = tga.Errorf(tga.StoreUnavailable, "follow after %d: the store is closed", after)
			}
			yield(chain.Leaf{}, err)
			return
		}
	}
}

// leafColumns are what readLeaf reads.
const leafColumns = "index, trace, first_seq, entries, first_note, notes, digest, note_digest, committed, newest"

// some reads at most most leaves of the order after an index.
func (o *order) some(ctx context.Context, after uint64, most int) (page []chain.Leaf, err error) {
	if err := o.health.enter(); err != nil {
		return nil, err
	}
	defer o.health.leave()
	after = min(after, math.MaxInt64) // the database has no larger numbers: nothing follows
	err = o.ask(ctx, "read the order", func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, "SELECT "+leafColumns+" FROM tgad.leaves WHERE shard = $1 AND index > $2 ORDER BY index LIMIT $3",
			o.o.Shard, int64(after), most)
		if err != nil {
			return err
		}
		page, err = pgx.CollectRows(rows, readLeaf)
		return err
	})
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	for i := range page {
		if want := after + uint64(i) + 1; page[i].Index != want {
			return nil, damaged("order: leaf %d follows %d", page[i].Index, want-1)
		}
	}
	return page, nil
}

func readLeaf(row pgx.CollectableRow) (l chain.Leaf, err error) {
	var id [16]byte
	var digest, note []byte
	var index, firstSeq, entries, firstNote, notes, committed, newest int64
	if err := row.Scan(&index, &id, &firstSeq, &entries, &firstNote, &notes, &digest, &note, &committed, &newest); err != nil {
		return l, err
	}
	if len(digest) != len(l.HeadDigest) || len(note) != len(l.NoteDigest) {
		return l, damaged("order: leaf %d has digests of %d and %d bytes", index, len(digest), len(note))
	}
	return chain.Leaf{
		Index: uint64(index), TraceID: tga.ID(id), FirstSeq: uint64(firstSeq), Entries: uint16(entries),
		FirstNote: uint32(firstNote), Notes: uint16(notes), HeadDigest: tga.Digest(digest), NoteDigest: tga.Digest(note),
		Committed: tga.Millis(committed), NewestTS: tga.Millis(newest),
	}, nil
}

// listen begins to receive notifications of numbers that other processes assigned. If notifications
// do not arrive, for example behind a pooler, followers poll.
func (o *order) listen() {
	o.listening.Do(func() {
		if o.health.enter() != nil {
			return
		}
		defer o.health.leave()
		o.work.Go(func() {
			ctx, stop := o.untilClose()
			defer stop()
			for ctx.Err() == nil {
				if err := o.hear(ctx); err != nil {
					select {
					case <-time.After(orderPatience):
					case <-o.health.stop:
						return
					}
				}
			}
		})
	})
}

// untilClose returns a context that ends as soon as the store begins to close.
func (o *order) untilClose() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(o.health.life)
	go func() {
		select {
		case <-o.health.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func (o *order) hear(ctx context.Context) error {
	conn, err := o.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer func() {
		// Do not return it to the pool: the pool's connections must not listen.
		if c := conn.Hijack(); c.Close(context.WithoutCancel(ctx)) != nil {
			return
		}
	}()
	if _, err := conn.Exec(ctx, "LISTEN tgad"); err != nil {
		return err
	}
	for {
		n, err := conn.Conn().WaitForNotification(ctx)
		if err != nil {
			return err
		}
		var shard int32
		var last uint64
		if _, err := fmt.Sscanf(n.Payload, "%d %d", &shard, &last); err == nil && shard == o.o.Shard {
			o.grow(last)
		} else if hear := o.heard.Load(); hear != nil {
			(*hear)(n.Payload)
		}
	}
}

// remembers checks that a server that has become the primary has the newest appends that were
// acknowledged to this process. If one is missing, the store freezes, because other appends may be
// missing too.
func (s *Store) remembers(ctx context.Context, c *pgx.Conn) error {
	if err := keepsSession(ctx, c, s); err != nil {
		return err
	}
	var ids [][16]byte
	known := map[tga.ID]chain.Trace{}
	s.acked.each(func(id tga.ID, t chain.Trace) {
		ids, known[id] = append(ids, [16]byte(id)), t
	})
	rows, err := c.Query(ctx, `SELECT h.trace, h.seq, h.note,
			(SELECT substr(header, 81, 32) FROM tgad.entries e WHERE e.shard = h.shard AND e.trace = h.trace AND e.seq = k.seq),
			(SELECT substr(frame, 73, 32) FROM tgad.notes n WHERE n.shard = h.shard AND n.trace = h.trace AND n.number = k.note)
		FROM unnest($2::uuid[], $3::int8[], $4::int8[]) AS k (trace, seq, note) JOIN tgad.heads h ON h.shard = $1 AND h.trace = k.trace`,
		s.o.Shard, ids, each(ids, known, func(t chain.Trace) int64 { return int64(t.Head.Seq) }), each(ids, known, func(t chain.Trace) int64 { return int64(t.NoteHead.Number) }))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id [16]byte
		var seq, note int64
		var digest, noteDigest []byte
		if err := rows.Scan(&id, &seq, &note, &digest, &noteDigest); err != nil {
			return err
		}
		t := known[tga.ID(id)]
		if (t.Head.Seq == 0 || bytes.Equal(digest, t.Head.Digest[:])) && (t.NoteHead.Number == 0 || bytes.Equal(noteDigest, t.NoteHead.Digest[:])) {
			delete(known, tga.ID(id))
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for id, t := range known {
		doubt := tga.Errorf(tga.StateChecksumMismatch, "the new primary lacks appends that were acknowledged: trace %s had entry %d, note %d, and %d others are missing too", id, t.Head.Seq, t.NoteHead.Number, len(known)-1).In(id)
		s.log.Error("the store is frozen", "error", doubt)
		s.health.frozen.Store(doubt)
		break
	}
	return nil
}

// keepsSession forgets the session if a server that has become the primary does not have it. That server may have lost it, and may
// give its number to another process: the two would count as one, and each would take what the other has.
func keepsSession(ctx context.Context, c *pgx.Conn, s *Store) error {
	id := s.session.number()
	var own bool
	if err := c.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM tgad.sessions WHERE shard = $1 AND session = $2 AND name = $3)", s.o.Shard, id, s.o.Name).Scan(&own); err != nil || own {
		return err
	}
	s.log.Error("the new primary lacks the session of this process: its leases are lost", "session", id)
	s.leases.clear()
	s.session.forget()
	return nil
}

func each(ids [][16]byte, known map[tga.ID]chain.Trace, f func(chain.Trace) int64) []int64 {
	out := make([]int64, len(ids))
	for i, id := range ids {
		out[i] = f(known[tga.ID(id)])
	}
	return out
}

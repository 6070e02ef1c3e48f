package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/internal/search"
	"github.com/tgad/tgad/schemas/tga"
)

// Lists is the index of the lists of a store (migrations/008_lists.sql). One process of the store keeps it, and each reads it.
// Its methods may be called by several goroutines.
type Lists struct {
	s      *Store
	duty   *Duty
	look   time.Duration
	index  atomic.Pointer[search.Index] // while this process keeps it
	behind atomic.Uint64
	newer  atomic.Bool // it is of a newer program
	// trusted is that of [listsLog].
	trusted atomic.Pointer[time.Time]
}

var _ search.Lists = (*Lists)(nil)

// listsDuty is the duty of the process that keeps the lists.
const listsDuty = "lists"

// Lists returns the index of the lists of the store.
func (f Fleet) Lists() *Lists {
	return &Lists{s: f.s, duty: f.Duty(listsDuty), look: min(listsLook, f.s.o.Lease/5)}
}

const (
	// listsLook is how often, at most, a process asks how far the lists are, whether it can keep them, and whether something was erased.
	listsLook = time.Second
	// newerLook is how often it asks again who found that a newer program keeps them.
	newerLook = time.Minute
	// listsPatience is for how long a list waits for the appends before it to be in the index; listsPoll is between two looks, and
	// listsHurry between two words to whoever keeps it.
	listsPatience, listsPoll, listsHurry = time.Second, 10 * time.Millisecond, 100 * time.Millisecond
)

// Run implements [search.Lists]: it keeps the lists while it is on duty, and knows how far they are.
func (l *Lists) Run(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		for ctx.Err() == nil {
			if st, err := l.stands(ctx); err == nil {
				l.behind.Store(st.behind())
			}
			rest(ctx, l.look)
		}
	}()
	for ctx.Err() == nil {
		l.turn(ctx)
		if l.newer.Load() {
			rest(ctx, newerLook)
		}
		rest(ctx, l.look)
	}
	<-looked
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// turn keeps the lists where this process is on duty, until it is not any more.
func (l *Lists) turn(ctx context.Context) {
	if l.s.health.frozen.Load() != nil {
		return // of a copy that is not whole there are appends whose traces are not there yet
	}
	if _, mine, err := l.duty.Take(ctx); err != nil || !mine {
		return
	}
	on, cancel := l.duty.While(ctx)
	defer cancel()
	l.newer.Store(false)
	l.distrust()
	x := search.New(on, search.Options{Table: &listsTable{l: l}, Store: listsLog{l.s, l.s.Fleet(), &l.trusted}, Look: l.look, Logger: l.s.log})
	l.index.Store(x)
	heard := func(said string) {
		if said == l.request() {
			x.Hurry()
		}
	}
	l.s.order.heard.Store(&heard)
	x.Run(on)
	l.s.order.heard.Store(nil)
	l.index.Store(nil)
	last, end := context.WithTimeout(context.WithoutCancel(ctx), l.s.o.Lease)
	defer end()
	if err := l.duty.Leave(last); err != nil {
		l.s.log.Warn("the lists are kept by nobody until the session of this process is over", "error", err)
	}
}

// distrust has traces read that this process remembers from before: something was erased, or may have been.
func (l *Lists) distrust() {
	now := time.Now()
	l.trusted.Store(&now)
}

// Close implements [search.Lists].
func (l *Lists) Close() error { return nil }

// Behind implements [search.Lists].
func (l *Lists) Behind() uint64 { return l.behind.Load() }

// reach is how far lists are, and the order.
type reach struct {
	format, position int64 // position -1: they are being made, or there are none
	last             int64 // append of the order
	oldest, youngest int64 // append without a number, 0 is none
	waiting          int64 // of those
	again            bool  // something was erased, and not all lists say so yet
}

// listsStand reads it.
const listsStand = `SELECT coalesce(s.format, 0), coalesce(s.position, -1), o.last, coalesce(p.oldest, 0), coalesce(p.youngest, 0), p.waiting,
	EXISTS (SELECT 1 FROM tgad.lists_again WHERE shard = $1)
	FROM tgad.order_state o LEFT JOIN tgad.lists_standing s USING (shard),
	LATERAL (SELECT min(id) AS oldest, max(id) AS youngest, count(*) AS waiting FROM tgad.pending WHERE shard = $1) AS p WHERE o.shard = $1`

func (st *reach) read(row pgx.Row) error {
	return row.Scan(&st.format, &st.position, &st.last, &st.oldest, &st.youngest, &st.waiting, &st.again)
}

func (st *reach) made() bool {
	return st.position >= 0 && st.position <= st.last && st.format == search.Format
}

func (st *reach) behind() uint64 {
	n := st.last + st.waiting
	if st.made() {
		n -= st.position
	}
	return uint64(max(n, 0))
}

func (l *Lists) stands(ctx context.Context) (st reach, err error) {
	err = l.s.asked(ctx, "ask how far the lists are", func(ctx context.Context, c *pgxpool.Conn) error {
		return st.read(c.QueryRow(ctx, listsStand, l.s.o.Shard))
	})
	return st, err
}

// Find implements [search.Lists]. It waits a while for what was appended before to be in the lists, by whichever process.
func (l *Lists) Find(ctx context.Context, q search.Query) ([]search.Mark, error) {
	page, st, err := l.find(ctx, q)
	if err != nil {
		return nil, err
	}
	before, numbered := st.youngest, st.youngest == 0 // what was appended before, and whether all of it has a number
	upTo := st.last
	late := func() bool { return !st.made() || !numbered || st.position < upTo || st.again && q.OfArtifacts() }
	if !late() {
		return page, nil
	}
	l.hurry(ctx)
	hurried := time.Now()
	for until := time.Now().Add(listsPatience); late() && time.Now().Before(until) && ctx.Err() == nil; rest(ctx, listsPoll) {
		at := st.position
		if st, err = l.stands(ctx); err != nil {
			return nil, err
		}
		// Whoever keeps the lists may have ended a rest for it before there was anything to be done, or not have heard.
		if st.position != at || time.Since(hurried) >= listsHurry {
			l.hurry(ctx)
			hurried = time.Now()
		}
		if !numbered && (st.oldest == 0 || st.oldest > before) {
			numbered, upTo = true, st.last
		}
	}
	page, st, err = l.find(ctx, q)
	switch {
	case err != nil:
		return nil, err
	case st.position >= 0 && st.format != search.Format:
		return nil, tga.Errorf(tga.StoreUnavailable, "the index of lists is of another version of tgad (format %d, this one reads %d). List by id", st.format, int64(search.Format))
	case !st.made():
		return nil, tga.Errorf(tga.StoreUnavailable, "the index of lists is being made. List by id, or ask again later")
	}
	return page, nil
}

// hurry asks whichever process keeps the lists not to rest.
func (l *Lists) hurry(ctx context.Context) {
	if x := l.index.Load(); x != nil {
		x.Hurry()
		return
	}
	if err := l.s.asked(ctx, "ask for the lists", func(ctx context.Context, c *pgxpool.Conn) error {
		_, err := c.Exec(ctx, "SELECT pg_notify('tgad', $1)", l.request())
		return err
	}); err != nil && ctx.Err() == nil {
		l.s.log.Debug("the lists are not hurried", "error", err)
	}
}

// request is what says to the process that keeps the lists that somebody waits for them.
func (l *Lists) request() string { return listsDuty + " " + strconv.Itoa(int(l.s.o.Shard)) }

var listsDialect = search.Dialect{
	Param: func(n int) string { return "$" + strconv.Itoa(n) },
	Text:  func(s string) any { return []byte(s) },
	ID:    func(id tga.ID) any { return [16]byte(id) },
}

// notErased leaves out, where a query asks for what an erasure takes away, the traces whose rows do not say yet what is left of them.
// Those of one trace, of which there may be many, are found by their index; the others are few.
const notErased = " AND NOT EXISTS (SELECT 1 FROM tgad.lists_again a WHERE a.shard = $1 AND a.first = l.id)" +
	" AND NOT EXISTS (SELECT 1 FROM tgad.lists_again a WHERE a.shard = $1 AND a.first <> a.last AND l.id BETWEEN a.first AND a.last)"

// page is the statement that reads a page. Of several states each is read by its index, and the newest of all are the page: where one state
// is rare the server would read all rows of the others.
func (l *Lists) page(q search.Query) (text string, args []any) {
	from := "tgad.lists l WHERE shard = $1"
	if len(q.States) > 1 {
		var each []string
		for _, s := range q.States {
			each = append(each, fmt.Sprintf("(%d::int2)", int64(s)))
		}
		from = "(VALUES " + strings.Join(each, ", ") + ") AS s (any_of), LATERAL (SELECT since, id FROM tgad.lists l WHERE shard = $1 AND state = any_of"
		q.States = nil
	}
	where, args := q.Where(listsDialect, l.s.o.Shard)
	if q.OfArtifacts() {
		where += notErased
	}
	args = append(args, q.Limit)
	end := fmt.Sprintf(" %s LIMIT $%d", search.Order, len(args))
	if strings.HasPrefix(from, "(") {
		end += ") AS p" + end
	}
	return "SELECT since, id FROM " + from + " AND " + where + end, args
}

// find reads a page, and how far the lists were at that moment. A later word would be of rows that the page lacks, and an earlier one
// of rows that may be removed by then.
func (l *Lists) find(ctx context.Context, q search.Query) (page []search.Mark, st reach, err error) {
	text, args := l.page(q)
	err = l.s.asked(ctx, "list", func(ctx context.Context, c *pgxpool.Conn) error {
		b := atOneMoment()
		b.Queue(text, args...).Query(func(rows pgx.Rows) error {
			page, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (m search.Mark, err error) {
				var id [16]byte
				var since int64
				err = row.Scan(&since, &id)
				return search.Mark{Since: tga.Millis(since), Trace: tga.ID(id)}, err
			})
			return err
		})
		b.Queue(listsStand, l.s.o.Shard).QueryRow(st.read)
		return b.read(ctx, c)
	})
	return page, st, err
}

// RemoveLists removes the lists of a store, as far as no process keeps them: who starts without them calls it. A process that ended
// without a word is waited for.
func (f Fleet) RemoveLists(ctx context.Context) error {
	l := f.Lists()
	for until := time.Now().Add(3 * f.s.o.Lease); time.Now().Before(until) && ctx.Err() == nil; rest(ctx, f.s.o.Lease/5) {
		var there bool
		if err := f.s.asked(ctx, "look for lists", func(ctx context.Context, c *pgxpool.Conn) error {
			return c.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM tgad.lists_standing WHERE shard = $1)", f.s.o.Shard).Scan(&there)
		}); err != nil || !there {
			return err
		}
		_, mine, err := l.duty.Take(ctx)
		if err != nil {
			return err
		}
		if mine {
			on, cancel := l.duty.While(ctx)
			err := (&listsTable{l: l}).Clear(on, nil)
			cancel()
			return errors.Join(err, l.duty.Leave(context.WithoutCancel(ctx)))
		}
	}
	return nil
}

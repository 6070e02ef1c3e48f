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

// Lists is the index of the lists of a store (migrations/008_lists.sql). One process of the store maintains it, and every process
// reads it. Its methods may be called concurrently.
type Lists struct {
	s      *Store
	duty   *Duty
	look   time.Duration
	index  atomic.Pointer[search.Index] // not nil while this process maintains it
	behind atomic.Uint64
	newer  atomic.Bool // the index belongs to a newer program
	asking atomic.Bool // a request to the process that maintains the index is under way
	// trusted is that of [listsLog].
	trusted atomic.Pointer[time.Time]
}

var _ search.Lists = (*Lists)(nil)

// listsDuty is the duty of the process that maintains the lists.
const listsDuty = "lists"

// Lists returns the index of the lists of the store.
func (f Fleet) Lists() *Lists {
	return &Lists{s: f.s, duty: f.Duty(listsDuty), look: min(listsLook, f.s.o.Lease/5)}
}

const (
	// listsLook is the least time between two looks of a process at the lists: how far they are, whether it can maintain them, and
	// whether something was erased.
	listsLook = time.Second
	// newerLook is the time between two looks if a newer program maintains the lists.
	newerLook = time.Minute
	// listsPatience is how long a list waits until the index has the appends before it. listsPoll is the time between two looks, and
	// listsHurry the time between two requests to the process that maintains the index.
	listsPatience, listsPoll, listsHurry = time.Second, 10 * time.Millisecond, 100 * time.Millisecond
)

// Run implements [search.Lists]: it maintains the lists while this process is on duty, and records how far they are.
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

// turn maintains the lists for as long as this process is on duty, if it is.
func (l *Lists) turn(ctx context.Context) {
	if l.s.health.frozen.Load() != nil {
		return // an incomplete copy has appends whose traces are not copied yet
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

// distrust makes this process read traces again that it has cached before now, because something was or may have been erased.
func (l *Lists) distrust() {
	now := time.Now()
	l.trusted.Store(&now)
}

// Close implements [search.Lists].
func (l *Lists) Close() error { return nil }

// Behind implements [search.Lists].
func (l *Lists) Behind() uint64 { return l.behind.Load() }

// reach is how far the lists and the order have come.
type reach struct {
	format, position int64 // position -1: the lists are being made, or do not exist
	last             int64 // number of the newest append of the order
	oldest, youngest int64 // appends without a number yet, 0 if there are none
	waiting          int64 // how many appends have no number yet
	again            bool  // something was erased, and the lists are not updated yet
}

// listsStand reads a reach.
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

// Find implements [search.Lists]. It waits for a while until the lists have the earlier appends of all processes.
func (l *Lists) Find(ctx context.Context, q search.Query) ([]search.Mark, error) {
	page, st, err := l.find(ctx, q)
	if err != nil {
		return nil, err
	}
	before, numbered := st.youngest, st.youngest == 0 // newest earlier append, and whether all earlier ones have a number
	upTo := st.last
	late := func() bool { return !st.made() || !numbered || st.position < upTo || st.again && q.OfArtifacts() }
	if !late() {
		return page, nil
	}
	l.hurry()
	hurried := time.Now()
	for until := time.Now().Add(listsPatience); late() && time.Now().Before(until) && ctx.Err() == nil; rest(ctx, listsPoll) {
		at := st.position
		if st, err = l.stands(ctx); err != nil {
			return nil, err
		}
		// The process that maintains the lists may have looked before there was any work, or may have missed the request.
		if st.position != at || time.Since(hurried) >= listsHurry {
			l.hurry()
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

// hurry asks the process that maintains the index not to rest. It does not wait for that: a notification waits for every other one, and
// one in a commit that waits for a standby ends when there is a standby. One request at a time is enough.
func (l *Lists) hurry() {
	if x := l.index.Load(); x != nil {
		x.Hurry()
		return
	}
	if !l.asking.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer l.asking.Store(false)
		life := l.s.health.life
		if err := l.s.once(life, "ask for the lists", func(ctx context.Context, c *pgxpool.Conn) error {
			_, err := c.Exec(ctx, "SELECT pg_notify('tgad', $1)", l.request())
			return err
		}); err != nil && life.Err() == nil {
			l.s.log.Debug("the lists are not hurried", "error", err)
		}
	}()
}

// request returns the notification that tells the maintaining process that a reader waits for the lists.
func (l *Lists) request() string { return listsDuty + " " + strconv.Itoa(int(l.s.o.Shard)) }

var listsDialect = search.Dialect{
	Param: func(n int) string { return "$" + strconv.Itoa(n) },
	Text:  func(s string) any { return []byte(s) },
	ID:    func(id tga.ID) any { return [16]byte(id) },
}

// notErased leaves out traces that were erased and whose rows are not updated yet. It is for queries about contents that an erasure
// removes. Rows about one trace, of which there may be many, are found by their index; rows about a range of traces are few.
const notErased = " AND NOT EXISTS (SELECT 1 FROM tgad.lists_again a WHERE a.shard = $1 AND a.first = l.id)" +
	" AND NOT EXISTS (SELECT 1 FROM tgad.lists_again a WHERE a.shard = $1 AND a.first <> a.last AND l.id BETWEEN a.first AND a.last)"

// page returns the statement that reads a page. For several states it reads each state by its index, and takes the newest rows of all.
// With one condition for all states the server would read all rows of the frequent states if another state is rare.
func (l *Lists) page(q search.Query) (text string, args []any) {
	q.Namespace = listedNamespace(q.Namespace)
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

// find reads a page, and how far the lists were at the same moment. A later position could cover rows that the page lacks, and an
// earlier one rows that were removed before the page was read.
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

// RemoveLists removes the lists of a store, if no process maintains them. A process that starts without lists calls it. It waits
// until the session of a process that has crashed is over.
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

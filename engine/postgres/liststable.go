package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/internal/search"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// listsTable gives the maintaining process access to the rows of the lists. Each transaction names the version that it continues. If
// another process has written meanwhile, or a killed server has lost a transaction, the version differs and the lists are opened again.
type listsTable struct {
	l       *Lists
	version int64
	made    bool
}

var _ search.Table = (*listsTable)(nil)

// clearedRows is how many rows of lists one transaction removes.
const clearedRows = 10000

// errListsSpoilt: the rows do not agree with the log, or another version of the program made them.
var errListsSpoilt = errors.New("the lists are of no use")

// write calls a function of the database, which is one transaction and returns a code.
func (t *listsTable) write(ctx context.Context, what, function string, args ...any) error {
	session, epoch := t.l.duty.under()
	code := sqlNotOnDuty
	if epoch != 0 {
		if err := t.l.s.asked(ctx, what, func(ctx context.Context, c *pgxpool.Conn) error {
			return c.QueryRow(ctx, function, append([]any{t.l.s.o.Shard, session, epoch, t.version}, args...)...).Scan(&code)
		}); err != nil {
			return errors.Join(search.ErrLeft, err)
		}
	}
	if code != sqlDone {
		return fmt.Errorf("%w: %s: %s", search.ErrLeft, what, code)
	}
	t.version++
	return nil
}

// Open implements [search.Table].
func (t *listsTable) Open(ctx context.Context) (at search.Standing, err error) {
	session, epoch := t.l.duty.under()
	var code string
	var format, position *int64
	var version *int64
	var same *bool
	if err := t.l.s.asked(ctx, "open the lists", func(ctx context.Context, c *pgxpool.Conn) error {
		return c.QueryRow(ctx, "SELECT * FROM tgad.open_lists($1, $2, $3, $4)", t.l.s.o.Shard, session, epoch, int64(search.Format)).Scan(&code, &format, &version, &position, &same)
	}); err != nil {
		return at, errors.Join(search.ErrLeft, err)
	}
	switch {
	case code != sqlDone:
		return at, fmt.Errorf("%w: %s", search.ErrLeft, code)
	case *format > search.Format:
		t.l.newer.Store(true)
		return at, fmt.Errorf("%w: they are of a newer program, format %d", search.ErrLeft, *format)
	case *format < search.Format:
		return at, fmt.Errorf("%w: they are of an older program, format %d", errListsSpoilt, *format)
	case position != nil && !*same:
		return at, fmt.Errorf("%w: append %d of the store is another one than that of the lists", errListsSpoilt, *position)
	}
	t.version, t.made = *version, position != nil
	if position != nil {
		at.Made, at.Position = true, uint64(*position)
	}
	return at, nil
}

// Put implements [search.Table].
func (t *listsTable) Put(ctx context.Context, rows []search.Row, last *chain.Leaf) error {
	if len(rows) == 0 && last == nil {
		return nil
	}
	n := len(rows)
	ids, since, states, classes := make([][16]byte, n), make([]int64, n), make([]int16, n), make([]int16, n)
	namespaces, servers, tools, keys := make([][]byte, n), make([][]byte, n), make([][]byte, n), make([][]byte, n)
	for i := range rows {
		r := &rows[i]
		ids[i], since[i], states[i], classes[i] = [16]byte(r.ID), int64(r.Since), int16(r.State), int16(r.Class)
		namespaces[i], servers[i], tools[i], keys[i] = []byte(listedNamespace(r.Namespace)), []byte(r.Server), []byte(r.Tool), []byte(r.Key)
	}
	var position *int64
	var leaf []byte
	if last != nil {
		at := int64(last.Index)
		position, leaf = &at, search.NameOf(last)
	}
	if err := t.write(ctx, "write lists", "SELECT tgad.put_lists($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
		ids, since, namespaces, servers, tools, keys, states, classes, position, leaf); err != nil || position == nil || t.made {
		return err
	}
	// Update the statistics of the table. Without them the server would read the whole table to find a page.
	t.made = true
	return t.l.s.asked(ctx, "count the lists", func(ctx context.Context, c *pgxpool.Conn) error {
		_, err := c.Exec(ctx, "SELECT tgad.count_lists()")
		return err
	})
}

// mostListed is the longest namespace that the lists have as it is, in bytes.
const mostListed = 1024

// listedNamespace is a namespace as the lists have it: a long one by its digest. An index of PostgreSQL takes at most
// 2704 bytes of a row, and one row that cannot be written would stop the lists for ever.
func listedNamespace(namespace string) string {
	if len(namespace) <= mostListed {
		return namespace
	}
	return tga.Sum([]byte(namespace)).String()
}

// Find implements [search.Table].
func (t *listsTable) Find(ctx context.Context, q search.Query) ([]search.Mark, error) {
	return t.l.Find(ctx, q)
}

// Erasing implements [search.Table]. It does nothing, because an erasure itself notes in the database what it erases.
func (t *listsTable) Erasing(context.Context, bool) error { return nil }

// Again implements [search.Table].
func (t *listsTable) Again(ctx context.Context) (spans []search.Span, err error) {
	err = t.l.s.asked(ctx, "look for what was erased", func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, "SELECT number, first, last FROM tgad.lists_again WHERE shard = $1 ORDER BY number LIMIT $2", t.l.s.o.Shard, listPage)
		if err != nil {
			return err
		}
		spans, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (s search.Span, err error) {
			var first, last [16]byte
			err = row.Scan(&s.Number, &first, &last)
			s.First, s.Last = tga.ID(first), tga.ID(last)
			return s, err
		})
		return err
	})
	if err != nil {
		err = errors.Join(search.ErrLeft, err)
	}
	if len(spans) > 0 {
		t.l.distrust()
	}
	return spans, err
}

// Done implements [search.Table].
func (t *listsTable) Done(ctx context.Context, spans []search.Span) error {
	numbers := make([]int64, len(spans))
	for i, s := range spans {
		numbers[i] = s.Number
	}
	return t.write(ctx, "forget what was erased", "SELECT tgad.listed_again($1, $2, $3, $4, $5)", numbers)
}

// Clear implements [search.Table].
func (t *listsTable) Clear(ctx context.Context, _ error) error {
	for more := true; more; {
		session, epoch := t.l.duty.under()
		var code string
		if err := t.l.s.asked(ctx, "remove the lists", func(ctx context.Context, c *pgxpool.Conn) error {
			return c.QueryRow(ctx, "SELECT * FROM tgad.clear_lists($1, $2, $3, $4)", t.l.s.o.Shard, session, epoch, clearedRows).Scan(&code, &more)
		}); err != nil {
			return errors.Join(search.ErrLeft, err)
		}
		if code != sqlDone {
			return fmt.Errorf("%w: %s", search.ErrLeft, code)
		}
	}
	return nil
}

// Spoilt implements [search.Table]. An error of a database that does not answer does not mean that the rows are bad.
func (t *listsTable) Spoilt(err error) bool { return errors.Is(err, errListsSpoilt) }

// Close implements [search.Table].
func (t *listsTable) Close(error) error { return nil }

// listsLog is the log from which the lists are made.
type listsLog struct {
	*Store
	Fleet
	// trusted is the time after which a cached trace must have been read to count as unerased. Each known erasure moves it to now.
	trusted *atomic.Pointer[time.Time]
}

var _ search.Reader = listsLog{}

// Known implements [search.Reader]. It returns a cached trace, so that a process need not read what it has just appended.
func (s listsLog) Known(l *chain.Leaf) *chain.Trace {
	v, ok := s.views.get(l.TraceID)
	if !ok || !v.born.After(*s.trusted.Load()) || v.trace.Head.Seq == 0 || v.trace.Head.Digest != l.HeadDigest || v.trace.NoteHead.Digest != l.NoteDigest {
		return nil
	}
	return v.trace
}

// wholePage is how many traces are read at once. Their contents are in memory at the same time.
const wholePage = 64

// Some implements [search.Reader].
func (s listsLog) Some(ctx context.Context, after tga.ID) ([]tga.ID, error) {
	return s.traceIDs(ctx, after)
}

// Statements that read many traces. Each reads one table for all of them, which costs the server a fraction of [readTrace].
const (
	wholeHeads   = "SELECT trace, version, seq, digest, note, note_digest, epoch, session FROM tgad.heads WHERE shard = $1 AND trace = ANY ($2)"
	wholeEntries = "SELECT trace, seq, header, parts, spill FROM tgad.entries WHERE shard = $1 AND trace = ANY ($2)"
	wholeNotes   = "SELECT trace, number, frame FROM tgad.notes WHERE shard = $1 AND trace = ANY ($2)"
)

// Read reads traces from the database and uses no cached trace, because something may have been erased since. It calls each with the
// traces that can be read.
func (f Fleet) Read(ctx context.Context, ids []tga.ID, each func(*chain.Trace)) error {
	for len(ids) > 0 {
		n := min(len(ids), wholePage)
		got, err := f.whole(ctx, ids[:n])
		if err != nil {
			return err
		}
		ids = ids[n:]
		for id, r := range got {
			if st, err := f.s.fold(chain.NewTrace(id), &r.row, f.s.ringed.keys()); err == nil && st.trace.Head.Seq > 0 {
				each(st.trace)
			}
		}
	}
	return nil
}

// wholeRow is a row with the numbers of its entries and notes. They are sorted here, so that the server need not sort; they mostly
// arrive in order.
type wholeRow struct {
	row
	seqs, numbers []int64
}

// whole reads the stored rows of traces in one snapshot.
func (f Fleet) whole(ctx context.Context, ids []tga.ID) (got map[tga.ID]*wholeRow, err error) {
	of := make([][16]byte, len(ids))
	for i, id := range ids {
		of[i] = [16]byte(id)
	}
	err = f.s.asked(ctx, "read traces", func(ctx context.Context, c *pgxpool.Conn) error {
		got = make(map[tga.ID]*wholeRow, len(ids))
		b := atOneMoment()
		b.Queue(wholeHeads, f.s.o.Shard, of).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var id [16]byte
				r := &wholeRow{}
				if err := rows.Scan(&id, &r.version, &r.seq, &r.digest, &r.note, &r.noteDigest, &r.epoch, &r.session); err != nil {
					return err
				}
				got[tga.ID(id)] = r
			}
			return rows.Err()
		})
		b.Queue(wholeEntries, f.s.o.Shard, of).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var id [16]byte
				var seq int64
				var header, parts, spill []byte
				if err := rows.Scan(&id, &seq, &header, &parts, &spill); err != nil {
					return err
				}
				if r := got[tga.ID(id)]; r != nil {
					at, _ := slices.BinarySearch(r.seqs, seq)
					r.seqs = slices.Insert(r.seqs, at, seq)
					r.headers, r.parts, r.spills = slices.Insert(r.headers, at, header), slices.Insert(r.parts, at, parts), slices.Insert(r.spills, at, spill)
				}
			}
			return rows.Err()
		})
		b.Queue(wholeNotes, f.s.o.Shard, of).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var id [16]byte
				var number int64
				var frame []byte
				if err := rows.Scan(&id, &number, &frame); err != nil {
					return err
				}
				if r := got[tga.ID(id)]; r != nil {
					at, _ := slices.BinarySearch(r.numbers, number)
					r.numbers, r.notes = slices.Insert(r.numbers, at, number), slices.Insert(r.notes, at, frame)
				}
			}
			return rows.Err()
		})
		return b.read(ctx, c)
	})
	return got, err
}

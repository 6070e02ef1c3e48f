package postgres

import (
	"context"
	"math"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Added has the leaf, the entries and the notes of one append.
type Added struct {
	Leaf    chain.Leaf
	Entries []chain.Entry
	Notes   []tga.Note
}

// addedPage bounds how many appends are read at once. Their contents are in memory at the same time.
const addedPage = 64

// Statements that read the entries and notes of a page of leaves, each with the index of its leaf.
const (
	addedEntries = `SELECT l.index, e.header, e.parts, e.spill FROM tgad.leaves l JOIN tgad.entries e
		ON e.shard = l.shard AND e.trace = l.trace AND e.seq BETWEEN l.first_seq AND l.first_seq + l.entries - 1
		WHERE l.shard = $1 AND l.index > $2 AND l.index <= $3 AND l.entries > 0 ORDER BY l.index, e.seq`
	addedNotes = `SELECT l.index, n.frame FROM tgad.leaves l JOIN tgad.notes n
		ON n.shard = l.shard AND n.trace = l.trace AND n.number BETWEEN l.first_note AND l.first_note + l.notes - 1
		WHERE l.shard = $1 AND l.index > $2 AND l.index <= $3 AND l.notes > 0 ORDER BY l.index, n.number`
)

// Added returns some of the appends after a cursor, none if there are no more. It asks the database once for all of them. It
// checks each entry and note against its digest, and the last one of each append against the order.
func (f Fleet) Added(ctx context.Context, after uint64) (page []Added, err error) {
	s := f.s
	after = min(after, math.MaxInt64-addedPage) // the database has no larger numbers: nothing follows
	err = s.asked(ctx, "read the log", func(ctx context.Context, c *pgxpool.Conn) error {
		page = nil
		first, last := int64(after), int64(after)+addedPage
		b := &pgx.Batch{}
		b.Queue("SELECT "+leafColumns+" FROM tgad.leaves WHERE shard = $1 AND index > $2 AND index <= $3 ORDER BY index", s.o.Shard, first, last).Query(func(rows pgx.Rows) error {
			_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
				l, err := readLeaf(row)
				if want := after + uint64(len(page)) + 1; err == nil && l.Index != want {
					err = damaged("order: leaf %d follows %d", l.Index, want-1)
				}
				page = append(page, Added{Leaf: l})
				return struct{}{}, err
			})
			return err
		})
		// A row of a leaf that was added after the first statement belongs to the next page.
		each := func(rows pgx.Rows, columns []any, add func(*Added) error) error {
			var index int64
			_, err := pgx.ForEachRow(rows, append([]any{&index}, columns...), func() error {
				if at := index - first - 1; at < int64(len(page)) {
					return add(&page[at])
				}
				return nil
			})
			return err
		}
		b.Queue(addedEntries, s.o.Shard, first, last).Query(func(rows pgx.Rows) error {
			var header, parts, spill []byte
			return each(rows, []any{&header, &parts, &spill}, func(a *Added) error {
				e, err := joinFrame(header, parts, spill, s.ringed.keys())
				a.Entries = append(a.Entries, e)
				return err
			})
		})
		b.Queue(addedNotes, s.o.Shard, first, last).Query(func(rows pgx.Rows) error {
			var frame []byte
			return each(rows, []any{&frame}, func(a *Added) error {
				n, _, _, err := chain.DecodeNoteFrame(frame)
				a.Notes = append(a.Notes, n)
				return err
			})
		})
		return c.SendBatch(ctx, b).Close()
	})
	for i := range page {
		if err == nil {
			err = page[i].check()
		}
	}
	return page, err
}

// check compares the entries and notes of an append with its leaf.
func (a *Added) check() error {
	l, id := &a.Leaf, a.Leaf.TraceID
	switch {
	case len(a.Entries) != int(l.Entries) || len(a.Notes) != int(l.Notes):
		return damaged("append %d has %d entries and %d notes, its leaf says %d and %d", l.Index, len(a.Entries), len(a.Notes), l.Entries, l.Notes).In(id)
	case l.Entries > 0 && a.Entries[l.Entries-1].Digest != l.HeadDigest:
		return damaged("append %d ends with entry %s, its leaf says %s", l.Index, a.Entries[l.Entries-1].Digest, l.HeadDigest).In(id)
	case l.Notes > 0 && a.Notes[l.Notes-1].Digest != l.NoteDigest:
		return damaged("append %d ends with note %s, its leaf says %s", l.Index, a.Notes[l.Notes-1].Digest, l.NoteDigest).In(id)
	}
	return nil
}

package engine

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// gathered are the rows that one or many records of the log lead to, of each key the newest. They
// go into a batch in the order of their keys: a memtable then finds the place of each beside that
// of the one before, and what a later operation has overwritten is not written at all.
type gathered struct {
	room []byte // keys and rows, one behind the other
	rows []gatheredRow
}

type gatheredRow struct {
	start    uint64 // the first eight bytes of the key, which tell most keys apart
	at       int    // of the key in the room; the row is behind it. What came later lies later
	key, row int    // their lengths; a row of -1 is deleted
}

func (g *gathered) key(r *gatheredRow) []byte { return g.room[r.at : r.at+r.key] }

// put adds a row; nil deletes the key.
func (g *gathered) put(key, row []byte) {
	r := gatheredRow{at: len(g.room), key: len(key), row: len(row)}
	if row == nil {
		r.row = -1
	}
	var start [8]byte
	copy(start[:], key)
	r.start = binary.BigEndian.Uint64(start[:])
	g.room = append(append(g.room, key...), row...)
	g.rows = append(g.rows, r)
}

// into moves the rows to a batch.
func (g *gathered) into(b *pebble.Batch) error {
	slices.SortFunc(g.rows, func(x, y gatheredRow) int {
		switch {
		case x.start < y.start:
			return -1
		case x.start > y.start:
			return 1
		}
		if c := bytes.Compare(g.key(&x), g.key(&y)); c != 0 {
			return c
		}
		return x.at - y.at
	})
	for i := range g.rows {
		r := &g.rows[i]
		key := g.key(r)
		if i+1 < len(g.rows) && bytes.Equal(key, g.key(&g.rows[i+1])) {
			continue // a later one follows
		}
		var err error
		if r.row < 0 {
			err = b.Delete(key, nil)
		} else {
			err = b.Set(key, g.room[r.at+r.key:r.at+r.key+r.row], nil)
		}
		if err != nil {
			return err
		}
	}
	g.room, g.rows = g.room[:0], g.rows[:0]
	return nil
}

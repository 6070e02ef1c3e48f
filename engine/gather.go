package engine

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// gathered has the rows of one or more records of the log, and writes the newest row of each key.
// The rows go into a batch in the order of their keys: then a memtable finds the place of each row
// beside the row before it. A row that a later operation overwrites is not written at all.
type gathered struct {
	room []byte // keys and rows, one after the other
	rows []gatheredRow
}

type gatheredRow struct {
	start    uint64 // the first eight bytes of the key, which tell most keys apart
	at       int    // offset of the key in room; its row follows. Later rows have larger offsets
	key, row int    // their lengths; a row of -1 means a deletion
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
			continue // a later row of the same key follows
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

package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Evidence stores parts of the Merkle tree of a store: full tiles, and signed notes. This package does not know their
// contents. It stores each of them once, and only from one process at a time.
type Evidence struct{ s *Store }

// Evidence returns the evidence of the store.
func (f Fleet) Evidence() Evidence { return Evidence(f) }

// Refusals of [Evidence.Keep]; nothing was kept then.
var (
	// ErrNotSigner: another process signs for the store, or may do so; or the session of this process is over.
	ErrNotSigner = errors.New("another process signs for the store, or may do so")
	// ErrOtherNote: another note is the newest, or the note does not continue the newest one.
	ErrOtherNote = errors.New("another note was kept since, or the note does not go on from the newest one")
	// ErrOtherOrder: the order lacks leaves that the note covers, or a tile is stored with other hashes.
	ErrOtherOrder = errors.New("the order lacks leaves that the note covers, or a tile is kept with other hashes")
)

// Codes that tgad.keep returns besides [sqlNotOnDuty] (migrations/007_duties.sql).
const (
	sqlOtherNote  = "TG111"
	sqlOtherOrder = "TG112"
)

// keyName is the name of the row with the first public key that signed.
const keyName = "evidence key"

// Tile is a tile with all of its hashes.
type Tile struct {
	Level  int
	Number int64
	Hashes []byte
}

// Note is a signed note: 1 is a checkpoint, 2 a hand-over of the key, 3 a loss that a person accepted.
type Note struct {
	Number int64
	Kind   int
	Text   []byte
}

// Keeping is what one call of Keep stores. Leaf is the last of the Size leaves that the note and the tiles cover.
type Keeping struct {
	Epoch, After int64
	Key          string
	Kind         int
	Size         int64
	Leaf         chain.Leaf
	Note         []byte // nil for tiles alone
	Tiles        []Tile
}

// Lead asks that this process become the signer, and returns its epoch. The epoch is 0 if another process is the signer, or may
// still be.
func (e Evidence) Lead(ctx context.Context) (epoch int64, err error) {
	_, epoch, _, err = e.duty().lead(ctx)
	return epoch, err
}

// Resign lets another process sign.
func (e Evidence) Resign(ctx context.Context, epoch int64) error {
	return e.duty().resign(ctx, e.s.session.number(), epoch)
}

func (e Evidence) duty() *Duty { return Fleet(e).Duty(evidenceDuty) }

// Keep stores tiles and a note, all of them or nothing. When it returns nil, they are as durable as an append. After an
// error other than the refusals above it is unknown whether they were stored.
func (e Evidence) Keep(ctx context.Context, k Keeping) error {
	if err := e.s.health.enter(); err != nil {
		return err
	}
	defer e.s.health.leave()
	levels, numbers, hashes := []int16{}, []int64{}, [][]byte{}
	for _, t := range k.Tiles {
		levels, numbers, hashes = append(levels, int16(t.Level)), append(numbers, t.Number), append(hashes, t.Hashes)
	}
	var key []byte
	if k.Key != "" {
		key = []byte(k.Key)
	}
	var code string
	err := e.s.once(ctx, "keep what was signed", func(ctx context.Context, c *pgxpool.Conn) error {
		return e.s.transaction(ctx, c.Conn(), func(b *pgx.Batch) {
			b.Queue("SELECT tgad.keep($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)", e.s.o.Shard, e.s.session.number(), k.Epoch, k.After, int16(k.Kind), k.Size,
				k.Note, key, [16]byte(k.Leaf.TraceID), k.Leaf.HeadDigest[:], k.Leaf.NoteDigest[:], levels, numbers, hashes).QueryRow(func(row pgx.Row) error { return row.Scan(&code) })
		})
	})
	switch {
	case err != nil:
		return err
	case code == sqlNotOnDuty:
		return ErrNotSigner
	case code == sqlOtherNote:
		return ErrOtherNote
	case code == sqlOtherOrder:
		return ErrOtherOrder
	case code == sqlNotDurable:
		return unfit("its settings have changed: what is signed would not be as durable as it must be")
	}
	return nil
}

// Notes returns at most most notes, starting at a number.
func (e Evidence) Notes(ctx context.Context, from int64, most int) (list []Note, err error) {
	return e.notes(ctx, "number >= $2 AND number < $2 + $3", from, most)
}

// Standing returns the newest checkpoint, all notes that are not checkpoints, and the first public key that signed; the key is ""
// if nothing was signed yet.
func (e Evidence) Standing(ctx context.Context) (newest Note, others []Note, key string, err error) {
	list, err := e.notes(ctx, "kind <> 1")
	if err == nil {
		var last []Note
		last, err = e.notes(ctx, "number = (SELECT max(number) FROM tgad.signed_notes WHERE shard = $1 AND kind = 1)")
		list = append(list, last...)
	}
	for _, n := range list {
		if n.Kind == 1 {
			newest = n
		} else {
			others = append(others, n)
		}
	}
	if err != nil {
		return newest, others, "", err
	}
	err = e.s.asked(ctx, "read the public key", func(ctx context.Context, c *pgxpool.Conn) error {
		var value []byte
		err := c.QueryRow(ctx, "SELECT value FROM tgad.meta WHERE shard = $1 AND name = $2", e.s.o.Shard, keyName).Scan(&value)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		key = string(value)
		return err
	})
	return newest, others, key, err
}

func (e Evidence) notes(ctx context.Context, which string, args ...any) (list []Note, err error) {
	err = e.s.asked(ctx, "read what was signed", func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, "SELECT number, kind, note FROM tgad.signed_notes WHERE shard = $1 AND "+which+" ORDER BY number", append([]any{e.s.o.Shard}, args...)...)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (n Note, err error) {
			return n, row.Scan(&n.Number, &n.Kind, &n.Text)
		})
		return err
	})
	return list, err
}

// Whole returns how many tiles of each level are stored, counted from the first one up to the first gap.
func (e Evidence) Whole(ctx context.Context) (levels []int64, err error) {
	err = e.s.asked(ctx, "count tiles", func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, `SELECT CASE WHEN n = last + 1 THEN n ELSE (SELECT min(g) FROM generate_series(0, last) AS g
				WHERE NOT EXISTS (SELECT 1 FROM tgad.tiles t WHERE t.shard = $1 AND t.level = c.level AND t.number = g)) END
			FROM generate_series(0, 6) AS l, LATERAL (SELECT l AS level, count(*) AS n, coalesce(max(number), -1) AS last FROM tgad.tiles WHERE shard = $1 AND level = l) AS c ORDER BY l`, e.s.o.Shard)
		if err != nil {
			return err
		}
		levels, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	return levels, err
}

// Tiles returns at most most tiles of a level, starting at a number, up to the first tile that is not stored.
func (e Evidence) Tiles(ctx context.Context, level int, first int64, most int) (list [][]byte, err error) {
	if most < 1 {
		return nil, nil
	}
	err = e.s.asked(ctx, "read tiles", func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, "SELECT number, hashes FROM tgad.tiles WHERE shard = $1 AND level = $2 AND number >= $3 AND number < $4 ORDER BY number", e.s.o.Shard, level, first, first+int64(most))
		if err != nil {
			return err
		}
		defer rows.Close()
		list = nil
		for rows.Next() {
			var number int64
			var hashes []byte
			if err := rows.Scan(&number, &hashes); err != nil {
				return err
			}
			if number != first+int64(len(list)) {
				break
			}
			list = append(list, hashes)
		}
		rows.Close()
		return rows.Err()
	})
	return list, err
}

// End returns the number of the last leaf of the order, as it is now.
func (e Evidence) End(ctx context.Context) (last uint64, err error) {
	err = e.s.asked(ctx, "ask how long the order is", func(ctx context.Context, c *pgxpool.Conn) error {
		return c.QueryRow(ctx, "SELECT coalesce(max(index), 0) FROM tgad.leaves WHERE shard = $1", e.s.o.Shard).Scan(&last)
	})
	return last, err
}

// Leaves returns at most most leaves of the order after an index.
func (e Evidence) Leaves(ctx context.Context, after uint64, most int) ([]chain.Leaf, error) {
	if most > orderPage {
		return nil, fmt.Errorf("%d leaves: at most %d at once", most, orderPage)
	}
	return e.s.order.some(ctx, after, most)
}

// NextOf returns the first leaf, from an index on, with entries or notes of a trace; ok is false if there is none.
func (e Evidence) NextOf(ctx context.Context, trace tga.ID, from uint64) (l chain.Leaf, ok bool, err error) {
	err = e.s.asked(ctx, "look for a leaf", func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, "SELECT "+leafColumns+" FROM tgad.leaves WHERE shard = $1 AND index >= $2 AND trace = $3 AND entries + notes > 0 ORDER BY index LIMIT 1", e.s.o.Shard, int64(from), [16]byte(trace))
		if err != nil {
			return err
		}
		l, err = pgx.CollectExactlyOneRow(rows, readLeaf)
		if ok = err == nil; errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	return l, ok, err
}

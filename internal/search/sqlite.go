package search

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// fileName is that of the database; SQLite puts -wal and -shm beside it.
const fileName = "traces.db"

// shape tells these tables from others: no index is kept for a program that has other ones.
var shape = int64(crc32.ChecksumIEEE([]byte(tables)))

// What is removed is overwritten, so that an erased name is not left on a free page. Without a sync of
// each transaction a loss of power takes the newest of them, with their position; what has to be durable
// before something else is checkpointed ([Index.setErasing]).
const pragmas = "_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=secure_delete(ON)&_pragma=busy_timeout(5000)&_txlock=immediate"

const tables = `
CREATE TABLE IF NOT EXISTS meta (only INTEGER PRIMARY KEY CHECK (only = 1), shape INTEGER NOT NULL, position INTEGER, leaf BLOB, erasing INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS traces (id BLOB NOT NULL UNIQUE, since INTEGER NOT NULL, namespace TEXT NOT NULL, server TEXT NOT NULL, tool TEXT NOT NULL,
	key TEXT NOT NULL, state INTEGER NOT NULL, class INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS traces_since ON traces (since, id);
CREATE INDEX IF NOT EXISTS traces_namespace ON traces (namespace, since, id);
CREATE INDEX IF NOT EXISTS traces_server ON traces (server, since, id);
CREATE INDEX IF NOT EXISTS traces_tool ON traces (tool, since, id);
CREATE INDEX IF NOT EXISTS traces_key ON traces (key, since, id) WHERE key <> '';
CREATE INDEX IF NOT EXISTS traces_state ON traces (state, since, id);
CREATE INDEX IF NOT EXISTS traces_class ON traces (class, since, id);
INSERT OR IGNORE INTO meta VALUES (1, ?, NULL, NULL, 0);`

// row is what the index has of a trace.
type row struct {
	id                           tga.ID
	since                        tga.Millis
	namespace, server, tool, key string
	state                        tga.State
	class                        ledger.Class
}

func rowOf(t *chain.Trace) row {
	l := t.Listing()
	return row{l.TraceID, l.Since, l.Namespace, l.Server, l.Tool, l.Key, l.State, ClassOf(t)}
}

// ClassOf is the outcome class of a trace's effect, [ledger.ClassNone] where it has none at hand.
func ClassOf(t *chain.Trace) ledger.Class {
	if t.Effect == nil {
		return ledger.ClassNone
	}
	return ledger.ClassOf(t.Effect)
}

// open opens the database and finds out how far it is. An error says why it is of no use.
func (x *Index) open(ctx context.Context) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := access.MkdirDurable(x.o.Dir); err != nil {
		return err
	}
	path := filepath.Join(x.o.Dir, fileName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) // SQLite gives -wal and -shm the mode that it finds
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	name := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: pragmas}
	db, err := sql.Open(x.o.Driver, name.String())
	if err != nil {
		return err
	}
	x.db, x.why = db, nil
	if _, err := db.ExecContext(ctx, tables, shape); err != nil {
		return err
	}
	var has int64
	var position sql.NullInt64
	var leaf []byte
	var erasing bool
	if err := db.QueryRowContext(ctx, "SELECT shape, position, leaf, erasing FROM meta").Scan(&has, &position, &leaf, &erasing); err != nil {
		return err
	}
	switch {
	case has != shape:
		return errors.New("it has other tables")
	case erasing:
		return errors.New("an erasure was under way when it was left")
	case !position.Valid:
		return x.empty(ctx)
	}
	at := uint64(position.Int64)
	if err := x.isOf(ctx, at, leaf); err != nil {
		return err
	}
	x.advance(at)
	return nil
}

// empty refuses an index that was left while it was made: what is in it is of no known append.
func (x *Index) empty(ctx context.Context) error {
	var some bool
	if err := x.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM traces)").Scan(&some); err != nil {
		return err
	}
	if some {
		return errors.New("it was left half made")
	}
	return nil
}

// isOf refuses an index of another store, and of this one before it was put back.
func (x *Index) isOf(ctx context.Context, at uint64, leaf []byte) error {
	if newest := x.o.Store.Cursor(); at > newest {
		return fmt.Errorf("it is up to append %d, and the newest of the store is %d", at, newest)
	}
	if at == 0 {
		return nil
	}
	l, err := x.next(ctx, at-1)
	if err != nil {
		return err
	}
	if string(leaf) != string(nameOf(&l)) {
		return fmt.Errorf("append %d of the store is another one than that of the index", at)
	}
	return nil
}

// nameOf is by what a leaf is told from every other.
func nameOf(l *chain.Leaf) []byte {
	return slices.Concat(l.TraceID[:], l.HeadDigest[:], l.NoteDigest[:])
}

// remake throws the database away and begins a new one. Where that cannot be had, lists say why.
func (x *Index) remake(ctx context.Context, why error) {
	x.o.Logger.Warn("the index of lists is made anew", "why", why)
	x.standing.Lock()
	x.position, x.made, x.fault = 0, false, nil
	x.standing.Unlock()
	x.mu.Lock()
	err := errors.Join(x.shut(tga.Errorf(tga.StoreUnavailable, "the index of lists: %w", why)), Remove(x.o.Dir))
	x.mu.Unlock()
	if err == nil {
		err = x.open(ctx)
	}
	if err == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	err = errors.Join(err, x.shut(tga.Errorf(tga.StoreUnavailable, "the index of lists: %w", err)))
	x.o.Logger.Warn("the index of lists cannot be made", "error", err)
}

// Remove removes the index in a directory that no process has. What is erased while there is none must
// not be in one that is found later.
func Remove(dir string) (err error) {
	there := false
	for _, end := range []string{"-wal", "-shm", ""} {
		switch rm := os.Remove(filepath.Join(dir, fileName+end)); {
		case rm == nil:
			there = true
		case !errors.Is(rm, fs.ErrNotExist):
			err = errors.Join(err, rm)
		}
	}
	if there {
		err = errors.Join(err, access.SyncDir(dir))
	}
	return err
}

// shut closes the database. why is what is said from then on.
func (x *Index) shut(why error) (err error) {
	if x.db != nil {
		err = x.db.Close()
	}
	x.db, x.why = nil, why
	return err
}

// within runs do in a transaction.
func (x *Index) within(ctx context.Context, do func(*sql.Tx) error) error {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.db == nil {
		return x.why
	}
	tx, err := x.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

const upsert = `INSERT INTO traces (id, since, namespace, server, tool, key, state, class) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
	ON CONFLICT (id) DO UPDATE SET since = excluded.since, namespace = excluded.namespace, server = excluded.server, tool = excluded.tool,
	key = excluded.key, state = excluded.state, class = excluded.class`

// put writes rows and, where it is said, up to which append they are.
func (x *Index) put(ctx context.Context, rows []row, last *chain.Leaf) error {
	return x.within(ctx, func(tx *sql.Tx) error {
		s, err := tx.PrepareContext(ctx, upsert)
		if err != nil {
			return err
		}
		for i := range rows {
			r := &rows[i]
			if _, err := s.ExecContext(ctx, r.id[:], int64(r.since), r.namespace, r.server, r.tool, r.key, int64(r.state), int64(r.class)); err != nil {
				return errors.Join(err, s.Close())
			}
		}
		if err := s.Close(); err != nil || last == nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "UPDATE meta SET position = ?, leaf = ?", int64(last.Index), nameOf(last))
		return err
	})
}

// setErasing says durably whether something is being erased. What was removed before is not in the
// journal of the database any more when it returns.
func (x *Index) setErasing(ctx context.Context, is bool) error {
	if err := x.within(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE meta SET erasing = ?", is)
		return err
	}); err != nil {
		return err
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.db == nil {
		return x.why
	}
	var busy, pages, moved int
	if err := x.db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &moved); err != nil {
		return err
	}
	if busy != 0 {
		return errors.New("somebody reads the journal of the database")
	}
	return nil
}

// find reads a page of an index.
func find(ctx context.Context, db *sql.DB, q Query) (page []Mark, err error) {
	var where []string
	var args []any
	add := func(condition string, values ...any) {
		where = append(where, condition)
		args = append(args, values...)
	}
	for column, text := range map[string]string{"namespace": q.Namespace, "server": q.Server, "tool": q.Tool, "key": q.Key} {
		if text != "" {
			add(column+" = ?", text)
		}
	}
	if q.Key != "" {
		add("key <> ''") // so that its index, which has no empty ones, is of use
	}
	if len(q.States) > 0 {
		states := make([]any, len(q.States))
		for i, s := range q.States {
			states[i] = int64(s)
		}
		add("state IN (?"+strings.Repeat(", ?", len(states)-1)+")", states...)
	}
	if q.Class != ledger.ClassNone {
		add("class = ?", int64(q.Class))
	}
	if q.Since != 0 {
		add("since >= ?", int64(q.Since))
	}
	if q.Until != 0 {
		add("since < ?", int64(q.Until))
	}
	if q.After != (Mark{}) {
		add("(since, id) < (?, ?)", int64(q.After.Since), q.After.Trace[:])
	}
	query := "SELECT since, id FROM traces"
	if len(where) > 0 {
		query += " WHERE " + strings.Join(where, " AND ")
	}
	rows, err := db.QueryContext(ctx, query+" ORDER BY since DESC, id DESC LIMIT ?", append(args, q.Limit)...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var since int64
		var id []byte
		if err := rows.Scan(&since, &id); err != nil {
			return nil, err
		}
		if len(id) != len(tga.ID{}) {
			return nil, fmt.Errorf("the id %x has %d bytes", id, len(id))
		}
		page = append(page, Mark{tga.Millis(since), tga.ID(id)})
	}
	return page, rows.Err()
}

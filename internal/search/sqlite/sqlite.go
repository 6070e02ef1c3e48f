// Package sqlite keeps the table of an index of lists in a SQLite database, for a store in a directory. The directory of the
// database holds nothing else. The program that links SQLite passes the name of its driver.
package sqlite

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
	"strconv"
	"sync"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/search"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Table is a table in a directory. Many goroutines may use it at once.
type Table struct {
	dir, driver string

	mu  sync.RWMutex // held to open, close or replace the database
	db  *sql.DB      // nil if it is not open
	why error        // why it is not open
}

var _ search.Table = (*Table)(nil)

// In returns the table in a directory. [Table.Open] creates the directory if it does not exist.
func In(dir, driver string) *Table { return &Table{dir: dir, driver: driver} }

// fileName is the name of the database file. SQLite puts files with the endings -wal and -shm beside it.
const fileName = "traces.db"

// shape identifies these tables and the rules of their rows. An index with another shape is made anew.
var shape = int64(crc32.ChecksumIEEE([]byte(tables + strconv.Itoa(search.Format))))

// secure_delete overwrites removed rows, so that no erased name stays on a free page. With
// synchronous=NORMAL not each transaction is synced: a power loss can lose the newest ones, together with
// their position. A change that must be durable before the next step is checkpointed ([Table.Erasing]).
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

// Open implements [search.Table].
func (t *Table) Open(ctx context.Context) (at search.Standing, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := access.MkdirDurable(t.dir); err != nil {
		return at, err
	}
	path := filepath.Join(t.dir, fileName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) // SQLite gives -wal and -shm the same mode
	if err != nil {
		return at, err
	}
	if err := f.Close(); err != nil {
		return at, err
	}
	name := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: pragmas}
	db, err := sql.Open(t.driver, name.String())
	if err != nil {
		return at, err
	}
	t.db, t.why = db, nil
	if _, err := db.ExecContext(ctx, tables, shape); err != nil {
		return at, err
	}
	var has int64
	var position sql.NullInt64
	var erasing bool
	if err := db.QueryRowContext(ctx, "SELECT shape, position, leaf, erasing FROM meta").Scan(&has, &position, &at.Leaf, &erasing); err != nil {
		return at, err
	}
	switch {
	case has != shape:
		return at, errors.New("its tables have another format")
	case erasing:
		return at, errors.New("the last process ended during an erasure")
	case !position.Valid:
		return at, t.empty(ctx)
	}
	at.Made, at.Position = true, uint64(position.Int64)
	return at, nil
}

// empty refuses an index whose making was interrupted: it is not known which appends its rows are of.
func (t *Table) empty(ctx context.Context) error {
	var some bool
	if err := t.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM traces)").Scan(&some); err != nil {
		return err
	}
	if some {
		return errors.New("its making was interrupted")
	}
	return nil
}

// Clear implements [search.Table].
func (t *Table) Clear(_ context.Context, why error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(t.shut(why), Remove(t.dir))
}

// Spoilt implements [search.Table]. A full disk is no reason to make the database anew.
func (t *Table) Spoilt(err error) bool {
	const full = 13 // SQLITE_FULL
	var of interface{ Code() int }
	return !errors.As(err, &of) || of.Code()&0xff != full
}

// Remove removes the index in a directory, which no process may have open. If an unused index stayed, it
// would keep data that is erased meanwhile, and a later process would use it.
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

// Close implements [search.Table].
func (t *Table) Close(why error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shut(why)
}

// shut closes the database. From then on, Find returns why.
func (t *Table) shut(why error) (err error) {
	if t.db != nil {
		err = t.db.Close()
	}
	t.db, t.why = nil, why
	return err
}

// within runs do in a transaction.
func (t *Table) within(ctx context.Context, do func(*sql.Tx) error) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.db == nil {
		return t.why
	}
	tx, err := t.db.BeginTx(ctx, nil)
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

// Put implements [search.Table].
func (t *Table) Put(ctx context.Context, rows []search.Row, last *chain.Leaf) error {
	return t.within(ctx, func(tx *sql.Tx) error {
		s, err := tx.PrepareContext(ctx, upsert)
		if err != nil {
			return err
		}
		for i := range rows {
			r := &rows[i]
			if _, err := s.ExecContext(ctx, r.ID[:], int64(r.Since), r.Namespace, r.Server, r.Tool, r.Key, int64(r.State), int64(r.Class)); err != nil {
				return errors.Join(err, s.Close())
			}
		}
		if err := s.Close(); err != nil || last == nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "UPDATE meta SET position = ?, leaf = ?", int64(last.Index), search.NameOf(last))
		return err
	})
}

// Erasing implements [search.Table]. When it returns, rows that were removed before are no longer in the database's journal either.
func (t *Table) Erasing(ctx context.Context, is bool) error {
	if err := t.within(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE meta SET erasing = ?", is)
		return err
	}); err != nil {
		return err
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.db == nil {
		return t.why
	}
	var busy, pages, moved int
	if err := t.db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &moved); err != nil {
		return err
	}
	if busy != 0 {
		return errors.New("another connection is reading the journal of the database")
	}
	return nil
}

// Again and Done implement [search.Table]. They do nothing, because only this process erases.
func (t *Table) Again(context.Context) ([]search.Span, error) { return nil, nil }
func (t *Table) Done(context.Context, []search.Span) error    { return nil }

var dialect = search.Dialect{
	Param: func(int) string { return "?" },
	Text:  func(s string) any { return s },
	ID:    func(id tga.ID) any { return id[:] },
}

// Find implements [search.Table].
func (t *Table) Find(ctx context.Context, q search.Query) (page []search.Mark, err error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.db == nil {
		return nil, t.why
	}
	where, args := q.Where(dialect)
	rows, err := t.db.QueryContext(ctx, "SELECT since, id FROM traces WHERE "+where+" "+search.Order+" LIMIT ?", append(args, q.Limit)...)
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
		page = append(page, search.Mark{Since: tga.Millis(since), Trace: tga.ID(id)})
	}
	return page, rows.Err()
}

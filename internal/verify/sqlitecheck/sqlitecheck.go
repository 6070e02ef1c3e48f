// Package sqlitecheck looks at rows of a SQLite query; what is wanted of them, package
// sqlcheck says.
//
//	[[verifier]]
//	resource_type = "order"
//	type          = "sqlite"
//	file          = "/var/lib/shop/shop.db"
//	query, params, rows, ignore, [[verifier.column]], … as in package sqlcheck
//
// The file is opened read-only for each question and never created. A file that cannot be
// opened means cannot tell; so does a file in WAL mode whose -shm file does not exist and
// cannot be made. A lock of another process is waited for as long as one try lasts.
//
// # Invariants
//
//	read  no file is written or made, whatever the query says  [look.run]  TestQueryCannotWrite
package sqlitecheck

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/internal/verify/sqlcheck"
	"github.com/tgad/tgad/runtime"
)

// Config describes a verifier; see the package's comment.
type Config struct {
	File string `toml:"file"`
	sqlcheck.Config
}

type look struct{ dsn string }

// New makes a verifier, VALIDATION_ERROR where the configuration is wrong. It opens
// nothing.
func New(c Config) (runtime.Verifier, error) {
	if c.File == "" {
		return nil, verify.Invalid("file", "want a database file")
	}
	patience, err := c.Complete()
	if err != nil {
		return nil, err
	}
	name, err := dsn(c.File, patience.Timeout)
	if err != nil {
		return nil, err
	}
	return sqlcheck.New(c.Config, "sqlite "+c.File, nil, (&look{name}).run)
}

// dsn names a file for the driver. It sets mode=ro, because a statement could switch
// query_only off again, but not mode=ro.
func dsn(file string, timeout time.Duration) (string, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return "", verify.Invalid("file", "%w", err)
	}
	uri := url.URL{Scheme: "file", Path: path, RawQuery: url.Values{
		"mode":          {"ro"},
		"_query_only":   {"1"},
		"_busy_timeout": {strconv.FormatInt(timeout.Milliseconds(), 10)},
	}.Encode()}
	return uri.String(), nil
}

// run is the [sqlcheck.Query] of SQLite.
func (l *look) run(ctx context.Context, query string, params []*string) (result sqlcheck.Result, err error) {
	db, err := sql.Open("sqlite", l.dsn)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return result, classify("open", err)
	}
	defer func() {
		if e := tx.Rollback(); !errors.Is(e, sql.ErrTxDone) {
			err = errors.Join(err, e)
		}
	}()
	args := make([]any, len(params))
	for i, p := range params {
		if p != nil {
			args[i] = *p
		}
	}
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return result, classify("query", err)
	}
	defer rows.Close()
	if result.Columns, err = rows.Columns(); err != nil {
		return result, classify("query", err)
	}
	for len(result.Rows) <= sqlcheck.MaxRows && rows.Next() {
		row, err := scan(rows, result.Columns)
		if err != nil {
			return result, err
		}
		result.Rows = append(result.Rows, row)
	}
	if err := rows.Err(); err != nil {
		return result, classify("query", err)
	}
	return result, nil
}

// scan reads one row as texts.
func scan(rows *sql.Rows, columns []string) ([]*string, error) {
	values, at := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		at[i] = &values[i]
	}
	if err := rows.Scan(at...); err != nil {
		return nil, classify("query", err)
	}
	row := make([]*string, len(values))
	for i, v := range values {
		var text string
		switch v := v.(type) {
		case nil:
			continue
		case string:
			text = v
		case []byte:
			text = string(v)
		case int64:
			text = strconv.FormatInt(v, 10)
		case float64:
			text = strconv.FormatFloat(v, 'g', -1, 64)
		case time.Time:
			// The driver has parsed the value, so the stored text is not available.
			return nil, fmt.Errorf("column %q is declared as a date: select it with CAST(… AS TEXT)", columns[i])
		default:
			return nil, fmt.Errorf("column %q has a value of type %T", columns[i], v)
		}
		row[i] = &text
	}
	return row, nil
}

// passing are the primary result codes after which another try may succeed.
var passing = map[int]bool{sqlite3.SQLITE_BUSY: true, sqlite3.SQLITE_LOCKED: true, sqlite3.SQLITE_INTERRUPT: true, sqlite3.SQLITE_CANTOPEN: true, sqlite3.SQLITE_PROTOCOL: true, sqlite3.SQLITE_IOERR: true}

func classify(what string, err error) error {
	e, ok := errors.AsType[*sqlite.Error](err)
	err = fmt.Errorf("%s: %w", what, err)
	if ok && passing[e.Code()&0xff] || errors.Is(err, context.DeadlineExceeded) {
		return verify.Transient(err)
	}
	return err
}

// Package sqlitefile lets package workstate undo what tools did to a SQLite database. It
// copies with SQLite's own backup interface, in both directions. So a copy is of one moment
// even if others have the database open, and a restore is a transaction of the database,
// which a crash in its middle undoes.
//
// A copy is always of the database that is at the path at that time, also if another was
// renamed over it or it was made again. If there is no database at the path any more, or
// something that is no database, a restore puts one there by a rename. A database that
// others have open is never replaced: they would go on writing to a file without a name.
package sqlitefile

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"modernc.org/sqlite"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/schemas/tga"
)

// chunkSize is how many bytes of a database are one node, so that a snapshot costs only the
// chunks that changed.
const chunkSize = 64 << 10

// File is a database that calls use one after another. It is a [workstate.Snapshotter].
type File struct {
	path    string
	scratch string
}

var (
	_ workstate.Snapshotter = (*File)(nil)
	_ workstate.Placed      = (*File)(nil)
)

// Open opens a database, and makes it if there is nothing at its path. It resolves links in
// the path now, and never again. Temporary copies are in the directory scratch, which must not
// be the database's directory.
func Open(ctx context.Context, path, scratch string) (*File, error) {
	path, err := filepath.Abs(path)
	if err == nil {
		scratch, err = filepath.Abs(scratch)
	}
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "database %s: %w", path, err)
	}
	if at, err := filepath.EvalSymlinks(path); err == nil {
		path = at
	}
	f := &File{path: path, scratch: scratch}
	if _, err = os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		err = f.with(ctx, func(*sql.Conn) error { return nil })
	}
	if err := errors.Join(err, os.MkdirAll(scratch, 0o700)); err != nil {
		return nil, tga.Errorf(tga.ValidationError, "database %s: %w", path, err)
	}
	return f, nil
}

// Place implements [workstate.Placed].
func (f *File) Place() workstate.Place {
	return workstate.Place{Kind: workstate.PlaceSQLite, Path: f.path, Aside: f.scratch}
}

// Path returns the database's path, absolute.
func (f *File) Path() string { return f.path }

// Close does nothing: the database is open only while it is copied.
func (f *File) Close() error { return nil }

// with opens the database that stands at the path now.
func (f *File) with(ctx context.Context, g func(*sql.Conn) error) (err error) {
	// A URL, so that a question mark in the name does not begin a list of options.
	name := url.URL{Scheme: "file", OmitHost: true, Path: f.path, RawQuery: "_pragma=busy_timeout(5000)&_pragma=synchronous(FULL)"}
	db, err := sql.Open("sqlite", name.String())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return g(conn)
}

// backuper is what a connection of the driver can do.
type backuper interface {
	NewBackup(to string) (*sqlite.Backup, error)
	NewRestore(from string) (*sqlite.Backup, error)
}

// copyWith makes a backup in one step, which is one transaction.
func copyWith(conn *sql.Conn, begin func(backuper) (*sqlite.Backup, error)) error {
	return conn.Raw(func(c any) error {
		b, err := begin(c.(backuper))
		if err != nil {
			return err
		}
		more, err := b.Step(-1)
		if err == nil && more {
			err = errors.New("the copy is not whole")
		}
		return errors.Join(err, b.Finish())
	})
}

// aside returns an unused path in scratch, and a function that removes it.
func (f *File) aside() (path string, remove func() error, err error) {
	dir, err := os.MkdirTemp(f.scratch, "copy-")
	return filepath.Join(dir, "db"), func() error { return os.RemoveAll(dir) }, err
}

// image is the data of a snapshot's node, as JSON; there is no data if there was no database.
type image struct {
	Perm uint32 `json:"perm"`
}

// Snapshot implements [workstate.Snapshotter].
func (f *File) Snapshot(ctx context.Context) (*workstate.Node, error) {
	for range 5 {
		n, err := f.snapshot(ctx)
		if errors.Is(err, errReplaced) {
			continue
		}
		if err != nil {
			err = tga.Errorf(tga.GenericStateError, "snapshot of %s: %w", f.path, err)
		}
		return n, err
	}
	return nil, tga.Errorf(tga.GenericStateError, "snapshot of %s: %w", f.path, errReplaced)
}

var errReplaced = errors.New("another file takes its place again and again while it is copied")

func (f *File) snapshot(ctx context.Context) (n *workstate.Node, err error) {
	before, err := os.Lstat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return workstate.NewNode(nil), nil
	case err == nil && !before.Mode().IsRegular():
		err = fmt.Errorf("no database stands there, but %s", before.Mode().Type())
	}
	if err != nil {
		return nil, err
	}
	path, remove, err := f.aside()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	err = f.with(ctx, func(conn *sql.Conn) error {
		return copyWith(conn, func(c backuper) (*sqlite.Backup, error) { return c.NewBackup(path) })
	})
	if after, gone := os.Lstat(f.path); gone != nil || !os.SameFile(before, after) {
		return nil, errReplaced
	}
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(image{uint32(before.Mode().Perm())})
	if err != nil {
		return nil, err
	}
	return nodeOf(data, b), nil
}

// nodeOf cuts a database into nodes. It sets the change counter at offset 24 of the header to
// zero, and the version-valid-for number at offset 92, which repeats it
// (https://www.sqlite.org/fileformat.html). Copies change these numbers too, and equal content
// must give equal snapshots.
func nodeOf(data, b []byte) *workstate.Node {
	if len(b) >= 100 {
		clear(b[24:28])
		clear(b[92:96])
	}
	var kids []*workstate.Node
	for chunk := range slices.Chunk(b, chunkSize) {
		kids = append(kids, workstate.NewNode(slices.Clone(chunk)))
	}
	return workstate.NewNode(data, kids...)
}

// Package sqlitefile lets package workstate take back what tools did to a SQLite
// database. It copies with SQLite's own backup interface, in both directions: a copy is of
// one moment although others have the database open, and a restore is a transaction of
// the database, which a crash in its middle undoes.
package sqlitefile

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"modernc.org/sqlite"

	"github.com/tgad/tgad/runtime/workstate"
	"github.com/tgad/tgad/schemas/tga"
)

// chunkSize is how many bytes of a database are one node, so that a snapshot costs the
// chunks that changed.
const chunkSize = 64 << 10

// File is a database that calls take turns at. It is a [workstate.Snapshotter].
type File struct {
	path    string
	scratch string
	db      *sql.DB
}

var (
	_ workstate.Snapshotter = (*File)(nil)
	_ workstate.Placed      = (*File)(nil)
)

// Open opens a database, which is made where it does not exist. Copies on their way lie
// in the directory scratch, which must not be the database's.
func Open(ctx context.Context, path, scratch string) (*File, error) {
	path, err := filepath.Abs(path)
	if err == nil {
		scratch, err = filepath.Abs(scratch)
	}
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "database %s: %w", path, err)
	}
	// A name with a question mark in it is no list of options.
	name := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: "_pragma=busy_timeout(5000)&_pragma=synchronous(FULL)"}
	db, err := sql.Open("sqlite", name.String())
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "database %s: %w", path, err)
	}
	db.SetMaxOpenConns(1)
	if err := errors.Join(db.PingContext(ctx), os.MkdirAll(scratch, 0o700)); err != nil {
		return nil, tga.Errorf(tga.ValidationError, "database %s: %w", path, errors.Join(err, db.Close()))
	}
	return &File{path: path, scratch: scratch, db: db}, nil
}

// Place implements [workstate.Placed].
func (f *File) Place() workstate.Place {
	return workstate.Place{Kind: workstate.PlaceSQLite, Path: f.path, Aside: f.scratch}
}

// Path returns the database's path, absolute.
func (f *File) Path() string { return f.path }

// Close closes the database.
func (f *File) Close() error { return f.db.Close() }

// backuper is what a connection of the driver can do.
type backuper interface {
	NewBackup(to string) (*sqlite.Backup, error)
	NewRestore(from string) (*sqlite.Backup, error)
}

// copyWith carries out a backup in one step, which is one transaction.
func (f *File) copyWith(ctx context.Context, begin func(backuper) (*sqlite.Backup, error)) (err error) {
	conn, err := f.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
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

// aside returns a path in scratch at which nothing stands, and what removes it.
func (f *File) aside() (path string, remove func() error, err error) {
	dir, err := os.MkdirTemp(f.scratch, "copy-")
	return filepath.Join(dir, "db"), func() error { return os.RemoveAll(dir) }, err
}

// Snapshot implements [workstate.Snapshotter].
func (f *File) Snapshot(ctx context.Context) (n *workstate.Node, err error) {
	path, remove, err := f.aside()
	if err != nil {
		return nil, tga.Errorf(tga.GenericStateError, "snapshot of %s: %w", f.path, err)
	}
	defer func() { err = errors.Join(err, remove()) }()
	err = f.copyWith(ctx, func(c backuper) (*sqlite.Backup, error) { return c.NewBackup(path) })
	if err != nil {
		return nil, tga.Errorf(tga.GenericStateError, "snapshot of %s: %w", f.path, err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, tga.Errorf(tga.GenericStateError, "snapshot of %s: %w", f.path, err)
	}
	return nodeOf(b), nil
}

// nodeOf cuts a database into nodes. The change counter at offset 24 of its header and
// the version-valid-for number at offset 92, which repeats it, count copies too
// (https://www.sqlite.org/fileformat.html): they are zeroed, so that equal content is one
// snapshot.
func nodeOf(b []byte) *workstate.Node {
	if len(b) >= 100 {
		clear(b[24:28])
		clear(b[92:96])
	}
	var kids []*workstate.Node
	for chunk := range slices.Chunk(b, chunkSize) {
		kids = append(kids, workstate.NewNode(slices.Clone(chunk)))
	}
	return workstate.NewNode(nil, kids...)
}

// Restore implements [workstate.Snapshotter]. Who has the database open sees its content
// change from one transaction to the next.
func (f *File) Restore(ctx context.Context, n *workstate.Node) (err error) {
	path, remove, err := f.aside()
	if err != nil {
		return tga.Errorf(tga.RestoreFailed, "restore of %s: %w", f.path, err)
	}
	defer func() { err = errors.Join(err, remove()) }()
	var b []byte
	for _, k := range n.Kids() {
		if len(k.Kids()) > 0 {
			return tga.Errorf(tga.SnapshotMismatch, "node %s is no database", n.Digest())
		}
		b = append(b, k.Data()...)
	}
	if len(n.Data()) > 0 || len(b) > 0 && !slices.Equal(b[:min(16, len(b))], []byte("SQLite format 3\x00")) {
		return tga.Errorf(tga.SnapshotMismatch, "node %s is no database", n.Digest())
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return tga.Errorf(tga.RestoreFailed, "restore of %s: %w", f.path, err)
	}
	err = f.copyWith(ctx, func(c backuper) (*sqlite.Backup, error) { return c.NewRestore(path) })
	if err != nil {
		return tga.Errorf(tga.RestoreFailed, "restore of %s: %w", f.path, err)
	}
	return nil
}

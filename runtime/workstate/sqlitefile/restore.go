package sqlitefile

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/schemas/tga"
)

// Restore implements [workstate.Snapshotter]. Others that have the database open see its
// content change from one transaction to the next. Restore fails, and changes nothing, if
// somebody has a lock on the database for more than five seconds.
//
// Restore also sets the journal mode of the snapshot, unless others have the database open:
// the mode says how they write, and is not part of the content.
func (f *File) Restore(ctx context.Context, n *workstate.Node) error {
	b, i, err := contentOf(n)
	if err != nil {
		return err
	}
	if err := f.restore(ctx, b, i); err != nil {
		return tga.Errorf(tga.RestoreFailed, "restore of %s: %w", f.path, err)
	}
	return nil
}

// contentOf joins the nodes of a database. The image is nil if there was no database.
func contentOf(n *workstate.Node) (b []byte, i *image, err error) {
	for _, k := range n.Kids() {
		if len(k.Kids()) > 0 {
			return nil, nil, tga.Errorf(tga.SnapshotMismatch, "node %s is no database", n.Digest())
		}
		b = append(b, k.Data()...)
	}
	if len(n.Data()) > 0 {
		err = json.Unmarshal(n.Data(), &i)
	}
	if err != nil || len(b) > 0 && (len(b) < 100 || !slices.Equal(b[:16], []byte("SQLite format 3\x00"))) {
		return nil, nil, tga.Errorf(tga.SnapshotMismatch, "node %s is no database", n.Digest())
	}
	return b, i, nil
}

func (f *File) restore(ctx context.Context, b []byte, i *image) (err error) {
	stands, err := os.Lstat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if i == nil {
			return nil
		}
		return f.replace(b, i)
	case err != nil:
		return err
	case stands.IsDir() || stands.Mode()&fs.ModeDevice != 0:
		return fmt.Errorf("%s is in the way: %s", f.path, stands.Mode().Type())
	case !stands.Mode().IsRegular():
		return f.replace(b, i)
	}
	path, remove, err := f.aside()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return err
	}
	err = f.with(ctx, func(conn *sql.Conn) error { return restoreInto(ctx, conn, path, b) })
	if is(err, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT) {
		return f.replace(b, i) // nobody can have this file open as a database
	}
	if err == nil && i != nil && stands.Mode().Perm() != i.perm() {
		err = os.Chmod(f.path, i.perm())
	}
	return err
}

func (i *image) perm() fs.FileMode {
	if i == nil {
		return 0o600
	}
	return fs.FileMode(i.Perm).Perm()
}

// restoreInto copies a database over the database that a connection has open.
func restoreInto(ctx context.Context, conn *sql.Conn, path string, b []byte) error {
	from := func(c backuper) (*sqlite.Backup, error) { return c.NewRestore(path) }
	was, err := journalMode(ctx, conn, "")
	if err != nil {
		return err
	}
	err = copyWith(conn, from)
	if is(err, sqlite3.SQLITE_READONLY) && was == "wal" {
		// SQLite copies over a database in WAL mode only if the page sizes are equal. Only
		// the last connection can leave WAL mode.
		if _, err := journalMode(ctx, conn, "delete"); err != nil {
			return fmt.Errorf("its page size was changed, and another connection has it open: close that first: %w", err)
		}
		err = copyWith(conn, from)
	}
	if err != nil || len(b) == 0 {
		return err
	}
	want := map[byte]string{1: "delete", 2: "wal"}[b[18]]
	if now, err := journalMode(ctx, conn, ""); err != nil || want == "" || (now == "wal") == (want == "wal") {
		return err
	}
	if _, err = journalMode(ctx, conn, want); is(err, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) {
		return nil // others have it open
	}
	return err
}

// journalMode returns the journal mode, and sets it first if one is given.
func journalMode(ctx context.Context, conn *sql.Conn, set string) (mode string, err error) {
	query := "pragma journal_mode"
	if set != "" {
		query += " = " + set
	}
	err = conn.QueryRowContext(ctx, query).Scan(&mode)
	return mode, err
}

// is reports whether err has one of SQLite's primary codes.
func is(err error, codes ...int) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && slices.Contains(codes, e.Code()&0xff)
}

// replace puts a database where there is none. It first removes the journals of the earlier
// database, because SQLite would apply them to the new one.
func (f *File) replace(b []byte, i *image) (err error) {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	temp := filepath.Join(filepath.Dir(f.path), ".tgad-restore-"+rand.Text())
	file, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(b)
	if err == nil {
		err = errors.Join(file.Chmod(i.perm()), file.Sync())
	}
	err = errors.Join(err, file.Close())
	for _, end := range []string{"-journal", "-wal", "-shm"} {
		if err == nil {
			if err = os.Remove(f.path + end); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
	}
	if err == nil {
		err = os.Rename(temp, f.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	dir, err := os.Open(filepath.Dir(f.path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

//go:build unix

package sqlitefile_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/runtime/workstate/sqlitefile"
	"github.com/tgad/tgad/schemas/tga"
)

// database makes a database with one note at a path, and closes it.
func database(t testing.TB, path, text string, pragmas ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	must(t, err)
	db.SetMaxOpenConns(1)
	for _, p := range pragmas {
		exec(t, db, "pragma "+p)
	}
	exec(t, db, "create table notes (id integer primary key, text text)")
	exec(t, db, "insert into notes (text) values (?)", text)
	must(t, db.Close())
}

// read returns the notes of a database, and one of its pragmas.
func read(t testing.TB, path, pragma string) (text, value string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	must(t, err)
	must(t, db.QueryRow("pragma "+pragma).Scan(&value))
	text = notes(t, db)
	must(t, db.Close())
	return text, value
}

// TestPathIsFollowed: whatever a tool puts at the path instead of the database, the snapshot is of
// the new file, and a restore of an earlier snapshot brings the first database back, with its
// mode, page size and journal mode.
func TestPathIsFollowed(t *testing.T) {
	other := func(pragmas ...string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			database(t, path+".new", "other", pragmas...)
			must(t, os.Rename(path+".new", path))
		}
	}
	remove := func(t *testing.T, path string) {
		for _, end := range []string{"", "-wal", "-shm", "-journal"} {
			if err := os.Remove(path + end); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
	}
	for _, mode := range []string{"delete", "wal"} {
		for _, c := range []struct {
			name string
			tool func(t *testing.T, path string)
			now  string // "" = none; "!" = no snapshot can be taken
		}{
			{"renamed over", other(), "other"},
			{"renamed over, other page size", other("page_size = 8192"), "other"},
			{"renamed over, other page size, WAL", other("page_size = 8192", "journal_mode = wal"), "other"},
			{"removed", remove, ""},
			{"removed with its directory", func(t *testing.T, path string) { must(t, os.RemoveAll(filepath.Dir(path))) }, ""},
			{"removed, its journal left", func(t *testing.T, path string) {
				must(t, os.Remove(path), os.WriteFile(path+"-wal", []byte("stale"), 0o600), os.WriteFile(path+"-journal", []byte("stale"), 0o600))
			}, ""},
			{"made anew", func(t *testing.T, path string) { remove(t, path); database(t, path, "other", "journal_mode = wal") }, "other"},
			{"no database", func(t *testing.T, path string) {
				remove(t, path)
				must(t, os.WriteFile(path, []byte(strings.Repeat("no database at all ", 100)), 0o600))
			}, "!"},
			{"truncated", func(t *testing.T, path string) { must(t, os.Truncate(path, 0)) }, ""},
			{"a FIFO", func(t *testing.T, path string) { remove(t, path); must(t, syscall.Mkfifo(path, 0o600)) }, "!"},
			{"a link", func(t *testing.T, path string) {
				database(t, path+".elsewhere", "elsewhere")
				remove(t, path)
				must(t, os.Symlink(path+".elsewhere", path))
			}, "!"},
			{"another mode", func(t *testing.T, path string) { must(t, os.Chmod(path, 0o600)) }, "first"},
		} {
			t.Run(mode+" "+c.name, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "in", "tool.db")
				must(t, os.Mkdir(filepath.Dir(path), 0o755))
				database(t, path, "first", "journal_mode = "+mode)
				must(t, os.Chmod(path, 0o640))
				f, err := sqlitefile.Open(bg, path, t.TempDir())
				must(t, err)
				defer func() { must(t, f.Close()) }()
				first := snapshot(t, f)
				c.tool(t, path)

				second, err := f.Snapshot(bg)
				if c.now == "!" {
					if !errors.Is(err, tga.GenericStateError) {
						t.Errorf("a snapshot: %v, want STATE_ERROR", err)
					}
				} else {
					must(t, err)
				}
				must(t, f.Restore(bg, first))
				text, now := read(t, path, "journal_mode")
				if _, size := read(t, path, "page_size"); text != "first" || now != mode || size != "4096" {
					t.Errorf("restored: notes %q, journal mode %s, page size %s", text, now, size)
				}
				if info, err := os.Lstat(path); err != nil || info.Mode() != 0o640 {
					t.Errorf("restored: %v %v", info, err)
				}
				if again := snapshot(t, f); again.Digest() != first.Digest() {
					t.Error("equal content gives another snapshot")
				}
				if c.name == "a link" {
					if text, _ := read(t, path+".elsewhere", "page_size"); text != "elsewhere" {
						t.Errorf("the database that the link named holds %q", text)
					}
				}
				if c.now != "" && c.now != "!" {
					must(t, f.Restore(bg, second))
					if text, _ := read(t, path, "page_size"); text != c.now {
						t.Errorf("forward again: notes %q, want %q", text, c.now)
					}
				}
				if list, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".tgad*")); err != nil || len(list) > 0 {
					t.Errorf("left over: %v %v", list, err)
				}
			})
		}
	}
}

// TestReplacedWhileItIsCopied renames another database over the path at some moment of a
// snapshot. The snapshot is of the one or of the other, with that one's mode, and never a mixture.
func TestReplacedWhileItIsCopied(t *testing.T) {
	dir := t.TempDir()
	path, first, second := filepath.Join(dir, "tool.db"), filepath.Join(dir, "first"), filepath.Join(dir, "second")
	database(t, first, "first")
	database(t, second, "second")
	put := func(from string, mode os.FileMode) error {
		b, err := os.ReadFile(from)
		return errors.Join(err, os.WriteFile(path+".new", b, 0o600), os.Chmod(path+".new", mode), os.Rename(path+".new", path))
	}
	must(t, put(first, 0o600))
	f, err := sqlitefile.Open(bg, path, t.TempDir())
	must(t, err)
	defer func() { must(t, f.Close()) }()
	before := snapshot(t, f).Digest()
	must(t, put(second, 0o644))
	after := snapshot(t, f).Digest()
	for i := range 50 {
		must(t, put(first, 0o600))
		done := make(chan error, 1)
		go func() {
			time.Sleep(time.Duration(i) * 40 * time.Microsecond)
			done <- put(second, 0o644)
		}()
		n, err := f.Snapshot(bg)
		must(t, <-done)
		if err != nil || n.Digest() != before && n.Digest() != after {
			t.Errorf("replaced after %d µs: neither of the two, %v", 40*i, err)
		}
	}
}

// TestDirectoryIsInTheWay: a restore does not remove a directory at the path, nor its content.
func TestDirectoryIsInTheWay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tool.db")
	database(t, path, "first")
	f, err := sqlitefile.Open(bg, path, t.TempDir())
	must(t, err)
	first := snapshot(t, f)
	must(t, os.Remove(path), os.MkdirAll(filepath.Join(path, "kept"), 0o755))
	if err := f.Restore(bg, first); !errors.Is(err, tga.RestoreFailed) || !strings.Contains(err.Error(), path+" is in the way") {
		t.Errorf("%v, want RESTORE_FAILED that says what is in the way", err)
	}
	must(t, os.Remove(filepath.Join(path, "kept")), os.Remove(path), f.Restore(bg, first))
	if text, _ := read(t, path, "page_size"); text != "first" {
		t.Errorf("notes %q", text)
	}
}

// TestOpenReaders: others have the database open while it is restored. In WAL mode a
// reader does not matter, and sees the old content to its end. In the other modes it has
// a lock: the restore fails, changes nothing, and succeeds when it is gone.
func TestOpenReaders(t *testing.T) {
	for _, mode := range []string{"delete", "wal"} {
		t.Run(mode, func(t *testing.T) {
			f, other := open(t, mode)
			exec(t, other, "insert into notes (text) values ('before')")
			n := snapshot(t, f)
			exec(t, other, "update notes set text = 'after'")
			tx, err := other.Begin()
			must(t, err)
			var text string
			must(t, tx.QueryRow("select text from notes").Scan(&text))
			err = f.Restore(bg, n)
			if mode == "delete" {
				if !errors.Is(err, tga.RestoreFailed) || !strings.Contains(err.Error(), "locked") {
					t.Errorf("%v, want RESTORE_FAILED that says that it is locked", err)
				}
			} else {
				must(t, err)
			}
			must(t, tx.QueryRow("select text from notes").Scan(&text), tx.Rollback())
			if text != "after" {
				t.Errorf("the reader sees %q in its transaction", text)
			}
			must(t, f.Restore(bg, n))
			if got := notes(t, other); got != "before" {
				t.Errorf("notes %q", got)
			}
		})
	}
}

// TestPageSizeWithOthers: SQLite changes the page size of a database in WAL mode only for
// its last connection. Until then the restore says so, and changes nothing.
func TestPageSizeWithOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tool.db")
	database(t, path, "first")
	f, err := sqlitefile.Open(bg, path, t.TempDir())
	must(t, err)
	first := snapshot(t, f)
	must(t, os.Remove(path))
	database(t, path, "other", "page_size = 8192", "journal_mode = wal")
	reader, err := sql.Open("sqlite", path)
	must(t, err)
	if got := notes(t, reader); got != "other" {
		t.Fatal(got)
	}
	if err := f.Restore(bg, first); !errors.Is(err, tga.RestoreFailed) || !strings.Contains(err.Error(), "page size") {
		t.Errorf("%v, want RESTORE_FAILED that says why", err)
	}
	if got := notes(t, reader); got != "other" {
		t.Errorf("refused, and the notes are %q", got)
	}
	must(t, reader.Close(), f.Restore(bg, first))
	if text, size := read(t, path, "page_size"); text != "first" || size != "4096" {
		t.Errorf("notes %q, page size %s", text, size)
	}
}

// TestJournalModeChanged: a restore sets the journal mode back, unless another connection has the
// database open.
func TestJournalModeChanged(t *testing.T) {
	for _, c := range [][2]string{{"delete", "wal"}, {"wal", "delete"}} {
		for _, others := range []bool{false, true} {
			path := filepath.Join(t.TempDir(), "tool.db")
			database(t, path, "first", "journal_mode = "+c[0])
			f, err := sqlitefile.Open(bg, path, t.TempDir())
			must(t, err)
			first := snapshot(t, f)
			db, err := sql.Open("sqlite", path+"?_pragma=journal_mode("+c[1]+")")
			must(t, err)
			exec(t, db, "update notes set text = 'after'")
			if !others {
				must(t, db.Close())
			}
			must(t, f.Restore(bg, first))
			if others {
				if got := notes(t, db); got != "first" {
					t.Errorf("%v: the other connection sees %q", c, got)
				}
				must(t, db.Close())
			}
			text, mode := read(t, path, "journal_mode")
			if text != "first" || mode != c[0] && !others {
				t.Errorf("%v: notes %q, journal mode %s", c, text, mode)
			}
		}
	}
}

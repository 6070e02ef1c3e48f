package sqlitefile_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/workstate/sqlitefile"
	"github.com/tgad/tgad/schemas/tga"
)

var bg = context.Background()

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// open returns a database and another connection to it, such as a tool has.
func open(t testing.TB, mode string) (*sqlitefile.File, *sql.DB) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tool.db")
	f, err := sqlitefile.Open(bg, path, t.TempDir())
	must(t, err)
	other, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode("+mode+")")
	must(t, err)
	t.Cleanup(func() { must(t, other.Close(), f.Close()) })
	exec(t, other, "create table notes (id integer primary key, text text)")
	return f, other
}

func exec(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	_, err := db.Exec(query, args...)
	must(t, err)
}

func notes(t testing.TB, db *sql.DB) (out string) {
	t.Helper()
	must(t, db.QueryRow("select coalesce(group_concat(text, ' '), '') from (select text from notes order by id)").Scan(&out))
	var check string
	must(t, db.QueryRow("pragma integrity_check").Scan(&check))
	if check != "ok" {
		t.Errorf("integrity: %s", check)
	}
	return out
}

func snapshot(t testing.TB, f *sqlitefile.File) *workstate.Node {
	t.Helper()
	n, err := f.Snapshot(bg)
	must(t, err)
	return n
}

// TestRestoreIsSeenByOpenConnections, in both journal modes, and equal content is one
// snapshot.
func TestRestoreIsSeenByOpenConnections(t *testing.T) {
	for _, mode := range []string{"delete", "wal"} {
		t.Run(mode, func(t *testing.T) {
			f, other := open(t, mode)
			exec(t, other, "insert into notes (text) values ('before')")
			n := snapshot(t, f)
			exec(t, other, "insert into notes (text) values ('after')")
			exec(t, other, "create table more (x)")
			must(t, f.Restore(bg, n))
			if got := notes(t, other); got != "before" {
				t.Errorf("notes %q", got)
			}
			if _, err := other.Exec("select * from more"); err == nil {
				t.Error("a table made since is there")
			}
			if again := snapshot(t, f); again.Digest() != n.Digest() {
				t.Error("equal content gives another snapshot")
			}
		})
	}
}

func TestEmptyDatabaseComesBack(t *testing.T) {
	f, err := sqlitefile.Open(bg, filepath.Join(t.TempDir(), "new.db"), t.TempDir())
	must(t, err)
	defer func() { must(t, f.Close()) }()
	n := snapshot(t, f)
	db, err := sql.Open("sqlite", f.Path())
	must(t, err)
	defer func() { must(t, db.Close()) }()
	exec(t, db, "create table t (x)")
	must(t, f.Restore(bg, n))
	if _, err := db.Exec("select * from t"); err == nil {
		t.Error("the table is still there")
	}
}

func TestSmallChangeIsFewNodes(t *testing.T) {
	f, other := open(t, "delete")
	for i := range 200 {
		exec(t, other, "insert into notes (text) values (printf('%.*c', 20000, 'x') || ?)", i)
	}
	have := map[tga.Digest]bool{}
	old := snapshot(t, f)
	for _, k := range old.Kids() {
		have[k.Digest()] = true
	}
	exec(t, other, "update notes set text = 'short' where id = 77")
	fresh := 0
	for _, k := range snapshot(t, f).Kids() {
		if !have[k.Digest()] {
			fresh++
		}
	}
	if fresh == 0 || fresh > 6 {
		t.Errorf("%d of %d nodes are new", fresh, len(old.Kids()))
	}
}

func TestForeignSnapshotsAreRefused(t *testing.T) {
	f, other := open(t, "delete")
	exec(t, other, "insert into notes (text) values ('kept')")
	for name, n := range map[string]*workstate.Node{
		"bytes": workstate.NewNode([]byte("x")), "no database": workstate.NewNode(nil, workstate.NewNode([]byte("something else entirely"))),
	} {
		if err := f.Restore(bg, n); !errors.Is(err, tga.SnapshotMismatch) {
			t.Errorf("%s: %v, want SNAPSHOT_MISMATCH", name, err)
		}
	}
	if got := notes(t, other); got != "kept" {
		t.Errorf("notes %q", got)
	}
}

// TestFailingToolLeavesTheDatabase: as a resource of a state, through JSON too.
func TestFailingToolLeavesTheDatabase(t *testing.T) {
	f, other := open(t, "wal")
	r := &workstate.Registry{}
	must(t, workstate.Add(r, f))
	s, err := workstate.New(bg, workstate.NewSession(), r, workstate.Options{})
	must(t, err)
	tool := workstate.Transact(runtime.DispatcherFunc(func(_ context.Context, c runtime.Call) (runtime.Reply, error) {
		exec(t, other, "insert into notes (text) values (?)", c.Tool)
		return runtime.Reply{Status: map[string]string{"good": tga.StatusSuccess, "bad": tga.StatusFailure}[c.Tool]}, nil
	}), s)
	for _, name := range []string{"good", "bad", "good"} {
		_, err := tool.Dispatch(bg, runtime.Call{TraceID: tga.ID{1}, ToolCallID: tga.ID{2}, Tool: name, Server: "s"})
		must(t, err)
	}
	if got := notes(t, other); got != "good good" {
		t.Errorf("notes %q", got)
	}
	snap, err := s.Snapshot(bg, workstate.SnapshotOptions{}, "")
	must(t, err)
	exec(t, other, "delete from notes")
	_, err = s.Restore(bg, snap, workstate.RestoreOptions{}, "")
	must(t, err)
	if got := notes(t, other); got != "good good" {
		t.Errorf("notes %q after a restore", got)
	}
}

// TestPathIsAPath: the characters of options and escapes in a URI are plain characters in a path,
// and a Place is valid from every working directory.
func TestPathIsAPath(t *testing.T) {
	const name = "a b?mode=ro%41#c.db"
	dir := t.TempDir()
	t.Chdir(dir)
	path := filepath.Join(dir, name)
	f, err := sqlitefile.Open(bg, name, "scratch")
	must(t, err)
	n := snapshot(t, f)
	must(t, f.Restore(bg, n), f.Close())
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	if p := f.Place(); p.Kind != workstate.PlaceSQLite || p.Path != path || p.Aside != filepath.Join(dir, "scratch") {
		t.Errorf("the place is %+v", p)
	}
}

// TestSnapshotRoundTripsThroughJSON, into another database.
func TestSnapshotRoundTripsThroughJSON(t *testing.T) {
	state := func(f *sqlitefile.File) *workstate.State {
		r := &workstate.Registry{}
		must(t, workstate.Add(r, f))
		s, err := workstate.New(bg, workstate.NewSession(), r, workstate.Options{})
		must(t, err)
		return s
	}
	f, db := open(t, "wal")
	exec(t, db, "insert into notes (text) values ('one')")
	snap, err := state(f).Snapshot(bg, workstate.SnapshotOptions{}, "")
	must(t, err)
	other, rows := open(t, "delete")
	exec(t, rows, "insert into notes (text) values ('other')")
	_, err = state(other).Restore(bg, snap, workstate.RestoreOptions{}, "")
	must(t, err)
	if got := notes(t, rows); got != "one" {
		t.Errorf("the other database holds %q", got)
	}
}

package sqlitecheck

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/internal/verify/sqlcheck"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var soon = verify.Patience{Timeout: 20 * time.Second, Tries: 2, Delay: time.Millisecond, MaxDelay: time.Millisecond, SettleEvery: time.Millisecond}

// shop makes a database in a file and returns the file and an open handle.
func shop(t *testing.T, name, journal string) (string, *sql.DB) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	db, err := sql.Open("sqlite", file+"?_pragma=journal_mode("+journal+")")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if _, err := db.Exec(`CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT, version INTEGER, note TEXT, price REAL, made DATETIME, raw BLOB);
		INSERT INTO orders VALUES (42, 'paid', 7, NULL, 1.5, '2026-01-15 19:00:00', x'616263')`); err != nil {
		t.Fatal(err)
	}
	return file, db
}

func ptr(s string) *string { return &s }

func mustNew(t *testing.T, file string, c sqlcheck.Config) runtime.Verifier {
	t.Helper()
	if c.Tries == 0 {
		c.Patience = soon
	}
	v, err := New(Config{File: file, Config: c})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func byID(columns string, wanted ...sqlcheck.Column) sqlcheck.Config {
	return sqlcheck.Config{Query: "SELECT " + columns + " FROM orders WHERE id = ?", Params: []string{"resource_id"}, Columns: wanted}
}

func TestFindings(t *testing.T) {
	const e, g, c, x = runtime.Exists, runtime.Gone, runtime.Changed, runtime.CannotTell
	for _, name := range []string{"shop.db", "a b?mode=rwc&c#d%20.db"} {
		file, _ := shop(t, "x.db", "WAL")
		if name != "shop.db" {
			var db *sql.DB
			file, db = shop(t, "y.db", "DELETE")
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			odd := filepath.Join(filepath.Dir(file), name)
			if err := os.Rename(file, odd); err != nil {
				t.Fatal(err)
			}
			file = odd
		}
		for _, test := range []struct {
			config  sqlcheck.Config
			id      string
			version string
			want    runtime.Finding
			failed  bool
		}{
			{byID("status"), "42", "", e, false},
			{byID("status"), "43", "", g, false},
			{byID("status"), "x", "", g, false},
			{byID("version", sqlcheck.Column{Name: "version", Field: "version"}), "42", "7", e, false},
			{byID("version", sqlcheck.Column{Name: "version", Field: "version"}), "42", "8", c, false},
			{byID("status, note, price, raw", sqlcheck.Column{Name: "status", Equals: ptr("paid")}, sqlcheck.Column{Name: "note", Null: true},
				sqlcheck.Column{Name: "price", Equals: ptr("1.5")}, sqlcheck.Column{Name: "raw", Equals: ptr("abc")}), "42", "", e, false},
			{byID("made"), "42", "", x, true},
			{byID("CAST(made AS TEXT) AS made", sqlcheck.Column{Name: "made", Equals: ptr("2026-01-15 19:00:00")}), "42", "", e, false},
			{byID("nothing"), "42", "", x, true},
			{sqlcheck.Config{Query: "SELECT 1 FROM orders WHERE id = ? AND version = ?", Params: []string{"resource_id", "version"}}, "42", "8", g, false},
		} {
			f, evidence, err := mustNew(t, file, test.config).Verify(t.Context(), tga.StateChange{ResourceType: "order", ResourceID: test.id, Version: test.version})
			if f != test.want || (err != nil) != test.failed {
				t.Errorf("%s, %s: got %v, %v: %s", test.config.Query, test.id, f, err, evidence.Detail)
			}
		}
	}
}

// TestQueryCannotWrite: neither the database nor another file, with a statement that
// returns rows while it writes.
func TestQueryCannotWrite(t *testing.T) {
	file, db := shop(t, "shop.db", "WAL")
	// INSERT … RETURNING does not begin as a query does; New refuses it. The driver is
	// asked directly whether the connection would have let it through.
	v, err := New(Config{File: file, Config: byID("1")})
	if err != nil || v == nil {
		t.Fatal(err)
	}
	l := &look{dsnOf(t, file)}
	for _, query := range []string{
		"INSERT INTO orders (id) VALUES (1) RETURNING id",
		"WITH x AS (SELECT 1) DELETE FROM orders RETURNING id",
		"PRAGMA query_only = 0; DELETE FROM orders",
		"VACUUM INTO '" + file + ".copy'",
	} {
		if r, err := l.run(t.Context(), query, nil); err == nil {
			t.Errorf("%s: got %v", query, r)
		}
	}
	var n int
	if err := db.QueryRow("SELECT count(*) FROM orders WHERE id = 42").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d rows, %v", n, err)
	}
	if _, err := os.Stat(file + ".copy"); err == nil {
		t.Error("a file was made")
	}
}

func dsnOf(t *testing.T, file string) string {
	t.Helper()
	dsn, err := dsn(file, soon.Timeout)
	if err != nil {
		t.Fatal(err)
	}
	return dsn
}

// TestFileThatIsNotThereCannotTell, and it is not made.
func TestFileThatIsNotThereCannotTell(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none.db")
	if f, _, err := mustNew(t, file, byID("1")).Verify(t.Context(), tga.StateChange{ResourceID: "1"}); f != runtime.CannotTell || !errors.Is(err, tga.ToolError) {
		t.Errorf("got %v, %v", f, err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the file was made")
	}
	if err := os.WriteFile(file, []byte(strings.Repeat("no database ", 1000)), 0o644); err != nil {
		t.Fatal(err)
	}
	if f, _, err := mustNew(t, file, byID("1")).Verify(t.Context(), tga.StateChange{ResourceID: "1"}); f != runtime.CannotTell || !errors.Is(err, tga.ToolError) {
		t.Errorf("got %v, %v", f, err)
	}
}

// TestRowThatShowsLate: it is committed between two questions.
func TestRowThatShowsLate(t *testing.T) {
	file, db := shop(t, "shop.db", "WAL")
	late := soon
	late.Settle, late.SettleEvery = 20*time.Second, 20*time.Millisecond // long enough for any machine
	c := byID("1")
	c.Patience = late
	made := make(chan error, 1)
	go func() {
		_, err := db.Exec("INSERT INTO orders (id) VALUES (43)")
		made <- err
	}()
	if f, _, err := mustNew(t, file, c).Verify(t.Context(), tga.StateChange{ResourceID: "43"}); f != runtime.Exists || err != nil {
		t.Errorf("got %v, %v", f, err)
	}
	if err := <-made; err != nil {
		t.Fatal(err)
	}
}

// TestTimeOut: with a lock that is never given back, and with a query that never ends.
func TestTimeOut(t *testing.T) {
	file, db := shop(t, "shop.db", "DELETE")
	p := soon
	p.Timeout, p.Tries = 100*time.Millisecond, 1
	endless := sqlcheck.Config{Query: "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n", Patience: p}
	if f, _, err := mustNew(t, file, endless).Verify(t.Context(), tga.StateChange{ResourceID: "1"}); f != runtime.CannotTell || err == nil {
		t.Errorf("got %v, %v", f, err)
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "BEGIN EXCLUSIVE"); err != nil {
		t.Fatal(err)
	}
	locked := byID("1")
	locked.Patience = p
	if f, _, err := mustNew(t, file, locked).Verify(t.Context(), tga.StateChange{ResourceID: "42"}); f != runtime.CannotTell || err == nil {
		t.Errorf("got %v, %v", f, err)
	}
	if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if f, _, err := mustNew(t, file, byID("1")).Verify(t.Context(), tga.StateChange{ResourceID: "42"}); f != runtime.Exists || err != nil {
		t.Errorf("got %v, %v", f, err)
	}
}

func TestCancelEndsTheQuery(t *testing.T) {
	file, _ := shop(t, "shop.db", "WAL")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	endless := sqlcheck.Config{Query: "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"}
	if f, _, err := mustNew(t, file, endless).Verify(ctx, tga.StateChange{ResourceID: "1"}); f != runtime.CannotTell || err == nil || ctx.Err() == nil {
		t.Errorf("got %v, %v", f, err)
	}
}

func TestRowsAreBounded(t *testing.T) {
	file, _ := shop(t, "shop.db", "WAL")
	many := sqlcheck.Config{Query: "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"}
	if f, _, err := mustNew(t, file, many).Verify(t.Context(), tga.StateChange{ResourceID: "1"}); f != runtime.CannotTell || err != nil {
		t.Errorf("got %v, %v", f, err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, test := range []struct {
		c   Config
		key string
	}{
		{Config{File: "x", Config: byID("1")}, ""},
		{Config{Config: byID("1")}, "file"},
		{Config{File: "x"}, "query"},
		{Config{File: "x", Config: sqlcheck.Config{Query: "SELECT 1", Patience: verify.Patience{Timeout: -1}}}, "timeout"},
	} {
		v, err := New(test.c)
		if (err == nil) != (test.key == "") || (v != nil) != (err == nil) || err != nil && (!errors.Is(err, tga.ValidationError) || !strings.Contains(err.Error(), " "+test.key+": ")) {
			t.Errorf("%+v: got %v, want an error about %q", test.c, err, test.key)
		}
	}
}

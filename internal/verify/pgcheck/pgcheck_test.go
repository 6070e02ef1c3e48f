package pgcheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/internal/verify/sqlcheck"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

var soon = verify.Patience{Timeout: 20 * time.Second, Tries: 2, Delay: time.Millisecond, MaxDelay: time.Millisecond, SettleEvery: time.Millisecond}

func ptr(s string) *string { return &s }

func mustNew(t *testing.T, c Config) runtime.Verifier {
	t.Helper()
	needServer(t)
	if c.DSN == "" {
		c.DSN = dsn("owner")
	}
	if c.Tries == 0 {
		c.Patience = soon
	}
	v, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func byID(columns string, wanted ...sqlcheck.Column) Config {
	return Config{Config: sqlcheck.Config{
		Query: "SELECT " + columns + " FROM orders WHERE id = $1", Params: []string{"resource_id"}, Columns: wanted,
	}}
}

func TestFindings(t *testing.T) {
	const e, g, c, x = runtime.Exists, runtime.Gone, runtime.Changed, runtime.CannotTell
	version := sqlcheck.Column{Name: "version", Field: "version"}
	for _, test := range []struct {
		config  Config
		id      string
		version string
		want    runtime.Finding
		failed  bool
	}{
		{byID("status"), "42", "", e, false},
		{byID("status"), "43", "", g, false},
		{byID("status"), "no number", "", x, true},
		{byID("version", version), "42", "7", e, false},
		{byID("version", version), "42", "8", c, false},
		{byID("status", version), "42", "7", x, false},
		{byID("status"), "42", "7", x, false},
		{byID("status, note, paid, key", sqlcheck.Column{Name: "status", Equals: ptr("paid")}, sqlcheck.Column{Name: "note", Null: true},
			sqlcheck.Column{Name: "paid", Equals: ptr("t")}, sqlcheck.Column{Name: "key", Equals: ptr("01936a8b-4c2d-7000-8000-000000000001")}), "42", "", e, false},
		{byID("status", sqlcheck.Column{Name: "status", Equals: ptr("void")}), "42", "", c, false},
		{byID("nothing"), "42", "", x, true},
		{Config{Config: sqlcheck.Config{Query: "SELECT 1 FROM orders WHERE key = $1 OR note = $2", Params: []string{"resource_id", "external_ref?"}}}, "01936a8b-4c2d-7000-8000-000000000001", "", e, false},
		{Config{Config: sqlcheck.Config{Query: "SELECT generate_series(1, 1000000000)"}}, "1", "", x, false},
		{Config{Config: sqlcheck.Config{Query: "SELECT 1 WHERE $1::text IS NULL", Params: []string{"external_ref?"}}}, "1", "", e, false},
		{Config{Config: sqlcheck.Config{Query: "SELECT generate_series(1, 1000)", Rows: 1000}}, "1", "", e, false},
	} {
		f, evidence, err := mustNew(t, test.config).Verify(t.Context(), tga.StateChange{ResourceType: "order", ResourceID: test.id, Version: test.version})
		if f != test.want || (err != nil) != test.failed {
			t.Errorf("%s, %s: got %v, %v: %s", test.config.Query, test.id, f, err, evidence.Detail)
		}
	}
}

// TestQueryCannotWrite asks the database afterwards.
func TestQueryCannotWrite(t *testing.T) {
	for _, query := range []string{
		"WITH x AS (DELETE FROM orders RETURNING id) SELECT * FROM x",
		"WITH x AS (UPDATE orders SET status = 'void' RETURNING id) SELECT * FROM x",
		"SELECT nextval('numbers')",
		"SELECT 1 FROM set_config('transaction_read_only', 'off', false), nextval('numbers')",
		"SELECT id INTO copied FROM orders",
		"SELECT id FROM orders FOR UPDATE",
	} {
		c := Config{Config: sqlcheck.Config{Query: query}}
		if f, e, err := mustNew(t, c).Verify(t.Context(), tga.StateChange{ResourceID: "1"}); f != runtime.CannotTell || err == nil {
			t.Errorf("%s: got %v, %v: %s", query, f, err, e.Detail)
		}
	}
	if n := count(t, "SELECT count(*) FROM orders WHERE id = 42 AND status = 'paid'"); n != 1 {
		t.Errorf("%d rows", n)
	}
	if n := count(t, "SELECT count(*) FROM pg_class WHERE relname = 'copied'"); n != 0 {
		t.Errorf("%d tables were made", n)
	}
	if n := count(t, "SELECT nextval('numbers')::int"); n != 1 {
		t.Errorf("the sequence stood at %d", n)
	}
	// The driver does not pass a second statement either.
	config := mustConfig(t)
	for _, query := range []string{"SELECT 1; DELETE FROM orders", "COMMIT"} {
		r, err := config.run(t.Context(), query, nil)
		if err == nil && len(r.Rows) > 0 {
			t.Errorf("%s: got %v", query, r)
		}
	}
}

func mustConfig(t *testing.T) *look {
	t.Helper()
	needServer(t)
	l, _, err := connection(Config{DSN: dsn("owner")})
	if err != nil {
		t.Fatal(err)
	}
	l.timeout = time.Minute
	return l
}

// TestStatementEndsAtTheServer: it does not run on after the one who asked has gone.
func TestStatementEndsAtTheServer(t *testing.T) {
	l := mustConfig(t)
	l.timeout = 50 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := l.run(ctx, "SELECT pg_sleep(600)", nil); err == nil || !strings.Contains(err.Error(), "57014") {
		t.Errorf("got %v", err)
	}
	c := Config{Config: sqlcheck.Config{Query: "SELECT pg_sleep(600)", Patience: verify.Patience{Timeout: 100 * time.Millisecond, Tries: 1}}}
	if f, _, err := mustNew(t, c).Verify(t.Context(), tga.StateChange{ResourceID: "1"}); f != runtime.CannotTell || err == nil {
		t.Errorf("got %v, %v", f, err)
	}
}

func TestCancelEndsTheQuery(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	c := Config{Config: sqlcheck.Config{Query: "SELECT pg_sleep(600)"}}
	if f, _, err := mustNew(t, c).Verify(ctx, tga.StateChange{ResourceID: "1"}); f != runtime.CannotTell || err == nil || ctx.Err() == nil {
		t.Errorf("got %v, %v", f, err)
	}
}

// TestServerThatDies: the connection ends in the middle of the query, or no server runs.
func TestServerThatDies(t *testing.T) {
	needServer(t)
	if err := execute(`CREATE FUNCTION die() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN true; END $$`); err != nil {
		t.Fatal(err)
	}
	c := Config{Config: sqlcheck.Config{Query: "SELECT die()"}}
	f, _, err := mustNew(t, c).Verify(t.Context(), tga.StateChange{ResourceID: "1"})
	if f != runtime.CannotTell || !errors.Is(err, tga.ToolError) || !strings.Contains(err.Error(), "57P01") {
		t.Errorf("got %v, %v", f, err)
	}
	c.DSN = "host=" + filepath.Join(host, "nobody") + " user=owner"
	if f, _, err := mustNew(t, c).Verify(t.Context(), tga.StateChange{ResourceID: "1"}); f != runtime.CannotTell || !errors.Is(err, tga.ToolError) {
		t.Errorf("got %v, %v", f, err)
	}
}

// TestWhatIsAskedAgain: a wrong query or a wrong login is not tried again.
func TestWhatIsAskedAgain(t *testing.T) {
	for code, again := range map[string]bool{
		"57P01": true, "57P03": true, "53300": true, "40001": true, "08006": true, "57014": true,
		"42703": false, "42501": false, "28P01": false, "25006": false, "22P02": false, "3D000": false, "": true,
	} {
		n := 0
		p, err := soon.Complete()
		if err != nil {
			t.Fatal(err)
		}
		verify.NewVerifier(func(context.Context, tga.StateChange) (runtime.Finding, runtime.Evidence, error) {
			n++
			return runtime.CannotTell, runtime.Evidence{}, classify("query", &pgconn.PgError{Code: code})
		}, p).Verify(t.Context(), tga.StateChange{})
		if (n == 2) != again {
			t.Errorf("%q: asked %d times", code, n)
		}
	}
}

// TestRowThatShowsLate: it is committed between two questions.
func TestRowThatShowsLate(t *testing.T) {
	c := byID("1")
	c.Patience = soon
	c.Settle, c.SettleEvery = 20*time.Second, 20*time.Millisecond // long enough for any machine
	v := mustNew(t, c)
	made := make(chan error, 1)
	go func() { made <- execute("INSERT INTO orders (id) VALUES (77)") }()
	if f, _, err := v.Verify(t.Context(), tga.StateChange{ResourceID: "77"}); f != runtime.Exists || err != nil {
		t.Errorf("got %v, %v", f, err)
	}
	if err := <-made; err != nil {
		t.Fatal(err)
	}
}

func passwordFile(t *testing.T, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPasswordStaysIn(t *testing.T) {
	c := byID("status, '" + password + "' AS echo")
	needServer(t)
	c.DSN, c.PasswordFile = dsn("reader"), passwordFile(t, password+"\n", 0o600)
	f, e, err := mustNew(t, c).Verify(t.Context(), tga.StateChange{ResourceID: "42"})
	if f != runtime.Exists || err != nil || strings.Contains(e.Source+string(e.Detail), password) || !strings.Contains(string(e.Detail), "hidden") {
		t.Errorf("got %v, %v: %s %s", f, err, e.Source, e.Detail)
	}
	c.PasswordFile = passwordFile(t, "wr0ng pa$$word", 0o600)
	f, e, err = mustNew(t, c).Verify(t.Context(), tga.StateChange{ResourceID: "42"})
	if f != runtime.CannotTell || err == nil || strings.Contains(fmt.Sprint(e, err), "wr0ng") || !strings.Contains(err.Error(), "28P01") {
		t.Errorf("got %v, %v", f, err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	with := func(dsn, file string) Config {
		return Config{DSN: dsn, PasswordFile: file, Config: sqlcheck.Config{Query: "SELECT 1"}}
	}
	for _, test := range []struct {
		c   Config
		key string
	}{
		{with("host=/run dbname=x", ""), ""},
		{with("postgres://u@h/db?sslmode=require", ""), ""},
		{with("", ""), "dsn"},
		{with("postgres://u:p4ss@h/db", ""), "dsn"},
		{with("postgres://u@h/db?password=p4ss", ""), "dsn"},
		{with("host=h password = p4ss", ""), "dsn"},
		{with("host=h passfile=/p4ss", ""), "dsn"},
		{with("host=h port=p4ss", ""), "dsn"},
		{with("host=h", passwordFile(t, "x", 0o644)), "password_file"},
		{with("host=h", "/nonexistent"), "password_file"},
		{Config{DSN: "host=h"}, "query"},
		{Config{DSN: "host=h", Config: sqlcheck.Config{Query: "SELECT 1", Patience: verify.Patience{Tries: 99}}}, "tries"},
	} {
		v, err := New(test.c)
		if (err == nil) != (test.key == "") || (v != nil) != (err == nil) || err != nil && (!errors.Is(err, tga.ValidationError) || !strings.Contains(err.Error(), " "+test.key+": ") || strings.Contains(err.Error(), "p4ss")) {
			t.Errorf("%+v: got %v, want an error about %q", test.c, err, test.key)
		}
	}
}

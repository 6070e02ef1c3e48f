// Package pgcheck looks at rows of a PostgreSQL query; what is wanted of them, package
// sqlcheck says.
//
//	[[verifier]]
//	resource_type = "order"
//	type          = "postgres"
//	dsn           = "host=/run/postgresql dbname=shop user=reader"  # or postgres://…; no password
//	password_file = "/etc/tgad/shop.password"  # mode 0600
//	query, params, rows, ignore, [[verifier.column]], … as in package sqlcheck
//
// What dsn leaves out, libpq's environment variables (PGHOST, …) say. Each question has
// a connection of its own, a read-only transaction, and the time of one try as its
// statement_timeout.
//
// # Invariants
//
//	read  no row is written, whatever the query says  [look.run]  TestQueryCannotWrite
package pgcheck

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/internal/verify/sqlcheck"
	"github.com/tgad/tgad/runtime"
)

// Config describes a verifier; see the package's comment.
type Config struct {
	DSN          string `toml:"dsn"`
	PasswordFile string `toml:"password_file"`
	sqlcheck.Config
}

type look struct {
	config  *pgconn.Config
	timeout time.Duration
}

var passwordWord = regexp.MustCompile(`(?i)\b(password|passfile|sslpassword)\s*=`)

// New makes a verifier, VALIDATION_ERROR where the configuration is wrong. It contacts
// nobody.
func New(c Config) (runtime.Verifier, error) {
	patience, err := c.Complete()
	if err != nil {
		return nil, err
	}
	l, hide, err := connection(c)
	if err != nil {
		return nil, err
	}
	l.timeout = patience.Timeout
	return sqlcheck.New(c.Config, fmt.Sprintf("postgres %s/%s", l.config.Host, l.config.Database), hide, l.run)
}

// connection reads how to reach the server.
func connection(c Config) (*look, verify.Secrets, error) {
	u, err := url.Parse(c.DSN)
	inURL := false
	if err == nil && u.User != nil {
		_, inURL = u.User.Password()
	}
	if c.DSN == "" || inURL || passwordWord.MatchString(c.DSN) {
		return nil, nil, verify.Invalid("dsn", "want a connection string without a password: that belongs into password_file")
	}
	l := &look{}
	if l.config, err = pgconn.ParseConfig(c.DSN); err != nil {
		// The error repeats the text, which may hold a password in a form not seen above.
		return nil, nil, verify.Invalid("dsn", "it is no connection string of PostgreSQL")
	}
	if c.PasswordFile != "" {
		raw, err := verify.ReadSecret("password_file", c.PasswordFile)
		if err != nil {
			return nil, nil, err
		}
		l.config.Password = strings.TrimRight(string(raw), "\r\n")
	}
	return l, verify.NewSecrets(l.config.Password), nil
}

// run is the [sqlcheck.Query] of PostgreSQL.
func (l *look) run(ctx context.Context, query string, params []*string) (result sqlcheck.Result, err error) {
	conn, err := pgconn.ConnectConfig(ctx, l.config.Copy())
	if err != nil {
		return result, classify("connect", err)
	}
	defer func() {
		// Close the connection properly even if the context has ended.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		err = errors.Join(err, verify.Transient(conn.Close(last)))
	}()
	begin := fmt.Sprintf("BEGIN READ ONLY; SET LOCAL statement_timeout = %d", max(l.timeout.Milliseconds(), 1))
	if _, err := conn.Exec(ctx, begin).ReadAll(); err != nil {
		return result, classify("begin", err)
	}
	// Name no parameter types: the server infers them and converts from and to text, so a
	// string fits an integer column. This protocol also allows only one statement.
	values := make([][]byte, len(params))
	for i, p := range params {
		if p != nil {
			values[i] = []byte(*p)
		}
	}
	rows := conn.ExecParams(ctx, query, values, nil, nil, nil)
	for rows.NextRow() {
		row := make([]*string, 0, len(rows.Values()))
		for _, raw := range rows.Values() {
			var value *string
			if raw != nil {
				text := string(raw)
				value = &text
			}
			row = append(row, value)
		}
		if result.Rows = append(result.Rows, row); len(result.Rows) > sqlcheck.MaxRows {
			return result, nil // the rest is not read: the connection ends here
		}
	}
	if _, err := rows.Close(); err != nil {
		return result, classify("query", err)
	}
	for _, f := range rows.FieldDescriptions() {
		result.Columns = append(result.Columns, f.Name)
	}
	return result, nil
}

// lasting are the classes of SQLSTATE after which another try is pointless: the query or
// the login is wrong.
var lasting = []string{"0A", "22", "25", "28", "2F", "3D", "3F", "42"}

func classify(what string, err error) error {
	err = fmt.Errorf("%s: %w", what, err)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && len(pg.Code) == 5 && slices.Contains(lasting, pg.Code[:2]) {
		return err
	}
	return verify.Transient(err)
}

package pgcheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

const password = "s3cret pa$$word"

// host is the directory of the test server's socket, "" where there is no PostgreSQL.
var host string

func TestMain(m *testing.M) {
	code, err := withServer(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// withServer runs the tests with a PostgreSQL server of their own.
func withServer(run func() int) (code int, err error) {
	bin, err := programs()
	if err != nil {
		return run(), nil // each test reports that it is skipped
	}
	dir, err := os.MkdirTemp("", "pgcheck")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	attr, err := ordinaryUser(dir)
	if err != nil {
		return 1, err
	}
	data := filepath.Join(dir, "data")
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "owner", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	initdb.SysProcAttr, initdb.Dir = attr, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("initdb: %w: %s", err, out)
	}
	hba := "local all owner trust\nlocal all reader scram-sha-256\n"
	if err := os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte(hba), 0o644); err != nil {
		return 1, err
	}
	server := exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", dir, "-h", "", "-c", "fsync=off")
	server.SysProcAttr, server.Dir = attr, dir
	if err := server.Start(); err != nil {
		return 1, err
	}
	defer func() {
		err = errors.Join(err, server.Process.Signal(syscall.SIGINT), server.Wait())
	}()
	host = dir
	if err := prepare(); err != nil {
		return 1, err
	}
	return run(), nil
}

// programs finds the directory of the server's programs, which need not be in PATH.
func programs() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", errors.Join(errors.New("no PostgreSQL here"), err)
	}
	return filepath.Dir(found[len(found)-1]), nil
}

// ordinaryUser gives dir to a user whom PostgreSQL accepts: it refuses to run as root.
func ordinaryUser(dir string) (*syscall.SysProcAttr, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return nil, err
		}
	}
	uid, errU := strconv.Atoi(u.Uid)
	gid, errG := strconv.Atoi(u.Gid)
	if err := errors.Join(errU, errG, os.Chown(dir, uid, gid)); err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}

// prepare waits for the server and creates the tables of the tests.
func prepare() error {
	var err error
	for range 200 {
		if err = execute(`
			CREATE TABLE orders (id bigint PRIMARY KEY, status text, version int, note text, paid boolean, made timestamptz, key uuid);
			INSERT INTO orders VALUES (42, 'paid', 7, NULL, true, '2026-01-15 19:00:00.5+00', '01936a8b-4c2d-7000-8000-000000000001');
			CREATE SEQUENCE numbers;
			CREATE ROLE reader LOGIN PASSWORD '` + password + `';
			GRANT SELECT ON orders TO reader;`); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("postgres did not answer within 10 s: %w", err)
}

func dsn(user string) string { return "host=" + host + " dbname=postgres user=" + user }

// execute runs statements as the owner.
func execute(statements string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn("owner"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statements)
	return errors.Join(err, conn.Close(ctx))
}

// count asks the database directly.
func count(t *testing.T, query string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn("owner"))
	if err == nil {
		err = errors.Join(conn.QueryRow(t.Context(), query).Scan(&n), conn.Close(t.Context()))
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func needServer(t *testing.T) {
	t.Helper()
	if host == "" {
		t.Skip("no PostgreSQL here")
	}
}

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite"
)

// openSQL opens SQLite in WAL mode with synchronous FULL: a commit is synced before it
// returns.
func openSQL(dir string) (*sql.DB, *sql.Stmt, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(1) // one writer at a time is all there can be
	if _, err := db.Exec("CREATE TABLE log (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"); err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	insert, err := db.Prepare("INSERT INTO log VALUES (?, ?)")
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, insert, nil
}

func openSQLite(dir string, _ int) (*peer, error) {
	db, insert, err := openSQL(dir)
	if err != nil {
		return nil, err
	}
	return &peer{setting: "WAL, synchronous FULL", close: db.Close, put: func(_ int, key, value []byte) error {
		_, err := insert.Exec(key, value)
		return err
	}}, nil
}

func openGroupedSQLite(dir string, _ int) (*peer, error) {
	db, insert, err := openSQL(dir)
	if err != nil {
		return nil, err
	}
	g := newGroup(func(batch []record) error {
		tx, err := db.Begin()
		if err != nil {
			return err
		}
		in := tx.Stmt(insert)
		for _, r := range batch {
			if _, err := in.Exec(r.key, r.value); err != nil {
				return errors.Join(err, tx.Rollback())
			}
		}
		return tx.Commit()
	})
	return &peer{setting: "WAL, synchronous FULL; group commit before it",
		put: func(_ int, key, value []byte) error { return g.put(key, value) },
		close: func() error {
			g.close()
			return db.Close()
		}}, nil
}

// openPostgres starts a PostgreSQL of its own under dir and connects as many times as
// there are writers.
func openPostgres(dir string, writers int) (*peer, error) {
	server, err := startPostgres(dir, writers)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(fmt.Sprintf("host=%s user=bench dbname=postgres", server.dir))
	if err != nil {
		return nil, errors.Join(err, server.stop())
	}
	config.MaxConns, config.MinConns = int32(writers+2), int32(writers)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err == nil {
		_, err = pool.Exec(ctx, "CREATE TABLE log (key BYTEA PRIMARY KEY, value BYTEA NOT NULL)")
	}
	if err != nil {
		return nil, errors.Join(err, server.stop())
	}
	syncs := func() uint64 {
		var n int64
		// The counter covers ended statements, and is a little behind.
		if err := pool.QueryRow(ctx, "SELECT wal_sync FROM pg_stat_wal").Scan(&n); err != nil {
			return 0
		}
		return uint64(n)
	}
	var version string
	if err := pool.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		return nil, errors.Join(err, server.stop())
	}
	return &peer{setting: version + ", fsync, synchronous_commit, fdatasync; pgx", syncs: syncs,
		put: func(_ int, key, value []byte) error {
			_, err := pool.Exec(ctx, "INSERT INTO log VALUES ($1, $2)", pgx.QueryExecModeCacheStatement, key, value)
			return err
		},
		close: func() error {
			pool.Close()
			return server.stop()
		}}, nil
}

// postgres is a running server.
type postgres struct {
	dir  string // of its socket
	cmd  *exec.Cmd
	once sync.Once
}

func startPostgres(dir string, writers int) (*postgres, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	attr, err := ordinaryUser(dir)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	initdb := exec.Command("initdb", "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--locale=C")
	initdb.SysProcAttr, initdb.Dir = attr, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	// A socket's path has at most 107 bytes.
	run, err := os.MkdirTemp("", "pg")
	if err != nil {
		return nil, err
	}
	if attr != nil {
		if err := os.Chown(run, int(attr.Credential.Uid), int(attr.Credential.Gid)); err != nil {
			return nil, err
		}
	}
	p := &postgres{dir: run, cmd: exec.Command("postgres", "-D", data, "-k", run, "-h", "", "-N", strconv.Itoa(writers+20),
		"-c", "fsync=on", "-c", "synchronous_commit=on", "-c", "wal_sync_method=fdatasync", "-c", "shared_buffers=256MB", "-c", "max_wal_size=4GB")}
	p.cmd.SysProcAttr, p.cmd.Dir = attr, dir
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	for range 100 {
		conn, err := pgx.Connect(context.Background(), fmt.Sprintf("host=%s user=bench dbname=postgres", run))
		if err == nil {
			return p, conn.Close(context.Background())
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil, errors.Join(errors.New("postgres did not answer within 10 s"), p.stop())
}

// ordinaryUser gives dir to another user, because PostgreSQL refuses to run as root.
func ordinaryUser(dir string) (*syscall.SysProcAttr, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return nil, err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, os.Chown(dir, uid, gid)
}

// stop asks for a fast shutdown and waits.
func (p *postgres) stop() (err error) {
	p.once.Do(func() {
		err = p.cmd.Process.Signal(syscall.SIGINT)
		if e := p.cmd.Wait(); err == nil {
			err = e
		}
		err = errors.Join(err, os.RemoveAll(p.dir))
	})
	return err
}

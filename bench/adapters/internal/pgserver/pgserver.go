// Package pgserver runs a PostgreSQL server in the directory of a run, for the adapters whose engines keep
// their state in one. The server is not killed: it stands for a database on another machine.
package pgserver

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
	"time"

	"github.com/jackc/pgx/v5"
)

// bin is where Debian has the server's programs. engine/postgres/install.sh installs them.
const bin = "/usr/lib/postgresql/15/bin"

// URL is that of the server in a directory.
func URL(dir string) string {
	return "postgres://owner@/postgres?host=" + filepath.Join(dir, "pg")
}

// Start makes a server in dir and starts it with its default settings, under which a commit is on disk before it
// returns.
func Start(ctx context.Context, dir string) (stop func() error, err error) {
	at := filepath.Join(dir, "pg")
	if err := os.Mkdir(at, 0o755); err != nil {
		return nil, err
	}
	attr, err := ordinaryUser(dir, at)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(at, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", "owner", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	initdb.Dir, initdb.SysProcAttr = at, attr
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	server := exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", at, "-h", "", "-c", "dynamic_shared_memory_type=mmap", "-c", "max_connections=200")
	server.Dir, server.SysProcAttr = at, attr
	if err := server.Start(); err != nil {
		return nil, err
	}
	stop = func() error {
		if err := server.Process.Signal(syscall.SIGINT); err != nil { // a fast shutdown
			return err
		}
		return server.Wait()
	}
	for range 300 {
		conn, err := pgx.Connect(ctx, URL(dir))
		if err == nil {
			return stop, conn.Close(ctx)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil, errors.Join(fmt.Errorf("the PostgreSQL server in %s has not answered in 30 s", at), stop())
}

// ordinaryUser gives the server's directory to another user, because PostgreSQL refuses to run as root.
func ordinaryUser(dir, at string) (*syscall.SysProcAttr, error) {
	if os.Geteuid() != 0 {
		return &syscall.SysProcAttr{Pdeathsig: syscall.SIGINT}, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, errU := strconv.Atoi(u.Uid)
	gid, errG := strconv.Atoi(u.Gid)
	if err := errors.Join(errU, errG, os.Chown(at, uid, gid), passable(dir)); err != nil {
		return nil, err
	}
	credential := &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return &syscall.SysProcAttr{Credential: credential, Pdeathsig: syscall.SIGINT}, nil
}

// passable lets everybody pass through a directory, and through the directories above it that belong to this run:
// only their owner may otherwise pass through the directories of tests.
func passable(dir string) error {
	for temp := filepath.Clean(os.TempDir()); len(dir) > len(temp) && dir[:len(temp)] == temp; dir = filepath.Dir(dir) {
		at, err := os.Stat(dir)
		if err == nil {
			err = os.Chmod(dir, at.Mode().Perm()|0o111)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

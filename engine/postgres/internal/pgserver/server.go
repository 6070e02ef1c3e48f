// Package pgserver starts PostgreSQL servers for tests and measurements: real ones, each with
// a directory and a socket of its own, that end with the process.
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const programs = "/usr/lib/postgresql/15/bin"

// Bin is the directory of the server's programs. The error says how to install them.
func Bin() (string, error) {
	if _, err := os.Stat(filepath.Join(programs, "initdb")); err != nil {
		return "", fmt.Errorf("no PostgreSQL 15 in %s: apt-get install postgresql-15 (or engine/postgres/install.sh)", programs)
	}
	return programs, nil
}

// Place makes a directory for servers of a test. It is in memory if there is room: the server
// syncs as always, and a sync costs nothing. Its path is short enough for a socket, and other users
// may traverse it.
func Place() (string, error) {
	at := "/dev/shm"
	if info, err := os.Stat(at); err != nil || !info.IsDir() {
		at = ""
	}
	dir, err := os.MkdirTemp(at, "tgadpg")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

// Server is one PostgreSQL server.
type Server struct {
	Dir  string // has its data, its socket and its log
	Name string // the name of a standby at its primary
	bin  string
	attr *syscall.SysProcAttr
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	set  []string
}

// blank is a new cluster of initdb. Each server gets a copy.
var blank = sync.OnceValues(func() (string, error) {
	bin, err := Bin()
	if err != nil {
		return "", err
	}
	dir, err := Place()
	if err != nil {
		return "", err
	}
	attr, err := ordinaryUser(dir)
	if err != nil {
		return "", err
	}
	_, err = run(attr, dir, filepath.Join(bin, "initdb"), "-D", filepath.Join(dir, "data"), "-U", "owner", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	return dir, err
})

// Sweep removes the files that the servers of this process share.
func Sweep() error {
	dir, err := blank()
	if err != nil {
		return nil
	}
	return os.RemoveAll(dir)
}

// New makes a server in a directory that does not exist yet, and starts it. set are settings of
// the server, as in fsync=off.
func New(dir string, set ...string) (*Server, error) {
	from, err := blank()
	if err != nil {
		return nil, err
	}
	s, err := prepare(dir, set)
	if err != nil {
		return nil, err
	}
	if _, err := run(s.attr, dir, "cp", "-r", filepath.Join(from, "data"), s.data()); err != nil {
		return nil, err
	}
	hba := "local all all trust\nlocal replication all trust\n"
	if err := os.WriteFile(filepath.Join(s.data(), "pg_hba.conf"), []byte(hba), 0o644); err != nil {
		return nil, err
	}
	return s, s.Start()
}

func prepare(dir string, set []string) (*Server, error) {
	bin, err := Bin()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	attr, err := ordinaryUser(dir)
	if err != nil {
		return nil, err
	}
	return &Server{Dir: dir, bin: bin, attr: attr, set: set}, nil
}

// NewStandby makes a standby of s that streams from it, and starts it.
func (s *Server) NewStandby(dir, name string) (*Server, error) {
	b, err := prepare(dir, s.set)
	if err != nil {
		return nil, err
	}
	b.Name = name
	if _, err := run(b.attr, dir, filepath.Join(b.bin, "pg_basebackup"), "-h", s.Dir, "-U", "owner", "-D", b.data(), "-c", "fast", "-X", "stream", "--no-sync"); err != nil {
		return nil, err
	}
	return b, b.Rejoin(s)
}

// Rejoin starts s as a standby of a primary.
func (s *Server) Rejoin(primary *Server) error {
	conf := fmt.Sprintf("primary_conninfo = 'host=%s user=owner application_name=%s'\nhot_standby = on\n", primary.Dir, s.Name)
	if err := os.WriteFile(filepath.Join(s.data(), "postgresql.auto.conf"), []byte(conf), 0o600); err != nil {
		return err
	}
	signal := filepath.Join(s.data(), "standby.signal")
	if err := os.WriteFile(signal, nil, 0o600); err != nil {
		return err
	}
	if c := s.attr; c != nil && c.Credential != nil {
		for _, name := range []string{signal, filepath.Join(s.data(), "postgresql.auto.conf")} {
			if err := os.Chown(name, int(c.Credential.Uid), int(c.Credential.Gid)); err != nil {
				return err
			}
		}
	}
	return s.Start()
}

func (s *Server) data() string { return filepath.Join(s.Dir, "data") }

// DSN returns the URL of one server, or of that one of several servers that takes writes.
func DSN(servers ...*Server) string {
	var hosts []string
	for _, s := range servers {
		hosts = append(hosts, s.Dir)
	}
	q := url.Values{"host": {strings.Join(hosts, ",")}, "connect_timeout": {"5"}}
	if len(servers) > 1 {
		q.Set("target_session_attrs", "read-write")
	}
	return "postgres://owner@/postgres?" + q.Encode()
}

// Start starts a server that has ended, and waits until it answers. It also waits until all processes of an
// earlier start that were killed are gone.
func (s *Server) Start() error {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		err := s.start()
		if err == nil || !strings.Contains(err.Error(), "pre-existing shared memory block") || time.Now().After(end) {
			return err
		}
	}
}

func (s *Server) start() error {
	// Skip the log of earlier starts. Before the first start there is no log.
	before, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
	args := []string{"-D", s.data(), "-k", s.Dir, "-h", "", "-c", "max_connections=200", "-c", "shared_buffers=64MB", "-c", "lc_messages=C", "-c", "dynamic_shared_memory_type=mmap"} // in the directory, so that a killed server leaves nothing
	for _, v := range s.set {
		args = append(args, "-c", v)
	}
	log, err := os.OpenFile(filepath.Join(s.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd = exec.Command(filepath.Join(s.bin, "postgres"), args...)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = s.Dir, log, log
	attr := syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGQUIT}
	if s.attr != nil {
		attr.Credential = s.attr.Credential
	}
	s.cmd.SysProcAttr = &attr
	if err := s.cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	s.done = done
	cmd := s.cmd
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(done)
	}()
	for deadline := time.Now().Add(20 * time.Second); ; {
		err := s.Exec("SELECT 1")
		if err == nil {
			return nil
		}
		select {
		case <-done:
			text, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
			text = text[min(len(before), len(text)):]
			return fmt.Errorf("postgres ended at once: %s", text[max(0, len(text)-2000):])
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("postgres did not answer within 20 s: %w", err), s.Stop())
		}
	}
}

// Stop ends a server at once. Nothing is flushed: the next start recovers.
func (s *Server) Stop() error {
	if s.ended() {
		return nil
	}
	err := s.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-s.done:
	case <-time.After(10 * time.Second):
		s.Kill()
	}
	return err
}

// Remove ends a server and removes its directory.
func (s *Server) Remove() error { return errors.Join(s.Stop(), os.RemoveAll(s.Dir)) }

func (s *Server) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// Kill ends the server and all its processes with SIGKILL, like a failure of the machine.
func (s *Server) Kill() {
	s.Signal(syscall.SIGSTOP) // no process does anything while the others are killed
	s.Signal(syscall.SIGKILL)
	<-s.done
}

// Signal sends a signal to the server, and then to all its processes.
func (s *Server) Signal(sig syscall.Signal) {
	if s.ended() {
		return
	}
	pids := s.Processes() // list them first: once the first process has ended, they have no parent
	for _, pid := range append([]int{s.cmd.Process.Pid}, pids...) {
		_ = syscall.Kill(pid, sig) // it may have ended
	}
	if sig == syscall.SIGSTOP {
		for _, pid := range s.Processes() { // processes that were started meanwhile
			_ = syscall.Kill(pid, sig)
		}
	}
}

// Processes returns the processes of a running server, except the first one.
func (s *Server) Processes() []int {
	var pids []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if len(fields) > 1 && fields[1] == strconv.Itoa(s.cmd.Process.Pid) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// Promote makes a primary of a standby.
func (s *Server) Promote() error {
	_, err := run(s.attr, s.Dir, filepath.Join(s.bin, "pg_ctl"), "promote", "-D", s.data(), "-w", "-t", "20")
	return err
}

// Exec runs statements, each in a transaction of its own.
func (s *Server) Exec(statements ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, DSN(s))
	if err != nil {
		return err
	}
	for _, st := range statements {
		if _, err := conn.Exec(ctx, st); err != nil {
			return errors.Join(err, conn.Close(ctx))
		}
	}
	return conn.Close(ctx)
}

// Query returns the text of the first column of the first row.
func (s *Server) Query(statement string, args ...any) (text string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, DSN(s))
	if err != nil {
		return "", err
	}
	err = conn.QueryRow(ctx, statement, args...).Scan(&text)
	return text, errors.Join(err, conn.Close(ctx))
}

// SyncStandbys sets synchronous_standby_names. Each commit that begins after it waits for these standbys.
func (s *Server) SyncStandbys(names string) error {
	if err := s.Exec("ALTER SYSTEM SET synchronous_standby_names = '"+names+"'", "SELECT pg_reload_conf()"); err != nil {
		return err
	}
	for range 1000 {
		is, err := s.Query("SHOW synchronous_standby_names")
		if err != nil {
			return err
		}
		if is == names {
			// Commits wait from when the checkpointer has read the setting, which may be later. It reads it between
			// one checkpoint and the next: the first may have begun before.
			return s.Exec("CHECKPOINT", "CHECKPOINT")
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("synchronous_standby_names did not become %q within 10 s", names)
}

// Synchronous makes commits of s wait for a standby, which must be running.
func (s *Server) Synchronous(standby *Server) error {
	if err := s.SyncStandbys(standby.Name); err != nil {
		return err
	}
	for range 1000 {
		state, err := s.Query("SELECT coalesce((SELECT sync_state FROM pg_stat_replication WHERE application_name = $1), '')", standby.Name)
		if err != nil {
			return err
		}
		if state == "sync" || state == "quorum" {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("standby %s did not become synchronous within 10 s", standby.Name)
}

// ordinaryUser gives dir to a user that is not root, because PostgreSQL refuses to run as root.
func ordinaryUser(dir string) (*syscall.SysProcAttr, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, errU := strconv.Atoi(u.Uid)
	gid, errG := strconv.Atoi(u.Gid)
	if err := errors.Join(errU, errG, os.Chmod(dir, 0o755), os.Chown(dir, uid, gid)); err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}

func run(attr *syscall.SysProcAttr, dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr, cmd.Dir = attr, dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(name), err, out)
	}
	return string(out), nil
}

// Command fleet shows what a fleet of daemons on one PostgreSQL keeps when parts of it are killed.
//
//	cd engine/postgres && go run ./examples/fleet
//
// It starts a primary with a synchronous standby, two daemons on it, a tool server that counts what
// reaches it, and callers who ask whichever daemon answers. Then it kills a daemon, stops the
// other for longer than its lease, kills the primary and promotes the standby, and counts: each
// answer that a caller got must still be given, and no charge may have been made twice. Exit code 1
// says that one was. It needs PostgreSQL 15 on this machine (engine/postgres/install.sh) and takes
// about 40 s.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
)

func main() {
	callers := flag.Int("callers", 8, "how many call at the same time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	bad, err := run(ctx, os.Stdout, *callers)
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
	}
	if err != nil || bad > 0 {
		os.Exit(1)
	}
}

// stand is how long the callers run before and after each blow.
const stand = 3 * time.Second

// run runs the whole demonstration, and returns how many calls went wrong.
func run(ctx context.Context, out io.Writer, callers int) (bad int, err error) {
	dir, err := os.MkdirTemp("", "fleet")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	primary, standby, err := servers()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, primary.Remove(), standby.Remove(), pgserver.Sweep()) }()
	bank := newBank()
	defer bank.Close()
	f, err := newFleet(ctx, dir, pgserver.DSN(primary, standby), bank.URL)
	if err != nil {
		return 0, err
	}
	defer f.kill()
	for i := range f.replicas {
		if err := f.start(ctx, i); err != nil {
			return 0, err
		}
	}
	fmt.Fprintf(out, "a primary with a synchronous standby, %d daemons, %d callers\n\n", len(f.replicas), callers)

	load := newLoad(f, callers)
	defer load.stop()
	for _, blow := range []struct {
		what   string
		strike func() error
	}{
		{"nothing yet", func() error { return nil }},
		{"kill -9 of daemon 0", func() error { f.replicas[0].end(syscall.SIGKILL); return nil }},
		{"daemon 0 is started again", func() error { return f.start(ctx, 0) }},
		{"daemon 1 stands still for twice its lease, and wakes", func() error {
			f.replicas[1].signal(syscall.SIGSTOP)
			wait(ctx, 2*lease)
			f.replicas[1].signal(syscall.SIGCONT)
			return nil
		}},
		{"the primary is killed, the standby promoted", func() error { primary.Kill(); return standby.Promote() }},
		{"kill -9 of both daemons, which are started again", func() error {
			f.kill()
			return errors.Join(f.start(ctx, 0), f.start(ctx, 1))
		}},
	} {
		if err := blow.strike(); err != nil {
			return 0, fmt.Errorf("%s: %w", blow.what, err)
		}
		wait(ctx, stand)
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		fmt.Fprintf(out, "%-54s %6d answered so far\n", blow.what, load.answers())
	}
	load.stop()
	t, err := load.count(ctx, bank)
	if err != nil {
		return 0, err
	}
	fmt.Fprint(out, "\n", t)
	return t.bad(), nil
}

// servers starts a primary and its synchronous standby, with the tables.
func servers() (primary, standby *pgserver.Server, err error) {
	dir, err := pgserver.Place()
	if err != nil {
		return nil, nil, err
	}
	if primary, err = pgserver.New(filepath.Join(dir, "a")); err != nil {
		return nil, nil, err
	}
	if standby, err = primary.NewStandby(filepath.Join(dir, "b"), "b"); err == nil {
		err = errors.Join(primary.Synchronous(standby), postgres.Migrate(context.Background(), pgserver.DSN(primary)))
	}
	if err != nil {
		return nil, nil, errors.Join(err, primary.Remove())
	}
	return primary, standby, nil
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

package serving_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/runtime/client"
)

const struckConfig = `
allow_all = true

[approval]
self = true

[store]
shard = %d
lease = %q
patience = "8s"
require_sync = %v

[[server]]
id = "pay"
type = "http"
url = "%s/%d"
concurrency = 64
breaker = { failures = 100000 }

[[server]]
id = "remote"
type = "external"

[[tool]]
server = "remote"
name = "pay"
permit_time = "2s"

[[tool]]
server = "pay"
name = "opaque"

[[tool]]
server = "pay"
name = "charge"
licence = "dedupe_key"
window = "24h"
`

// struckLease is shorter than what a fault may last.
const struckLease = 1500 * time.Millisecond

// struck is one replica of the fleet: a daemon, started again and again, with ways of its own to
// the servers.
type struck struct {
	*client.Client
	index int
	dir   string
	args  []string
	ways  []*way // one for each server that there may be
	since time.Time

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{}
	stops []span // in which it stood still
}

type span struct{ from, to time.Duration }

func newStruck(t *testing.T, dir string, index int, shard int32, slots int, sync bool, tools *journal) *struck {
	t.Helper()
	r := &struck{index: index, dir: filepath.Join(dir, fmt.Sprint(index)), since: tools.began, ended: make(chan struct{})}
	close(r.ended)
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var hosts []string
	for i := range slots {
		at := filepath.Join(r.dir, fmt.Sprint("db", i))
		r.ways, hosts = append(r.ways, newWay(t, at)), append(hosts, at)
	}
	q := url.Values{"host": {strings.Join(hosts, ",")}, "connect_timeout": {"2"}, "target_session_attrs": {"read-write"}}
	config := filepath.Join(r.dir, "tgad.toml")
	if err := os.WriteFile(config, fmt.Appendf(nil, struckConfig, shard, struckLease, sync, tools.URL, index), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(r.dir, "s", "s")
	r.args = []string{"serve", "--store", "postgres://owner@/postgres?" + q.Encode(), "--config", config, "--socket", socket}
	r.Client = client.New(socket, client.Options{Name: "trial", MaxIdle: 64})
	t.Cleanup(func() {
		r.Close()
		r.end(syscall.SIGKILL)
		if t.Failed() {
			said, err := os.ReadFile(r.log())
			t.Logf("replica %d: %v\n%s", index, err, said[max(0, len(said)-8000):])
		}
	})
	return r
}

func (r *struck) log() string { return filepath.Join(r.dir, "log") }

// start has the daemon run and waits until it is ready. One that finds no server ends: it is started again.
func (r *struck) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for tries := 0; ; {
		select {
		case <-r.ended:
			if tries > 0 {
				time.Sleep(300 * time.Millisecond)
			}
			if err := r.run(); err != nil {
				return err
			}
			tries++
		default:
		}
		if ask(ctx, time.Second, r.Ready) == nil {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("replica %d is not ready: %w", r.index, ctx.Err())
		}
	}
}

// ask makes a request that may take so long.
func ask(ctx context.Context, most time.Duration, what func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return what(ctx)
}

func (r *struck) run() error {
	log, err := os.OpenFile(r.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cmd = program(r.args...)
	r.cmd.Stderr = log
	if err := r.cmd.Start(); err != nil {
		return err
	}
	cmd, ended := r.cmd, make(chan struct{})
	r.ended = ended
	go func() {
		_ = cmd.Wait() // it is killed, or found no server
		close(ended)
	}()
	return nil
}

func (r *struck) signal(sig syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd != nil {
		_ = r.cmd.Process.Signal(sig) // it may have ended
	}
}

// end ends the daemon; SIGTERM lets it finish what it has begun.
func (r *struck) end(sig syscall.Signal) {
	r.signal(sig)
	select {
	case <-r.ended:
	case <-time.After(10 * time.Second):
		r.signal(syscall.SIGKILL)
		<-r.ended
	}
}

// standStill stops the daemon until wait returns.
func (r *struck) standStill(wait func()) {
	from := time.Since(r.since)
	r.signal(syscall.SIGSTOP)
	wait()
	r.mu.Lock()
	r.stops = append(r.stops, span{from, time.Since(r.since)})
	r.mu.Unlock()
	r.signal(syscall.SIGCONT)
}

// woken reports whether it had just woken, at a moment, from a stand longer than the half of its lease.
func (r *struck) woken(at time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.stops {
		if s.to <= at && at < s.to+100*time.Millisecond && s.to-s.from > struckLease/2 {
			return true
		}
	}
	return false
}

func (r *struck) eachWay(change func(*way)) {
	for _, w := range r.ways {
		w.set(func() { change(w) })
	}
}

func (r *struck) heal() {
	for _, w := range r.ways {
		w.heal()
	}
}

// servers are those of a trial, and where the replicas find them.
type servers struct {
	shard    int32
	replicas []*struck

	mu      sync.Mutex
	own     bool               // nobody else uses them
	dir     string             // where new ones are made
	slots   []*pgserver.Server // by the way that leads there
	primary int                // its slot; the other one is its synchronous standby
	made    int
}

// lead has every way go to the servers that there are.
func (s *servers) lead() {
	for _, r := range s.replicas {
		for i, w := range r.ways {
			w.leadTo(filepath.Join(s.slots[i].Dir, socketName))
		}
	}
}

// slot is that of the primary.
func (s *servers) slot() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.primary
}

func (s *servers) now() (primary, standby *pgserver.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.slots) == 1 {
		return s.slots[0], nil
	}
	return s.slots[s.primary], s.slots[1-s.primary]
}

// newStandby makes a synchronous standby of the primary, in the place of the server that is gone.
func (s *servers) newStandby() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	primary := s.slots[s.primary]
	b, err := primary.NewStandby(filepath.Join(s.dir, fmt.Sprint("s", s.made)), fmt.Sprint("s", s.made))
	if err != nil {
		return err
	}
	if len(s.slots) == 1 {
		s.slots = append(s.slots, nil)
	}
	s.slots[1-s.primary] = b
	s.lead()
	return primary.Synchronous(b)
}

// promote makes a primary of the standby of one that has ended.
func (s *servers) promote() error {
	primary, standby := s.now()
	if err := errors.Join(standby.Promote(), primary.Remove()); err != nil {
		return err
	}
	s.mu.Lock()
	s.primary = 1 - s.primary
	s.mu.Unlock()
	return s.newStandby()
}

// said is the end of what each server has said.
func (s *servers) said() (all string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.slots {
		text, err := os.ReadFile(filepath.Join(x.Dir, "log"))
		all += fmt.Sprintf("server %s: %v\n%s\n", x.Dir, err, text[max(0, len(text)-3000):])
	}
	return all
}

func (s *servers) remove() error {
	var errs []error
	for _, x := range s.slots {
		errs = append(errs, x.Remove())
	}
	return errors.Join(errs...)
}

package postgres_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// A replica is this test's own program, run again as a process of a fleet: it makes one call, and
// says where it is before it goes on.

const replicaEnv = "TGAD_TEST_REPLICA"

// task is what a replica is to do.
type task struct {
	DSN, Tools, Key, Point string
	Shard                  int32
	Lease                  time.Duration
	Namespace              string // of the call
	Routed                 bool   // it finds the store of the namespace wherever it is
	From, To               string // it makes no call, but moves the store, and waits before the step that is its point
}

// Points of a call at which a replica waits to be told to go on.
const (
	beforeReservation = "before the reservation"
	afterReservation  = "after the reservation"
	beforeSend        = "before the first byte"
	afterSend         = "after the answer"
)

func replica(text string) error {
	var k task
	if err := json.Unmarshal([]byte(text), &k); err != nil {
		return err
	}
	in := bufio.NewReader(os.Stdin)
	at := func(point string) {
		if point == k.Point {
			k.Point = "" // once
			fmt.Println("at", point)
			_, _ = in.ReadString('\n') // the end of the input lets it go on too
		}
	}
	o := postgres.Options{Shard: k.Shard, Lease: k.Lease, Logger: slog.New(slog.DiscardHandler)}
	if k.To != "" {
		_, err := postgres.Move(bg, o, postgres.Moving{Namespace: k.Namespace, From: k.From, To: k.To, Drain: 50 * time.Millisecond, Step: func(step string) error {
			at(step)
			return nil
		}})
		fmt.Println("moved", err)
		return nil
	}
	s, err := k.open(o)
	if err != nil {
		return err
	}
	rt, err := runtime.New(pausing{s, at}, way{k.Tools, at}, runtime.AllowAll, runtime.Options{})
	if err != nil {
		return err
	}
	res, err := rt.Call(bg, runtime.Request{Namespace: k.Namespace, Server: "payments", Tool: "charge", Key: k.Key})
	fmt.Println("ended", res.State, tga.CodeOf(err))
	return s.Close()
}

func (k *task) open(o postgres.Options) (*postgres.Store, error) {
	if !k.Routed {
		return postgres.Open(bg, k.DSN, o)
	}
	all, err := postgres.OpenShards(bg, k.DSN, o)
	if err != nil {
		return nil, err
	}
	return all.Store(bg, k.Namespace)
}

type pausing struct {
	runtime.Store
	at func(string)
}

// Append implements [runtime.Store].
func (p pausing) Append(ctx context.Context, lease chain.Lease, b chain.Batch) (chain.Appended, error) {
	reserves := false
	for _, a := range b.Artifacts {
		reserves = reserves || a.Artifact.Type == tga.CallType
	}
	if reserves {
		p.at(beforeReservation)
	}
	done, err := p.Store.Append(ctx, lease, b)
	if reserves && err == nil {
		p.at(afterReservation)
	}
	return done, err
}

// way is the way to the tools, over a socket.
type way struct {
	socket string
	at     func(string)
}

// Dispatch implements [runtime.Dispatcher].
func (w way) Dispatch(ctx context.Context, call runtime.Call) (runtime.Reply, error) {
	w.at(beforeSend)
	if ctx.Err() != nil {
		return runtime.Reply{}, errors.Join(ctx.Err(), runtime.ErrNotSent)
	}
	c := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", w.socket)
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://tools/", strings.NewReader(call.Key))
	if err != nil {
		return runtime.Reply{}, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return runtime.Reply{}, err
	}
	w.at(afterSend)
	return runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{}`)}, resp.Body.Close()
}

// serve makes the tools reachable for replicas.
func (o *outside) serve(t testing.TB) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "tools")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		key, err := io.ReadAll(r.Body)
		if err == nil {
			_, _ = o.Dispatch(r.Context(), runtime.Call{Key: string(key)})
		}
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return socket
}

// child is a running replica.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(t testing.TB, k task) *child {
	t.Helper()
	text, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), replicaEnv+"="+string(text))
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.cmd.StdoutPipe()
	if err == nil {
		c.in, err = c.cmd.StdinPipe()
	}
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	return c
}

func (c *child) line(t testing.TB) string {
	t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the replica ended: %v", err)
	}
	return strings.TrimSpace(line)
}

func (c *child) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// TestReplicaThatStoodStill: a replica stops at a point of its call for longer than its lease.
// Another replica takes the key, and a person says that the first has sent nothing, which is so.
// When the first goes on, it sends nothing. It appends nothing but the answer of its tool, if it has that
// already and nobody has ended the call.
func TestReplicaThatStoodStill(t *testing.T) {
	for _, point := range []string{beforeReservation, afterReservation, beforeSend, afterSend} {
		for _, ends := range []bool{false, true} {
			name := point + ", stopped"
			if ends {
				name = point + ", killed"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				stoodStill(t, point, ends)
			})
		}
	}
}

func stoodStill(t *testing.T, point string, ends bool) {
	dsn, shard := database(t)
	const lease = 1500 * time.Millisecond
	tools := &outside{sends: map[string]int{}}
	c := start(t, task{DSN: dsn, Tools: tools.serve(t), Key: "k", Point: point, Shard: shard, Lease: lease})
	s := open(t, dsn, postgres.Options{Shard: shard, Lease: lease})
	rt := governed(t, s, tools)
	if got := c.line(t); got != "at "+point {
		t.Fatalf("the replica says %q", got)
	}
	if ends {
		c.signal(t, syscall.SIGKILL)
	} else {
		c.signal(t, syscall.SIGSTOP)
	}
	ctx, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	request := runtime.Request{Server: "payments", Tool: "charge", Key: "k"}
	res, err := rt.Call(ctx, request)
	if point != beforeReservation {
		var e *tga.Error
		if !errors.As(err, &e) || e.Code != tga.EffectInDoubt {
			t.Fatalf("the other replica: %v, %v; want in doubt", res.State, err)
		}
	} else if err != nil {
		t.Fatalf("the other replica: %v", err)
	}
	if point == afterReservation || point == beforeSend {
		notSentBy(t, ctx, s, rt)
		request.Retry = true
		if res, err = rt.Call(ctx, request); err != nil || res.State != tga.Completed {
			t.Fatalf("after a person said that it was not sent: %v, %v", res.State, err)
		}
	}
	if !ends {
		c.signal(t, syscall.SIGCONT)
		time.Sleep(100 * time.Millisecond) // for its timers
		if _, err := c.in.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
		// It gets the answer that the other replica recorded, or is told that it lost the trace. If it has the
		// answer itself, and nobody has ended the call, that answer ends it.
		got := c.line(t)
		completed := strings.HasPrefix(got, "ended COMPLETED")
		if !strings.HasPrefix(got, "ended") || point == afterSend && !completed || (point == afterReservation || point == beforeSend) && completed {
			t.Errorf("the replica that stood still %q", got)
		}
	}
	if n := tools.of("k"); n != 1 {
		t.Errorf("sent %d times", n)
	}
}

// notSentBy says of the one call in doubt that it was not sent.
func notSentBy(t *testing.T, ctx context.Context, s *postgres.Store, rt *runtime.Runtime) {
	t.Helper()
	for o, err := range s.OpenTraces(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if o.State != tga.Executing {
			continue
		}
		_, err := rt.Resolve(ctx, o.TraceID, runtime.Resolution{
			Reply: runtime.Reply{Status: tga.StatusFailure, Class: ledger.ClassRetryable, ErrorCode: "X", ErrorMessage: "looked at the tool"},
			Who:   "a person", Evidence: []byte(`{"seen":0}`),
		})
		if err != nil {
			t.Fatalf("resolve: %v", err)
		}
		return
	}
	t.Fatal("no call is in doubt")
}

// TestSendEndsWithItsLease: a process that can no longer reach the database ends its sends before
// another process may take their traces.
func TestSendEndsWithItsLease(t *testing.T) {
	p := migrated(t)
	const lease = 3 * time.Second // a busy machine keeps a process from renewing for a second
	s := open(t, pgserver.DSN(p), postgres.Options{Lease: lease, Patience: time.Second, Logger: slog.New(slog.DiscardHandler)})
	b, l := begun(t, s)
	if !s.Current(l) {
		t.Fatal("it is not current")
	}
	ctx, cancel := s.While(bg, l)
	defer cancel()
	time.Sleep(2 * lease)
	if ctx.Err() != nil {
		t.Errorf("it ended while the session was renewed: %v", context.Cause(ctx))
	}
	p.Signal(syscall.SIGSTOP)
	wake := sync.OnceFunc(func() { p.Signal(syscall.SIGCONT) })
	defer wake()
	select {
	case <-ctx.Done():
	case <-time.After(lease): // the database has not heard for as long
		t.Error("the send goes on, and its lease is over")
	}
	if s.Current(l) {
		t.Error("it is current, and nobody could be asked")
	}
	wake()
	until(t, "the session", func() bool { return s.Current(l) }) // nobody has taken it
	if _, err := s.Append(bg, l, b.End(tga.StatusSuccess)); err != nil {
		t.Error(err)
	}
}

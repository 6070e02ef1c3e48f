package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// callers are those of a namespace that moves, and what they were told.
type callers struct {
	x     *moving
	tools *outside

	mu       sync.Mutex
	answered map[string]bool // true: acknowledged; false: in doubt
	keys     []string
}

// call asks one process after the other for a key, until one of them knows what became of it.
func (l *callers) call(ctx context.Context, key string, processes []*runtime.Runtime) {
	l.mu.Lock()
	l.keys = append(l.keys, key)
	l.mu.Unlock()
	for ctx.Err() == nil {
		ask, cancel := context.WithTimeout(ctx, 4*shortLease)
		res, err := processes[rand.N(len(processes))].Call(ask, l.x.charge(key))
		cancel()
		if err == nil && res.State == tga.Completed || errors.Is(err, tga.EffectInDoubt) {
			l.mu.Lock()
			l.answered[key] = err == nil
			l.mu.Unlock()
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// freeze starts processes that make a call at a shard, each with a key of its own, and stops each at another point of it.
func (l *callers) freeze(t *testing.T, at *pgserver.Server, round int) (frozen []*child) {
	t.Helper()
	points := []string{beforeReservation, afterReservation, beforeSend, afterSend}
	if !serial.Whole() {
		points = points[:0] // TestProcessThatStoodStillOverAMove has two
	}
	for i, point := range points {
		key := fmt.Sprint("frozen ", round, point)
		c := start(t, task{DSN: pgserver.DSN(at), Tools: l.tools.serve(t), Key: key, Namespace: l.x.namespace, Routed: (i+round)%2 == 0, Point: point, Shard: l.x.store, Lease: shortLease})
		if got := c.line(t); got != "at "+point {
			t.Fatalf("the process says %q", got)
		}
		c.signal(t, syscall.SIGSTOP)
		l.mu.Lock()
		l.keys = append(l.keys, key)
		l.mu.Unlock()
		frozen = append(frozen, c)
	}
	return frozen
}

// rounds is how often the store moves.
func rounds() int {
	if serial.Whole() {
		return 12
	}
	return 1
}

// judge asks for every key once more.
func (l *callers) judge(t *testing.T, rt *runtime.Runtime) {
	t.Helper()
	doubt := 0
	for _, key := range l.keys {
		res, err := rt.Call(bg, l.x.charge(key))
		switch n := l.tools.of(key); {
		case n > 1:
			t.Errorf("%s was sent %d times", key, n)
		case err == nil && res.State == tga.Completed && n == 1:
		case errors.Is(err, tga.EffectInDoubt) && !l.answered[key]:
			doubt++
		default:
			t.Errorf("%s: %v, %v; sent %d times, acknowledged %v", key, res.State, err, n, l.answered[key])
		}
	}
	t.Logf("%d keys, %d in doubt", len(l.keys), doubt)
	if len(l.keys) < 20 {
		t.Errorf("only %d keys", len(l.keys))
	}
}

// TestCallsGoOnOverAMove: a namespace moves and its callers go on. The mover is killed before each of its steps and started
// again; make accept kills servers beside it. Some callers ask a process that knows nothing of the move, and one that has the routes of before and finds no
// other shard. No key is sent twice, no acknowledged answer is lost, and the calls of other namespaces never stop.
func TestCallsGoOnOverAMove(t *testing.T) {
	x := newMoving(t)
	tools := &outside{sends: map[string]int{}, hold: time.Millisecond}
	l := &callers{x: x, tools: tools, answered: map[string]bool{}}
	var processes []*runtime.Runtime
	var others []runtime.Request
	var all *postgres.Shards
	for range 2 {
		var s *postgres.Store
		all, s = x.routed()
		processes = append(processes, governed(t, s, tools))
	}
	processes = append(processes, governed(t, x.bound(x.one), tools)) // knows one shard
	still := map[string]*runtime.Runtime{}
	for _, shard := range []string{"one", "two"} {
		namespace := x.namespace + "-still-" + shard
		x.place(namespace, shard)
		all.Refresh(bg)
		s, err := all.Store(bg, namespace)
		if err != nil {
			t.Fatal(err)
		}
		still[namespace] = governed(t, s, tools)
		others = append(others, runtime.Request{Namespace: namespace, Server: "payments", Tool: "charge"})
	}

	ctx, stop := context.WithCancel(bg)
	hard, end := context.WithCancel(bg) // of calls that are to come to their ends
	t.Cleanup(func() { stop(); end() })
	var asking sync.WaitGroup
	var n, elsewhere, struck atomic.Int64 // struck: when a server was killed last
	for range 4 {
		asking.Go(func() {
			for ctx.Err() == nil {
				l.call(hard, fmt.Sprint("key ", n.Add(1)), processes)
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	for _, request := range others {
		asking.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				request.Key = fmt.Sprint(request.Namespace, i)
				ask, cancel := context.WithTimeout(bg, shortLease)
				if res, err := still[request.Namespace].Call(ask, request); (err != nil || res.State != tga.Completed) && time.Since(time.Unix(struck.Load(), 0)) > 20*time.Second {
					t.Errorf("a namespace that does not move: %v, %v", res.State, err)
				}
				cancel()
				elsewhere.Add(1)
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	steps := []string{"prepare", "follow", "leave", "fence", "copy", "compare", "wait", "take", "tell"}
	killed, servers := 0, 0
	for round := range rounds() {
		m, from := x.there(), x.one
		if round%2 == 1 {
			m, from = x.back(), x.two
		}
		frozen := l.freeze(t, from, round)
		for _, step := range steps {
			if round > 1 && rand.N(3) > 0 { // each step in the first two
				continue
			}
			c := start(t, task{From: m.From, To: m.To, Namespace: m.Namespace, Point: step})
			got := c.line(t)
			if got == "moved <nil>" && servers > 0 { // one of those that went on came to its end
				continue
			}
			if got != "at "+step {
				t.Fatalf("the mover says %q", got)
			}
			if step == "wait" || step == "take" {
				before := elsewhere.Load()
				until(t, "calls of other namespaces while the store is nowhere", func() bool { return elsewhere.Load() > before+10 })
			}
			if serial.Whole() && round > 1 && rand.N(2) == 0 { // a server too, in the middle of it
				struck.Store(time.Now().Unix())
				server := []*pgserver.Server{x.one, x.two}[rand.N(2)]
				if _, err := c.in.Write([]byte("\n")); err != nil {
					t.Fatal(err)
				}
				time.Sleep(rand.N(50 * time.Millisecond))
				server.Kill()
				if err := server.Start(); err != nil {
					t.Fatal(err)
				}
				servers++
			}
			c.signal(t, syscall.SIGKILL)
			killed++
		}
		if got := start(t, task{From: m.From, To: m.To, Namespace: m.Namespace}).line(t); got != "moved <nil>" {
			t.Fatalf("the mover %q", got)
		}
		before := n.Load()
		until(t, "calls after the move", func() bool { return n.Load() > before+10 })
		for _, c := range frozen {
			c.signal(t, syscall.SIGCONT)
			if _, err := c.in.Write([]byte("\n")); err != nil {
				t.Fatal(err)
			}
			c.line(t)
		}
	}
	t.Logf("%d moves, movers killed %d times, servers %d times, %d calls of other namespaces", rounds(), killed, servers, elsewhere.Load())
	stop()
	processes[2] = processes[0]
	asking.Wait()
	l.judge(t, processes[1])
	if rep, err := all.Store(bg, x.namespace); err != nil {
		t.Error(err)
	} else if rep, err := rep.Fleet().Check(bg); err != nil || len(rep.Problems) > 0 {
		t.Errorf("check: %+v, %v", rep, err)
	}
}

// TestProcessThatStoodStillOverAMove: a process stops at a point of its call, and its store moves meanwhile. On the new shard the
// holder of the call counts as gone, and a person says, correctly, that nothing was sent. When the process continues, it sends
// nothing, whether it knows of shards or not. It appends nothing but the answer of its tool, if it has that already, and finds the
// store where it is now.
func TestProcessThatStoodStillOverAMove(t *testing.T) {
	for _, point := range []string{beforeReservation, afterReservation, beforeSend, afterSend} {
		for _, routed := range []bool{false, true} {
			if !serial.Whole() && (point == beforeSend) == routed || !serial.Whole() && strings.Contains("before the reservation, after the answer", point) {
				continue
			}
			t.Run(fmt.Sprint(point, ", routed ", routed), func(t *testing.T) {
				t.Parallel()
				stoodStillOverAMove(t, point, routed)
			})
		}
	}
}

func stoodStillOverAMove(t *testing.T, point string, routed bool) {
	x := newMoving(t)
	tools := &outside{sends: map[string]int{}}
	c := start(t, task{DSN: pgserver.DSN(x.one), Tools: tools.serve(t), Key: "k", Namespace: x.namespace, Routed: routed, Point: point, Shard: x.store, Lease: shortLease})
	if got := c.line(t); got != "at "+point {
		t.Fatalf("the process says %q", got)
	}
	c.signal(t, syscall.SIGSTOP)
	x.moved(x.there())
	s := x.bound(x.two)
	rt := governed(t, s, tools)
	ctx, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	request := x.charge("k")
	res, err := rt.Call(ctx, request)
	if point != beforeReservation && !errors.Is(err, tga.EffectInDoubt) || point == beforeReservation && err != nil {
		t.Fatalf("where the store is now: %v, %v", res.State, err)
	}
	if point == afterReservation || point == beforeSend {
		notSentBy(t, ctx, s, rt)
		request.Retry = true
		if res, err = rt.Call(ctx, request); err != nil || res.State != tga.Completed {
			t.Fatalf("after a person said that it was not sent: %v, %v", res.State, err)
		}
	}
	c.signal(t, syscall.SIGCONT)
	time.Sleep(100 * time.Millisecond) // for its timers
	if _, err := c.in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	got := c.line(t)
	completed := strings.HasPrefix(got, "ended COMPLETED")
	if !strings.HasPrefix(got, "ended") || completed && point != beforeReservation && point != afterSend || point == afterSend && completed != routed {
		t.Errorf("the process that stood still %q", got)
	}
	if n := tools.of("k"); n != 1 {
		t.Errorf("sent %d times", n)
	}
}

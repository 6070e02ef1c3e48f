package serving_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
)

// blow is one kind of fault, and how often it comes beside the others.
type blow struct {
	name   string
	weight int
	strike func(ctx context.Context, x *trial, r *struck, rng *rand.Rand) error
}

// toReplicas are the faults of a replica and of its network.
var toReplicas = []blow{
	{"kill -9 of a replica", 4, func(ctx context.Context, x *trial, r *struck, rng *rand.Rand) error {
		r.end(syscall.SIGKILL)
		time.Sleep(between(rng, 0, 500*time.Millisecond))
		return r.start(ctx)
	}},
	{"SIGTERM of a replica", 1, func(ctx context.Context, x *trial, r *struck, rng *rand.Rand) error {
		r.end(syscall.SIGTERM)
		return r.start(ctx)
	}},
	{"SIGSTOP of a replica", 6, func(_ context.Context, x *trial, r *struck, rng *rand.Rand) error {
		r.standStill(func() { time.Sleep(spell(rng)) })
		return nil
	}},
	{"SIGSTOP of a replica that is being answered", 4, func(_ context.Context, x *trial, r *struck, rng *rand.Rand) error {
		// What it has reserved is committed, and the answer is the first thing that it finds when it wakes.
		primary := x.servers.slot()
		select {
		case <-r.ways[primary].holdsAnswers():
			time.Sleep(between(rng, 20*time.Millisecond, 100*time.Millisecond))
		case <-time.After(time.Second):
		}
		wakes := time.AfterFunc(50*time.Millisecond, r.heal)
		defer wakes.Stop()
		r.standStill(func() { time.Sleep(between(rng, struckLease*2, struckLease*4)) })
		return nil
	}},
	{"cut of a replica from the database", 4, network(func(w *way) { w.cut = true })},
	{"cut of a moment", 4, func(_ context.Context, x *trial, r *struck, rng *rand.Rand) error {
		r.eachWay(func(w *way) { w.cut = true })
		r.heal()
		return nil
	}},
	{"loss towards the database", 3, network(func(w *way) { w.drops[toServer] = true })},
	{"loss towards the replica", 3, network(func(w *way) { w.drops[toReplica] = true })},
	{"delay towards the database", 3, network(func(w *way) { w.holds[toServer] = true })},
	{"delay towards the replica", 3, network(func(w *way) { w.holds[toReplica] = true })},
	{"kill -9 of a replica whose bytes come later", 2, func(ctx context.Context, x *trial, r *struck, rng *rand.Rand) error {
		r.eachWay(func(w *way) { w.holds[toServer] = true })
		time.Sleep(between(rng, 5*time.Millisecond, 50*time.Millisecond))
		r.end(syscall.SIGKILL)
		time.Sleep(spell(rng))
		r.heal()
		return r.start(ctx)
	}},
}

// network is a fault of the network that is over after a while.
func network(change func(*way)) func(context.Context, *trial, *struck, *rand.Rand) error {
	return func(_ context.Context, x *trial, r *struck, rng *rand.Rand) error {
		r.eachWay(change)
		time.Sleep(spell(rng))
		r.heal()
		return nil
	}
}

const ownBackends = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND query LIKE '%tgad.%'"

// toServers are faults of the database that others who use it do not feel.
var toServers = []blow{
	{"end of a backend", 8, func(_ context.Context, x *trial, _ *struck, rng *rand.Rand) error {
		return x.onPrimary("SELECT pg_terminate_backend(pid) " + ownBackends + " ORDER BY random() LIMIT 1")
	}},
	{"cancelled statements", 4, func(_ context.Context, x *trial, _ *struck, rng *rand.Rand) error {
		return x.onPrimary("SELECT count(pg_cancel_backend(pid)) " + ownBackends)
	}},
}

// toOwnServers are those faults of servers that others would feel.
var toOwnServers = []blow{
	{"end of the commits that wait for the standby", 4, withoutStandby(func(x *trial, rng *rand.Rand) error {
		return x.onPrimary("SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
	})},
	{"kill -9 of a backend", 4, func(_ context.Context, x *trial, _ *struck, rng *rand.Rand) error {
		p, _ := x.servers.now()
		if pids := p.Processes(); len(pids) > 0 {
			_ = syscall.Kill(pids[rng.IntN(len(pids))], syscall.SIGKILL) // it may have ended
		}
		return nil
	}},
	{"SIGSTOP of the server", 3, func(_ context.Context, x *trial, _ *struck, rng *rand.Rand) error {
		p, _ := x.servers.now()
		p.Signal(syscall.SIGSTOP)
		time.Sleep(spell(rng))
		p.Signal(syscall.SIGCONT)
		return nil
	}},
	{"stop of the server without a checkpoint, and start", 3, restart((*pgserver.Server).Stop)},
	{"kill -9 of the server, and start", 3, restart(func(p *pgserver.Server) error { p.Kill(); return nil })},
	{"standby away", 3, withoutStandby(func(x *trial, rng *rand.Rand) error {
		time.Sleep(spell(rng))
		return nil
	})},
	{"restart of the server while the standby is away", 2, withoutStandby(func(x *trial, rng *rand.Rand) error {
		p, _ := x.servers.now()
		p.Kill()
		if err := p.Start(); err != nil {
			return err
		}
		time.Sleep(spell(rng))
		return nil
	})},
	{"kill -9 of the primary, promotion of the standby", 2, func(_ context.Context, x *trial, _ *struck, rng *rand.Rand) error {
		p, _ := x.servers.now()
		p.Kill()
		return x.servers.promote()
	}},
	{"restart of the primary without a standby, then promotion", 1, func(_ context.Context, x *trial, _ *struck, rng *rand.Rand) error {
		// What waits for the standby becomes visible by the restart, and the standby never has it.
		p, b := x.servers.now()
		if err := b.Stop(); err != nil {
			return err
		}
		time.Sleep(between(rng, 20*time.Millisecond, 200*time.Millisecond))
		p.Kill()
		if err := p.Start(); err != nil {
			return err
		}
		time.Sleep(spell(rng))
		p.Kill()
		if err := b.Start(); err != nil {
			return err
		}
		return x.servers.promote()
	}},
}

func restart(end func(*pgserver.Server) error) func(context.Context, *trial, *struck, *rand.Rand) error {
	return func(_ context.Context, x *trial, _ *struck, rng *rand.Rand) error {
		p, _ := x.servers.now()
		if err := end(p); err != nil {
			return err
		}
		time.Sleep(between(rng, 0, 300*time.Millisecond))
		return p.Start()
	}
}

// withoutStandby ends the standby with SIGKILL, and starts it again afterwards.
func withoutStandby(meanwhile func(*trial, *rand.Rand) error) func(context.Context, *trial, *struck, *rand.Rand) error {
	return func(_ context.Context, x *trial, _ *struck, rng *rand.Rand) error {
		_, b := x.servers.now()
		b.Kill()
		time.Sleep(between(rng, 20*time.Millisecond, 200*time.Millisecond))
		if err := meanwhile(x, rng); err != nil {
			return err
		}
		return b.Start()
	}
}

// onPrimary runs a statement on a server that may be about to start.
func (x *trial) onPrimary(statement string) error {
	p, _ := x.servers.now()
	var err error
	for range 100 {
		if err = p.Exec(statement); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("%s: %w", statement, err)
}

func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)))
}

// spell is how long a fault lasts: often so short that no lease ends, often longer than that.
func spell(rng *rand.Rand) time.Duration {
	if rng.IntN(5) == 0 {
		return between(rng, struckLease*3/4, struckLease*9/4)
	}
	return between(rng, 10*time.Millisecond, 250*time.Millisecond)
}

// pick chooses one of several by their weights.
func pick(list []blow, rng *rand.Rand) blow {
	all := 0
	for _, b := range list {
		all += b.weight
	}
	n := rng.IntN(all)
	for _, b := range list {
		if n -= b.weight; n < 0 {
			return b
		}
	}
	panic("the weights are those of the sum")
}

package crashtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// shardArg is the hidden first argument of a process that is this program again, with a
// part of a tier to run. The second one is a shard.
const shardArg = "crashtest-shard"

// shard is a part of a tier for a process of its own.
type shard struct {
	Tier    string
	Seed    uint64
	Budget  time.Duration
	SaveDir string
}

// shardTime bounds the life of a process. A store that a failed write has poisoned keeps
// the goroutines of Pebble, and their memory, as long as its process: a tier that
// poisons thousands of them cannot live in one.
const shardTime = 30 * time.Second

// RunShard runs a part of a tier if the process was started for one, and then does not
// return. A program that calls [Sharded] calls it before it looks at its arguments.
func RunShard(tiers ...Tier) {
	if len(os.Args) != 3 || os.Args[1] != shardArg {
		return
	}
	var s shard
	err := json.Unmarshal([]byte(os.Args[2]), &s)
	if err == nil {
		i := slices.IndexFunc(tiers, func(t Tier) bool { return t.Name == s.Tier })
		if i < 0 {
			err = fmt.Errorf("no tier %q", s.Tier)
		} else {
			r := &Run{Seed: s.Seed, SaveDir: s.SaveDir, Deadline: time.Now().Add(s.Budget)}
			tiers[i].Run(r)
			err = json.NewEncoder(os.Stdout).Encode(Result{Seed: s.Seed, Counts: &r.Counts, Found: r.Violations()})
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, shardArg+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Sharded makes a tier that runs in processes of their own, one to a core, each with its
// own seed and for a bounded time. It needs a deadline; a run without one is run here.
func Sharded(t Tier) Tier {
	sharded := t
	sharded.Run = func(r *Run) {
		if r.Deadline.IsZero() {
			t.Run(r)
			return
		}
		var (
			wg   sync.WaitGroup
			mu   sync.Mutex
			next uint64
		)
		for range goruntime.GOMAXPROCS(0) {
			wg.Go(func() {
				for !r.Over() {
					mu.Lock()
					n := next
					next++
					mu.Unlock()
					// Seeds far apart: a tier counts on from the one that it is given.
					r.shard(shard{Tier: t.Name, Seed: r.Seed + n<<20, Budget: min(shardTime, time.Until(r.Deadline)), SaveDir: r.SaveDir})
				}
			})
		}
		wg.Wait()
		r.Say("%s: %d processes", t.Name, next)
	}
	return sharded
}

// shard runs a shard and takes in what it reached. One that does not end as it should
// is a failure: whoever kills it, counts of it are lost.
func (r *Run) shard(s shard) {
	if s.SaveDir != "" {
		s.SaveDir = fmt.Sprintf("%s/%s-%d", s.SaveDir, s.Tier, s.Seed)
	}
	fail := func(err error) {
		r.Found(Violation{Property: "setup", Detail: err.Error(), Where: fmt.Sprintf("tier %s, seed %d", s.Tier, s.Seed)})
	}
	arg, err := json.Marshal(s)
	if err != nil {
		fail(err)
		return
	}
	exe, err := os.Executable()
	if err != nil {
		fail(err)
		return
	}
	ctx, cancel := context.WithTimeout(r.context(), s.Budget+5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, shardArg, string(arg))
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=200", "GOMEMLIMIT=1500MiB")
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) } // one that hangs says where
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.Output()
	if r.context().Err() != nil {
		return // interrupted: it is no failure of the shard
	}
	if err != nil {
		fail(fmt.Errorf("a process of the tier ended by itself: %w", err))
		return
	}
	var res Result
	if err := json.Unmarshal(out, &res); err != nil {
		fail(fmt.Errorf("a process of the tier says %.200q: %w", out, err))
		return
	}
	r.Counts.Add(res.Counts)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bad += len(res.Found)
	r.found = append(r.found, res.Found...)
}

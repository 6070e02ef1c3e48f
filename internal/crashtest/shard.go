package crashtest

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	goruntime "runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// shardArg is the hidden first argument with which this program starts itself again to run
// a part of a tier. The second argument is a shard, as JSON.
const shardArg = "crashtest-shard"

// shard is a part of a tier that runs in its own process.
type shard struct {
	Tier    string
	Seed    uint64
	Budget  time.Duration
	SaveDir string
	Silence time.Duration `json:"-"` // 0 = [silence]
}

// shardTime bounds the life of a process. A store that a failed write has poisoned keeps
// Pebble's goroutines and their memory until its process ends, so a tier that poisons
// thousands of stores needs many processes.
const shardTime = 30 * time.Second

// silence is how long a shard may make no progress after its time is over before it counts
// as hung. Even a loaded machine is faster.
const silence = 3 * time.Minute

// RunShard runs a part of a tier if the process was started for one, and then does not
// return. A program that calls [Sharded] calls it before it looks at its arguments.
//
// On standard output it prints a line while it makes progress, and at its end its result.
// On SIGQUIT it saves the images that it works on, and the stacks of its goroutines.
func RunShard(tiers ...Tier) {
	if len(os.Args) != 3 || os.Args[1] != shardArg {
		return
	}
	if err := runShard(tiers, os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, shardArg+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runShard(tiers []Tier, arg string) error {
	var s shard
	if err := json.Unmarshal([]byte(arg), &s); err != nil {
		return err
	}
	i := slices.IndexFunc(tiers, func(t Tier) bool { return t.Name == s.Tier })
	if i < 0 {
		return fmt.Errorf("no tier %q", s.Tier)
	}
	r := &Run{Seed: s.Seed, SaveDir: s.SaveDir, Deadline: time.Now().Add(s.Budget)}
	quit := make(chan os.Signal, 1)
	signal.Notify(quit, syscall.SIGQUIT)
	go func() {
		<-quit
		if err := r.leave(); err != nil {
			fmt.Fprintln(os.Stderr, shardArg+":", err)
		}
		os.Exit(exitHung)
	}()
	ended, said := make(chan struct{}), make(chan error, 1)
	go func() { said <- r.sayProgress(os.Stdout, ended) }()
	tiers[i].Run(r)
	close(ended)
	if err := <-said; err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(Result{Seed: s.Seed, Counts: &r.Counts, Found: r.Violations()})
}

// exitHung is the exit code of a shard after SIGQUIT.
const exitHung = 3

// progressLine is the line that a shard prints while it makes progress.
const progressLine = "."

// sayProgress writes a line a second while there is progress, until the run has ended.
func (r *Run) sayProgress(out io.Writer, ended <-chan struct{}) error {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for before := int64(0); ; {
		select {
		case <-ended:
			return nil
		case <-second.C:
		}
		if now := r.progress.Load(); now != before {
			if _, err := fmt.Fprintln(out, progressLine); err != nil {
				return err
			}
			before = now
		}
	}
}

// at notes that an image is being worked on, until done is called.
func (r *Run) at(img Image, where string) (done func()) {
	a := &activeImage{img, where}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active == nil {
		r.active = map[*activeImage]bool{}
	}
	r.active[a] = true
	return func() {
		r.progress.Add(1)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.active, a)
	}
}

// activeImage is an image that is being worked on.
type activeImage struct {
	img   Image
	where string
}

// leave saves the images that are being worked on, and the stacks of the goroutines.
func (r *Run) leave() (err error) {
	if r.SaveDir == "" {
		return pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
	}
	if err := os.MkdirAll(r.SaveDir, 0o750); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(r.SaveDir, goroutinesFile))
	if err != nil {
		return err
	}
	err = errors.Join(pprof.Lookup("goroutine").WriteTo(f, 2), f.Close())
	r.mu.Lock() // held for good: the process ends
	n := 0
	for a := range r.active {
		n++
		err = errors.Join(err, a.img.Save(filepath.Join(r.SaveDir, fmt.Sprintf("hung-%d", n)), []Violation{{Property: hangs, Detail: "hangs", Where: a.where}}))
	}
	return err
}

// goroutinesFile is the file with the goroutines of a hung shard.
const goroutinesFile = "goroutines.txt"

// hangs is the property that a part of a run violates if it makes no progress.
const hangs = "hang"

// Sharded makes a tier that runs in separate processes, one for each core, each with its
// own seed and for a bounded time. This needs a deadline; without one the tier runs in this
// process.
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
					// Seeds far apart: a tier uses the seeds after the one that it gets.
					r.shard(shard{Tier: t.Name, Seed: r.Seed + n<<20, Budget: min(shardTime, time.Until(r.Deadline)), SaveDir: r.SaveDir})
				}
			})
		}
		wg.Wait()
		r.Say("%s: %d processes", t.Name, next)
	}
	return sharded
}

// shard runs a shard and adds its result. A shard that does not end properly is a failure,
// because its counts are lost.
func (r *Run) shard(s shard) {
	if s.SaveDir != "" {
		s.SaveDir = fmt.Sprintf("%s/%s-%d", s.SaveDir, s.Tier, s.Seed)
	}
	res, err := s.process(r.context())
	if r.context().Err() != nil {
		return // interrupted: it is no failure of the shard
	}
	if err != nil {
		v := Violation{Property: "setup", Detail: err.Error(), Where: fmt.Sprintf("tier %s, seed %d", s.Tier, s.Seed)}
		if errors.Is(err, errHung) {
			v.Property = hangs
		}
		r.Found(v)
		return
	}
	r.Counts.Add(res.Counts)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bad += len(res.Found)
	r.found = append(r.found, res.Found...)
}

var errHung = errors.New("it makes no progress")

// process runs the shard in a process of its own. If the process makes no progress long
// after its time, it gets SIGQUIT, and shortly after that it is killed.
func (s shard) process(ctx context.Context) (*Result, error) {
	arg, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, exe, shardArg, string(arg))
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=200", "GOMEMLIMIT=1500MiB")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	patient := cmp.Or(s.Silence, silence)
	deadline := time.Now().Add(s.Budget)
	var hung atomic.Bool
	watchdog := time.AfterFunc(s.Budget+patient, func() {
		hung.Store(true)
		_ = cmd.Process.Signal(syscall.SIGQUIT) // it may be at its end
		time.AfterFunc(quitTime, func() { _ = cmd.Process.Kill() })
	})
	var last []byte
	lines := bufio.NewReader(out)
	for err == nil {
		var line []byte
		if line, err = lines.ReadBytes('\n'); err == nil {
			watchdog.Reset(max(0, time.Until(deadline)) + patient)
			last = line
		}
	}
	if err = cmd.Wait(); watchdog.Stop() && err == nil {
		res := &Result{}
		if err := json.Unmarshal(last, res); err != nil || res.Counts == nil {
			return nil, fmt.Errorf("a process of the tier says %.200q: %w", last, err)
		}
		return res, nil
	}
	var exit *exec.ExitError
	if hung.Load() || errors.As(err, &exit) && exit.ExitCode() == exitHung {
		return nil, fmt.Errorf("%w for %s after its time (%s) and was told to quit: goroutines and images are in %q", errHung, patient, s.Budget, s.SaveDir)
	}
	return nil, fmt.Errorf("a process of the tier ended by itself: %w", err)
}

// quitTime is how long a shard may take after SIGQUIT to save its images and stacks.
const quitTime = 20 * time.Second

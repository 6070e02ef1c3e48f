//go:build linux

package workstate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/workstate/hostdir"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// A victim is a process with a store, a directory and a state over both. It runs a fixed
// program and is killed at a point of it: before or after the nth command of git, the
// nth append, or the nth step of a tool.

// point is where a victim dies.
type point struct {
	What string `json:"what"` // git, append, step or nothing
	N    int    `json:"n"`
	Late bool   `json:"late"` // after it rather than before
}

func (p point) String() string {
	when := "before"
	if p.Late {
		when = "after"
	}
	return fmt.Sprintf("%s-%s-%03d", p.What, when, p.N)
}

// order is the instruction to a victim.
type order struct {
	Dir     string `json:"dir"`
	ID      string `json:"id"`
	Recover bool   `json:"recover"` // only open
	Point   point  `json:"point"`
}

const victimEnv = "TGAD_WORKSTATE_VICTIM"

func TestMain(m *testing.M) {
	if text := os.Getenv(victimEnv); text != "" {
		if err := victim(text); err != nil {
			fmt.Fprintln(os.Stderr, "victim:", err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	if dir := os.Getenv(serverEnv); dir != "" {
		if err := serveMCP(dir); err != nil {
			fmt.Fprintln(os.Stderr, "server:", err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// counter counts what happens in a victim and kills it at its point.
type counter struct {
	at    point
	count map[string]int
}

func (c *counter) pass(what string, late bool) {
	if !late {
		c.count[what]++
	}
	if c.at.What == what && c.at.Late == late && c.at.N == c.count[what] {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // it does not fail on oneself
		select {}
	}
}

// counting is a store that counts appends.
type counting struct {
	runtime.Store
	c *counter
}

func (s counting) Append(ctx context.Context, l chain.Lease, b chain.Batch) (chain.Appended, error) {
	s.c.pass("append", false)
	done, err := s.Store.Append(ctx, l, b)
	s.c.pass("append", true)
	return done, err
}

// files of the directory that a generation writes; the last two come and go.
var generationFiles = []string{"a", "b/c", "b/d", ".git/HEAD", ".env", "e"}

// generation is a tool's work on every part of the state.
func generation(ctx context.Context, c *counter, n int) error {
	tx := workstate.FromContext(ctx)
	d, err := workstate.Use[*hostdir.Dir](tx)
	if err != nil {
		return err
	}
	kv, err := workstate.Use[*workstate.KV](tx)
	if err != nil {
		return err
	}
	kv.Set("generation", []byte(strconv.Itoa(n)))
	if err := workstate.Slice[Plan](tx.Session()).Replace(Plan{Objective: strconv.Itoa(n)}); err != nil {
		return err
	}
	for _, name := range generationFiles {
		c.pass("step", false)
		if err := os.WriteFile(filepath.Join(d.Path(), name), []byte(strconv.Itoa(n)), 0o644); err != nil {
			return err
		}
	}
	old, err := filepath.Glob(filepath.Join(d.Path(), "only-*"))
	if err != nil {
		return err
	}
	for _, name := range old {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	err = os.WriteFile(filepath.Join(d.Path(), fmt.Sprint("only-", n)), []byte(strconv.Itoa(n)), 0o644)
	c.pass("step", true)
	return err
}

// life is a process with the store, the directory and the state open.
type life struct {
	db    *engine.DB
	dir   *hostdir.Dir
	state *workstate.State
	rt    *runtime.Runtime
}

func begin(o order, c *counter) (*life, error) {
	id, err := tga.ParseID(o.ID)
	if err != nil {
		return nil, err
	}
	l := &life{}
	if l.db, err = engine.Open(filepath.Join(o.Dir, "store"), engine.Options{MemTableBytes: 1 << 20, FirstSegmentBytes: 64 << 10}); err != nil {
		return nil, err
	}
	git, err := killingGit(o)
	if err != nil {
		return nil, err
	}
	if l.dir, err = hostdir.Open(bg, filepath.Join(o.Dir, "work"), filepath.Join(o.Dir, "shadow"), hostdir.Options{Git: git}); err != nil {
		return nil, err
	}
	r := &workstate.Registry{}
	if err := workstate.Add(r, l.dir); err != nil {
		return nil, err
	}
	if err := workstate.Add(r, workstate.NewKV()); err != nil {
		return nil, err
	}
	if l.state, err = workstate.Open(bg, counting{l.db, c}, id, workstate.NewSession(), r, workstate.Options{}); err != nil {
		return nil, err
	}
	tools := workstate.Tools{}
	for n := range 10 {
		for _, end := range []error{nil, errNo} {
			name := fmt.Sprint("gen-", n)
			if end != nil {
				name = fmt.Sprint("bad-", n)
			}
			tools[name] = workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
				if err := generation(ctx, c, n); err != nil {
					return nil, err
				}
				return nil, end
			})
		}
	}
	l.rt, err = runtime.New(l.state.Store(), workstate.Transact(tools, l.state), runtime.AllowAll, runtime.Options{})
	return l, err
}

func (l *life) end() error {
	l.state.Close()
	if err := l.dir.Close(); err != nil {
		return err
	}
	return l.db.Close()
}

func (l *life) call(tool string) (string, error) {
	res, err := l.rt.Call(bg, runtime.Request{Server: "local", Tool: tool, Key: tool})
	return res.ToolCallID.String(), err
}

// killingGit writes a script in place of git that kills its parent at the order's point.
func killingGit(o order) (string, error) {
	git, err := exec.LookPath("git")
	if err != nil || o.Point.What != "git" {
		return git, err
	}
	script := fmt.Sprintf("#!/bin/sh\nn=$(($(cat %[1]s)+1))\necho $n > %[1]s\n[ %[2]v = false ] && [ $n = %[3]d ] && kill -9 $PPID\n%[4]s \"$@\"\nrc=$?\n[ %[2]v = true ] && [ $n = %[3]d ] && kill -9 $PPID\nexit $rc\n",
		filepath.Join(o.Dir, "count"), o.Point.Late, o.Point.N, git)
	name := filepath.Join(o.Dir, "git")
	if err := os.WriteFile(filepath.Join(o.Dir, "count"), []byte("0\n"), 0o600); err != nil {
		return "", err
	}
	return name, os.WriteFile(name, []byte(script), 0o700)
}

// victim runs the program: a call, a call that fails, another call, a rollback to before that
// one, and one more call. At its end it writes down its counts.
func victim(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	c := &counter{at: o.Point, count: map[string]int{}}
	l, err := begin(o, c)
	if err != nil {
		return err
	}
	if !o.Recover {
		for _, tool := range []string{"gen-1", "bad-2"} {
			if _, err := l.call(tool); err != nil {
				return err
			}
		}
		id, err := l.call("gen-3")
		if err != nil {
			return err
		}
		if _, err := l.state.RollbackTo(bg, id); err != nil {
			return err
		}
		if _, err := l.call("gen-4"); err != nil {
			return err
		}
	}
	if o.Point.What == "git" {
		b, err := os.ReadFile(filepath.Join(o.Dir, "count"))
		if err != nil {
			return err
		}
		if c.count["git"], err = strconv.Atoi(strings.TrimSpace(string(b))); err != nil {
			return err
		}
	}
	counts, err := json.Marshal(c.count)
	if err != nil {
		return err
	}
	if err := l.end(); err != nil {
		return err
	}
	_, err = os.Stdout.Write(counts)
	return err
}

// scene is a directory that a victim works in.
type scene struct {
	t testing.TB
	order
}

func newScene(t testing.TB) *scene {
	s := &scene{t, order{Dir: t.TempDir(), ID: newID().String()}}
	work := filepath.Join(s.Dir, "work")
	must(t, os.MkdirAll(filepath.Join(work, "b"), 0o755), os.Mkdir(filepath.Join(work, ".git"), 0o755), os.Mkdir(filepath.Join(work, "empty"), 0o750))
	for _, name := range generationFiles {
		must(t, os.WriteFile(filepath.Join(work, name), []byte("0"), 0o644))
	}
	must(t, os.WriteFile(filepath.Join(work, "only-0"), []byte("0"), 0o644))
	return s
}

// run starts a victim and returns its counts, nil if it was killed.
func (s *scene) run(p point, recover bool) map[string]int {
	s.t.Helper()
	o := s.order
	o.Point, o.Recover = p, recover
	text, err := json.Marshal(o)
	must(s.t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimEnv+"="+string(text))
	var diag strings.Builder
	cmd.Stderr = &diag
	out, err := cmd.Output()
	if err == nil {
		var counts map[string]int
		must(s.t, json.Unmarshal(out, &counts))
		return counts
	}
	if st, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !st.Signaled() || st.Signal() != syscall.SIGKILL {
		s.t.Fatalf("%v: victim: %v: %s", p, err, diag.String())
	}
	return nil
}

// check opens the state that a victim left, and compares its parts with each other and with
// the log: files, slices and map must be of the same generation, that to which the traces'
// effects lead.
func (s *scene) check() {
	s.t.Helper()
	l, err := begin(s.order, &counter{count: map[string]int{}})
	must(s.t, err)
	want := s.byTheLog(l)
	if got := inMemoryGeneration(s.t, l.state); got != want {
		s.t.Errorf("slices and map are of generation %q, the log says %q", got, want)
	}
	s.files(want)
	// The state must still be usable.
	_, err = l.call("gen-7")
	must(s.t, err)
	s.files("7")
	must(s.t, l.end())
}

func inMemoryGeneration(t testing.TB, s *workstate.State) (out string) {
	t.Helper()
	must(t, s.View(bg, func(tx *workstate.Tx) error {
		kv, err := workstate.Use[*workstate.KV](tx)
		must(t, err)
		v, _ := kv.Get("generation")
		if out = objective(t, tx.Session()); out != string(v) {
			t.Errorf("the slice is of generation %q, the map of %q", out, v)
		}
		if out == "" {
			out = "0"
		}
		return nil
	}))
	return out
}

// byTheLog follows the boundaries, and reads from the log what became of each call.
func (s *scene) byTheLog(l *life) string {
	s.t.Helper()
	now, before := "0", map[string]string{}
	for _, c := range l.state.List() {
		before[c.ID] = now
		switch c.Kind {
		case "call":
			trace, err := tga.ParseID(c.TraceID)
			must(s.t, err)
			res, err := l.rt.Result(bg, trace)
			must(s.t, err)
			if c.Open || c.Success != (res.State == tga.Completed) {
				s.t.Errorf("boundary of %s: success %v, open %v; its trace is %v", c.Name, c.Success, c.Open, res.State)
			}
			if c.Success {
				now = strings.TrimPrefix(c.Name, "gen-")
			}
		case "restore":
			if !c.Success {
				s.t.Errorf("a rollback that was begun is not carried out: %+v", c)
			} else {
				now = before[strings.TrimPrefix(c.Name, "back to before ")]
			}
		}
	}
	return now
}

// files checks that the directory is of a generation.
func (s *scene) files(want string) {
	s.t.Helper()
	work := filepath.Join(s.Dir, "work")
	for _, name := range slices.Concat(generationFiles, []string{"only-" + want}) {
		if b, err := os.ReadFile(filepath.Join(work, name)); err != nil || string(b) != want {
			s.t.Errorf("%s holds %q (%v), want %q", name, b, err, want)
		}
	}
	names, err := filepath.Glob(filepath.Join(work, "only-*"))
	must(s.t, err)
	strays, err := filepath.Glob(filepath.Join(work, ".tgad*"))
	must(s.t, err)
	if len(names) != 1 || len(strays) != 0 {
		s.t.Errorf("left over: %v %v", names, strays)
	}
	if info, err := os.Stat(filepath.Join(work, "empty")); err != nil || info.Mode().Perm() != 0o750 {
		s.t.Errorf("the empty directory: %v %v", info, err)
	}
}

// TestKilledCallIsBeforeOrAfter kills a victim with SIGKILL at points of its program, and
// again in its recovery. With TGAD_KILLS=all it takes every point.
func TestKilledCallIsBeforeOrAfter(t *testing.T) {
	whole := newScene(t)
	counts := whole.run(point{What: "git", N: -1}, false)
	whole.check()
	if counts["git"] < 10 || counts["append"] < 10 || counts["step"] < 10 {
		t.Fatalf("the program counts %v", counts)
	}
	var points []point
	for _, what := range []string{"git", "append", "step"} {
		for n := 1; n <= counts[what]; n++ {
			points = append(points, point{what, n, false})
			if what != "step" || n%len(generationFiles) == 0 {
				points = append(points, point{what, n, true})
			}
		}
	}
	every := 7
	if os.Getenv("TGAD_KILLS") == "all" {
		every = 1
	}
	for i := 0; i < len(points); i += every {
		p := points[i]
		t.Run(p.String(), func(t *testing.T) {
			s := newScene(t)
			if s.run(p, false) != nil {
				t.Fatal("it was not killed")
			}
			s.run(point{"git", 1 + i%6, i%2 == 0}, true)    // killed in its recovery, or through
			s.run(point{"append", 1 + i%2, i%3 == 0}, true) // and again
			s.check()
		})
	}
	t.Logf("%d of %d points: %v", (len(points)+every-1)/every, len(points), counts)
}

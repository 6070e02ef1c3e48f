package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/tgad/tgad/schemas/tga"
)

// room is a workspace of a test.
type room struct {
	testing.TB
	*Keeper
}

func newRoom(t testing.TB, o Options) *room {
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "work")
		if err := os.Mkdir(o.Dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	k, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return &room{t, k}
}

func (r *room) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *room) write(name, text string) {
	r.Helper()
	path := filepath.Join(r.dir, name)
	r.must(os.MkdirAll(filepath.Dir(path), 0o755))
	r.must(os.WriteFile(path, []byte(text), 0o644))
}

// tree returns the directory's files with their contents.
func (r *room) tree() string {
	r.Helper()
	var all []string
	r.must(filepath.WalkDir(r.dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		all = append(all, strings.TrimPrefix(path, r.dir+"/")+"="+string(raw))
		return err
	}))
	return strings.Join(all, " ")
}

// call makes a call that does something to the directory.
func (r *room) call(do func()) Record {
	r.Helper()
	p, err := r.Before(context.Background(), Call{TraceID: tga.ID(uuid.Must(uuid.NewV7())), Attempt: 1, Server: "files", Tool: "write"})
	r.must(err)
	do()
	r.must(p.After(context.Background(), Succeeded))
	all := r.list()
	return all[slices.IndexFunc(all, func(o Record) bool { return o.Number == p.record.Number })]
}

func (r *room) list() []Record {
	r.Helper()
	all, err := r.List(context.Background())
	r.must(err)
	return all
}

func (r *room) plan(name string) *Plan {
	r.Helper()
	p, err := r.Plan(context.Background(), name)
	r.must(err)
	return p
}

func paths(changes []Change) (list []string) {
	for _, c := range changes {
		list = append(list, string(c.Status)+" "+c.Path)
	}
	return list
}

// TestRestoreCanBeUndone: a restore returns the directory to its state before a call, leaves
// excluded paths alone, and is itself a record that can be restored from.
func TestRestoreCanBeUndone(t *testing.T) {
	r := newRoom(t, Options{Exclude: []string{"modules"}})
	r.write("a", "1")
	r.write("modules/m", "1")
	first := r.call(func() { r.write("a", "2"); r.write("b", "2") })
	second := r.call(func() { r.must(os.Remove(filepath.Join(r.dir, "a"))) })
	if got, now, err := r.Diff(context.Background(), first); err != nil || now || !slices.Equal(paths(got), []string{"M a", "A b"}) {
		t.Errorf("the first call changed %v, %v", paths(got), err)
	}
	if got, _, err := r.Diff(context.Background(), second); err != nil || !slices.Equal(paths(got), []string{"D a"}) {
		t.Errorf("the second call changed %v, %v", paths(got), err)
	}
	// The restoring process may not know the excluded paths: the record has them.
	other := newRoom(t, Options{Dir: r.dir})
	r.write("modules/m", "2")
	plan := other.plan(first.TraceID)
	if !slices.Equal(paths(plan.Changes), []string{"A a", "D b"}) || len(plan.Undone) != 2 || plan.Undone[1].Number != first.Number {
		t.Errorf("plan %v, %+v", paths(plan.Changes), plan.Undone)
	}
	was := r.tree()
	done, err := other.Restore(context.Background(), plan)
	r.must(err)
	if got := r.tree(); got != "a=1 modules/m=2" {
		t.Errorf("restored to %s", got)
	}
	_, err = other.Restore(context.Background(), other.plan(decimal(done.Number)))
	r.must(err)
	if got := r.tree(); got != was {
		t.Errorf("undone to %s, it was %s", got, was)
	}
}

// TestAttemptsAreOneCall: a call is sent twice. Its trace names both attempts together: what they changed, and what
// was before them. A number names one of them.
func TestAttemptsAreOneCall(t *testing.T) {
	r := newRoom(t, Options{})
	id := tga.ID(uuid.Must(uuid.NewV7()))
	for n, outcome := range []string{InDoubt, Succeeded} {
		p, err := r.Before(context.Background(), Call{TraceID: id, Attempt: uint32(n + 1), Server: "s", Tool: "t"})
		r.must(err)
		r.write(fmt.Sprint("attempt", n+1), "1")
		r.must(p.After(context.Background(), outcome))
	}
	for name, want := range map[string][]string{id.String(): {"A attempt1", "A attempt2"}, "1": {"A attempt1"}, "2": {"A attempt2"}} {
		call, err := Find(r.list(), name)
		r.must(err)
		if got, now, err := r.Diff(context.Background(), call); err != nil || now || !slices.Equal(paths(got), want) {
			t.Errorf("%s changed %v, %v, %v", name, paths(got), now, err)
		}
	}
	plan := r.plan(id.String())
	if len(plan.Undone) != 2 {
		t.Errorf("undone %+v", plan.Undone)
	}
	_, err := r.Restore(context.Background(), plan)
	r.must(err)
	if got := r.tree(); got != "" {
		t.Errorf("before the call there was %s", got)
	}
}

// TestRestoreIsBoundToItsPlan: whatever a person does after the plan was shown, it stays.
func TestRestoreIsBoundToItsPlan(t *testing.T) {
	r := newRoom(t, Options{})
	r.write("a", "1")
	call := r.call(func() { r.write("a", "2"); r.write("b", "2") })
	for _, c := range []struct {
		name string
		edit func()
	}{
		{"a file is written", func() { r.write("a", "3") }},
		{"a file is made", func() { r.write("c", "3") }},
		{"a file is removed", func() { r.must(os.Remove(filepath.Join(r.dir, "b"))) }},
		{"a file is executable", func() { r.must(os.Chmod(filepath.Join(r.dir, "a"), 0o755)) }},
		{"a directory is made", func() { r.must(os.Mkdir(filepath.Join(r.dir, "empty"), 0o755)) }},
		{"the directory is another", func() {
			r.must(os.Rename(r.dir, r.dir+".old"))
			r.write("x", "1")
		}},
	} {
		name := c.name
		plan := r.plan(decimal(call.Number))
		c.edit()
		was, records := r.tree(), len(r.list())
		if _, err := r.Restore(context.Background(), plan); !errors.Is(err, tga.StateConflict) {
			t.Errorf("%s: %v", name, err)
		}
		if got := r.tree(); got != was || len(r.list()) != records {
			t.Errorf("%s: refused, and %s is %s", name, was, got)
		}
	}
	_, err := r.Restore(context.Background(), r.plan(decimal(call.Number)))
	r.must(err)
	if got := r.tree(); got != "a=1" {
		t.Errorf("a new plan makes it %s", got)
	}
}

// TestOldSnapshotsAreDropped: at the limit all are kept, one past it a quarter is dropped, and
// the others can still be restored.
func TestOldSnapshotsAreDropped(t *testing.T) {
	r := newRoom(t, Options{Keep: 4})
	for n := range 4 {
		r.call(func() { r.write("a", fmt.Sprint("version ", n)) })
	}
	if all := r.list(); len(all) != 4 || all[0].Number != 1 {
		t.Fatalf("%d records from %d on", len(all), all[0].Number)
	}
	r.call(func() { r.write("a", "last") })
	all := r.list()
	if len(all) != 3 || all[0].Number != 3 || all[2].Number != 5 {
		t.Fatalf("%d records from %d on", len(all), all[0].Number)
	}
	if _, err := r.Plan(context.Background(), "2"); !errors.Is(err, tga.NotFound) {
		t.Errorf("one that was dropped: %v", err)
	}
	_, err := r.Restore(context.Background(), r.plan("3"))
	r.must(err)
	if got := r.tree(); got != "a=version 1" {
		t.Errorf("restored to %s", got)
	}
}

// TestCallThatIsNotSentHasNoRecord: dropping old snapshots fails, because the caller leaves.
func TestCallThatIsNotSentHasNoRecord(t *testing.T) {
	r := newRoom(t, Options{Keep: 1})
	r.call(func() { r.write("a", "1") })
	ctx, cancel := context.WithCancel(context.Background())
	r.step = func(name string) {
		if name == "snapshot before" {
			cancel()
		}
	}
	if _, err := r.Before(ctx, Call{TraceID: tga.ID(uuid.Must(uuid.NewV7())), Attempt: 1}); err == nil {
		t.Fatal("it may be sent")
	}
	all, err := r.Keeper.list()
	r.must(err)
	for _, c := range all {
		if c.Outcome == "" {
			t.Errorf("a record of a call that is not sent: %+v", c)
		}
	}
}

// TestProcessesTakeTurns: several keepers of one directory number their records in one sequence.
func TestProcessesTakeTurns(t *testing.T) {
	r := newRoom(t, Options{})
	other := newRoom(t, Options{Dir: r.dir})
	var wg sync.WaitGroup
	for _, k := range []*room{r, other, r, other} {
		wg.Go(func() {
			p, err := k.Before(context.Background(), Call{Server: "s", Tool: "t"})
			if err == nil {
				err = p.After(context.Background(), Failed)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	all := r.list()
	for i, a := range all {
		if a.Number != uint64(i+1) || a.Ended == 0 || a.Outcome != Failed || a.After != a.Before {
			t.Errorf("%+v", a)
		}
	}
	if len(all) != 4 {
		t.Errorf("%d records", len(all))
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	r.turn <- struct{}{}
	if _, err := r.Before(gone, Call{}); !errors.Is(err, tga.StateLockAcquireFailed) {
		t.Errorf("in use: %v", err)
	}
	<-r.turn
}

// TestLockThatCannotBeTaken: who waits for a lock waits for a process that has it. A lock that nobody has, and that cannot be taken,
// is an error at once: the call is refused, and the next one after the mend is not.
func TestLockThatCannotBeTaken(t *testing.T) {
	r := newRoom(t, Options{})
	lock := filepath.Join(r.Aside(), "snapshots", "tgad.lock")
	r.must(errors.Join(os.Remove(lock), os.Mkdir(lock, 0o700)))
	if _, err := r.Before(t.Context(), Call{}); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("with a directory in its place: %v", err)
	}
	r.must(os.Remove(lock))
	if _, err := r.Before(t.Context(), Call{TraceID: tga.ID(uuid.Must(uuid.NewV7())), Attempt: 1}); err != nil {
		t.Error(err)
	}
}

// TestBesideIsWhoRanAtTheSameTime checks all ways in which two calls can overlap in time.
func TestBesideIsWhoRanAtTheSameTime(t *testing.T) {
	me := Record{Number: 1, Began: 10, Ended: 20}
	for _, c := range []struct {
		began, ended tga.Millis
		beside       bool
	}{{1, 9, false}, {1, 10, true}, {12, 15, true}, {1, 0, true}, {20, 30, true}, {21, 30, false}, {21, 0, false}} {
		o := Record{Number: 2, Began: c.began, Ended: c.ended}
		if got := len(Beside([]Record{me, o}, me)) == 1; got != c.beside {
			t.Errorf("%d to %d beside 10 to 20: %v", c.began, c.ended, got)
		}
	}
	if len(Beside([]Record{{Number: 2, Began: 5, Ended: 9}, {Number: 3, Began: 30}}, Record{Number: 1, Began: 10})) != 1 {
		t.Error("a call that has not ended runs until now")
	}
}

// TestDamagedRecordIsAnError: the error names the record, which is never taken for another.
func TestDamagedRecordIsAnError(t *testing.T) {
	r := newRoom(t, Options{})
	r.call(func() {})
	raw, err := os.ReadFile(r.file(1))
	r.must(err)
	for name, c := range map[string]struct {
		at, text string
		code     tga.Code
	}{
		"changed":       {r.file(1), strings.Replace(string(raw), `"write"`, `"wrote"`, 1), tga.StateChecksumMismatch},
		"another's":     {r.file(2), string(raw), tga.StateChecksumMismatch},
		"cut off":       {r.file(1), string(raw[:40]), tga.StateChecksumMismatch},
		"of the future": {r.file(1), strings.Replace(string(raw), `"version":1`, `"version":2`, 1), tga.FormatTooNew},
	} {
		r.must(os.WriteFile(c.at, []byte(c.text), 0o600))
		if _, err := r.List(context.Background()); tga.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.at) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := r.Before(context.Background(), Call{}); err == nil {
			t.Errorf("%s: a call was begun", name)
		}
		r.must(errors.Join(os.RemoveAll(r.file(2)), os.WriteFile(r.file(1), raw, 0o600)))
	}
}

// TestWhatCanNotBeAWorkspace: it is refused at the start, before any call.
func TestWhatCanNotBeAWorkspace(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{
		"none":               {},
		"nothing there":      {Dir: filepath.Join(dir, "no")},
		"a file":             {Dir: file},
		"aside inside":       {Dir: dir, Aside: filepath.Join(dir, "aside")},
		"keeps less than 1":  {Dir: dir, Aside: dir + ".1", Keep: -1},
		"exclude of outside": {Dir: dir, Aside: dir + ".2", Exclude: []string{"../x"}},
	} {
		if _, err := Open(context.Background(), o); !errors.Is(err, tga.ValidationError) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// steps are the points at which a process is killed, in the order in which they come.
var steps = []string{"snapshot before", "record before", "sent", "snapshot after", "record after", "record of the restore", "restored", ""}

const stepVariable = "TGAD_TEST_STEP"

func TestMain(m *testing.M) {
	if step, ok := os.LookupEnv(stepVariable); ok {
		killedAt(step)
	}
	os.Exit(m.Run())
}

// killedAt makes a call that changes the directory, then restores the state before it, and dies
// at the given step.
func killedAt(step string) {
	ctx := context.Background()
	k, err := Open(ctx, Options{Dir: os.Args[1]})
	check := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	check(err)
	k.step = func(name string) {
		if name == step {
			check(syscall.Kill(os.Getpid(), syscall.SIGKILL))
			select {}
		}
	}
	p, err := k.Before(ctx, Call{TraceID: tga.ID(uuid.Must(uuid.NewV7())), Attempt: 1, Server: "s", Tool: "t"})
	check(err)
	check(os.WriteFile(filepath.Join(os.Args[1], "a"), []byte("2"), 0o600))
	k.step("sent")
	check(p.After(ctx, Succeeded))
	plan, err := k.Plan(ctx, "1")
	check(err)
	_, err = k.Restore(ctx, plan)
	check(err)
	os.Exit(0)
}

// TestKilledAtEachStep kills a process between any two steps of snapshot, record, call, snapshot,
// record and restore. A call that was sent has its record, with a snapshot of the directory
// before it. Every snapshot that a record names exists. Only a restore has changed the directory.
// The next process can restore the state before the call.
func TestKilledAtEachStep(t *testing.T) {
	for n, step := range steps {
		r := newRoom(t, Options{})
		r.write("a", "1")
		cmd := exec.Command(os.Args[0], r.dir)
		cmd.Env = append(os.Environ(), stepVariable+"="+step)
		out, err := cmd.CombinedOutput()
		if (err == nil) != (step == "") || len(out) > 0 {
			t.Fatalf("%q: %v\n%s", step, err, out)
		}
		all := r.list()
		sent, after := n >= slices.Index(steps, "sent"), n >= slices.Index(steps, "record after")
		want := "a=1"
		if sent && n < slices.Index(steps, "restored") {
			want = "a=2"
		}
		if got := r.tree(); got != want {
			t.Errorf("killed at %q: %s, want %s", step, got, want)
		}
		if n == 0 && len(all) != 0 || n > 0 && len(all) == 0 {
			t.Fatalf("killed at %q: %d records", step, len(all))
		}
		if n == 0 {
			continue
		}
		if (all[0].After != "") != after {
			t.Errorf("killed at %q: %+v", step, all[0])
		}
		for _, a := range all {
			if _, _, err := r.Diff(context.Background(), a); err != nil {
				t.Errorf("killed at %q: snapshots of %+v: %v", step, a, err)
			}
		}
		_, err = r.Restore(context.Background(), r.plan("1"))
		r.must(err)
		if got := r.tree(); got != "a=1" {
			t.Errorf("killed at %q, then restored: %s", step, got)
		}
		if sent {
			last := r.list()
			_, err = r.Restore(context.Background(), r.plan(decimal(last[len(last)-1].Number)))
			r.must(err)
			if got := r.tree(); got != want {
				t.Errorf("killed at %q, restored and undone: %s, want %s", step, got, want)
			}
		}
	}
}

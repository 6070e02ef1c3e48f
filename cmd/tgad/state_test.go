package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/demo"
	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/runtime/workstate/hostdir"
	"github.com/tgad/tgad/schemas/tga"
)

// notes expects the texts in the demo agent's database, read without tgad: notes FILE TEXT...
func notes(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: notes FILE TEXT...")
	}
	got, err := demo.Notes(ts.MkAbs(args[0]))
	ts.Check(err)
	if !slices.Equal(got, args[1:]) {
		ts.Fatalf("%s has %q, want %q", args[0], got, args[1:])
	}
}

// keptState returns a closed store with a state over a directory.
type keptState struct {
	testing.TB
	dir string
	id  string
}

func (k *keptState) at(name string) string { return filepath.Join(k.dir, name) }

func (k *keptState) must(err error) {
	k.Helper()
	if err != nil {
		k.Fatal(err)
	}
}

// use opens the state with the directory and further resources, lets f change it, and closes it.
func (k *keptState) use(work string, more func(r *workstate.Registry) error, f func(s *workstate.State, d *hostdir.Dir)) {
	k.Helper()
	ctx := context.Background()
	db, err := engine.Open(k.at("data"), engine.Options{FirstSegmentBytes: 64 << 10, MemTableBytes: 1 << 20})
	k.must(err)
	d, err := hostdir.Open(ctx, work, k.at("snapshots"), hostdir.Options{Exclude: []string{"cache"}})
	k.must(err)
	r := &workstate.Registry{}
	k.must(workstate.Add(r, d))
	if more != nil {
		k.must(more(r))
	}
	id, err := tga.ParseID(k.id)
	k.must(err)
	s, err := workstate.Open(ctx, db, id, workstate.NewSession(), r, workstate.Options{})
	k.must(err)
	f(s, d)
	s.Close()
	k.must(errors.Join(d.Close(), db.Close()))
}

func (k *keptState) write(name, text string) {
	k.Helper()
	k.must(errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)))
}

func (k *keptState) holds(name, want string) {
	k.Helper()
	if b, err := os.ReadFile(name); string(b) != want {
		k.Errorf("%s holds %q (%v), want %q", name, b, err, want)
	}
}

// tgad runs the command and expects an exit code.
func (k *keptState) tgad(want int, args ...string) string {
	k.Helper()
	var out bytes.Buffer
	if got := run(append(args, "--data", k.at("data")), strings.NewReader(""), &out, &out); got != want {
		k.Fatalf("tgad %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, want, out.String())
	}
	return out.String()
}

// types runs a line in a shell without settings for a store, and answers yes.
func (k *keptState) types(line string) {
	k.Helper()
	cmd := exec.Command("sh", "-c", line)
	cmd.Env = append(os.Environ(), "TGAD_DATA=", "TGAD_SOCKET=")
	cmd.Stdin = strings.NewReader("y\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		k.Errorf("%s: %v\n%s", line, err, out)
	}
}

func newKeptState(t testing.TB) *keptState {
	k := &keptState{t, t.TempDir(), "01936a8b-4c2d-7000-8000-0000000000b0"}
	k.write(k.at("work/file"), "0")
	k.write(k.at("work/cache/big"), "kept out")
	return k
}

// edit writes the file in a transaction.
func (k *keptState) edit(s *workstate.State, path, text string) {
	k.Helper()
	k.must(s.Update(context.Background(), text, func(context.Context, *workstate.Tx) error {
		return os.WriteFile(path, []byte(text), 0o644)
	}))
}

// TestForkIsRolledBackFromTheCommandLine: the content of its first state stays. The command leaves out of
// its snapshots what the agent leaves out.
func TestForkIsRolledBackFromTheCommandLine(t *testing.T) {
	k := newKeptState(t)
	var id, second string
	k.use(k.at("work"), nil, func(s *workstate.State, _ *hostdir.Dir) {
		k.edit(s, k.at("work/file"), "1")
		id = s.List()[0].ID
	})
	k.tgad(cli.ExitOK, "state", "fork", k.id, id, "--at", "directory="+k.at("twin"))
	k.holds(k.at("twin/file"), "0")
	k.use(k.at("work"), nil, func(s *workstate.State, _ *hostdir.Dir) {
		ctx := context.Background()
		d, err := hostdir.Open(ctx, k.at("twin"), k.at("twin.tgad"), hostdir.Options{Exclude: []string{"cache"}})
		k.must(err)
		r := &workstate.Registry{}
		k.must(workstate.Add(r, d))
		fork, err := s.OpenFork(ctx, 1, workstate.NewSession(), r, workstate.Options{})
		k.must(err)
		k.edit(fork, k.at("twin/file"), "2")
		second = fork.List()[0].ID
		k.must(d.Close())
	})
	k.write(k.at("twin/cache/big"), "not in any snapshot")
	out := k.tgad(cli.ExitOK, "state", "rollback", k.id+"/1", second, "--yes")
	_, undo, _ := strings.Cut(out, "rolled back; to undo it: ")
	if !strings.Contains(undo, " "+k.id+"/1 ") {
		t.Errorf("it says\n%s", out)
	}
	k.holds(k.at("twin/file"), "0")
	k.holds(k.at("twin/cache/big"), "not in any snapshot")
	// The command as it is printed; only its command line says which store it is for.
	k.types(undo)
	k.holds(k.at("twin/file"), "2")
	k.holds(k.at("work/file"), "1")
	k.tgad(cli.ExitOK, "state", "rollback", k.id, id, "--yes")
	k.holds(k.at("work/file"), "0")
	k.holds(k.at("work/cache/big"), "kept out")
}

// TestWhatOnlyItsProgramCanOpenIsNotRolledBackHalf: a state with a resource that only its own program can
// open is not rolled back partly.
func TestWhatOnlyItsProgramCanOpenIsNotRolledBackHalf(t *testing.T) {
	k := newKeptState(t)
	var id string
	k.use(k.at("work"), func(r *workstate.Registry) error { return workstate.Add(r, &device{}) }, func(s *workstate.State, _ *hostdir.Dir) {
		k.edit(s, k.at("work/file"), "1")
		id = s.List()[0].ID
	})
	out := k.tgad(cli.ExitError, "state", "rollback", k.id, id, "--yes")
	if !strings.Contains(out, "PERMISSION_DENIED") || !strings.Contains(out, "device") {
		t.Errorf("it says\n%s", out)
	}
	k.holds(k.at("work/file"), "1")
	if out := k.tgad(cli.ExitOK, "state", "show", k.id); !strings.Contains(out, "known to its own program alone") {
		t.Errorf("show says\n%s", out)
	}
	if out := k.tgad(cli.ExitError, "state", "fork", k.id, id, "--at", "directory="+k.at("twin")); !strings.Contains(out, "device") {
		t.Errorf("fork says\n%s", out)
	}
}

// device is an outside resource that does not say where it is.
type device struct{}

func (*device) Snapshot(context.Context) (*workstate.Node, error) {
	return workstate.NewNode([]byte("{}")), nil
}
func (*device) Restore(context.Context, *workstate.Node) error { return nil }

// TestCommandKeepsWhatTheAgentKeeps: the agent decides how many boundaries are kept.
func TestCommandKeepsWhatTheAgentKeeps(t *testing.T) {
	k := newKeptState(t)
	ctx := context.Background()
	db, err := engine.Open(k.at("data"), engine.Options{FirstSegmentBytes: 64 << 10, MemTableBytes: 1 << 20})
	k.must(err)
	id, err := tga.ParseID(k.id)
	k.must(err)
	s, err := workstate.Open(ctx, db, id, workstate.NewSession(), &workstate.Registry{}, workstate.Options{})
	k.must(err)
	for range workstate.DefaultRing {
		k.must(s.Update(ctx, "u", func(context.Context, *workstate.Tx) error { return nil }))
	}
	oldest := s.List()[0].ID
	s.Close()
	k.must(db.Close())
	k.tgad(cli.ExitOK, "state", "rollback", k.id, oldest, "--yes")
	if out := k.tgad(cli.ExitOK, "state", "show", k.id); !strings.Contains(out, oldest) {
		t.Errorf("the oldest of %d boundaries is gone", workstate.DefaultRing)
	}
}

// TestCommandEndsWhatACrashLeft: the agent is killed in the middle of a write and never starts again. The
// command sees the open call, and rolls back past it.
func TestCommandEndsWhatACrashLeft(t *testing.T) {
	k := &keptState{t, t.TempDir(), "01936a8b-4c2d-7000-8000-0000000000a9"}
	for _, name := range []string{"work/src/a.go", "work/src/b.go", "work/src/c.go", "work/.env"} {
		k.write(k.at(name), "v0 v0 v0 v0")
	}
	cmd := exec.Command("tgad-lab", "agent", k.dir, "write", `{"path":"src/a.go","text":"one"}`, "refactor", `{"seed":7,"stop":1}`)
	in, err := cmd.StdinPipe() // open until the kill: the tool waits for its end
	k.must(err)
	out, err := cmd.StdoutPipe()
	k.must(err)
	k.must(cmd.Start())
	lines := bufio.NewReader(out)
	written, err := lines.ReadString('\n')
	k.must(err)
	stopped, err := lines.ReadString('\n')
	k.must(errors.Join(err, cmd.Process.Kill()))
	if err := cmd.Wait(); err == nil || !strings.Contains(stopped, "stopped") {
		t.Fatalf("the agent was not killed in mid-write: %v, %s", err, stopped)
	}
	_ = in.Close() // Wait has closed it
	k.holds(k.at("work/.env"), "SECRET=7\n")
	k.must(os.Rename(k.at("store"), k.at("data")))

	if list := k.tgad(cli.ExitOK, "state", "show", k.id); !strings.Contains(list, " refactor  open ") {
		t.Errorf("show says\n%s", list)
	}
	k.holds(k.at("work/.env"), "SECRET=7\n") // looking changes nothing
	var call struct{ ID string }
	k.must(json.Unmarshal([]byte(written), &call))
	plan := k.tgad(cli.ExitError, "state", "rollback", k.id, call.ID)
	if strings.Contains(plan, " refactor ") {
		t.Errorf("what is undone by opening the state is in the plan too:\n%s", plan)
	}
	for _, name := range []string{"work/src/b.go", "work/src/c.go", "work/.env"} {
		k.holds(k.at(name), "v0 v0 v0 v0")
	}
	k.holds(k.at("work/src/a.go"), "one\n")
	k.tgad(cli.ExitOK, "state", "rollback", k.id, call.ID, "--yes")
	k.holds(k.at("work/src/a.go"), "v0 v0 v0 v0")
}

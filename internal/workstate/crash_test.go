package workstate_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/internal/workstate/memfs"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// onDisk is a state in a store on the test's own file system, with a machine whose content
// survives a crash.
type onDisk struct {
	db      *engine.DB
	machine *machine
	state   *workstate.State
	rt      *runtime.Runtime
}

func openOn(disk vfs.FS, id tga.ID, m *machine, licence ledger.LicenceKind, inTool func()) (*onDisk, error) {
	db, err := engine.Open("store", engine.Options{FS: disk, MemTableBytes: 1 << 20, CacheBytes: 1 << 20, FirstSegmentBytes: 64 << 10})
	if err != nil {
		return nil, err
	}
	d := &onDisk{db: db, machine: m}
	r := &workstate.Registry{}
	for _, err := range []error{workstate.Add(r, memfs.New()), workstate.Add(r, workstate.NewKV()), workstate.Add(r, m)} {
		if err != nil {
			return nil, err
		}
	}
	if d.state, err = workstate.Open(bg, db, id, workstate.NewSession(), r, workstate.Options{Ring: 5}); err != nil {
		return nil, err
	}
	tools := workstate.Tools{}
	tools["half"] = workstate.Func(func(context.Context, struct{}) (any, error) {
		m.set("half of a call inside")
		inTool()
		return nil, nil
	})
	for _, name := range []string{"gen-1", "bad-2", "gen-3", "gen-4", "gen-7"} {
		n, _ := strconv.Atoi(name[4:])
		tools[name] = workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
			tx := workstate.FromContext(ctx)
			kv, err := workstate.Use[*workstate.KV](tx)
			if err != nil {
				return nil, err
			}
			files, err := workstate.Use[*memfs.FS](tx)
			if err != nil {
				return nil, err
			}
			m.set("half of " + name)
			inTool()
			if _, err := d.rt.Call(ctx, runtime.Request{Server: "local", Tool: "half", Key: newID().String()}); err != nil {
				return nil, err
			}
			inTool()
			kv.Set("generation", []byte(strconv.Itoa(n)))
			if err := files.WriteFile("generation", []byte(strconv.Itoa(n)), 0o644); err != nil {
				return nil, err
			}
			m.set(strconv.Itoa(n))
			if strings.HasPrefix(name, "bad") {
				return nil, errNo
			}
			return nil, workstate.Slice[Plan](tx.Session()).Replace(Plan{Objective: strconv.Itoa(n)})
		})
	}
	d.rt, err = runtime.New(d.state.Store(), workstate.Transact(tools, d.state), runtime.AllowAll, runtime.Options{Policy: func(string, string) runtime.Policy {
		return runtime.Policy{Licence: ledger.Licence{Kind: licence}, LicenceSet: true}
	}})
	return d, err
}

func (d *onDisk) call(tool string) (string, error) {
	res, err := d.rt.Call(bg, runtime.Request{Server: "local", Tool: tool, Key: tool})
	return res.ToolCallID.String(), err
}

func (d *onDisk) close() error {
	d.state.Close()
	return d.db.Close()
}

// TestPowerCutIsBeforeOrAfter cuts the power at write operations in a state's life, and keeps
// none to all of the unsynced data. Each time every part of the state must be of the same
// generation, that to which the log's effects lead, and the machine must be made to agree.
func TestPowerCutIsBeforeOrAfter(t *testing.T) {
	type crash struct {
		fs      *crashmem.FS
		machine string
		op      string
	}
	var (
		mu      sync.Mutex
		crashes []crash
		ops     int
	)
	disk, id, m := crashmem.New(), newID(), &machine{text: "0"}
	rng := rand.New(rand.NewPCG(5, 8))
	clone := func(op string) {
		mu.Lock()
		defer mu.Unlock()
		ops++
		for _, kept := range []int{0, 50, 100} {
			crashes = append(crashes, crash{disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rng}), m.get(), fmt.Sprintf("op %d, %s, %d%% kept", ops, op, kept)})
		}
	}
	recording := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			clone(fmt.Sprintf("%d on %s", op.Kind, op.Path))
		}
		return nil
	}))
	life, err := openOn(recording, id, m, ledger.Park, func() { clone("in a tool") })
	must(t, err)
	for _, tool := range []string{"gen-1", "bad-2"} {
		_, err := life.call(tool)
		must(t, err)
	}
	three, err := life.call("gen-3")
	must(t, err)
	_, err = life.state.RollbackTo(bg, three)
	must(t, err)
	_, err = life.call("gen-4")
	must(t, err)
	_, err = life.state.Collect(bg)
	must(t, err, life.close())

	seen := map[string]int{}
	for _, c := range crashes {
		d, err := openOn(c.fs, id, &machine{text: c.machine}, ledger.Park, func() {})
		if err != nil {
			t.Fatalf("%s: open: %v", c.op, err)
		}
		got := generationOf(t, d)
		if d.machine.get() != got {
			t.Errorf("%s: the machine says %q, the state is of generation %q", c.op, d.machine.get(), got)
		}
		for _, b := range d.state.List() {
			if b.Kind == "restore" && !b.Success {
				t.Errorf("%s: a rollback that was begun is not carried out: %+v", c.op, b)
			}
			if b.Kind != "call" {
				continue
			}
			trace, err := tga.ParseID(b.TraceID)
			must(t, err)
			res, err := d.rt.Result(bg, trace)
			must(t, err)
			if b.Open || b.Success != (res.State == tga.Completed) {
				t.Errorf("%s: boundary of %s: success %v, open %v; its trace is %v", c.op, b.Name, b.Success, b.Open, res.State)
			}
		}
		if _, err := d.state.Collect(bg); err != nil {
			t.Errorf("%s: collection: %v", c.op, err)
		}
		if _, err := d.call("gen-7"); err != nil || generationOf(t, d) != "7" || d.machine.get() != "7" {
			t.Errorf("%s: it can't be gone on with: %v", c.op, err)
		}
		seen[got]++
		must(t, d.close())
	}
	t.Logf("%d write operations, %d crashes, generations %v", ops, len(crashes), seen)
	for _, g := range []string{"0", "1", "3", "4"} {
		if seen[g] == 0 {
			t.Errorf("no crash left generation %s", g)
		}
	}
}

// TestCallSentAgainIsATransaction cuts the power in the middle of a tool. The state is opened
// as it was before the call. The call is sent again under its licence, and is a transaction
// like the first time.
func TestCallSentAgainIsATransaction(t *testing.T) {
	for _, tool := range []string{"gen-3", "bad-2"} {
		disk, id, m := crashmem.New(), newID(), &machine{text: "0"}
		var cut *crashmem.FS
		var held string
		first, err := openOn(disk, id, m, ledger.DedupeArgs, func() {
			if !strings.HasPrefix(m.get(), "half of "+tool) {
				return
			}
			cut, held = disk.CrashClone(vfs.CrashCloneCfg{}), m.get()
		})
		must(t, err)
		_, err = first.call("gen-1")
		must(t, err)
		_, err = first.call(tool)
		must(t, err, first.close())
		if held != "half of "+tool {
			t.Fatalf("the machine said %q when the power went", held)
		}
		again, err := openOn(cut, id, &machine{text: held}, ledger.DedupeArgs, func() {})
		must(t, err)
		if got := generationOf(t, again); got != "1" || again.machine.get() != "1" {
			t.Errorf("opened as generation %s, machine %s", got, again.machine.get())
		}
		all, err := again.rt.RecoverAll(bg, 1)
		must(t, err)
		if len(all) != 1 || all[0].Err != nil {
			t.Fatalf("recovered %+v", all)
		}
		want := map[string]string{"gen-3": "3", "bad-2": "1"}[tool]
		if got := generationOf(t, again); got != want || again.machine.get() != want {
			t.Errorf("%s sent again: generation %s, machine %s, want %s", tool, got, again.machine.get(), want)
		}
		must(t, again.close())
	}
}

// generationOf returns the generation of the parts in memory, which must be the same for all.
func generationOf(t testing.TB, d *onDisk) string {
	t.Helper()
	got := inMemory3(t, d.state)
	if got[0] != got[1] || got[1] != got[2] {
		t.Errorf("the parts are of generations %v", got)
	}
	return got[0]
}

func inMemory3(t testing.TB, s *workstate.State) (out [3]string) {
	t.Helper()
	must(t, s.View(bg, func(tx *workstate.Tx) error {
		kv, err := workstate.Use[*workstate.KV](tx)
		must(t, err)
		files, err := workstate.Use[*memfs.FS](tx)
		must(t, err)
		v, _ := kv.Get("generation")
		b, err := files.ReadFile("generation")
		if err != nil {
			b = nil
		}
		out = [3]string{objective(t, tx.Session()), string(v), string(b)}
		return nil
	}))
	for i := range out {
		if out[i] == "" {
			out[i] = "0"
		}
	}
	return out
}

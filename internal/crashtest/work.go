package crashtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/internal/workstate/memfs"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// workingState opens the working state of a store: a map and a tree of files in memory. Each
// call is a transaction over both. Real directories are not tested here, but with real
// processes that are killed.
func (p *Process) workingState(c Config) (err error) {
	parts := &workstate.Registry{}
	for _, err := range []error{workstate.Add(parts, memfs.New()), workstate.Add(parts, workstate.NewKV())} {
		if err != nil {
			return err
		}
	}
	store := turnRecorder{recorder{p.DB, p.World}}
	if p.Work, err = workstate.Open(context.Background(), store, idOf("working state"), workstate.NewSession(), parts, workstate.Options{}); err != nil {
		return err
	}
	p.RT, err = p.World.runtime(p.Work.Store(), c, workstate.Transact(workers{p.World}, p.Work))
	return err
}

// workers are the tools of a world that change the working state. Each call adds its key to
// the map and to the files, and then asks the server. A call that fails or gets no answer
// must leave neither.
type workers struct{ w *World }

func (t workers) Dispatch(ctx context.Context, call runtime.Call) (runtime.Reply, error) {
	tx := workstate.FromContext(ctx)
	kv, err := workstate.Use[*workstate.KV](tx)
	if err != nil {
		return runtime.Reply{}, err
	}
	files, err := workstate.Use[*memfs.FS](tx)
	if err != nil {
		return runtime.Reply{}, err
	}
	name := strings.ReplaceAll(call.Key, "/", "_")
	kv.Set(name, []byte(call.Args))
	if err := files.WriteFile(name, call.Args, 0o644); err != nil {
		return runtime.Reply{}, err
	}
	return t.w.Dispatch(ctx, call)
}

// WorkSteps are calls that change the working state: they succeed, fail, get no answer, are
// rolled back, or run at once.
func WorkSteps(licence string) []Step {
	one := func(p *Process, behaviour, key string) (runtime.Result, error) {
		req := Request(Allowed, licence+"."+behaviour, key, 5)
		req.Args = fmt.Appendf(nil, `{"key":%q}`, key) // a server that dedupes by arguments acts for each
		return p.Call(0, req)
	}
	return []Step{
		{"succeeds", func(p *Process, key string) { ignore(one(p, Answers, key)) }},
		{"fails", func(p *Process, key string) { ignore(one(p, Fails, key)) }},
		{"lost reply", func(p *Process, key string) { ignore(one(p, LosesReply, key)) }},
		{"rolled back", func(p *Process, key string) {
			res, err := one(p, Answers, key)
			if err == nil {
				ignore(one(p, Answers, key+"-after"))
				ignore(p.Work.RollbackTo(context.Background(), res.ToolCallID.String()))
			}
		}},
		{"at once", func(p *Process, key string) {
			var wg sync.WaitGroup
			for i := range 3 {
				wg.Go(func() { ignore(one(p, Answers, fmt.Sprint(key, "-", i))) })
			}
			wg.Wait()
		}},
		{"collected", func(p *Process, key string) {
			ignore(one(p, Answers, key))
			ignore(p.Work.Collect(context.Background()))
		}},
	}
}

// workSeen is what a working state shows.
type workSeen struct {
	Map, Files []string // names, in order
	List       []workstate.Checkpoint
}

func (p *Process) observeWork(ctx context.Context) (*workSeen, error) {
	s := &workSeen{List: p.Work.List()}
	err := p.Work.View(ctx, func(tx *workstate.Tx) error {
		kv, err := workstate.Use[*workstate.KV](tx)
		if err != nil {
			return err
		}
		for name := range kv.All() {
			s.Map = append(s.Map, name)
		}
		files, err := workstate.Use[*memfs.FS](tx)
		if err != nil {
			return err
		}
		list, err := files.ReadDir(".")
		for _, f := range list {
			s.Files = append(s.Files, f.Name())
		}
		return err
	})
	return s, err
}

// WorkProperties are what every store with a working state is held to.
var WorkProperties = []Property{
	{"K1", "the parts of a working state are of one moment", partsAgree},
	{"K2", "the state is what the effects of its calls lead to: before or after each, never between", stateIsOfEffects},
}

func partsAgree(_ *history, o *Observed, report func(string, tga.ID, string, ...any)) {
	if !slices.Equal(o.work.Map, o.work.Files) {
		report("", tga.ID{}, "the map has %v, the files are %v", o.work.Map, o.work.Files)
	}
}

// stateIsOfEffects folds the boundaries and compares the state with the result. A call that
// succeeded adds its key. A rollback restores the state from before the call that it names.
// A completed trace has exactly one successful boundary, any other trace none.
func stateIsOfEffects(h *history, o *Observed, report func(string, tga.ID, string, ...any)) {
	keys, succeeded := map[string]string{}, map[string]int{}
	for _, e := range h.events {
		if e.Kind == Sent {
			keys[e.Trace.String()] = strings.ReplaceAll(e.Key, "/", "_")
		}
	}
	have, before := map[string]bool{}, map[string]map[string]bool{}
	for _, b := range o.work.List {
		before[b.ID] = maps.Clone(have)
		switch b.Kind {
		case "call":
			if b.Open {
				report(keys[b.TraceID], tga.ID{}, "the boundary of its call is open, and nobody runs it")
			}
			if b.Success {
				succeeded[b.TraceID]++
				have[keys[b.TraceID]] = true
			}
		case "restore":
			if to, known := before[strings.TrimPrefix(b.Name, "back to before ")]; b.Success && known {
				have = maps.Clone(to)
			} else {
				report("", tga.ID{}, "a rollback to %q that was begun is not carried out: %+v", b.Name, b)
			}
		}
	}
	for id, s := range o.Traces {
		want := 0
		if s.state() == tga.Completed && !o.neverSent(id) {
			want = 1
		}
		if n := succeeded[id.String()]; n != want {
			report(s.Key.Key, id, "the trace is %s, and %d boundaries of it are successes", s.state(), n)
		}
	}
	if want := slices.Sorted(maps.Keys(have)); !slices.Equal(o.work.Map, want) {
		report("", tga.ID{}, "the state has %v, the effects lead to %v", o.work.Map, want)
	}
}

// StateTier crashes calls that change a working state before each operation, and inside
// each recovery.
func StateTier(r *Run) {
	for round := uint64(0); ; round++ {
		seed := r.Seed + round
		for i, licence := range shuffled(seed, []string{"park", "dedupe_args", "dedupe_key", "read_only"}) {
			if !r.Over() {
				r.Explore(workScenario(licence), seed+uint64(i), Losses, 1, Thoroughness{Depth: 3, Nested: 11, Third: 61, Retry: 4})
			}
		}
		r.Say("state round %d, seed %d: %d crash points, %d recoveries, %d double", round, seed, r.Counts.CrashPoints, r.Counts.Recoveries, r.Counts.DoubleCrashes)
		if r.Deadline.IsZero() || r.Over() {
			return
		}
	}
}

func workScenario(licence string) Scenario {
	return Scenario{Name: "state " + licence, Conf: Config{Work: true}, Licences: []string{licence}, Steps: WorkSteps}
}

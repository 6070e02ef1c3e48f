package engines

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/killtest/adapter"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/dispatch/httpcall"
	"github.com/tgad/tgad/schemas/tga"
)

// Tgad is tgad with a store in a directory.
var Tgad = adapter.Engine{
	Name: "tgad, store in a directory",
	Start: func(ctx context.Context, dir string, world adapter.World) (adapter.Worker, error) {
		if os.Getenv("GOMAXPROCS") == "" {
			goruntime.GOMAXPROCS(goruntime.NumCPU() + 1) // as docs/OPERATIONS.md advises who embeds the engine
		}
		db, err := engine.Open(filepath.Join(dir, "store"), engine.Options{})
		if err != nil {
			return nil, err
		}
		return NewTgad(ctx, db, world)
	},
}

// worker is a runtime on a store. It is never closed: its process is killed.
type worker struct {
	runtime *runtime.Runtime
	store   runtime.Store
}

const (
	server = "payments"
	tool   = "charge"
)

// NewTgad returns the worker of tgad on any store, with its recovery done.
func NewTgad(ctx context.Context, store runtime.Store, world adapter.World) (adapter.Worker, error) {
	payments, err := httpcall.New(strings.TrimSuffix(world.URL, "/"+tool), httpcall.Options{})
	if err != nil {
		return nil, err
	}
	policy := runtime.Policy{} // nothing is known of the service: a call in doubt waits for a person
	if world.Dedupes {
		policy.Licence = ledger.Licence{Kind: ledger.DedupeKey, Window: 24 * time.Hour} // the service never forgets
		policy.LicenceSet = true
	}
	rt, err := runtime.New(store, payments, runtime.AllowAll, runtime.Options{Policy: func(string, string) runtime.Policy { return policy }})
	if err != nil {
		return nil, err
	}
	if _, err := rt.RecoverAll(ctx, 8); err != nil {
		return nil, err
	}
	return &worker{rt, store}, nil
}

func (w *worker) Call(ctx context.Context, key string, amount int) (adapter.Answer, error) {
	args, err := json.Marshal(map[string]any{"key": key, "amount": amount})
	if err != nil {
		return adapter.Answer{}, err
	}
	res, err := w.runtime.Call(ctx, runtime.Request{Server: server, Tool: tool, Key: key, Args: args})
	if err != nil {
		return unfinished(err)
	}
	return ended(res)
}

func (w *worker) Status(ctx context.Context, key string) (adapter.Answer, error) {
	record, err := w.store.Record(ctx, ledger.Key{Namespace: tga.DefaultNamespace, Server: server, Tool: tool, Key: key})
	if err != nil {
		return adapter.Answer{}, err
	}
	if record == nil {
		return adapter.Answer{Outcome: adapter.Unknown}, nil
	}
	res, err := w.runtime.Result(ctx, record.TraceID)
	switch {
	case err != nil:
		return unfinished(err)
	case res.State.Terminal():
		return ended(res)
	case record.InDoubt():
		return adapter.Answer{Outcome: adapter.InDoubt}, nil
	}
	return adapter.Answer{Outcome: adapter.Running, Detail: string(res.State)}, nil
}

// ended returns the outcome of a trace in a terminal state.
func ended(res runtime.Result) (a adapter.Answer, err error) {
	if err := res.Err(); err != nil {
		return adapter.Answer{Outcome: adapter.Failed, Detail: err.Error()}, nil
	}
	a = adapter.Answer{Outcome: adapter.Completed, Detail: string(res.State)}
	a.Receipt, err = adapter.Receipt(strings.NewReader(string(res.Value)))
	return a, err
}

// unfinished returns the outcome that the error of an unfinished call means.
func unfinished(err error) (adapter.Answer, error) {
	switch tga.CodeOf(err) {
	case tga.EffectInDoubt:
		return adapter.Answer{Outcome: adapter.InDoubt, Detail: err.Error()}, nil
	case tga.IdempotencyKeyInFlight:
		return adapter.Answer{Outcome: adapter.Running, Detail: err.Error()}, nil
	}
	return adapter.Answer{}, err
}

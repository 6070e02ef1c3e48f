// Command tgad-adapter-dbos is the adapter of DBOS Transact for Go. The charge is a step of a workflow, and
// the key is the workflow's id, as its documentation recommends. The argument "once" sets
// WithMaxRecoveryAttempts(1), the fewest recoveries possible. With "tgad" the step charges through tgad.
package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/tgad/tgad/bench/adapters/internal/pgserver"
	"github.com/tgad/tgad/internal/killtest/adapter"
	"github.com/tgad/tgad/internal/killtest/engines"
)

type order struct {
	Key    string
	Amount int
}

type worker struct {
	dbos     dbos.Context
	workflow dbos.Workflow[order, adapter.Answer]
}

func main() {
	name, variant := engines.Variant("DBOS Go 1.8.0", "WithMaxRecoveryAttempts(1)")
	adapter.Main(adapter.Engine{
		Name:    name,
		Servers: pgserver.Start,
		Start: func(ctx context.Context, dir string, world adapter.World) (adapter.Worker, error) {
			return start(ctx, dir, world, variant)
		},
	})
}

func start(ctx context.Context, dir string, world adapter.World, variant string) (adapter.Worker, error) {
	step, err := engines.NewStep(ctx, dir, world, variant)
	if err != nil {
		return nil, err
	}
	c, err := dbos.NewContext(ctx, dbos.Config{
		DatabaseURL: pgserver.URL(dir), AppName: "payments", Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return nil, err
	}
	w := &worker{dbos: c}
	w.workflow = func(c dbos.Context, o order) (adapter.Answer, error) {
		return dbos.RunAsStep(c, func(ctx context.Context) (adapter.Answer, error) {
			return step(ctx, o.Key, o.Amount)
		})
	}
	options := []dbos.WorkflowRegistrationOption{dbos.WithWorkflowName("charge")}
	if variant == engines.Once {
		options = append(options, dbos.WithMaxRecoveryAttempts(1))
	}
	dbos.RegisterWorkflow(c, w.workflow, options...)
	return w, dbos.Launch(c) // it recovers the workflows of the process before
}

func (w *worker) Call(ctx context.Context, key string, amount int) (adapter.Answer, error) {
	handle, err := dbos.RunWorkflow(w.dbos, w.workflow, order{key, amount}, dbos.WithWorkflowID(key))
	if err != nil {
		// A workflow whose recoveries are used up is not started again.
		if a, statusErr := w.Status(ctx, key); statusErr == nil && a.Outcome.Final() {
			return a, nil
		}
		return adapter.Answer{}, err
	}
	if a, err := handle.GetResult(dbos.WithHandleTimeout(time.Second)); err == nil {
		return a, nil
	}
	return w.Status(ctx, key)
}

func (w *worker) Status(_ context.Context, key string) (adapter.Answer, error) {
	handle, err := dbos.RetrieveWorkflow[adapter.Answer](w.dbos, key)
	if errors.Is(err, dbos.ErrNonExistentWorkflow) {
		return adapter.Answer{Outcome: adapter.Unknown}, nil
	} else if err != nil {
		return adapter.Answer{}, err
	}
	status, err := handle.GetStatus()
	if err != nil {
		return adapter.Answer{}, err
	}
	a := adapter.Answer{Detail: string(status.Status)}
	switch status.Status {
	case dbos.WorkflowStatusSuccess:
		return handle.GetResult()
	case dbos.WorkflowStatusError, dbos.WorkflowStatusCancelled:
		a.Outcome = adapter.Failed
	case dbos.WorkflowStatusMaxRecoveryAttemptsExceeded:
		a.Outcome = adapter.InDoubt // it does not say whether the step ran
	default:
		a.Outcome = adapter.Running
	}
	return a, err
}

// Command tgad-adapter-temporal is the adapter of Temporal. The charge is an activity of a workflow, and the
// key is the workflow's id. The argument "once" sets MaximumAttempts of the activity to 1. With the argument
// "tgad" the activity charges through a daemon of tgad.
//
// The server is the one that Temporal's own end-to-end tests embed. It runs outside of the worker and is not
// killed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	temporalactivity "go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	temporalworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"go.temporal.io/server/temporaltest"

	"github.com/tgad/tgad/bench/temporal/adapter"
)

const queue, activity = "payments", "charge"

type order struct {
	Key    string
	Amount int
}

// place is where the server listens, in a file of the run's directory.
type place struct{ Address, Namespace string }

type worker struct{ client client.Client }

func main() {
	name, variant := "Temporal server 1.32.0", strings.Join(os.Args[1:], " ")
	switch variant {
	case "":
	case "once":
		name += ", MaximumAttempts 1"
	case "tgad":
		name += ", the step through tgad"
	default:
		name += ", unknown argument " + variant
	}
	adapter.Main(adapter.Engine{
		Name:    name,
		Servers: servers,
		Start: func(_ context.Context, dir string, world adapter.World) (adapter.Worker, error) {
			return start(dir, world, variant)
		},
	})
}

func servers(_ context.Context, dir string) (func() error, error) {
	server := temporaltest.NewServer()
	raw, err := json.Marshal(place{server.GetFrontendHostPort(), server.GetDefaultNamespace()})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "place"), raw, 0o600)
	}
	return func() error {
		server.Stop()
		return nil
	}, err
}

func start(dir string, world adapter.World, variant string) (adapter.Worker, error) {
	var at place
	raw, err := os.ReadFile(filepath.Join(dir, "place"))
	if err == nil {
		err = json.Unmarshal(raw, &at)
	}
	if err != nil {
		return nil, err
	}
	c, err := client.Dial(client.Options{HostPort: at.Address, Namespace: at.Namespace, Logger: quiet{}})
	if err != nil {
		return nil, err
	}
	w := temporalworker.New(c, queue, temporalworker.Options{})
	charge := direct(world)
	if variant == "tgad" {
		if charge, err = through(dir, world); err != nil {
			return nil, err
		}
	}
	w.RegisterWorkflowWithOptions(func(ctx workflow.Context, o order) (a adapter.Answer, err error) {
		options := workflow.ActivityOptions{StartToCloseTimeout: 3 * time.Second}
		if variant == "once" {
			options.RetryPolicy = &temporal.RetryPolicy{MaximumAttempts: 1}
		}
		err = workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), activity, o).Get(ctx, &a)
		return a, err
	}, workflow.RegisterOptions{Name: "charge"})
	w.RegisterActivityWithOptions(charge, temporalactivity.RegisterOptions{Name: activity})
	return &worker{c}, w.Start()
}

func (w *worker) Call(ctx context.Context, key string, amount int) (adapter.Answer, error) {
	_, err := w.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: key, TaskQueue: queue, WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
	}, "charge", order{key, amount})
	var before *serviceerror.WorkflowExecutionAlreadyStarted
	switch {
	case late(ctx, err):
		return adapter.Answer{Outcome: adapter.Running}, nil // perhaps: the client asks again
	case err != nil && !errors.As(err, &before):
		return adapter.Answer{}, err
	}
	return w.result(ctx, key, time.Second)
}

func (w *worker) Status(ctx context.Context, key string) (adapter.Answer, error) {
	return w.result(ctx, key, 200*time.Millisecond)
}

// result waits for the end of a workflow for a while.
func (w *worker) result(ctx context.Context, key string, patience time.Duration) (a adapter.Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = w.client.GetWorkflow(ctx, key, "").Get(ctx, &a)
	var none *serviceerror.NotFound
	var failed *temporal.WorkflowExecutionError
	var timedOut *temporal.TimeoutError
	switch {
	case err == nil:
	case errors.As(err, &none):
		a.Outcome = adapter.Unknown
	case errors.As(err, &failed) && errors.As(err, &timedOut):
		// The activity did not answer in time, and is not tried again. It may have charged.
		a.Outcome, a.Detail = adapter.InDoubt, err.Error()
	case errors.As(err, &failed):
		a.Outcome, a.Detail = adapter.Failed, err.Error()
	case late(ctx, err):
		a.Outcome = adapter.Running
	default:
		return a, err
	}
	return a, nil
}

// late reports whether the server has not answered in time. The client ends a request shortly before ctx ends.
func late(ctx context.Context, err error) bool {
	var deadline *serviceerror.DeadlineExceeded
	return ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &deadline)
}

// quiet is a log that nobody reads.
type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}

var _ log.Logger = quiet{}

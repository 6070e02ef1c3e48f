// Command tgad-adapter-river is the adapter of River, a queue of jobs in PostgreSQL. The charge is a job,
// and the key is its unique argument. The argument "once" sets MaxAttempts to 1. With "tgad" the job charges
// through tgad.
//
// Jobs of a worker that has died are rescued after an hour by default; the adapter sets seconds.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"github.com/tgad/tgad/bench/adapters/internal/pgserver"
	"github.com/tgad/tgad/internal/killtest/adapter"
	"github.com/tgad/tgad/internal/killtest/engines"
)

type order struct {
	Key    string `json:"key"`
	Amount int    `json:"amount"`
}

// Kind is the name of the jobs.
func (order) Kind() string { return "charge" }

type charger struct {
	river.WorkerDefaults[order]
	step engines.Step
}

// Work makes the charge, and keeps its answer with the job.
func (c *charger) Work(ctx context.Context, job *river.Job[order]) error {
	a, err := c.step(ctx, job.Args.Key, job.Args.Amount)
	if err != nil {
		return err
	}
	return river.RecordOutput(ctx, a)
}

type worker struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
	once   bool
}

func main() {
	name, variant := engines.Variant("River 0.51.1", "MaxAttempts 1")
	adapter.Main(adapter.Engine{
		Name:    name,
		Servers: servers,
		Start: func(ctx context.Context, dir string, world adapter.World) (adapter.Worker, error) {
			return start(ctx, dir, world, variant)
		},
	})
}

func servers(ctx context.Context, dir string) (func() error, error) {
	stop, err := pgserver.Start(ctx, dir)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.New(ctx, pgserver.URL(dir))
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	defer pool.Close()
	m, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err == nil {
		_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

func start(ctx context.Context, dir string, world adapter.World, variant string) (adapter.Worker, error) {
	step, err := engines.NewStep(ctx, dir, world, variant)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.New(ctx, pgserver.URL(dir))
	if err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &charger{step: step})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:               map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}},
		Workers:              workers,
		JobTimeout:           2 * time.Second,
		RescueStuckJobsAfter: 3 * time.Second,
		Logger:               slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return nil, err
	}
	return &worker{pool, client, variant == engines.Once}, client.Start(ctx)
}

func (w *worker) Call(ctx context.Context, key string, amount int) (adapter.Answer, error) {
	options := &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}}
	if w.once {
		options.MaxAttempts = 1
	}
	inserted, err := w.client.Insert(ctx, order{key, amount}, options)
	if err != nil {
		return adapter.Answer{}, err
	}
	for range 100 {
		a, err := w.of(ctx, inserted.Job.ID)
		if err != nil || a.Outcome != adapter.Running {
			return a, err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return adapter.Answer{Outcome: adapter.Running}, nil
}

func (w *worker) Status(ctx context.Context, key string) (adapter.Answer, error) {
	var id int64
	err := w.pool.QueryRow(ctx, "SELECT id FROM river_job WHERE args->>'key' = $1 ORDER BY id DESC LIMIT 1", key).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return adapter.Answer{Outcome: adapter.Unknown}, nil
	} else if err != nil {
		return adapter.Answer{}, err
	}
	return w.of(ctx, id)
}

func (w *worker) of(ctx context.Context, id int64) (a adapter.Answer, err error) {
	job, err := w.client.JobGet(ctx, id)
	if err != nil {
		return a, err
	}
	a.Detail = string(job.State)
	switch job.State {
	case rivertype.JobStateCompleted:
		return a, json.Unmarshal(job.Output(), &a)
	case rivertype.JobStateDiscarded:
		// Its attempts are used up. The last one may have charged: the worker died in it.
		a.Outcome = adapter.InDoubt
	case rivertype.JobStateCancelled:
		a.Outcome = adapter.Failed
	default:
		a.Outcome = adapter.Running
	}
	return a, nil
}

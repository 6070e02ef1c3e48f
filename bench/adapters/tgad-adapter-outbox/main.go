// Command tgad-adapter-outbox is the adapter of an outbox in PostgreSQL, as an application has one beside its own
// tables. A call is written as a row before it is sent. The process that wrote the row sends the call and then marks
// the row. If that process dies before, the next process sends the unmarked rows.
package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/bench/adapters/internal/pgserver"
	"github.com/tgad/tgad/internal/killtest/adapter"
)

const table = "CREATE TABLE outbox (key TEXT PRIMARY KEY, amount INTEGER NOT NULL, receipt BIGINT)"

type outbox struct {
	pool  *pgxpool.Pool
	world adapter.World
}

func main() {
	adapter.Main(adapter.Engine{Name: "outbox in PostgreSQL", Servers: servers, Start: start})
}

func servers(ctx context.Context, dir string) (func() error, error) {
	stop, err := pgserver.Start(ctx, dir)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, pgserver.URL(dir))
	if err == nil {
		_, err = conn.Exec(ctx, table)
		err = errors.Join(err, conn.Close(ctx))
	}
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// start sends the unmarked rows of earlier processes, and then takes calls.
func start(ctx context.Context, dir string, world adapter.World) (adapter.Worker, error) {
	pool, err := pgxpool.New(ctx, pgserver.URL(dir)+"&pool_max_conns=32")
	if err != nil {
		return nil, err
	}
	o := &outbox{pool, world}
	rows, err := pool.Query(ctx, "SELECT key, amount FROM outbox WHERE receipt IS NULL")
	if err != nil {
		return nil, err
	}
	type row struct {
		Key    string
		Amount int
	}
	left, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	for _, r := range left {
		if _, sendErr := o.send(ctx, r.Key, r.Amount); sendErr != nil {
			err = errors.Join(err, sendErr)
		}
	}
	return o, err
}

func (o *outbox) Call(ctx context.Context, key string, amount int) (adapter.Answer, error) {
	written, err := o.pool.Exec(ctx, "INSERT INTO outbox (key, amount) VALUES ($1, $2) ON CONFLICT DO NOTHING", key, amount)
	if err != nil {
		return adapter.Answer{}, err
	}
	if written.RowsAffected() == 0 {
		return o.Status(ctx, key)
	}
	return o.send(ctx, key, amount)
}

// send makes the charge of a row and marks the row.
func (o *outbox) send(ctx context.Context, key string, amount int) (a adapter.Answer, err error) {
	if a.Receipt, err = adapter.Charge(ctx, o.world, key, amount); err != nil {
		return adapter.Answer{}, err
	}
	a.Outcome = adapter.Completed
	_, err = o.pool.Exec(ctx, "UPDATE outbox SET receipt = $2 WHERE key = $1", key, a.Receipt)
	return a, err
}

func (o *outbox) Status(ctx context.Context, key string) (adapter.Answer, error) {
	var receipt *int64
	err := o.pool.QueryRow(ctx, "SELECT receipt FROM outbox WHERE key = $1", key).Scan(&receipt)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return adapter.Answer{Outcome: adapter.Unknown}, nil
	case err != nil:
		return adapter.Answer{}, err
	case receipt == nil:
		return adapter.Answer{Outcome: adapter.Running}, nil
	}
	return adapter.Answer{Outcome: adapter.Completed, Receipt: *receipt}, nil
}

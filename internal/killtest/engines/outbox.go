package engines

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tgad/tgad/internal/killtest/adapter"
)

// Outbox is the outbox pattern: the call becomes a row of a table before it is sent, and a worker sends
// every row that has no receipt yet, until the service answers.
var Outbox = adapter.Engine{
	Name: "outbox in SQLite",
	Start: func(ctx context.Context, dir string, world adapter.World) (adapter.Worker, error) {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "outbox.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(1) // one writer at a time is all that SQLite has
		_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS outbox (key TEXT PRIMARY KEY, amount INTEGER NOT NULL, receipt INTEGER)")
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		o := &outbox{db: db, world: world, handed: make(chan struct{}, 1)}
		o.handed <- struct{}{} // what a crash left is sent first
		go o.work(ctx)
		return o, nil
	},
}

type outbox struct {
	db     *sql.DB
	world  adapter.World
	handed chan struct{} // a row is new
}

func (o *outbox) Call(ctx context.Context, key string, amount int) (a adapter.Answer, err error) {
	if _, err := o.db.ExecContext(ctx, "INSERT INTO outbox (key, amount) VALUES (?, ?) ON CONFLICT DO NOTHING", key, amount); err != nil {
		return a, err
	}
	select {
	case o.handed <- struct{}{}:
	default: // it is told already
	}
	for range 200 {
		if a, err = o.Status(ctx, key); err != nil || a.Outcome != adapter.Running {
			return a, err
		}
		time.Sleep(5 * time.Millisecond)
	}
	return a, nil
}

func (o *outbox) Status(ctx context.Context, key string) (a adapter.Answer, err error) {
	var receipt sql.NullInt64
	err = o.db.QueryRowContext(ctx, "SELECT receipt FROM outbox WHERE key = ?", key).Scan(&receipt)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return adapter.Answer{Outcome: adapter.Unknown}, nil
	case err != nil:
		return a, err
	case !receipt.Valid:
		return adapter.Answer{Outcome: adapter.Running}, nil
	}
	return adapter.Answer{Outcome: adapter.Completed, Receipt: receipt.Int64}, nil
}

// work sends rows until the process dies. A row whose send fails stays and is sent again.
func (o *outbox) work(ctx context.Context) {
	for {
		select {
		case <-o.handed:
		case <-time.After(100 * time.Millisecond):
		}
		if err := o.send(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "outbox:", err)
		}
	}
}

func (o *outbox) send(ctx context.Context) error {
	for {
		var key string
		var amount int
		err := o.db.QueryRowContext(ctx, "SELECT key, amount FROM outbox WHERE receipt IS NULL LIMIT 1").Scan(&key, &amount)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		} else if err != nil {
			return err
		}
		receipt, err := adapter.Charge(ctx, o.world, key, amount)
		if err != nil {
			return err
		}
		if _, err := o.db.ExecContext(ctx, "UPDATE outbox SET receipt = ? WHERE key = ?", receipt, key); err != nil {
			return err
		}
	}
}

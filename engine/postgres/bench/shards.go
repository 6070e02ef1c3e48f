package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/runtime"
)

// shardsFigure has the results of one run on several shards.
type shardsFigure struct {
	Shards  int     `json:"shards"`
	Writers int     `json:"writers"`
	Calls   float64 `json:"calls_per_s"`
	P50     float64 `json:"call_p50_ms"`
	P99     float64 `json:"call_p99_ms"`
	Stopped float64 `json:"move_stopped_s"` // for how long no shard had a store that moved, with a lease of a second; 0 for one shard
	Rows    int64   `json:"moved_rows"`
}

// measureShards measures fleets of several primaries. Each primary has a namespace of its own, and one runtime uses all of them.
func measureShards(dir string, span time.Duration, writers, counts []string, asJSON bool) (err error) {
	if dir, err = os.MkdirTemp(dir, "tgadpg"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir), pgserver.Sweep()) }()
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	if !asJSON {
		fmt.Println("| shards | writers | calls/s | call p50, p99 ms | a move: rows, stopped for s |\n|---|---|---|---|---|")
	}
	for _, text := range counts {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("%q shards", text)
		}
		if err := onShards(filepath.Join(dir, text), n, span, writers, asJSON); err != nil {
			return err
		}
	}
	return nil
}

func onShards(dir string, n int, span time.Duration, writers []string, asJSON bool) (err error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	ctx := context.Background()
	quiet := postgres.Options{Lease: time.Second, Logger: slog.New(slog.DiscardHandler)}
	var servers []*pgserver.Server
	for i := range n {
		p, err := pgserver.New(filepath.Join(dir, fmt.Sprint(i)), "shared_buffers=128MB", "max_wal_size=4GB", "max_connections=500")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.Remove()) }()
		servers = append(servers, p)
		if err := postgres.Migrate(ctx, pgserver.DSN(p)); err != nil {
			return err
		}
		a := postgres.AddingShard{DSN: pgserver.DSN(p), Name: fmt.Sprint("s", i), URL: pgserver.DSN(p)}
		if i > 0 {
			a.Of = pgserver.DSN(servers[0])
		}
		if _, err := postgres.AddShard(ctx, quiet, a); err != nil {
			return err
		}
	}
	for i := range n {
		if _, err := postgres.Place(ctx, pgserver.DSN(servers[0]), quiet, postgres.Placing{Namespace: fmt.Sprint("n", i), Shard: fmt.Sprint("s", i)}); err != nil {
			return err
		}
	}
	shards, err := postgres.OpenShards(ctx, pgserver.DSN(servers[0]), quiet)
	if err != nil {
		return err
	}
	stores, err := shards.All(ctx)
	if err != nil {
		return errors.Join(err, shards.Close())
	}
	defer func() { err = errors.Join(err, stores.Close()) }()
	rt, err := runtime.New(stores, runtime.DispatcherFunc(answer), runtime.AllowAll, runtime.Options{})
	if err != nil {
		return err
	}
	for i, text := range writers {
		w, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		var calls times
		_, took, err := drive(span, w, &calls, func(ctx context.Context, w int, r runtime.Request) error {
			r.Namespace = fmt.Sprint("n", w%n)
			_, err := rt.Call(ctx, r)
			return err
		})
		if err != nil {
			return err
		}
		f := shardsFigure{Shards: n, Writers: w, Calls: float64(len(calls.all)) / took, P50: calls.at(0.5), P99: calls.at(0.99)}
		if i == len(writers)-1 && n > 1 {
			done, err := postgres.Move(ctx, quiet, postgres.Moving{Namespace: "n0", From: pgserver.DSN(servers[0]), To: pgserver.DSN(servers[1])})
			if err != nil {
				return err
			}
			f.Stopped, f.Rows = done.Stopped.Seconds(), done.Rows
		}
		if err := f.print(asJSON); err != nil {
			return err
		}
	}
	return nil
}

func (f shardsFigure) print(asJSON bool) error {
	if asJSON {
		return json.NewEncoder(os.Stdout).Encode(f)
	}
	move := "–"
	if f.Rows > 0 {
		move = fmt.Sprintf("%d, %.1f", f.Rows, f.Stopped)
	}
	_, err := fmt.Printf("| %d | %d | %.0f | %.1f, %.1f | %s |\n", f.Shards, f.Writers, f.Calls, f.P50, f.P99, move)
	return err
}

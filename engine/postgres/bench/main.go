// Command bench measures the store in PostgreSQL on servers that it starts: governed calls of many
// writers, with and without a synchronous standby, and what a call costs in bytes. The tool
// answers at once, so what is measured is the store.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

func main() {
	dir := flag.String("dir", "", "where the servers lie, on a disk; a new directory there is made and removed")
	span := flag.Duration("for", 5*time.Second, "how long each figure is measured")
	writers := flag.String("writers", "1,16,64,256", "how many calls are under way at once")
	replicas := flag.Int("replicas", 1, "how many stores share the calls, each with connections of its own")
	shards := flag.String("shards", "", "measure a fleet with so many shards instead, as 1,2,4: primaries without a standby, and a namespace on each")
	lists := flag.Uint64("lists", 0, "measure lists instead, of a store with so many calls")
	asJSON := flag.Bool("json", false, "print JSON lines")
	flag.Parse()
	do := func() error {
		return onPrimary(*dir, func(dir string, p *pgserver.Server) error {
			return measure(dir, p, *span, strings.Split(*writers, ","), *replicas, *asJSON)
		})
	}
	if *shards != "" {
		do = func() error {
			return measureShards(*dir, *span, strings.Split(*writers, ","), strings.Split(*shards, ","), *asJSON)
		}
	}
	if *lists != 0 {
		do = func() error {
			return onPrimary(*dir, func(_ string, p *pgserver.Server) error { return measureLists(p, *lists) })
		}
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// figure has the results of one run.
type figure struct {
	Standby   bool    `json:"standby"`
	Replicas  int     `json:"replicas"`
	Writers   int     `json:"writers"`
	Calls     float64 `json:"calls_per_s"`
	Appends   float64 `json:"appends_per_s"`
	AppendP50 float64 `json:"append_p50_ms"`
	AppendP99 float64 `json:"append_p99_ms"`
	CallP50   float64 `json:"call_p50_ms"`
	CallP99   float64 `json:"call_p99_ms"`
	WAL       int64   `json:"wal_bytes_per_call"`
	Tables    int64   `json:"table_bytes_per_call"`
	Plain     float64 `json:"plain_inserts_per_s"` // the server's own limit, just before
}

// onPrimary runs a measurement on a separate server with the tables of a store.
func onPrimary(dir string, measure func(dir string, p *pgserver.Server) error) (err error) {
	dir, err = os.MkdirTemp(dir, "tgadpg")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir), pgserver.Sweep()) }()
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	p, err := pgserver.New(filepath.Join(dir, "primary"), "shared_buffers=512MB", "max_wal_size=8GB", "max_connections=500")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	if err := postgres.Migrate(context.Background(), pgserver.DSN(p)); err != nil {
		return err
	}
	return measure(dir, p)
}

func measure(dir string, p *pgserver.Server, span time.Duration, writers []string, replicas int, asJSON bool) (err error) {
	if !asJSON {
		fmt.Println("| standby | writers | plain inserts/s | appends/s | calls/s | append p50, p99 ms | call p50, p99 ms | WAL per call | tables per call |\n|---|---|---|---|---|---|---|---|---|")
	}
	for _, standby := range []bool{false, true} {
		if standby {
			b, err := p.NewStandby(filepath.Join(dir, "standby"), "s1")
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, b.Stop()) }()
			if err := p.Synchronous(b); err != nil {
				return err
			}
		}
		for _, w := range writers {
			n, err := strconv.Atoi(w)
			if err != nil {
				return err
			}
			f, err := run(p, span, n, replicas, standby)
			if err != nil {
				return err
			}
			if err := f.print(asJSON); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f figure) print(asJSON bool) error {
	if asJSON {
		return json.NewEncoder(os.Stdout).Encode(f)
	}
	standby := "none"
	if f.Standby {
		standby = "synchronous"
	}
	_, err := fmt.Printf("| %s | %d | %.0f | %.0f | %.0f | %.1f, %.1f | %.1f, %.1f | %d | %d |\n", standby, f.Writers, f.Plain, f.Appends, f.Calls, f.AppendP50, f.AppendP99, f.CallP50, f.CallP99, f.WAL, f.Tables)
	return err
}

// run makes calls for a fixed time.
func run(p *pgserver.Server, span time.Duration, writers, replicas int, standby bool) (f figure, err error) {
	var callTimes, appendTimes times
	var rts []*runtime.Runtime
	for range replicas {
		s, err := postgres.Open(context.Background(), pgserver.DSN(p), postgres.Options{RequireSync: standby, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return f, err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		rt, err := runtime.New(timed{s, &appendTimes}, runtime.DispatcherFunc(answer), runtime.AllowAll, runtime.Options{})
		if err != nil {
			return f, err
		}
		rts = append(rts, rt)
	}
	limit, err := plain(p, span, writers)
	if err != nil {
		return f, err
	}
	before, err := size(p)
	if err != nil {
		return f, err
	}
	all, took, err := drive(span, writers, &callTimes, func(ctx context.Context, w int, r runtime.Request) error {
		_, err := rts[w%replicas].Call(ctx, r)
		return err
	})
	if err != nil {
		return f, err
	}
	after, err := size(p)
	if err != nil {
		return f, err
	}
	return figure{
		Standby: standby, Replicas: replicas, Writers: writers, Calls: float64(len(callTimes.all)) / took, Appends: float64(2*len(callTimes.all)) / took,
		AppendP50: appendTimes.at(0.5), AppendP99: appendTimes.at(0.99), CallP50: callTimes.at(0.5), CallP99: callTimes.at(0.99),
		Plain: limit, WAL: (after[0] - before[0]) / all, Tables: (after[1] - before[1]) / all,
	}, nil
}

// drive makes calls for a fixed time, with that number of writers, and times them. all also counts the calls of the warm-up.
func drive(span time.Duration, writers int, callTimes *times, call func(ctx context.Context, w int, r runtime.Request) error) (all int64, took float64, err error) {
	args := fmt.Appendf(nil, `{"text":%q}`, strings.Repeat("a", 512))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	var once sync.Once
	var made atomic.Int64
	warm := time.Now().Add(span / 4) // connections are made, statements prepared
	begun := time.Now()
	end := warm.Add(span)
	for w := range writers {
		wg.Go(func() {
			for i := 0; time.Now().Before(end); i++ {
				at := time.Now()
				cerr := call(ctx, w, runtime.Request{Server: "payments", Tool: "charge", Args: args, Key: fmt.Sprint(begun.UnixNano(), " ", w, " ", i)})
				if cerr != nil {
					once.Do(func() { err = cerr; cancel() })
					return
				}
				made.Add(1)
				if at.After(warm) {
					callTimes.add(time.Since(at))
				}
			}
		})
	}
	wg.Wait()
	return made.Load(), time.Since(warm).Seconds(), err
}

// plain measures the limit of the server, the disk and the standby: how many rows of 1.5 KiB that number of
// writers, at most 64, insert in a second. Each writer has its own connection, and each transaction one row.
func plain(p *pgserver.Server, span time.Duration, writers int) (float64, error) {
	if err := p.Exec("CREATE TABLE IF NOT EXISTS plain (id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea NOT NULL)", "TRUNCATE plain"); err != nil {
		return 0, err
	}
	writers = min(writers, 64) // each has a process of the server
	body := make([]byte, 1536)
	var wg sync.WaitGroup
	errs := make([]error, writers)
	counts := make([]int, writers)
	begun := time.Now()
	for w := range writers {
		wg.Go(func() {
			ctx := context.Background()
			c, err := pgx.Connect(ctx, pgserver.DSN(p))
			if err != nil {
				errs[w] = err
				return
			}
			for time.Since(begun) < span && errs[w] == nil {
				_, errs[w] = c.Exec(ctx, "INSERT INTO plain (body) VALUES ($1)", body)
				counts[w]++
			}
			errs[w] = errors.Join(errs[w], c.Close(ctx))
		})
	}
	wg.Wait()
	n := 0
	for _, c := range counts {
		n += c
	}
	return float64(n) / time.Since(begun).Seconds(), errors.Join(errs...)
}

func answer(context.Context, runtime.Call) (runtime.Reply, error) {
	return runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{"receipt":17}`)}, nil
}

// size has the bytes of WAL written so far, and the bytes of the database.
func size(p *pgserver.Server) (out [2]int64, err error) {
	for i, q := range []string{"SELECT (pg_current_wal_lsn() - '0/0')::text", "SELECT pg_database_size('postgres')::text"} {
		text, err := p.Query(q)
		if err != nil {
			return out, err
		}
		if out[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return out, err
		}
	}
	return out, nil
}

// timed is a store that measures the time of its appends.
type timed struct {
	runtime.Store
	times *times
}

// Append implements [runtime.Store].
func (t timed) Append(ctx context.Context, lease chain.Lease, b chain.Batch) (chain.Appended, error) {
	at := time.Now()
	done, err := t.Store.Append(ctx, lease, b)
	t.times.add(time.Since(at))
	return done, err
}

type times struct {
	mu  sync.Mutex
	all []time.Duration
}

func (t *times) add(d time.Duration) {
	t.mu.Lock()
	t.all = append(t.all, d)
	t.mu.Unlock()
}

// at returns a quantile, in milliseconds.
func (t *times) at(q float64) float64 {
	slices.Sort(t.all)
	if len(t.all) == 0 {
		return 0
	}
	return float64(t.all[min(int(q*float64(len(t.all))), len(t.all)-1)].Microseconds()) / 1000
}

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/search"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

const (
	listsStart    = 1_700_000_000_000 // of the first trace; one comes each second
	listsRounds   = 40
	listsCalls    = 500 // in each block
	listsCallers  = 16
	listsPause    = 700 * time.Millisecond // after each block, in which the lists get it
	listsPerPage  = 100
	listsLookedAt = 50_000 // traces, without an index
	listsRepeated = 200
	listsCopied   = 2000 // traces in one transaction
	listsMany     = 4    // shard
)

// measureLists measures how much an index of lists slows calls, and how long a page takes in a store of n traces, with and without
// an index.
func measureLists(p *pgserver.Server, n uint64) error {
	if err := listsBeside(p); err != nil {
		return err
	}
	if err := fill(p, n); err != nil {
		return err
	}
	return pages(p, n)
}

// kept is a store. If with is set, this process maintains its lists.
type kept struct {
	*postgres.Store
	lists *postgres.Lists
	close func() error
}

func openKept(p *pgserver.Server, shard int32, with bool) (*kept, error) {
	s, err := postgres.Open(context.Background(), pgserver.DSN(p), postgres.Options{Shard: shard, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	k := &kept{Store: s, lists: s.Fleet().Lists(), close: s.Close}
	if with {
		ctx, cancel := context.WithCancel(context.Background())
		var over sync.WaitGroup
		over.Go(func() { k.lists.Run(ctx) })
		k.close = func() error {
			cancel()
			over.Wait()
			return s.Close()
		}
	}
	return k, nil
}

// caughtUp waits until the lists of a store have all appends. Its questions do not hurry the lists, and cost almost nothing, because
// they use one connection.
func caughtUp(c *pgx.Conn, shard int32) error {
	for {
		var behind bool
		if err := c.QueryRow(context.Background(), `SELECT EXISTS (SELECT 1 FROM tgad.pending WHERE shard = $1)
			OR (SELECT position FROM tgad.lists_standing WHERE shard = $1) IS DISTINCT FROM (SELECT last FROM tgad.order_state WHERE shard = $1)`, shard).Scan(&behind); err != nil || !behind {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// listsBeside measures the processor time of calls, in blocks that alternate between three stores: one without lists, one whose lists
// the calling process maintains, and one whose lists another process maintains. It includes the time until the lists have the calls. The
// other process is simulated in this process.
func listsBeside(p *pgserver.Server) error {
	var used, own, ratios [3][]float64 // in all, in this process, and of all in units of what it is without lists
	var rts [3]*runtime.Runtime
	var opened []*kept
	c, err := pgx.Connect(context.Background(), pgserver.DSN(p))
	if err != nil {
		return err
	}
	for i := range rts {
		k, err := openKept(p, int32(i+1), i == 1)
		if err != nil {
			return err
		}
		opened = append(opened, k)
		if rts[i], err = runtime.New(k.Store, runtime.DispatcherFunc(answer), runtime.AllowAll, runtime.Options{}); err != nil {
			return err
		}
	}
	other, err := openKept(p, 3, true)
	if err != nil {
		return err
	}
	opened = append(opened, other)
	for round := range listsRounds + 1 {
		var took [3]float64
		for turn := range took {
			i := (turn + round) % len(took)
			all, self, err := cpu(p)
			if err != nil {
				return err
			}
			if err := block(rts[i], round); err != nil {
				return err
			}
			pause := time.After(listsPause) // what stores do by the clock weighs on each alike
			if i > 0 {
				if err := caughtUp(c, int32(i+1)); err != nil {
					return err
				}
			}
			<-pause
			allAfter, selfAfter, err := cpu(p)
			if err != nil {
				return err
			}
			took[i] = (allAfter - all).Seconds() * 1e6 / listsCalls
			if round > 0 { // the first one makes connections and plans
				used[i] = append(used[i], took[i])
				own[i] = append(own[i], (selfAfter-self).Seconds()*1e6/listsCalls)
			}
		}
		if round == 0 { // a server that does not know yet what is in its tables reads all of them
			if err := p.Exec("ANALYZE"); err != nil {
				return err
			}
		}
		for i := range took {
			if round > 0 {
				ratios[i] = append(ratios[i], took[i]/took[0])
			}
		}
	}
	for i, what := range []string{"without lists", "whose process keeps the lists", "with lists that another process keeps"} {
		sorted := slices.Sorted(slices.Values(ratios[i]))
		fmt.Printf("calls %s: %.0f µs of CPU a call, %.0f of them in the processes and the rest in the server; %.3f × (quarters %.3f and %.3f), %d blocks of %d calls\n",
			what, middle(used[i]), middle(own[i]), middle(ratios[i]), sorted[len(sorted)/4], sorted[3*len(sorted)/4], listsRounds, listsCalls)
	}
	errs := []error{c.Close(context.Background())}
	for _, k := range opened {
		errs = append(errs, k.close())
	}
	return errors.Join(errs...)
}

func middle(of []float64) float64 {
	of = slices.Sorted(slices.Values(of))
	return (of[(len(of)-1)/2] + of[len(of)/2]) / 2
}

// block makes one block of calls.
func block(rt *runtime.Runtime, round int) error {
	args := fmt.Appendf(nil, `{"text":%q}`, strings.Repeat("a", 512))
	errs := make([]error, listsCallers)
	var over sync.WaitGroup
	for w := range listsCallers {
		over.Go(func() {
			for i := w; i < listsCalls && errs[w] == nil; i += listsCallers {
				_, errs[w] = rt.Call(context.Background(), runtime.Request{Server: "payments", Tool: "charge", Args: args, Key: fmt.Sprint(round, " ", i)})
			}
		})
	}
	over.Wait()
	return errors.Join(errs...)
}

// cpu returns the processor time of this process and the server together, and of this process alone.
func cpu(p *pgserver.Server) (all, self time.Duration, err error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0, err
	}
	self = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	all = self
	const tick = 10 * time.Millisecond
	pids, parent := p.Processes(), ""
	for i := 0; i < len(pids) || parent != ""; i++ {
		name := parent // the first process, last: it has the time of those that have ended
		if i < len(pids) {
			name = strconv.Itoa(pids[i])
		}
		text, err := os.ReadFile(filepath.Join("/proc", name, "stat"))
		switch {
		case err != nil && i < len(pids):
			continue // it has ended
		case err != nil:
			return 0, 0, err
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if parent = fields[1]; i >= len(pids) {
			parent = ""
		}
		for _, f := range fields[11:15] {
			n, err := strconv.Atoi(f)
			if err != nil {
				return 0, 0, err
			}
			all += time.Duration(n) * tick
		}
	}
	return all, self, nil
}

// fill makes n traces in the form of the log, with their real digests, and writes them into the tables with COPY, because appending
// them would take hours. Nine in ten are denied, one in ten is executed, and one in a hundred of all fails. They use 100 tools of 10
// servers.
func fill(p *pgserver.Server, n uint64) error {
	k, err := openKept(p, listsMany, false) // makes the store
	if err == nil {
		err = k.close()
	}
	if err != nil {
		return err
	}
	began := time.Now()
	firsts := make(chan uint64)
	errs := make([]error, 2)
	var over sync.WaitGroup
	for w := range errs {
		over.Go(func() {
			for first := range firsts {
				if errs[w] == nil {
					errs[w] = copyTraces(p, first, min(first+listsCopied, n+1))
				}
			}
		})
	}
	for first := uint64(1); first <= n; first += listsCopied {
		firsts <- first
	}
	close(firsts)
	over.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := p.Exec(fmt.Sprintf("UPDATE tgad.order_state SET last = %d WHERE shard = %d", n, listsMany), "ANALYZE"); err != nil {
		return err
	}
	fmt.Printf("%d traces were made in %s\n", n, time.Since(began).Round(time.Second))
	return nil
}

// traceOf returns the trace with a number.
func traceOf(i uint64) *chaintest.Trace {
	o := chaintest.Options{
		Seed: i, At: tga.Millis(listsStart + 1000*i), Key: "key-" + strconv.FormatUint(i, 10), Verdict: tga.Deny,
		Server: "server-" + strconv.FormatUint(i%10, 10), Tool: "tool-" + strconv.FormatUint(i%100, 10),
	}
	if i/100%10 == 0 {
		o.Verdict = tga.Approve
	}
	if i/100%10 == 0 && i%10 == 0 || i%1000 == 7 {
		o.Verdict, o.Status = tga.Approve, tga.StatusError
	}
	return chaintest.New(o)
}

func copyTraces(p *pgserver.Server, first, end uint64) (err error) {
	ctx := context.Background()
	c, err := pgx.Connect(ctx, pgserver.DSN(p))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	var entries, heads, leaves [][]any
	for i := first; i < end; i++ {
		t := traceOf(i)
		s, l := t.State, t.State.Listing()
		for j := range t.Entries {
			e := &t.Entries[j]
			frame, spill := chain.AppendFrame(nil, e)
			at := 192 + binary.BigEndian.Uint32(frame[112:]) // the header of the frame, with the key (docs/FORMAT.md)
			entries = append(entries, []any{int32(listsMany), [16]byte(t.ID), int64(e.Seq), frame[:at], frame[at:], spill})
		}
		heads = append(heads, []any{int32(listsMany), [16]byte(t.ID), int64(1), int64(s.Head.Seq), s.Head.Digest[:], int64(0), s.NoteHead.Digest[:], int16(s.Head.State), int64(1), int64(0), int64(0), s.Namespace, int64(l.Since), int64(0)})
		leaves = append(leaves, []any{int32(listsMany), int64(i), [16]byte(t.ID), int64(1), int32(len(t.Entries)), int64(0), int32(0), s.Head.Digest[:], s.NoteHead.Digest[:], int64(l.Since), int64(l.Since)})
	}
	for _, table := range []struct {
		name    string
		columns string
		rows    [][]any
	}{
		{"entries", "shard trace seq header parts spill", entries},
		{"heads", "shard trace version seq digest note note_digest state epoch session token namespace since deadline", heads},
		{"leaves", "shard index trace first_seq entries first_note notes digest note_digest committed newest", leaves},
	} {
		if _, err := c.CopyFrom(ctx, pgx.Identifier{"tgad", table.name}, strings.Fields(table.columns), pgx.CopyFromRows(table.rows)); err != nil {
			return err
		}
	}
	return nil
}

// askUntil asks for a list until ctx ends. STORE_UNAVAILABLE is the answer while the lists are being made.
func askUntil(ctx context.Context, k *kept) error {
	for ctx.Err() == nil {
		_, err := k.lists.Find(ctx, search.Query{Limit: 1})
		if err != nil && tga.CodeOf(err) != tga.StoreUnavailable && ctx.Err() == nil {
			return err
		}
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
	}
	return nil
}

// pages measures pages of lists.
func pages(p *pgserver.Server, n uint64) error {
	k, err := openKept(p, listsMany, true)
	if err != nil {
		return err
	}
	began := time.Now()
	ctx, made := context.WithCancel(context.Background())
	const asking = 16 // who asks has them made without a rest
	asked := make(chan error, asking)
	for range asking {
		go func() { asked <- askUntil(ctx, k) }()
	}
	c, err := pgx.Connect(context.Background(), pgserver.DSN(p))
	if err == nil {
		err = errors.Join(caughtUp(c, listsMany), c.Close(context.Background()))
	}
	made()
	for range asking {
		err = errors.Join(err, <-asked)
	}
	if err != nil {
		return err
	}
	ctx = context.Background()
	size, err := p.Query("SELECT pg_size_pretty(pg_total_relation_size('tgad.lists')) || ', the entries ' || pg_size_pretty((SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits WHERE inhparent = 'tgad.entries'::regclass))")
	if err != nil {
		return err
	}
	fmt.Printf("their lists were made in %s, while somebody waited; they have %s\n", time.Since(began).Round(time.Second), size)
	half := tga.Millis(listsStart + 500*n)
	failed := []tga.State{tga.Failed}
	for _, c := range []struct {
		name string
		search.Query
	}{
		{"newest", search.Query{}},
		{"a page in the middle", search.Query{After: search.Mark{Since: half, Trace: chaintest.ID(n/2, 0)}}},
		{"of a tool", search.Query{Tool: "tool-7"}},
		{"of a tool, in the middle", search.Query{Tool: "tool-7", After: search.Mark{Since: half, Trace: chaintest.ID(n/2, 0)}}},
		{"of a server and a tool", search.Query{Server: "server-7", Tool: "tool-7"}},
		{"of a namespace", search.Query{Namespace: tga.DefaultNamespace}},
		{"in a state", search.Query{States: failed}},
		{"in a state, until the middle", search.Query{States: failed, Until: half}},
		{"in a state, of a tool", search.Query{States: failed, Tool: "tool-7"}},
		{"open ones, of which there is none", search.Query{States: []tga.State{tga.Pending, tga.Authorized, tga.Executing}}},
		{"in a state that a tool never had", search.Query{States: []tga.State{tga.Executing}, Tool: "tool-7"}},
		{"with a key", search.Query{Key: "key-77"}},
		{"of a class that nothing has", search.Query{Class: ledger.ClassRetryable}},
	} {
		c.Limit = listsPerPage
		var took []float64
		rows := 0
		for range listsRepeated {
			at := time.Now()
			page, err := k.lists.Find(ctx, c.Query)
			if err != nil {
				return err
			}
			took, rows = append(took, float64(time.Since(at).Microseconds())/1000), len(page)
		}
		fmt.Printf("%s: %d rows, %.2f ms (%.2f to %.2f)\n", c.name, rows, middle(took), slices.Min(took), slices.Max(took))
	}
	return errors.Join(carried(ctx, k), without(ctx, k.Store), k.close())
}

// carried measures a page together with its calls, as a daemon reads them.
func carried(ctx context.Context, k *kept) error {
	var took []float64
	for range listsRepeated {
		at := time.Now()
		page, err := k.lists.Find(ctx, search.Query{Limit: listsPerPage})
		ids := make([]tga.ID, len(page))
		for i, m := range page {
			ids[i] = m.Trace
		}
		if err == nil {
			err = k.Fleet().Read(ctx, ids, func(*chain.Trace) {})
		}
		if err != nil {
			return err
		}
		took = append(took, float64(time.Since(at).Microseconds())/1000)
	}
	fmt.Printf("the newest, with what they carry: %.2f ms (%.2f to %.2f)\n", middle(took), slices.Min(took), slices.Max(took))
	return nil
}

// without measures a list without an index: it reads traces in the order of their ids.
func without(ctx context.Context, s *postgres.Store) error {
	began, looked, found := time.Now(), 0, 0
	for l, err := range s.Fleet().Traces(ctx, tga.ID{}) {
		if err == nil {
			err = l.Err
		}
		if err != nil {
			return err
		}
		looked++
		if l.Tool == "tool-7" {
			if found++; found == listsPerPage {
				fmt.Printf("without: a page of a tool, by id: %d traces read, %s\n", looked, time.Since(began).Round(time.Millisecond))
			}
		}
		if looked == listsLookedAt {
			break
		}
	}
	fmt.Printf("without: %d traces read, %.0f µs each\n", looked, time.Since(began).Seconds()*1e6/float64(looked))
	return nil
}

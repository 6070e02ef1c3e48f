package postgres

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// committer sends appends of many traces to the database in shared transactions. Each transaction is
// one round trip and one flush, and each append gets an answer of its own.
type committer struct {
	s *Store

	mu    sync.Mutex
	work  sync.Cond
	queue []*job
	shut  bool
	ended sync.WaitGroup
}

// Bounds of a transaction. mostBytes does not bind a transaction with one append.
const (
	mostJobs  = 64
	mostBytes = 2 << 20
)

// job is one append on its way to the database.
type job struct {
	parts parts
	calls []*call
	bytes int
	done  chan struct{}

	// Only an erasure uses these: alone keeps other appends out of its transaction, and first and
	// then queue statements before and after its appends.
	alone       bool
	first, then func(*pgx.Batch)

	code string // the answer of the database
	err  error  // why there is no answer
}

// call is a part of an append in the form of the arguments of tgad.append.
type call struct {
	*part
	looked                         bool // a look without an answer may have raised the version too
	headers, parts, spills, frames [][]byte
	kinds                          []int16
	keys, values                   [][]byte
}

func (c *committer) start(s *Store) {
	c.s = s
	c.work.L = &c.mu
	for range s.o.Committers {
		c.ended.Go(c.run)
	}
}

// stop ends the committer once the queue is empty.
func (c *committer) stop() {
	c.mu.Lock()
	c.shut = true
	c.mu.Unlock()
	c.work.Broadcast()
	c.ended.Wait()
}

// commit sends an append to the database. It returns the answer of the database, or why it is unknown.
func (c *committer) commit(j *job) (code string, err error) {
	for _, p := range j.parts {
		x := &call{part: p}
		for i := range p.entries {
			header, rest, spill, err := splitFrame(&p.entries[i], c.s.ringed.keys())
			if err != nil {
				return "", err
			}
			x.headers, x.parts, x.spills = append(x.headers, header), append(x.parts, rest), append(x.spills, spill)
			j.bytes += len(header) + len(rest) + len(spill)
		}
		for i := range p.notes {
			frame := chain.AppendNoteFrame(nil, &p.notes[i], p.committed, p.lease.Epoch)
			x.frames = append(x.frames, frame)
			j.bytes += len(frame)
		}
		for _, a := range p.attachments {
			x.kinds, x.keys, x.values = append(x.kinds, int16(a.Kind)), append(x.keys, a.Key), append(x.values, a.Value)
			j.bytes += len(a.Key) + len(a.Value)
		}
		j.calls = append(j.calls, x)
	}
	if j.bytes > chain.MaxBatch {
		return "", tga.Errorf(tga.LimitExceeded, "append of %d bytes: at most %d", j.bytes, chain.MaxBatch).In(j.parts[0].lease.TraceID)
	}
	j.done = make(chan struct{})
	c.mu.Lock()
	c.queue = append(c.queue, j)
	c.mu.Unlock()
	c.work.Signal()
	<-j.done
	return j.code, j.err
}

func (c *committer) run() {
	for {
		g := c.take()
		if g == nil {
			return
		}
		c.attempt(g)
		for _, j := range g {
			close(j.done)
		}
	}
}

// take waits for work and takes the appends of the next transaction; nil once the committer is
// stopped and the queue is empty. An append to two traces gets a transaction of its own: the locks
// of ledger keys are taken in the order of their bytes, and an append with two keys would break
// that order.
func (c *committer) take() []*job {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) == 0 {
		if c.shut {
			return nil
		}
		c.work.Wait()
	}
	n, size := 0, 0
	for n < min(len(c.queue), mostJobs) {
		j := c.queue[n]
		lonely := j.alone || len(j.calls) > 1
		if n > 0 && (size+j.bytes > mostBytes || lonely) {
			break
		}
		size += j.bytes
		if n++; lonely {
			break
		}
	}
	g := slices.Clone(c.queue[:n])
	c.queue = slices.Delete(c.queue, 0, n)
	return g
}

// attempt commits a group, and finds the outcome of each append. The appends of a group share the patience of the store: with one for
// each, a server that is away would keep the callers, and this goroutine, for as many patiences as there are appends.
func (c *committer) attempt(g []*job) {
	ctx, cancel := context.WithTimeout(context.Background(), c.s.o.Patience)
	err := c.transact(ctx, g)
	cancel()
	ctx, cancel = context.WithTimeout(context.Background(), c.s.o.Patience)
	defer cancel()
	if !errors.Is(err, errAborted) || len(g) == 1 {
		c.settle(ctx, g, err)
		return
	}
	// One append made the whole group fail. Try each append by itself.
	for _, j := range g {
		alone := []*job{j}
		c.settle(ctx, alone, c.transact(ctx, alone))
	}
}

// settle finds the outcome of each append of a transaction that ended with err.
func (c *committer) settle(ctx context.Context, g []*job, err error) {
	if err == nil {
		return
	}
	for _, j := range g {
		switch {
		case errors.Is(err, errAborted):
			j.code, j.err = c.s.refusal(err)
		case errors.Is(err, errUnknown):
			j.code, j.err = c.s.resolve(ctx, j)
			if j.err != nil {
				j.err = tga.Errorf(tga.StoreUnavailable, "append, outcome unknown: %w; %w", err, j.err).In(j.parts[0].lease.TraceID)
			}
		default:
			j.err = err
		}
	}
}

// refusal returns the answer for an append whose own transaction was rolled back: the code that the
// append raised, or the code of a passing failure, after which the append is tried again.
func (d *database) refusal(err error) (code string, _ error) {
	var e *pgconn.PgError
	switch {
	case !errors.As(err, &e):
		return "", d.failed("append", err)
	case e.Code[:2] == "TG" || passing(e):
		return e.Code, nil
	}
	return "", d.failed("append", err)
}

// transact commits a group in one transaction and stores the answer to each append.
func (c *committer) transact(ctx context.Context, g []*job) error {
	var conn *pgxpool.Conn
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		var err error
		if conn, err = c.s.connection(ctx); err == nil {
			break
		}
		if ctx.Err() != nil || !passing(err) {
			return c.s.failed("append", err) // nothing was sent
		}
		time.Sleep(pause)
	}
	defer conn.Release()
	alone := len(g) == 1
	err := c.s.transaction(ctx, conn.Conn(), func(b *pgx.Batch) {
		c.mustSeal(b, g)
		if !alone {
			c.lockHeads(b, g)
		}
		for _, j := range g {
			if j.first != nil {
				j.first(b)
			}
			for _, x := range j.calls {
				c.s.queueAppend(b, x, len(j.calls) > 1 || j.alone, &j.code)
			}
			if j.then != nil {
				j.then(b)
			}
		}
	})
	return err
}

// mustSeal refuses the group if a key that seals something new in it has been retired. It is the first
// statement: an erasure waits for transactions that have passed it, and holds no lock for which such a
// transaction may wait.
func (c *committer) mustSeal(b *pgx.Batch, g []*job) {
	var keys []int64
	for _, j := range g {
		for _, p := range j.parts {
			keys = append(keys, p.under...)
		}
	}
	if len(keys) > 0 {
		slices.Sort(keys)
		b.Queue("SELECT tgad.may_seal($1, $2)", c.s.o.Shard, slices.Compact(keys))
	}
}

// lockHeads locks the heads of a group in the order of their ids, and sorts the group so that the
// ledger keys are locked in the order of their hashes. So two groups never deadlock.
func (c *committer) lockHeads(b *pgx.Batch, g []*job) {
	slices.SortFunc(g, func(x, y *job) int { return bytes.Compare(x.parts[0].hash[:], y.parts[0].hash[:]) })
	ids := make([][16]byte, len(g))
	for i, j := range g {
		ids[i] = [16]byte(j.parts[0].lease.TraceID)
	}
	b.Queue("SELECT 1 FROM tgad.heads WHERE shard = $1 AND trace = ANY ($2) ORDER BY trace FOR UPDATE", c.s.o.Shard, ids)
}

const appendSQL = "SELECT tgad.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29)"

// queueAppend queues the append of one part. With raise a refusal aborts the transaction.
func (s *Store) queueAppend(b *pgx.Batch, x *call, raise bool, code *string) {
	before, after := x.before.trace, x.after
	var hash []byte
	if x.touches {
		hash = x.hash[:]
	}
	since := int64(0)
	if n := len(after.Entries); n > 0 {
		since = int64(after.Entries[n-1].TS)
	}
	b.Queue(appendSQL, s.o.Shard, x.session, raise, s.o.RequireSync,
		[16]byte(x.lease.TraceID), int64(x.lease.Epoch), x.before.version, int64(before.Head.Seq), before.Head.Digest[:], int64(before.NoteHead.Number), before.NoteHead.Digest[:],
		filled(x.headers), filled(x.parts), filled(x.spills), filled(x.frames),
		after.Head.Digest[:], after.NoteHead.Digest[:], int16(after.Head.State), after.Namespace, since, int64(after.Deadline),
		hash, x.stored, x.record,
		append([]int16{}, x.kinds...), filled(x.keys), filled(x.values),
		int64(x.committed), int64(x.newest)).QueryRow(func(row pgx.Row) error { return row.Scan(code) })
}

// filled returns a list that is never NULL in the database.
func filled(list [][]byte) [][]byte {
	if list == nil {
		return [][]byte{}
	}
	return list
}

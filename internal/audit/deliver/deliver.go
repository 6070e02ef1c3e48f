// Package deliver hands the records of a store's log to audit systems: to a file, to a syslog server, to a
// webhook.
//
// Each delivery reads the log by itself and remembers how far it has come, its cursor. It keeps no
// queue: what a receiver has not taken stays where it is, in the log. So a receiver that is down costs
// neither memory nor a call any time. Of a store that several processes have, one at a time delivers to a
// receiver: it is on duty, and the cursor is what is kept of the duty.
//
// # Invariants
//
//	each    a record is taken, or it is handed over again: after an error, a restart, kill -9   [Delivery.step]  TestKilledDaemonSkipsNothing
//	kept    a cursor that could not be kept is kept later, whether anything comes or not        [Delivery.step]  TestCursorIsKeptLater
//	order   a receiver takes records in the order of the log; repeats have the same ids         [Delivery.step]  TestReceiverThatFailsGetsTheSameAgain
//	same    the same batch has the same id, as long as the process lives                        [Delivery.step]  TestReceiverThatFailsGetsTheSameAgain
//	apart   a cursor of another store, or of what this one has lost, begins anew                [Delivery.start] TestCursorOfAnotherLogBeginsAnew
//	one     who is not on duty hands nothing over; who goes on duty begins at the cursor        [Delivery.turn]  TestDeliverersAreKilled
package deliver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/internal/audit"
	"github.com/tgad/tgad/internal/duty"
	"github.com/tgad/tgad/schemas/tga"
)

// Log is what a delivery reads.
type Log interface {
	// Cursor is the newest index of the durable order, as far as this process knows, and End as it is now.
	Cursor() uint64
	End(ctx context.Context) (uint64, error)
	// Appends yields the appends after an index. Where there are no more it waits for more, or ends.
	Appends(ctx context.Context, after uint64) iter.Seq2[audit.Append, error]
	// Call is what is known of a trace: its namespace, and its request.
	Call(ctx context.Context, id tga.ID) (audit.Call, error)
	// Mark tells the append with an index from every other append of any store.
	Mark(ctx context.Context, index uint64) (string, error)
}

// Sink takes records. Its methods are called by one goroutine.
type Sink interface {
	// Put returns nil once what it was given is taken. After an error it is given the same again.
	Put(ctx context.Context, b *Batch) error
	// Close is called once nothing more is put.
	Close() error
}

// Batch is what is handed over at once: the records of the appends after one cursor up to another.
type Batch struct {
	After, Last uint64
	Records     []audit.Record
	Lines       [][]byte // the same in the form of the sink, each with its line end
}

// Options say what is delivered, and where to.
type Options struct {
	ID      string // of the delivery: of letters, digits, _ and -
	Format  string // of [audit.Formats]
	Version string // of the program, for records
	Sink    Sink
	Duty    duty.Duty // what is kept of it says how far the delivery has come
	Newest  bool      // where nothing is kept: begin with what comes, not with the oldest append
	Logger  *slog.Logger

	// Every is how often the log is looked at; 0 is a second. First and most are the pauses after an error.
	Every, First, Most time.Duration
}

// Bounds of a batch. One append more than fits is part of it.
const (
	mostRecords = 500
	mostBytes   = 1 << 20
)

// Times of a delivery.
const (
	putTime  = 30 * time.Second // for one batch
	lastTime = 3 * time.Second  // for what is left when the daemon stops, and then for the cursor
)

// Delivery is one stream of records to one sink. Its methods may be called concurrently with those that
// count; Run and Close are called by one goroutine, Close once Run has ended.
type Delivery struct {
	opts   Options
	log    Log
	reader *audit.Reader
	say    *slog.Logger

	mine    bool   // this process is on duty, as far as it knows
	at      uint64 // the index up to which everything is taken
	until   uint64 // the last index of the batch that was not taken; 0 is none
	kept    uint64 // the index in the cursor
	trouble string // that was logged last

	taken             atomic.Uint64 // at, for who counts; of another process as this one heard of it last
	records, failures atomic.Uint64
}

// cursor is what is kept.
type cursor struct {
	Index uint64 `json:"index,string"`
	Mark  string `json:"mark"` // of the append with that index
}

// New takes a delivery up where its cursor is.
func New(ctx context.Context, log Log, o Options) (*Delivery, error) {
	if o.Every <= 0 {
		o.Every = time.Second
	}
	if o.First <= 0 {
		o.First = time.Second
	}
	if o.Most <= 0 {
		o.Most = time.Minute
	}
	d := &Delivery{opts: o, log: log, say: o.Logger.With("audit", o.ID), reader: audit.NewLogReader(log.Call)}
	if err := d.take(ctx); err != nil {
		return nil, err
	}
	return d, nil
}

// take asks that this process deliver, where it does not.
func (d *Delivery) take(ctx context.Context) error {
	if d.mine {
		return nil
	}
	raw, mine, err := d.opts.Duty.Take(ctx)
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "audit %s: %w", d.opts.ID, err)
	}
	if !mine {
		if c := (cursor{}); json.Unmarshal(raw, &c) == nil {
			d.taken.Store(c.Index)
		}
		return nil
	}
	if err := d.start(ctx, raw); err != nil {
		return errors.Join(err, d.opts.Duty.Leave(ctx)) // another process may be able to
	}
	d.mine, d.until = true, 0
	d.taken.Store(d.at)
	d.say.Info("this process delivers audit records", "cursor", d.at)
	return nil
}

// start reads how far the delivery has come. Where the log has another append at that place, the store is
// another, or was put back to what it was before: then nobody knows what the receiver lacks, and it is
// given everything again.
func (d *Delivery) start(ctx context.Context, raw []byte) error {
	end, err := d.log.End(ctx)
	if err != nil {
		return err
	}
	d.at, d.kept = 0, 0
	if raw == nil {
		if d.opts.Newest {
			d.at = end
		}
		return d.save(ctx)
	}
	var c cursor
	if err := json.Unmarshal(raw, &c); err != nil {
		return tga.Errorf(tga.StateChecksumMismatch, "audit %s: what is kept of it is no cursor (%w): remove that, and the log is delivered from its beginning", d.opts.ID, err)
	}
	mark := ""
	if c.Index <= end {
		if mark, err = d.mark(ctx, c.Index); err != nil {
			return err
		}
	}
	if mark != c.Mark || c.Index > end {
		d.say.Warn("the cursor is of another log, or of what this one has lost: everything is delivered again", "cursor", c.Index, "newest", end)
		return nil
	}
	d.at, d.kept = c.Index, c.Index
	return nil
}

func (d *Delivery) mark(ctx context.Context, index uint64) (string, error) {
	if index == 0 {
		return "", nil
	}
	return d.log.Mark(ctx, index)
}

// save writes down how far the delivery has come.
func (d *Delivery) save(ctx context.Context) error {
	mark, err := d.mark(ctx, d.at)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(cursor{d.at, mark})
	if err == nil {
		err = d.opts.Duty.Keep(ctx, append(raw, '\n'))
	}
	if err != nil {
		return fmt.Errorf("the cursor is not kept: %w", err)
	}
	d.kept = d.at
	return nil
}

// Run delivers what the log has, and what comes, until ctx ends.
func (d *Delivery) Run(ctx context.Context) {
	pause := d.opts.First
	for wait := time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		more, err := d.turn(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case !d.mine:
			wait, pause = d.opts.Every, d.opts.First // another process may be gone
		case err != nil:
			d.failures.Add(1)
			wait, pause = pause, min(2*pause, d.opts.Most)
		case more:
			wait, pause = 0, d.opts.First
		default:
			wait, pause = d.opts.Every, d.opts.First
		}
		d.tell(err)
	}
}

// turn hands over one batch where this process is on duty. It reports whether there is more.
func (d *Delivery) turn(ctx context.Context) (more bool, err error) {
	if err := d.take(ctx); err != nil || !d.mine {
		return false, err
	}
	on, cancel := d.opts.Duty.While(ctx)
	defer cancel()
	if on.Err() == nil {
		more, err = d.step(on)
	}
	if errors.Is(err, duty.ErrLost) || on.Err() != nil && ctx.Err() == nil {
		// What the receiver took since the cursor was kept comes again, from who is on duty next.
		d.say.Info("another process delivers audit records now, or may", "cursor", d.at)
		d.mine = false
		return false, nil
	}
	return more, err
}

// Close hands over what is left, as far as the receiver takes it in a moment. The next delivery goes on
// from there.
func (d *Delivery) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), lastTime)
	defer cancel()
	for d.mine {
		if more, err := d.turn(ctx); err != nil || !more {
			d.tell(err)
			break
		}
	}
	last, end := context.WithTimeout(context.Background(), lastTime)
	defer end()
	var err error
	if d.mine {
		if d.kept != d.at {
			err = d.save(last)
		}
		if errors.Is(err, duty.ErrLost) {
			err = nil // its successor has a cursor of its own
		}
		err = errors.Join(err, d.opts.Duty.Leave(last))
	}
	return errors.Join(err, d.opts.Sink.Close())
}

// tell logs what is wrong with a delivery when that changes.
func (d *Delivery) tell(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case text == d.trouble:
	case text == "":
		d.say.Info("audit records are delivered again", "cursor", d.at)
	default:
		d.say.Warn("audit records are not delivered", "cursor", d.at, "error", text)
	}
	d.trouble = text
}

// step hands over one batch. It reports whether there is more.
func (d *Delivery) step(ctx context.Context) (more bool, err error) {
	b, err := d.collect(ctx)
	if err != nil {
		return false, err
	}
	if b.Last == d.at {
		if d.kept != d.at { // it could not be kept when it was taken, and nothing may come any more
			return false, d.save(ctx)
		}
		return false, nil
	}
	if len(b.Records) > 0 {
		// The next try is of these and no others: a receiver that took them and whose answer was lost can
		// tell. The records are made anew then, for they may have been erased meanwhile.
		d.until = b.Last
		put, cancel := context.WithTimeout(ctx, putTime)
		err = d.opts.Sink.Put(put, b)
		cancel()
		if err != nil {
			return false, err
		}
	}
	// Only now: the cursor says what was taken, and never what is about to be.
	d.at, d.until = b.Last, 0
	d.taken.Store(d.at)
	d.records.Add(uint64(len(b.Records)))
	return d.at < d.log.Cursor(), d.save(ctx)
}

// collect makes the next batch; one without appends where there are none.
func (d *Delivery) collect(ctx context.Context) (*Batch, error) {
	b := &Batch{After: d.at, Last: d.at}
	end := d.log.Cursor()
	if d.until != 0 {
		end = d.until
	}
	if b.Last >= end {
		return b, nil
	}
	size := 0
	for x, err := range d.log.Appends(ctx, d.at) {
		if err != nil {
			return nil, err
		}
		n, err := b.add(ctx, d, x)
		if err != nil {
			return nil, err
		}
		size += n
		full := len(b.Records) >= mostRecords || size >= mostBytes
		if b.Last >= end || full && d.until == 0 {
			return b, nil
		}
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return nil, tga.Errorf(tga.StoreUnavailable, "the log ends before append %d", end)
}

// add takes an append into a batch.
func (b *Batch) add(ctx context.Context, d *Delivery, x audit.Append) (size int, err error) {
	if b.Last, err = strconv.ParseUint(x.Cursor, 10, 64); err != nil {
		return 0, tga.Errorf(tga.StoreUnavailable, "cursor %.40q: %w", x.Cursor, err)
	}
	records, err := d.reader.Of(ctx, x)
	if err != nil {
		return 0, fmt.Errorf("append %d: %w", b.Last, err)
	}
	for i := range records {
		var text bytes.Buffer
		if err := audit.Write(&text, d.opts.Format, d.opts.Version, &records[i]); err != nil {
			return 0, err
		}
		size += text.Len()
		b.Records, b.Lines = append(b.Records, records[i]), append(b.Lines, text.Bytes())
	}
	return size, nil
}

// Stats are what is counted of a delivery.
type Stats struct {
	ID       string
	Lag      uint64 // appends that are not taken yet
	Records  uint64 // taken since the process began
	Failures uint64
}

// Stats returns them as they are now.
func (d *Delivery) Stats() Stats {
	taken, newest := d.taken.Load(), d.log.Cursor()
	return Stats{d.opts.ID, newest - min(taken, newest), d.records.Load(), d.failures.Load()}
}

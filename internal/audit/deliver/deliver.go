// Package deliver delivers the records of a store's log to audit systems: to a file, to a syslog server, or
// to a webhook.
//
// Each delivery reads the log by itself. Its cursor says up to where the receiver has taken the records. There
// is no queue: records that the receiver has not taken are still in the log. So a receiver that is down
// costs no memory and delays no call. If several processes have the store, one at a time delivers to a
// receiver: the one that is on duty. The cursor is kept with the duty.
//
// # Invariants
//
//	each    a record that was not taken is delivered again: after an error, a restart, kill -9  [Delivery.step]  TestKilledDaemonSkipsNothing
//	kept    a cursor that could not be kept is kept later, also if nothing is appended          [Delivery.step]  TestCursorIsKeptLater
//	order   a receiver gets records in the order of the log; repeats have the same ids          [Delivery.step]  TestReceiverThatFailsGetsTheSameAgain
//	same    the same batch has the same id, as long as the process lives                        [Delivery.step]  TestReceiverThatFailsGetsTheSameAgain
//	apart   with a cursor of another store, or of lost appends, delivery begins at the start    [Delivery.start] TestCursorOfAnotherLogBeginsAnew
//	one     only a process on duty delivers, and it begins at the kept cursor                   [Delivery.turn]  TestDeliverersAreKilled
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
	// Cursor is the newest index of the durable order that this process knows. End reads the newest one.
	Cursor() uint64
	End(ctx context.Context) (uint64, error)
	// Appends yields the appends after an index. At the end of the log it waits for more, or ends.
	Appends(ctx context.Context, after uint64) iter.Seq2[audit.Append, error]
	// Call returns the namespace and the request of a trace.
	Call(ctx context.Context, id tga.ID) (audit.Call, error)
	// Mark identifies the append with an index among all appends of all stores.
	Mark(ctx context.Context, index uint64) (string, error)
}

// Sink takes records. One goroutine calls its methods.
type Sink interface {
	// Put returns nil once the receiver has taken the batch. After an error the same records are put
	// again.
	Put(ctx context.Context, b *Batch) error
	// Close is called after the last Put.
	Close() error
}

// Batch has the records of the appends after one index up to another.
type Batch struct {
	After, Last uint64
	Records     []audit.Record
	Lines       [][]byte // the records in the format of the delivery, each with a line end
}

// Options say which records are delivered, and where to.
type Options struct {
	ID      string // of the delivery: of letters, digits, _ and -
	Format  string // of [audit.Formats]
	Version string // of the program, for records
	Sink    Sink
	Duty    duty.Duty // keeps the cursor of the delivery
	Newest  bool      // without a kept cursor, begin with the next append and not with the oldest
	Logger  *slog.Logger

	// Every is how often the log is read; 0 is a second. First and Most are the shortest and the longest
	// pause after an error.
	Every, First, Most time.Duration
}

// Limits of a batch. The append that exceeds one is still part of the batch.
const (
	mostRecords = 500
	mostBytes   = 1 << 20
)

// Times of a delivery.
const (
	putTime  = 30 * time.Second // for one batch
	lastTime = 3 * time.Second  // for the records that are left when the daemon stops, and again for the cursor
)

// Delivery is one stream of records to one sink. One goroutine calls Run and then Close. Any goroutine may
// call Stats.
type Delivery struct {
	opts   Options
	log    Log
	reader *audit.Reader
	say    *slog.Logger

	mine    bool   // this process is on duty, as far as it knows
	at      uint64 // the index up to which the receiver has taken everything
	until   uint64 // the last index of the batch that was not taken; 0 is none
	kept    uint64 // the index in the kept cursor
	trouble string // the error that was logged last

	taken             atomic.Uint64 // at, for Stats; if another process is on duty, its last known cursor
	records, failures atomic.Uint64
}

// cursor is what [duty.Duty] keeps.
type cursor struct {
	Index uint64 `json:"index,string"`
	Mark  string `json:"mark"` // of the append with that index
}

// New opens a delivery, which begins at its kept cursor.
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

// take asks to be on duty, unless this process already is.
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
		return errors.Join(err, d.opts.Duty.Leave(ctx)) // another process may be able to deliver
	}
	d.mine, d.until = true, 0
	d.taken.Store(d.at)
	d.say.Info("this process delivers audit records", "cursor", d.at)
	return nil
}

// start reads the kept cursor. If the log has another append at that index, it is another store, or this one
// was rolled back. Then it is not known which records the receiver lacks, so it gets all of them again.
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

// save keeps the cursor.
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

// Run delivers the records of the log, and of what is appended later, until ctx ends.
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
			wait, pause = d.opts.Every, d.opts.First // ask again: the process on duty may end
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

// turn delivers one batch if this process is on duty. It reports whether there is more.
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
		// The process that is on duty next repeats the records that were taken since the cursor was kept.
		d.say.Info("another process delivers audit records now, or may", "cursor", d.at)
		d.mine = false
		return false, nil
	}
	return more, err
}

// Close delivers the records that are left, for a few seconds at most. The next process continues from
// the cursor.
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
			err = nil // the process that is on duty now has its own cursor
		}
		err = errors.Join(err, d.opts.Duty.Leave(last))
	}
	return errors.Join(err, d.opts.Sink.Close())
}

// tell logs the error of a delivery when it changes.
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

// step delivers one batch. It reports whether there is more.
func (d *Delivery) step(ctx context.Context) (more bool, err error) {
	b, err := d.collect(ctx)
	if err != nil {
		return false, err
	}
	if b.Last == d.at {
		if d.kept != d.at { // the cursor could not be kept before, and maybe nothing more is appended
			return false, d.save(ctx)
		}
		return false, nil
	}
	if len(b.Records) > 0 {
		// After an error, put exactly these records again: the batch has the same id, so a receiver that
		// took it and whose answer was lost can recognize it. The records are made again then, because some
		// may have been erased since.
		d.until = b.Last
		put, cancel := context.WithTimeout(ctx, putTime)
		err = d.opts.Sink.Put(put, b)
		cancel()
		if err != nil {
			return false, err
		}
	}
	// Advance only now: the cursor must never cover records that were not taken.
	d.at, d.until = b.Last, 0
	d.taken.Store(d.at)
	d.records.Add(uint64(len(b.Records)))
	return d.at < d.log.Cursor(), d.save(ctx)
}

// collect makes the next batch. If there are no appends, the batch is empty.
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

// add adds an append to a batch, and returns the bytes of its lines.
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

// Stats are the counters of a delivery.
type Stats struct {
	ID       string
	Lag      uint64 // appends that are not taken yet
	Records  uint64 // taken since the process began
	Failures uint64
}

// Stats returns the current counters.
func (d *Delivery) Stats() Stats {
	taken, newest := d.taken.Load(), d.log.Cursor()
	return Stats{d.opts.ID, newest - min(taken, newest), d.records.Load(), d.failures.Load()}
}

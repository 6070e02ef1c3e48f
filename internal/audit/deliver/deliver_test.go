package deliver_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/audit"
	"github.com/tgad/tgad/internal/audit/deliver"
	"github.com/tgad/tgad/internal/daemon/embed"
	"github.com/tgad/tgad/internal/duty"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// storeLog is the log of a real store, up to an append that the test chooses.
type storeLog struct {
	c    *client.Client
	mu   sync.Mutex
	end  uint64
	last uint64 // the end of the log, if it is further than this process knows
	tell string // the beginning of each mark: a different one for each store
}

func (l *storeLog) Cursor() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

func (l *storeLog) End(context.Context) (uint64, error) { return max(l.Cursor(), l.last), nil }

func (l *storeLog) grow(to uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = to
}

func (l *storeLog) Appends(ctx context.Context, after uint64) iter.Seq2[audit.Append, error] {
	return func(yield func(audit.Append, error) bool) {
		for line, err := range l.c.Log(ctx, fmt.Sprint(after), false) {
			var x audit.Append
			if err == nil {
				x, err = audit.Said(line)
			}
			if !yield(x, err) || err != nil {
				return
			}
		}
	}
}

func (l *storeLog) Call(ctx context.Context, id tga.ID) (audit.Call, error) {
	t, err := l.c.Trace(ctx, id)
	return audit.Call{Namespace: t.Namespace}, err
}

func (l *storeLog) Mark(_ context.Context, index uint64) (string, error) {
	return fmt.Sprintf("%s%d", l.tell, index), nil
}

// logOf makes n calls on a store. It returns the log of the store, which has no end set yet, and its number
// of appends.
func logOf(t *testing.T, n int) (*storeLog, uint64) {
	t.Helper()
	conf, err := assemble.Parse("", []byte("allow_all = true\n[store]\nlow_water_bytes = 1\n[[server]]\nid = \"pay\"\ntype = \"external\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := embed.Start(t.Context(), filepath.Join(t.TempDir(), "store"), conf, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := d.Client(client.Options{Name: "test"})
	t.Cleanup(func() { c.Close(); d.Close() })
	for i := range n {
		id := fmt.Sprintf("key-%d", i)
		b, err := c.Begin(t.Context(), runtime.BeginRequest{BeginID: id, Request: runtime.Request{Server: "pay", Tool: "charge", Key: id, Args: []byte(`{}`)}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Finish(t.Context(), b.Result.TraceID, b.Permit, runtime.Finished{Reply: runtime.Reply{Status: tga.StatusSuccess}}); err != nil {
			t.Fatal(err)
		}
	}
	newest := uint64(0)
	for line, err := range c.Log(t.Context(), "", false) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(line.Cursor, &newest); err != nil {
			t.Fatal(err)
		}
	}
	return &storeLog{c: c}, newest
}

// receiver is a sink whose behaviour the test sets.
type receiver struct {
	mu    sync.Mutex
	fails int // how often
	tries []string
	ids   []string // of the records it accepted
}

func (r *receiver) Put(_ context.Context, b *deliver.Batch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []string
	for i := range b.Records {
		ids = append(ids, b.Records[i].ID)
	}
	r.tries = append(r.tries, fmt.Sprintf("%d-%d %s", b.After, b.Last, strings.Join(ids, " ")))
	if r.fails > 0 {
		r.fails--
		return errors.New("the receiver is down")
	}
	r.ids = append(r.ids, ids...)
	return nil
}

func (r *receiver) Close() error { return nil }

func (r *receiver) seen() (tries, ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.tries), slices.Clone(r.ids)
}

func options(t *testing.T, r *receiver) deliver.Options {
	return deliver.Options{
		ID: "x", Format: "ocsf", Version: "v", Sink: r, Duty: duty.File(filepath.Join(t.TempDir(), "x")), Logger: slog.New(slog.DiscardHandler),
		Every: time.Millisecond, First: time.Millisecond, Most: 2 * time.Millisecond,
	}
}

// run delivers until nothing is left to deliver.
func run(t *testing.T, l deliver.Log, o deliver.Options) *deliver.Delivery {
	t.Helper()
	d, err := deliver.New(t.Context(), l, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { d.Run(ctx) })
	for end := time.Now().Add(time.Minute); d.Stats().Lag > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%+v", d.Stats())
		}
	}
	cancel()
	running.Wait()
	return d
}

// TestReceiverThatFailsGetsTheSameAgain: a receiver that fails gets the same batch again, although the log
// has grown, and gets nothing later before it accepts that batch. Over a restart no record is left out, and
// none that was accepted and closed is sent twice.
func TestReceiverThatFailsGetsTheSameAgain(t *testing.T) {
	l, newest := logOf(t, 10)
	r := &receiver{fails: 3}
	o := options(t, r)
	l.grow(newest / 2)
	d, err := deliver.New(t.Context(), l, o)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if more, err := d.Step(t.Context()); more || err == nil {
			t.Fatal(more, err)
		}
		l.grow(newest - 4)
	}
	if got := d.Stats(); got.Lag != newest-4 || got.Records != 0 {
		t.Errorf("%+v", got)
	}
	for range 2 {
		if _, err := d.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	tries, _ := r.seen()
	if len(tries) != 5 || tries[0] != tries[1] || tries[1] != tries[2] || tries[2] != tries[3] || tries[4] == tries[3] {
		t.Errorf("tries\n%s", strings.Join(tries, "\n"))
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	l.grow(newest)
	if err := run(t, l, o).Close(); err != nil {
		t.Fatal(err)
	}
	_, ids := r.seen()
	if got, want := ids, all(t, l); !slices.Equal(got, want) {
		t.Errorf("took\n%q, want\n%q", got, want)
	}
}

// all returns the ids of the records of a log, in order.
func all(t *testing.T, l *storeLog) []string {
	t.Helper()
	r := &receiver{}
	if err := run(t, l, options(t, r)).Close(); err != nil {
		t.Fatal(err)
	}
	_, ids := r.seen()
	return ids
}

// TestCursorIsKeptLater: the directory of the cursor is missing while the last records are accepted. Once
// the directory exists, the cursor is kept without a further record. A process that is killed then sends
// nothing again.
func TestCursorIsKeptLater(t *testing.T) {
	l, newest := logOf(t, 2)
	dir, r := filepath.Join(t.TempDir(), "there"), &receiver{}
	o := options(t, r)
	o.Duty = duty.File(filepath.Join(dir, "x"))
	d, err := deliver.New(t.Context(), l, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	l.grow(newest)
	for range 3 {
		if _, err := d.Step(t.Context()); err == nil {
			t.Error("nobody hears that the cursor is not kept")
		}
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, taken := r.seen()
	if err := run(t, l, o).Close(); err != nil { // the process before it was killed
		t.Fatal(err)
	}
	if _, ids := r.seen(); len(taken) == 0 || !slices.Equal(ids, taken) {
		t.Errorf("it was given %q, and in all %q", taken, ids)
	}
}

// TestBatchesAreBounded: a long log takes several batches, and a batch is at most one append larger than its
// bound.
func TestBatchesAreBounded(t *testing.T) {
	l, newest := logOf(t, 300) // each has at least 2 entries and a note
	l.grow(newest)
	r := &receiver{}
	if err := run(t, l, options(t, r)).Close(); err != nil {
		t.Fatal(err)
	}
	tries, ids := r.seen()
	if len(ids) < 2*deliver.MostRecords-200 || len(tries) < 2 {
		t.Errorf("%d records in %d batches", len(ids), len(tries))
	}
	for _, text := range tries {
		if n := strings.Count(text, " "); n > deliver.MostRecords+10 {
			t.Errorf("a batch of %d records", n)
		}
	}
	if slices.Sort(ids); len(slices.Compact(ids)) != len(ids) {
		t.Error("a record came twice")
	}
}

// TestCursorOfAnotherLogBeginsAnew: if the append at the cursor is a different one, or does not exist,
// everything is delivered again. A damaged cursor is an error. A new delivery begins where it is configured
// to begin.
func TestCursorOfAnotherLogBeginsAnew(t *testing.T) {
	l, newest := logOf(t, 4)
	l.grow(newest)
	whole := all(t, l)
	r := &receiver{}
	o := options(t, r)
	if err := run(t, l, o).Close(); err != nil {
		t.Fatal(err)
	}
	if err := run(t, l, o).Close(); err != nil {
		t.Fatal(err)
	}
	if _, ids := r.seen(); !slices.Equal(ids, whole) {
		t.Errorf("from its own cursor on: %q", ids)
	}
	for name, change := range map[string]func(*storeLog){
		"another store": func(l *storeLog) { l.tell = "other " },
		"lost appends":  func(l *storeLog) { l.end = newest - 2 },
	} {
		r.ids = nil
		other := &storeLog{c: l.c, end: newest}
		change(other)
		again := o
		again.Duty = duty.File(filepath.Join(t.TempDir(), "x"))
		raw, _, err := o.Duty.Take(t.Context())
		if err == nil {
			err = again.Duty.Keep(t.Context(), raw)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := run(t, other, again).Close(); err != nil {
			t.Fatal(err)
		}
		if _, ids := r.seen(); len(ids) == 0 || !slices.Equal(ids, whole[:len(ids)]) {
			t.Errorf("%s: %q", name, ids)
		}
	}
	if err := o.Duty.Keep(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := deliver.New(t.Context(), l, o); tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("an empty cursor: %v", err)
	}
	r.ids = nil
	o.Duty, o.Newest = duty.File(filepath.Join(t.TempDir(), "x")), true
	l.grow(newest - 2)
	if err := run(t, l, o).Close(); err != nil { // the cursor is kept although nothing was delivered
		t.Fatal(err)
	}
	l.grow(newest)
	if err := run(t, l, o).Close(); err != nil {
		t.Fatal(err)
	}
	if _, ids := r.seen(); len(ids) == 0 || len(ids) >= len(whole) || !slices.Equal(ids, whole[len(whole)-len(ids):]) {
		t.Errorf("from the newest on: %q of %q", ids, whole)
	}
}

// TestSuccessorMayKnowLess: the process that takes over does not know of all records that its predecessor
// delivered. It continues at the predecessor's place once it knows them.
func TestSuccessorMayKnowLess(t *testing.T) {
	l, newest := logOf(t, 4)
	l.grow(newest - 1)
	whole, r := all(t, l), &receiver{}
	o := options(t, r)
	if err := run(t, l, o).Close(); err != nil {
		t.Fatal(err)
	}
	behind := &storeLog{c: l.c, end: 2, last: newest}
	d, err := deliver.New(t.Context(), behind, o)
	if err != nil {
		t.Fatal(err)
	}
	if more, err := d.Step(t.Context()); more || err != nil {
		t.Error(more, err)
	}
	behind.grow(newest)
	if _, err := d.Step(t.Context()); err != nil {
		t.Error(err)
	}
	l.grow(newest)
	if _, ids := r.seen(); !slices.Equal(ids[:len(whole)], whole) || !slices.Equal(ids, all(t, l)) {
		t.Errorf("it was given %q", ids)
	}
}

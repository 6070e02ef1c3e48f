package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Duty is a task that only one process of a store does at a time, with the state that the task must keep. The database elects
// the process on duty, with an epoch that grows by one each time, and checks that epoch at each write. So a process that hung or
// was cut off can keep nothing more once another process is on duty.
type Duty struct {
	s    *Store
	name string

	mu             sync.Mutex
	session, epoch int64 // under which this process is on duty; epoch 0: it is not on duty
}

// Duty returns the duty with a name.
func (f Fleet) Duty(name string) *Duty { return &Duty{s: f.s, name: name} }

// ErrNotOnDuty: another process is on duty, or may be; or the session of this process is over. Nothing was kept.
var ErrNotOnDuty = errors.New("another process is on duty, or may be")

// sqlNotOnDuty is the code with which tgad.remember and tgad.keep refuse (migrations/007_duties.sql).
const sqlNotOnDuty = "TG110"

// errDutyOver is the cause of the context of [Duty.While] when it ends.
var errDutyOver = errors.New("it is not certain any more that this process is on duty: its session could not be renewed in time")

// evidenceDuty is the duty of the process that signs.
const evidenceDuty = "evidence"

// leadGrace is for how long an answer is still awaited after the context of the caller has ended.
const leadGrace = 2 * time.Second

// lead asks that this process be on duty. The epoch is 0 if another process is, or may still be. lead waits for the answer even
// after ctx has ended, so that the caller knows whether it is on duty and can resign. A process that does not know that it is on
// duty would keep all others from it for as long as its session lasts.
func (d *Duty) lead(ctx context.Context) (session, epoch int64, kept []byte, err error) {
	if err := ctx.Err(); err != nil {
		return 0, 0, nil, err
	}
	s := d.s
	ctx, cancel := lasting(ctx, leadGrace)
	defer cancel()
	err = s.asked(ctx, "ask who is on duty", func(ctx context.Context, c *pgxpool.Conn) error {
		session = s.session.number()
		return c.QueryRow(ctx, "SELECT o_epoch, o_kept FROM tgad.lead($1, $2, $3)", s.o.Shard, d.name, session).Scan(&epoch, &kept)
	})
	return session, epoch, kept, err
}

// lasting returns a context that ends later than ctx, by grace.
func lasting(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return longer, func() {
		stop()
		cancel()
	}
}

// resign lets another process go on duty. It works even if ctx has just ended.
func (d *Duty) resign(ctx context.Context, session, epoch int64) error {
	ctx, cancel := lasting(ctx, leadGrace)
	defer cancel()
	return d.s.asked(ctx, "go off duty", func(ctx context.Context, c *pgxpool.Conn) error {
		_, err := c.Exec(ctx, "SELECT tgad.must_be_here($1), tgad.resign($1, $2, $3, $4)", d.s.o.Shard, d.name, session, epoch)
		return err
	})
}

// asked is ask for callers that have not entered: it keeps the store from closing meanwhile.
func (d *database) asked(ctx context.Context, what string, do func(context.Context, *pgxpool.Conn) error) error {
	if err := d.health.enter(); err != nil {
		return err
	}
	defer d.health.leave()
	return d.ask(ctx, what, do)
}

// Take asks that this process be on duty. It returns the kept state, nil if there is none. mine is false if another process is on
// duty, or may still be.
func (d *Duty) Take(ctx context.Context) (kept []byte, mine bool, err error) {
	session, epoch, kept, err := d.lead(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		return nil, false, err // its duty is unchanged
	}
	if epoch == 0 {
		d.session, d.epoch = 0, 0
		return kept, false, nil
	}
	if session != d.session || epoch != d.epoch {
		// Make the election durable. Otherwise a killed server could forget it, and the process that was on
		// duty before would be on duty again, at the same time as this one.
		longer, cancel := lasting(ctx, leadGrace)
		defer cancel()
		if err := d.s.asked(longer, "go on duty", func(ctx context.Context, c *pgxpool.Conn) error { return d.s.durable(ctx, c.Conn()) }); err != nil {
			return nil, false, errors.Join(err, d.resign(longer, session, epoch))
		}
	}
	d.session, d.epoch = session, epoch
	return kept, true, nil
}

// Keep stores the state for the next process on duty. [ErrNotOnDuty]: this process is not on duty.
func (d *Duty) Keep(ctx context.Context, kept []byte) error {
	session, epoch := d.under()
	code := sqlNotOnDuty
	if epoch != 0 {
		if err := d.s.asked(ctx, "remember", func(ctx context.Context, c *pgxpool.Conn) error {
			return c.QueryRow(ctx, "SELECT tgad.remember($1, $2, $3, $4, $5)", d.s.o.Shard, d.name, session, epoch, kept).Scan(&code)
		}); err != nil {
			return err
		}
	}
	if code == sqlNotOnDuty {
		return ErrNotOnDuty
	}
	return nil
}

// While returns a context that ends when this process can no longer be certain that it is on duty. Each renewal of its session
// extends the time.
func (d *Duty) While(ctx context.Context) (context.Context, context.CancelFunc) {
	session, epoch := d.under()
	ctx, cancel := context.WithCancelCause(ctx)
	x := &whiled{session: session, store: d.s, over: func() { cancel(errDutyOver) }}
	if epoch == 0 || !x.goesOn() {
		x.over()
	}
	return ctx, func() {
		x.stop()
		cancel(context.Canceled)
	}
}

// Leave lets another process go on duty.
func (d *Duty) Leave(ctx context.Context) error {
	session, epoch := d.under()
	if epoch == 0 {
		return nil
	}
	d.mu.Lock()
	d.session, d.epoch = 0, 0
	d.mu.Unlock()
	return d.resign(ctx, session, epoch)
}

func (d *Duty) under() (session, epoch int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.session, d.epoch
}

package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Duty is something that one process of a store does at a time, with what it must remember of it. The database elects who is
// on duty, by an epoch that is one more with each, and compares the epoch with each word that is kept: a process that stood
// still, or was cut off, keeps nothing any more once another one is on duty.
type Duty struct {
	s    *Store
	name string

	mu             sync.Mutex
	session, epoch int64 // under which this process is on duty; epoch 0 is not
}

// Duty returns the duty with a name.
func (f Fleet) Duty(name string) *Duty { return &Duty{s: f.s, name: name} }

// ErrNotOnDuty: another process is on duty, or may be; or the session of this one is over. Nothing was kept.
var ErrNotOnDuty = errors.New("another process is on duty, or may be")

// sqlNotOnDuty is what tgad.remember and tgad.keep answer (migrations/007_duties.sql).
const sqlNotOnDuty = "TG110"

// errDutyOver is the cause of the end of what was done on duty.
var errDutyOver = errors.New("it is not certain any more that this process is on duty: its session could not be renewed in time")

// evidenceDuty is the duty of the process that signs.
const evidenceDuty = "evidence"

// leadGrace is for how much longer than who asks the answer is waited for.
const leadGrace = 2 * time.Second

// lead asks that this process be on duty. The epoch is 0 where another one is, or may still be. Who has no more time when the
// answer comes is on duty all the same, and goes off duty: a process that does not know that it is on duty would keep all others
// from it for as long as its session lasts.
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

// lasting is a context that ends so much later than another one.
func lasting(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return longer, func() {
		stop()
		cancel()
	}
}

// resign lets another process go on duty, also where who asks for it has no more time.
func (d *Duty) resign(ctx context.Context, session, epoch int64) error {
	ctx, cancel := lasting(ctx, leadGrace)
	defer cancel()
	return d.s.asked(ctx, "go off duty", func(ctx context.Context, c *pgxpool.Conn) error {
		_, err := c.Exec(ctx, "SELECT tgad.resign($1, $2, $3, $4)", d.s.o.Shard, d.name, session, epoch)
		return err
	})
}

// asked is ask for who is outside: the store does not close meanwhile.
func (d *database) asked(ctx context.Context, what string, do func(context.Context, *pgxpool.Conn) error) error {
	if err := d.health.enter(); err != nil {
		return err
	}
	defer d.health.leave()
	return d.ask(ctx, what, do)
}

// Take asks that this process be on duty. It returns what was kept, nil where nothing was, and false where another process is
// on duty, or may still be.
func (d *Duty) Take(ctx context.Context) (kept []byte, mine bool, err error) {
	session, epoch, kept, err := d.lead(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		return nil, false, err // whether it is on duty is as it was
	}
	if epoch == 0 {
		d.session, d.epoch = 0, 0
		return kept, false, nil
	}
	if session != d.session || epoch != d.epoch {
		// A server that is killed could forget it, and put the one before on duty again, beside this one.
		longer, cancel := lasting(ctx, leadGrace)
		defer cancel()
		if err := d.s.asked(longer, "go on duty", func(ctx context.Context, c *pgxpool.Conn) error { return d.s.durable(ctx, c.Conn()) }); err != nil {
			return nil, false, errors.Join(err, d.resign(longer, session, epoch))
		}
	}
	d.session, d.epoch = session, epoch
	return kept, true, nil
}

// Keep has the process that is on duty next find what is kept. [ErrNotOnDuty]: this one is not.
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
// puts the end off.
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

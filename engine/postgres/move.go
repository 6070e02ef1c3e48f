package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tgad/tgad/schemas/tga"
)

// Moving says which store moves, and between which shards.
type Moving struct {
	// Namespace names the store by its namespace. If ByNumber is set, Store names it by its number instead. The store of
	// the namespaces without a store of their own moves with all of these.
	Namespace string
	ByNumber  bool
	Store     int32
	From, To  string // DSNs of the shards, with the rights of [Migrate]
	// Drain is how long the move waits before the fence for calls under way. Zero is 10 s. A call that has not ended by then is
	// recovered on the new shard, like a call of a process that is gone.
	Drain time.Duration
	// Pinned permits the move of a store that is pinned to its shard.
	Pinned bool
	// Lost is for [StopMoving]: the operator asserts that the shard To will never answer again and has not taken the store. This
	// cannot be checked. If To has taken the store, the appends made there are lost, and their keys are free again.
	Lost bool
	// Step, if set, is called before each step. An error ends the move there.
	Step func(step string) error
}

// MovedStore says what a move did.
type MovedStore struct {
	Store    int32
	Epoch    int64 // epoch of its placement after the move
	From, To string
	Rows     int64         // rows that were compared
	Stopped  time.Duration // how long no shard had the store; 0 if an earlier run fenced it
}

// Move moves a store from one shard of a fleet to another. Its rows are the same there, byte for byte: its id, its secret, its
// order and its sessions, which are all ended. Run a move again that was interrupted at any moment: it continues where it
// stopped. At no moment do both shards have the store:
//
//	prepare   the new shard permits the writing of a copy, and grants no session
//	follow    the existing log is copied while the store is served
//	leave     no trace begins any more; calls under way may end
//	fence     the old shard ends all sessions and all leases, under the lock that grants of both need. From here on
//	          nothing is appended, and a process that asks before a send is refused
//	copy      the rest of the log, heads, ledger, attachments
//	compare   each row on both shards
//	wait      until every send under a lease from before the fence is over
//	take      the new shard becomes the owner
//	tell      the other shards
//
// VALIDATION_ERROR: the store is not on From, or is pinned there, or a move to another shard has begun. Each step names the
// epoch of the placement, so a late step of another move changes nothing.
func Move(ctx context.Context, o Options, m Moving) (done MovedStore, err error) {
	x := &mover{Moving: m}
	if x.Drain <= 0 {
		x.Drain = 10 * time.Second
	}
	err = onShard(ctx, m.From, o, func(from *copier) error {
		return onShard(ctx, m.To, o, func(to *copier) error {
			x.from, x.to = from, to
			return x.move(ctx, o)
		})
	})
	return x.done, err
}

type mover struct {
	Moving
	from, to *copier
	name     string // name of the new shard
	epoch    int64  // epoch of the placement before the move
	fenced   bool   // the store was fenced when this run began
	done     MovedStore
}

func (x *mover) move(ctx context.Context, o Options) error {
	over, err := x.begin(ctx)
	if err != nil {
		return err
	}
	var fencedAt time.Time
	for _, s := range []struct {
		name  string
		do    func(context.Context) error
		again bool // also where the store is fenced already
	}{
		{"prepare", x.prepare, true}, {"follow", x.follow, true}, {"leave", x.leave, false}, {"fence", x.fence, false},
		{"copy", x.copyRest, true}, {"compare", x.compare, true}, {"wait", x.wait, true}, {"take", x.take, true},
	} {
		if over || x.fenced && !s.again {
			continue
		}
		if s.name == "fence" {
			fencedAt = time.Now()
		}
		if err := x.step(ctx, s.name, s.do); err != nil {
			return err
		}
	}
	if !fencedAt.IsZero() {
		x.done.Stopped = time.Since(fencedAt)
	}
	x.done.Epoch = x.epoch + 1
	return x.step(ctx, "tell", func(ctx context.Context) error {
		r, err := readRoutes(ctx, x.to.conn)
		if err != nil {
			return err
		}
		return spread(ctx, x.To, o, r)
	})
}

func (x *mover) step(ctx context.Context, name string, do func(context.Context) error) error {
	if x.Step != nil {
		if err := x.Step(name); err != nil {
			return err
		}
	}
	if err := do(ctx); err != nil {
		return x.failed(name, err)
	}
	return nil
}

// failed returns the error of a step. If the placement is no longer the one of this move, the error is STATE_CONFLICT.
func (x *mover) failed(step string, err error) error {
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && pg.Code == sqlOtherPlacement:
		return tga.Errorf(tga.StateConflict, "move, %s: another move has come first: %w", step, err)
	case tga.CodeOf(err) != "":
		return err
	}
	return tga.Errorf(tga.StoreUnavailable, "move, %s: %w", step, err)
}

// begin finds out how far the move has come. over: the new shard has the store already.
func (x *mover) begin(ctx context.Context) (over bool, err error) {
	from, err := readRoutes(ctx, x.from.conn)
	if err != nil {
		return false, err
	}
	to, err := readRoutes(ctx, x.to.conn)
	if err != nil {
		return false, err
	}
	if from.Fleet == (tga.ID{}) || from.Fleet != to.Fleet || from.Name == to.Name {
		return false, tga.Errorf(tga.ValidationError, "move: the databases are shard %q of fleet %s and shard %q of fleet %s: two shards of one fleet are needed", from.Name, from.Fleet, to.Name, to.Fleet)
	}
	if err := x.whichStore(from); err != nil {
		return false, err
	}
	p, ok := from.Placements[x.Store]
	if !ok {
		return false, tga.Errorf(tga.NotFound, "move: shard %q knows no store %d", from.Name, x.Store)
	}
	x.name = to.Name
	x.done = MovedStore{Store: x.Store, From: from.Name, To: to.Name}
	there := to.Placements[x.Store]
	switch {
	case p.State == Here || p.State == Leaving:
		x.epoch = p.Epoch
	case (there.State == Here || there.State == Leaving) && there.Epoch >= p.Epoch:
		x.epoch = there.Epoch - 1
		return true, nil
	case p.State == Gone && p.Owner == to.Name:
		x.epoch, x.fenced = p.Epoch-1, true
	default:
		return false, tga.Errorf(tga.ValidationError, "move: store %d is not on shard %q but on %q (epoch %d)", x.Store, from.Name, p.Owner, p.Epoch)
	}
	switch {
	case p.Target != "" && p.Target != to.Name:
		return false, tga.Errorf(tga.ValidationError, "move: store %d is about to move to shard %q: end that first", x.Store, p.Target)
	case p.Pinned && !x.Pinned && !x.fenced:
		return false, tga.Errorf(tga.ValidationError, "move: store %d is pinned to shard %q", x.Store, from.Name)
	}
	return false, x.ready(ctx, p)
}

// whichStore finds the number of the store that moves.
func (x *mover) whichStore(r *Routes) error {
	if x.ByNumber {
		return nil
	}
	store, ok := r.Namespaces[x.Namespace]
	if !ok {
		return tga.Errorf(tga.ValidationError, "move: namespace %q has no store of its own: it is in store %d with all others that have none", x.Namespace, r.Rest)
	}
	x.Store = store
	return nil
}

// ready gives both connections the same output settings, because rows are compared by their text.
func (x *mover) ready(ctx context.Context, p Placement) error {
	x.Pinned = p.Pinned
	for _, c := range []*copier{x.from, x.to} {
		if _, err := c.conn.Exec(ctx, "SELECT set_config(name, value, false) FROM (VALUES ('TimeZone', 'UTC'), ('DateStyle', 'ISO'), ('IntervalStyle', 'postgres'), ('bytea_output', 'hex')) AS v (name, value)"); err != nil {
			return err
		}
	}
	return nil
}

func (x *mover) prepare(ctx context.Context) error {
	if !x.fenced {
		tag, err := x.from.conn.Exec(ctx, "UPDATE tgad.placements SET target = $3 WHERE store = $1 AND epoch = $2 AND state IN ('here', 'leaving') AND coalesce(target, $3) = $3", x.Store, x.epoch, x.name)
		if err != nil {
			return err
		}
		if tag.RowsAffected() != 1 {
			return tga.Errorf(tga.StateConflict, "move: another move of store %d has come first", x.Store)
		}
	}
	if _, err := x.to.conn.Exec(ctx, "SELECT tgad.prepare($1, $2, $3, $4)", x.Store, x.epoch, x.done.From, x.Pinned); err != nil {
		return err
	}
	return x.months(ctx)
}

// months makes the partitions that the rows need on the new shard.
func (x *mover) months(ctx context.Context) error {
	const named = `SELECT ARRAY(SELECT to_char(to_date(substr(c.relname, 9), 'YYYY_MM'), 'YYYY-MM-DD') FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = 'tgad.entries'::regclass AND c.relname ~ '^entries_[0-9]{4}_[0-9]{2}$')`
	var has, wants []string
	if err := errors.Join(x.from.conn.QueryRow(ctx, named).Scan(&wants), x.to.conn.QueryRow(ctx, named).Scan(&has)); err != nil {
		return err
	}
	there := strings.Join(has, " ")
	for _, month := range wants {
		if strings.Contains(there, month) {
			continue
		}
		if _, err := makePartition(ctx, x.to.conn, "$1::text::date", month); err != nil {
			return fmt.Errorf("partition of %s: %w", month, err)
		}
	}
	return nil
}

// leave keeps new traces from beginning, and waits at most Drain for calls under way.
func (x *mover) leave(ctx context.Context) error {
	tag, err := x.from.conn.Exec(ctx, "UPDATE tgad.placements SET state = 'leaving' WHERE store = $1 AND epoch = $2 AND state IN ('here', 'leaving') AND target = $3", x.Store, x.epoch, x.name)
	if err != nil {
		return err
	}
	if tag.RowsAffected() != 1 {
		return tga.Errorf(tga.StateConflict, "move: another move of store %d has come first", x.Store)
	}
	for until := time.Now().Add(x.Drain); time.Now().Before(until); {
		var busy bool
		if err := x.from.conn.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM tgad.heads h JOIN tgad.sessions s ON s.shard = h.shard AND s.session = h.session
			WHERE h.shard = $1 AND h.state BETWEEN 1 AND 3 AND h.lent = 0 AND NOT s.ended AND s.expires > clock_timestamp())`, x.Store).Scan(&busy); err != nil || !busy {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (x *mover) fence(ctx context.Context) error {
	return again(ctx, func() error {
		return x.from.transaction(ctx, x.from.conn, func(b *pgx.Batch) { b.Queue("SELECT tgad.fence($1, $2, $3)", x.Store, x.epoch, x.name) })
	})
}

// again repeats do after a conflict with another transaction, at most ten times.
func again(ctx context.Context, do func() error) error {
	for try := 0; ; try++ {
		err := do()
		var pg *pgconn.PgError
		if err == nil || try == 10 || !errors.As(err, &pg) || pg.Code != "40P01" && pg.Code != "40001" {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wait waits until no process can send under a lease from before the fence, by the clock of the shard that granted the leases. It
// also makes sure that the fence is durable on that shard, because an earlier run may have ended before it knew. Otherwise a
// standby could be promoted without the fence, and would be an owner too.
func (x *mover) wait(ctx context.Context) error {
	if err := x.from.durable(ctx, x.from.conn); err != nil {
		return err
	}
	var left time.Duration
	if err := x.from.conn.QueryRow(ctx, "SELECT greatest(until - clock_timestamp(), interval '0') FROM tgad.placements WHERE store = $1 AND state = 'gone' AND epoch = $2", x.Store, x.epoch+1).Scan(&left); err != nil {
		return err
	}
	select {
	case <-time.After(left):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (x *mover) take(ctx context.Context) error {
	var fenced bool
	err := x.from.conn.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM tgad.placements WHERE store = $1 AND state = 'gone' AND epoch = $2 AND owner = $3 AND until <= clock_timestamp())", x.Store, x.epoch+1, x.name).Scan(&fenced)
	if err == nil && !fenced {
		err = tga.Errorf(tga.StateConflict, "move: store %d is not fenced on shard %q for this move", x.Store, x.done.From)
	}
	if err == nil {
		err = x.to.transaction(ctx, x.to.conn, func(b *pgx.Batch) { b.Queue("SELECT tgad.take($1, $2)", x.Store, x.epoch) })
	}
	return err
}

// StopMoving ends a move before its fence, or after it while the new shard has not taken the store. Then From serves the store
// again. A process that later continues the move changes nothing.
func StopMoving(ctx context.Context, o Options, m Moving) (done MovedStore, err error) {
	x := &mover{Moving: m}
	x.Moving.Pinned = true // do not refuse a pinned store: it stays where it is
	if m.Lost {
		err = onShard(ctx, m.From, o, func(from *copier) error {
			x.from = from
			return x.stopAlone(ctx)
		})
		return x.done, err
	}
	err = onShard(ctx, m.From, o, func(from *copier) error {
		return onShard(ctx, m.To, o, func(to *copier) error {
			x.from, x.to = from, to
			return x.stop(ctx)
		})
	})
	return x.done, err
}

func (x *mover) stop(ctx context.Context) error {
	over, err := x.begin(ctx)
	if err != nil {
		return err
	}
	if over {
		return tga.Errorf(tga.ValidationError, "store %d is on shard %q: move it back", x.Store, x.name)
	}
	epoch := x.epoch
	if x.fenced {
		epoch += 2 // skip the epoch of the move, which was never taken
		if err := x.wait(ctx); err != nil {
			return x.failed("stop", err)
		}
	}
	// Begin with the new shard: once it has given up the copy, it cannot take the store.
	if err := pgx.BeginFunc(ctx, x.to.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO tgad.placements (store, epoch, owner, state, pinned) VALUES ($1, $2, $3, 'elsewhere', $4) ON CONFLICT DO NOTHING", x.Store, epoch, x.done.From, x.Pinned); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, "UPDATE tgad.placements SET state = 'elsewhere', epoch = $2, owner = $3 WHERE store = $1 AND state NOT IN ('here', 'leaving') AND epoch <= $2", x.Store, epoch, x.done.From)
		if err == nil && tag.RowsAffected() != 1 {
			err = tga.Errorf(tga.StateConflict, "shard %q has taken the store meanwhile", x.name)
		}
		return err
	}); err != nil {
		return x.failed("stop", err)
	}
	tag, err := x.from.conn.Exec(ctx, `UPDATE tgad.placements SET state = 'here', epoch = $3, owner = $4, target = NULL, until = NULL
		WHERE store = $1 AND (epoch = $2 AND state IN ('here', 'leaving') OR epoch = $2 + 1 AND state = 'gone' AND owner = $5)`, x.Store, x.epoch, epoch, x.done.From, x.name)
	return x.stopped(tag, err)
}

// stopAlone ends a move without asking the new shard.
func (x *mover) stopAlone(ctx context.Context) error {
	r, err := readRoutes(ctx, x.from.conn)
	if err != nil {
		return err
	}
	if err := x.whichStore(r); err != nil {
		return err
	}
	p := r.Placements[x.Store]
	x.done = MovedStore{Store: x.Store, From: r.Name, To: p.Target}
	switch {
	case p.Target == "" || p.State != Here && p.State != Leaving && p.State != Gone:
		return tga.Errorf(tga.ValidationError, "store %d does not move away from shard %q", x.Store, r.Name)
	case p.State == Gone:
		x.epoch, x.done.Epoch = p.Epoch-1, p.Epoch+1
		if err := x.wait(ctx); err != nil {
			return x.failed("stop", err)
		}
	default:
		x.done.Epoch = p.Epoch
	}
	tag, err := x.from.conn.Exec(ctx, "UPDATE tgad.placements SET state = 'here', epoch = $3, owner = $4, target = NULL, until = NULL WHERE store = $1 AND epoch = $2 AND state = $5", x.Store, p.Epoch, x.done.Epoch, r.Name, p.State)
	return x.stopped(tag, err)
}

// stopped says whether the store is served again from where it was.
func (x *mover) stopped(tag pgconn.CommandTag, err error) error {
	if err == nil && tag.RowsAffected() != 1 {
		err = tga.Errorf(tga.StateConflict, "the placement of store %d has changed meanwhile", x.Store)
	}
	if err != nil {
		return x.failed("stop", err)
	}
	return nil
}

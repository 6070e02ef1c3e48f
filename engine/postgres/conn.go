package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/schemas/tga"
)

// noTable is the code of the database for a table that does not exist.
const noTable = "42P01"

// oldestServer is the oldest server version that the tests cover.
const oldestServer = 150000

// database connects to the servers of a store.
type database struct {
	o      Options
	log    *slog.Logger
	pool   *pgxpool.Pool
	spare  *pgxpool.Pool // for urgent requests
	health health
	line   line
	away   atomic.Bool // the newest request for a connection got no server
	asks   gates[struct{}]
	work   sync.WaitGroup // background goroutines of the store
	place  place

	// promoted is called before the first use of a server that has become the primary. restarted is
	// called when the database may have lost commits that were not synced.
	promoted  func(context.Context, *pgx.Conn) error
	restarted func()
}

// line is the history of the server as far as this process has seen it: the cluster, and the
// timeline of the cluster. Each promotion of a standby begins another timeline.
type line struct {
	mu       sync.Mutex
	cluster  string
	shard    string // name in its fleet, "" for none
	moved    bool   // the store has moved to another shard since
	timeline uint64
	started  time.Time // start time of the server, at the newest connection

	// checkpoint is the newest checkpoint at the newest connection. A server whose processes were killed
	// recovers without a new start time, but its recovery ends with a new checkpoint.
	checkpoint string
}

func (d *database) configure(c *pgxpool.Config) {
	bounded(c.ConnConfig) // the pool would set two minutes
	c.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) (err error) {
		if to := d.place.target.Load(); to != nil {
			*c = *to.Copy() // all that follows is for this one too
		}
		c.OnNotice = hear
		neverCancel(bounded(c))
		if d.o.Password != nil {
			c.Password, err = d.o.Password()
		}
		return err
	}
	c.AfterConnect = d.admit
}

// connect makes the pools. It connects to no server yet.
func (d *database) connect(ctx context.Context, c *pgxpool.Config) (err error) {
	d.configure(c)
	spare := c.Copy()
	spare.MaxConns = int32(max(1, d.o.Conns/5))
	c.MaxConns = int32(max(min(2, d.o.Conns), d.o.Conns-int(spare.MaxConns))) // one of them listens
	if d.pool, err = pgxpool.NewWithConfig(ctx, c); err != nil {
		return err
	}
	if d.spare, err = pgxpool.NewWithConfig(ctx, spare); err != nil {
		d.pool.Close()
	}
	return err
}

// disconnect closes the pools.
func (d *database) disconnect() {
	d.spare.Close()
	d.pool.Close()
}

// hear stores the newest warning of the server.
func hear(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.SeverityUnlocalized == "WARNING" {
		conn.CustomData()[warned] = n.Message
	}
}

// dialPatience is how long one host may take to be connected to, if the URL does not say it (connect_timeout).
const dialPatience = 5 * time.Second

// bounded sets how long one host may take to be connected to. A machine that is lost does not refuse: without the bound the next
// host of the URL is asked after minutes.
func bounded(c *pgx.ConnConfig) *pgx.ConnConfig {
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = dialPatience
	}
	return c
}

// neverCancel keeps the driver from asking the server to cancel the work of an abandoned connection.
// The driver does that on a second connection, which neverCancel refuses to dial. A cancelled commit
// that waits for a standby would end without a standby, and everybody would see it.
func neverCancel(c *pgx.ConnConfig) {
	var made atomic.Bool
	dial := c.DialFunc
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if made.Load() {
			return nil, errors.New("nothing is cancelled")
		}
		return dial(ctx, network, addr)
	}
	c.AfterConnect = func(context.Context, *pgconn.PgConn) error {
		made.Store(true)
		return nil
	}
}

// warned names the data of a connection that has the warning of its last transaction. The server
// reports only by a warning that a transaction committed but that no standby is known to have it. So
// every warning is treated as that one.
const warned = "tgad.warned"

// noTimeouts sets those of these settings that the server knows. That for a session that stands still in a transaction
// stays: it ends the connection of a process that keeps others waiting.
const noTimeouts = `SELECT set_config(name, '0', false) FROM pg_settings
	WHERE name IN ('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_session_timeout')`

// admit checks the server of each new connection. After a failover it may be another server, and the
// settings of a server can change at any time.
func (d *database) admit(ctx context.Context, c *pgx.Conn) error {
	// The functions of the database look again once they have waited for a lock. Under another isolation that is a conflict. How long
	// a request may take is for its context to say: with a time-out of the role or the database, a check of the store would end
	// in the middle, and the record of an answer where somebody has locked a row for a moment.
	if _, err := c.Exec(ctx, "SET client_min_messages = warning; SET default_transaction_isolation = 'read committed'; "+noTimeouts); err != nil {
		return err
	}
	var (
		version, schema                         int
		fsync, pages, commit, standbys, cluster string
		recovery                                bool
		wal                                     string
		started                                 time.Time
		checkpoint                              string
	)
	err := c.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('fsync'),
		current_setting('full_page_writes'), current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
		pg_is_in_recovery(), CASE WHEN pg_is_in_recovery() THEN '' ELSE pg_walfile_name(pg_current_wal_lsn()) END,
		(SELECT system_identifier::text FROM pg_control_system()), pg_postmaster_start_time(),
		(SELECT checkpoint_lsn::text FROM pg_control_checkpoint()), (SELECT version FROM `+schemaTable+`)`).
		Scan(&version, &fsync, &pages, &commit, &standbys, &recovery, &wal, &cluster, &started, &checkpoint, &schema)
	var e *pgconn.PgError
	switch {
	case errors.As(err, &e) && e.Code == noTable:
		return tga.Errorf(tga.StoreUnavailable, "the database has no tables of tgad: %w", err)
	case err != nil:
		return err
	case version < oldestServer:
		return unfit("it is of version %d, at least %d is needed", version, oldestServer)
	case recovery:
		return errStandby
	case fsync != "on" || pages != "on":
		return unfit("fsync is %s and full_page_writes is %s: a commit may be lost with the power", fsync, pages)
	case schema > newestSchema:
		return schemaTooNew(int32(schema))
	case schema < newestSchema:
		return tga.Errorf(tga.StoreUnavailable, "the tables of the database are of version %d, this program needs %d: migrate them", schema, newestSchema)
	}
	if err := d.promises(commit, standbys); err != nil {
		return err
	}
	shard, err := d.place.here(ctx, c, d.o.Shard)
	if err != nil {
		return err
	}
	timeline, err := strconv.ParseUint(wal[:min(8, len(wal))], 16, 64)
	if err != nil {
		return fmt.Errorf("timeline of %q: %w", wal, err)
	}
	if err := d.follows(ctx, c, cluster, shard, timeline, started, checkpoint); err != nil || standbys == "" {
		return err
	}
	// A server that was restarted, or whose processes were killed, shows commits that were still waiting
	// for a standby. Everything that this connection sees is on a standby once a commit of its own is.
	return d.durable(ctx, c)
}

// promises refuses settings under which a commit is not as durable as this process asks.
func (d *database) promises(commit, standbys string) error {
	switch {
	case commit == "off" || commit == "local":
		return unfit("synchronous_commit is %s", commit)
	case d.o.RequireSync && standbys == "":
		return unfit("synchronous_standby_names is empty, and a standby is required")
	case d.o.RequireSync && commit != "on" && commit != "remote_apply":
		return unfit("synchronous_commit is %s: a standby may lose what it has acknowledged", commit)
	}
	return nil
}

// errStandby says that the server is a standby. Trying again may help: the next host of the DSN may be
// the primary, or this server may become the primary.
var errStandby = errors.New("the server is a standby")

// errUnfit says that the settings or the history of a server are refused. Trying again may help:
// another server may answer, or this one may be corrected.
var errUnfit = errors.New("the server is refused")

func unfit(format string, args ...any) error {
	return tga.Errorf(tga.StoreUnavailable, "%w: "+format, append([]any{errUnfit}, args...)...)
}

// follows checks that the server continues the history that this process knows.
func (d *database) follows(ctx context.Context, c *pgx.Conn, cluster, shard string, timeline uint64, started time.Time, checkpoint string) error {
	d.line.mu.Lock()
	defer d.line.mu.Unlock()
	l := &d.line
	first := l.cluster == ""
	switch {
	case first:
	case l.moved && shard == l.shard:
		return unfit("the store has left shard %q", shard)
	case l.moved:
		d.log.Warn("the store has moved to another shard", "shard", shard, "before", l.shard)
		if err := d.promoted(ctx, c); err != nil {
			return err
		}
		l.moved = false
	case shard != l.shard && shard != "" && l.shard != "":
		return unfit("it is shard %q, this process works with shard %q", shard, l.shard)
	case cluster != l.cluster:
		return unfit("it is of cluster %s, this process works with %s", cluster, l.cluster)
	case timeline < l.timeline:
		return unfit("it is on timeline %d, and a standby of it was promoted to timeline %d", timeline, l.timeline)
	case timeline > l.timeline:
		d.log.Warn("another server has become the primary", "timeline", timeline, "before", l.timeline)
		if err := d.promoted(ctx, c); err != nil {
			return err
		}
	}
	if !first && (timeline != l.timeline || !started.Equal(l.started) || checkpoint != l.checkpoint) {
		d.restarted()
	}
	l.cluster, l.shard, l.timeline, l.started, l.checkpoint = cluster, shard, timeline, started, checkpoint
	return nil
}

// once calls do with a connection, and does not retry.
func (d *database) once(ctx context.Context, what string, do func(context.Context, *pgxpool.Conn) error) error {
	return d.failed(what, d.with(ctx, do))
}

// with calls do with a connection.
func (d *database) with(ctx context.Context, do func(context.Context, *pgxpool.Conn) error) error {
	c, err := d.connection(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	return do(ctx, c)
}

type isUrgent struct{}

// urgent lets a request have a connection although all others wait for an answer, for example because somebody has locked the rows
// that they need. Otherwise the session would not be renewed meanwhile, and the sends under its leases would end.
func urgent(ctx context.Context) context.Context { return context.WithValue(ctx, isUrgent{}, true) }

// awayPause is the pause between two requests for a connection while no server answers.
const awayPause = 50 * time.Millisecond

// connection takes a connection of the pool. While no server answers, only one goroutine of this process asks at a
// time. Otherwise all waiting goroutines of all processes would connect again and again, and keep a starting server
// from starting.
func (d *database) connection(ctx context.Context) (*pgxpool.Conn, error) {
	if ctx.Value(isUrgent{}) != nil {
		c, err := d.spare.Acquire(ctx)
		if err != nil {
			d.place.look(ctx, d, err)
		}
		return c, err
	}
	away := d.away.Load()
	if away {
		if err := d.asks.enter(ctx, d.health.stop, struct{}{}); err != nil {
			return nil, err
		}
		defer d.asks.leave(struct{}{})
	}
	c, err := d.pool.Acquire(ctx)
	d.away.Store(err != nil)
	if err != nil {
		d.place.look(ctx, d, err)
	}
	if err != nil && away {
		select {
		case <-time.After(awayPause):
		case <-d.health.stop:
		}
	}
	return c, err
}

// ask calls do with a connection until a server answers or [Options.Patience] is over. So do must change
// nothing, or must be safe to repeat.
func (d *database) ask(ctx context.Context, what string, do func(context.Context, *pgxpool.Conn) error) error {
	until := time.Now().Add(d.o.Patience)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		try, cancel := context.WithTimeout(ctx, d.o.Lease)
		err := d.with(try, do)
		cancel()
		if err == nil || !passing(err) && !d.place.passing(ctx, d, err) || ctx.Err() != nil || time.Now().After(until) {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return d.failed(what, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		case <-d.health.life.Done():
			return tga.Errorf(tga.StoreUnavailable, "%s: the store is closed", what)
		}
	}
}

// failed turns an error of the database into an error of the store.
func (d *database) failed(what string, err error) error {
	if err == nil || tga.CodeOf(err) != "" {
		return err
	}
	if e := elsewhere(err); e != nil {
		err = e
	}
	return tga.Errorf(tga.StoreUnavailable, "%s: %w", what, err)
}

// passing reports whether the cause of an error may be gone at the next try.
func passing(err error) bool {
	if errors.Is(err, errStandby) || errors.Is(err, errUnfit) {
		return true
	}
	if tga.CodeOf(err) != "" {
		return false
	}
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return !errors.Is(err, pgx.ErrNoRows)
	}
	switch e.Code {
	case "40001", "40P01", "55P03", // a conflict with another transaction
		"57014",                   // somebody cancelled the statement
		"25006",                   // the server is no longer the primary
		"57P01", "57P02", "57P03": // shutdown, crash, start-up
		return true
	}
	return e.Code[:2] == "08" || e.Code[:2] == "53" // the connection failed; the server lacks connections, memory or room on its disk
}

var (
	// errAborted: the transaction was certainly rolled back, or never began.
	errAborted = errors.New("the transaction was rolled back")
	// errUnknown: it is unknown whether the transaction committed, or whether a required standby has it.
	errUnknown = errors.New("the outcome of the transaction is unknown")
)

// transaction runs statements in one transaction and one round trip. nil: the transaction has
// committed, as durably as the server was asked to. Other results: errAborted, errUnknown.
func (d *database) transaction(ctx context.Context, conn *pgx.Conn, fill func(*pgx.Batch)) error {
	said := conn.PgConn().CustomData()
	delete(said, warned)
	b := &pgx.Batch{}
	b.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	fill(b)
	committed := false
	b.Queue("COMMIT").Exec(func(tag pgconn.CommandTag) error {
		committed = tag.String() == "COMMIT"
		return nil
	})
	if d.o.RequireSync {
		b.Queue("SELECT current_setting('synchronous_commit'), current_setting('synchronous_standby_names')").QueryRow(d.stillPromises)
	}
	err := conn.SendBatch(ctx, b).Close()
	var e *pgconn.PgError
	switch warning, is := said[warned]; {
	case is:
		return because(errUnknown, errors.New(warning.(string)), err)
	case err == nil && committed:
		return nil
	case committed:
		return because(errUnknown, err)
	case err == nil, pgconn.SafeToRetry(err):
		return because(errAborted, err)
	case errors.As(err, &e) && e.SeverityUnlocalized == "ERROR" && !conn.IsClosed():
		// Nothing was committed. The connection is still inside the failed transaction.
		_, rerr := conn.Exec(ctx, "ROLLBACK")
		return because(errAborted, err, rerr)
	}
	return because(errUnknown, err)
}

// stillPromises reads the settings behind a commit. If the list of standbys is emptied while a commit waits for one, the wait ends
// without a warning. A backend is told of new settings before the wait is ended.
func (d *database) stillPromises(row pgx.Row) error {
	var commit, standbys string
	if err := row.Scan(&commit, &standbys); err != nil {
		return err
	}
	return d.promises(commit, standbys)
}

// durable returns once every earlier commit, on any connection, is as durable as commits of the server
// must be. Some of these commits may have ended with a warning, or without an answer.
func (d *database) durable(ctx context.Context, conn *pgx.Conn) error {
	return d.transaction(ctx, conn, func(b *pgx.Batch) { b.Queue("SELECT pg_logical_emit_message(true, 'tgad', '')") })
}

// because returns an error of a kind with its causes.
func because(kind error, causes ...error) error {
	return errors.Join(append([]error{kind}, causes...)...)
}

package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/aside"
	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/listen"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Options say what a daemon serves, and where.
type Options struct {
	Data    string         // directory of the store; "" for a store that Open opens
	URL     string         // of a store that Open opens, without a password
	Create  bool           // make a new store also if Data is an empty directory
	Socket  string         // path of the socket; unused if the service manager hands one in
	Config  *config.Config // nil means [config.Default]
	Logger  *slog.Logger   // nil means [slog.Default]
	Version string         // for the Server header

	// Clock is for tests; nil means time.Now.
	Clock func() time.Time
	// Ready, if not nil, is called once the daemon takes calls.
	Ready func()
	// Opened, if not nil, gets the runtime before the daemon serves. Benchmarks use it to compare
	// a call without the socket with a call through it.
	Opened func(*runtime.Runtime)
	// Tune, if not nil, changes the options of the store before it is opened. Tests use it, and
	// benchmarks that measure without a disk.
	Tune func(*engine.Options)
	// Open, if not nil, opens a store that is in no directory of this machine.
	Open func(context.Context, Options) (Store, error)
	// Near, if not nil, answers requests of this process while the daemon serves.
	Near *Near
	// Idle leaves the open traces, timers and chores as they are. It is for a daemon that
	// only settles one call and knows no tool server.
	Idle bool

	// Reload reads the configuration again; nil if it came from no file. The daemon calls it when
	// a peer asks for a reload, and for each signal of Hangup.
	Reload func() (*config.Config, error)
	Hangup <-chan os.Signal

	readOnly bool                // the store is opened for reading, see [Reader]
	synced   func(time.Duration) // is called after each sync of the store's log, with its duration
}

// Run serves until ctx ends or the store stops. When ctx ends, Run drains: it takes no more
// connections, waits for the calls under way at most as long as the configuration says, and
// returns nil. An error means that the start failed, or says why the store stopped. The
// process must then exit with a failure: only the next open can tell what is on the disk.
func Run(ctx context.Context, o Options) (err error) {
	if o.Config == nil {
		o.Config = config.Default()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if os.Getenv("GOMAXPROCS") == "" {
		// A goroutine in fdatasync occupies a processor (P). One more P lets the others run.
		goruntime.GOMAXPROCS(goruntime.NumCPU() + 1)
	}
	if memory := config.Memory(); memory > 0 && os.Getenv("GOMEMLIMIT") == "" {
		// Collect garbage in time, before the kernel kills the process for lack of memory.
		debug.SetMemoryLimit(memory / 10 * 9)
	}
	if !peersAreKnown && o.Near == nil {
		return tga.Errorf(tga.PermissionDenied, "the daemon does not serve on %s: who connects to it is known on Linux only", goruntime.GOOS)
	}
	if !isHanded() {
		if _, err := fits(o.Socket, o.Config.Socket.Group); err != nil {
			return err
		}
	}
	d, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	l, err := handed()
	if err != nil {
		return err
	}
	s := &socket{Listener: l}
	if l == nil {
		if s, err = bind(o.Socket, o.Config.Socket.Group); err != nil {
			return err
		}
	}
	if o.Data != "" {
		// The file is removed before the store is closed: a process that finds the file must
		// be able to reach this daemon.
		defer d.nameSocket(o.Data, s)()
	}
	return d.run(ctx, s, o)
}

// open opens the store and builds the daemon. It takes the store's lock first: the holder of
// that lock is the only daemon of the store.
func open(ctx context.Context, o Options) (_ *Daemon, err error) {
	limits := o.Config.Limits
	d := &Daemon{
		log: o.Logger, uid: uint32(os.Geteuid()), version: o.Version, clock: o.Clock,
		drain: make(chan struct{}), classified: make(chan struct{}), doubted: make(chan struct{}, 1),
		inFlight: newPlaces(limits.InFlight), followers: newPlaces(limits.Followers),
		bodies: newBudget(limits.BodyBudget.N, limits.RequestBytes.N+1),
	}
	d.reloads.init(o.Clock(), o.Reload)
	d.retaining.turn, d.retaining.data = make(chan struct{}, 1), o.Data
	d.makeChores(o.Data)
	d.life, d.end = context.WithCancel(context.Background())
	d.reads, d.endReads = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			d.end()
			d.endReads()
		}
	}()
	d.atRest, d.timings = o.readOnly, newTimings()
	o.synced = d.timings.synced
	if d.db, err = openStore(ctx, o); err != nil {
		return nil, err
	}
	d.can = powersOf(d.db, o.Data)
	defer func() {
		if err != nil {
			err = errors.Join(err, d.db.Close())
		}
	}()
	if o.Data != "" && !o.readOnly {
		err := errNotNow
		if d.db.Stats().Frozen == "" {
			err = aside.ForgetErased(ctx, d.db, o.Data)
		}
		if err != nil {
			d.chores.erasure.owe()
		}
	}
	if d.unfollow, err = d.follow(ctx, o); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.unfollow())
		}
	}()
	if d.tools, err = d.build(o); err != nil {
		return nil, err
	}
	options := d.tools.Options()
	options.Clock = o.Clock
	if d.can.shared != nil {
		options.Lock = nil // it names a file of this machine, and another machine may need to look at it
	}
	options.Tracer, d.flush = assemble.Telemetry(ctx, d.tools.SpeaksMCP, d.sent.begin, func(text string) { d.log.Warn("telemetry", "warning", text) })
	d.traces = options.Tracer != nil
	d.events = newEvents()
	options.Observe = d.observe
	if d.rt, err = runtime.New(timedStore{d.db, d.timings}, d.timedTools(), d.tools.Supervisor(), options); err != nil {
		d.flush(ctx)
		return nil, errors.Join(err, d.tools.Close())
	}
	if err = d.openPeople(o); err != nil {
		d.flush(ctx)
		return nil, errors.Join(err, d.tools.Close())
	}
	d.openBackups(o)
	d.leases = newLeaseTable(d.db, func() int { return d.conf().Limits.Leases })
	d.metrics = newMetrics(d)
	d.sent.from(d.metrics.registry)
	d.mux = d.newMux()
	if o.Opened != nil {
		o.Opened(d.rt)
	}
	return d, nil
}

// follow starts the parts that follow the log beside the calls: evidence, deliveries of audit records, and the
// index of lists. stop ends all of them at the same time, because each may wait for another program that hangs.
func (d *Daemon) follow(ctx context.Context, o Options) (stop func() error, err error) {
	var stops []func() error
	stop = func() error {
		errs := make([]error, len(stops))
		var all sync.WaitGroup
		for i, end := range stops {
			all.Go(func() { errs[i] = end() })
		}
		all.Wait()
		return errors.Join(errs...)
	}
	for _, part := range []struct {
		open func() error
		keep func() (stop func() error)
	}{
		{func() error { return d.openEvidence(o) }, d.keepEvidence},
		{func() error { return d.openAudit(o) }, d.deliverAudit},
		{func() error { return d.openLists(ctx, o) }, d.keepLists},
	} {
		if err := part.open(); err != nil {
			return nil, errors.Join(err, stop())
		}
		stops = append(stops, part.keep())
	}
	return stop, nil
}

// close waits until nothing runs any more, and then closes what open opened. The last backup and the last deliveries to
// other programs run at the same time, so if several hang, close waits only as long as the slowest of them takes.
func (d *Daemon) close() error {
	d.end()
	<-d.inFlight.close()
	d.timers.Wait()
	var last sync.WaitGroup
	last.Go(d.backUpLast)
	err := d.unfollow()
	last.Wait()
	d.sent.last()
	d.endReads()
	err = errors.Join(err, d.tools.Close(), d.db.Close())
	d.flush(context.Background()) // last, so that closing the store does not wait for it
	return err
}

// run serves on a socket until ctx ends or the store stops.
func (d *Daemon) run(ctx context.Context, s *socket, o Options) (err error) {
	defer func() { err = errors.Join(err, s.Close()) }()
	limits := d.conf().Limits
	srv := &http.Server{
		Handler: d, ConnContext: identify, MaxHeaderBytes: maxHeaderBytes, DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout: limits.HeaderTimeout.D, IdleTimeout: limits.IdleTimeout.D,
		ErrorLog: slog.NewLogLogger(d.log.Handler(), slog.LevelWarn),
	}
	served, door := make(chan error, 1), d.door(s.Listener)
	go func() { served <- listen.HTTP(srv, door) }()
	aside := o.Near.serve(d)
	defer aside(d.life) // without a drain: d.life has ended by then, so this does not wait

	if !o.Idle {
		d.timers.Go(d.runTimers)
		d.timers.Go(d.doChores)
		if d.can.shared != nil {
			d.timers.Go(d.takeUpLeft)
		}
		if d.can.archive != nil {
			d.timers.Go(d.retain)
		}
		if d.backups != nil {
			d.timers.Go(d.keepBackups)
		}
	}
	tellers := func() {}
	if !o.Idle {
		tellers = d.tellPeople(s.named())
	}
	startCtx, stopStart := context.WithCancel(ctx)
	started := make(chan error, 1)
	go func() { started <- d.start(startCtx, o) }()
	dead, stopWatching := d.watch()
	defer stopWatching()
	defer d.heedHangups(o.Hangup)()

	if o.Data != "" {
		d.log.Info("listening", "socket", o.Socket, "data", o.Data, "version", d.version)
	} else {
		d.log.Info("listening", "socket", o.Socket, "store", o.URL, "version", d.version)
	}
	if n, known := listen.Room(); known && n < limits.Connections {
		d.log.Warn("the process may have too few files open (ulimit -n) for as many connections as limits.connections says", "room_for", n, "connections", limits.Connections)
	}
	for drained := false; err == nil && !drained; {
		select {
		case <-ctx.Done():
			err, drained = d.drainAll(srv, aside), true
		case startErr := <-started:
			started = nil // it answers once
			if ctx.Err() == nil {
				err = startErr
			}
		case err = <-served:
			err = tga.Errorf(tga.StoreUnavailable, "serve: %w", err)
		case <-dead:
			err = tga.Errorf(tga.StoreUnavailable, "the store stopped: %s", d.db.Stats().Poisoned)
		}
	}
	d.end()
	stopStart()
	tellers()
	if started != nil {
		<-started // start was told to stop; its error does not matter any more
	}
	return errors.Join(err, srv.Close())
}

// start makes the daemon ready and then recovers the traces that an earlier process left. The
// daemon is ready before recovery sends the first call, so a question about a call is answered.
func (d *Daemon) start(ctx context.Context, o Options) error {
	d.suggestNow(ctx)
	var missing error
	if d.can.shared != nil {
		missing = d.can.shared.Missing() // asked first: a store that comes meanwhile may not be in the list
	}
	open, err := d.rt.Classify(ctx)
	if err != nil && missing != nil {
		// The others go on. What a process left in these is taken up once they are there.
		d.log.Warn("the open traces of some stores cannot be read yet", "error", err)
		err = nil
	}
	if err != nil {
		if ctx.Err() == nil {
			d.log.Error("the open traces cannot be read", "error", err)
		}
		return err
	}
	inDoubt, bad := 0, 0
	for _, c := range open {
		if c.InDoubt {
			inDoubt++
		}
		if c.Err != nil {
			bad++
			d.log.Error("an open trace cannot be read, and is left as it is", "trace", c.TraceID, "error", c.Err)
		}
	}
	d.ready.Store(true)
	close(d.classified)
	if why := d.db.Stats().Frozen; why != "" {
		d.log.Warn("the store is frozen: it can be read, no call is taken and nothing is sent", "why", why, "open", len(open), "in_doubt", inDoubt)
	} else {
		d.log.Info("ready", "open", len(open), "in_doubt", inDoubt, "quarantined", bad)
	}
	if err := notify("READY=1"); err != nil {
		d.log.Warn("the service manager was not told", "error", err)
	}
	if o.Ready != nil {
		o.Ready()
	}
	if o.Idle {
		return nil
	}
	d.chores.erasure.owe()
	switch {
	case d.can.shared != nil && !d.can.shared.Alone():
	case d.db.Stats().Frozen != "":
		d.chores.takeUp.owe()
	default:
		d.takeUp(ctx, open)
	}
	return nil
}

// takeUp recovers those of the open traces that no live process is executing.
func (d *Daemon) takeUp(ctx context.Context, open []runtime.Classified) {
	open = slices.DeleteFunc(open, func(c runtime.Classified) bool { return c.Err != nil || c.Held })
	d.recoveries(ctx, len(open), func(i int) {
		c := &open[i]
		res, err := d.rt.Recover(d.life, c.TraceID)
		if d.chores.brokenOff(c.TraceID, err) {
			d.suspect()
		}
		d.log.Info("recovered", "trace", c.TraceID, "window", string(c.Window), "state", res.State.String(), "code", string(tga.CodeOf(err)))
	})
}

// recoveries makes n recoveries, several at the same time. Each counts as a call that no client
// waits for: when the daemon drains, the ones under way finish, and no other begins. The limit of
// calls does not apply to them: a trace that it kept from being recovered would have to wait for a
// person.
func (d *Daemon) recoveries(ctx context.Context, n int, recover func(i int)) {
	slots := make(chan struct{}, d.conf().Limits.RecoverWidth)
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := range n {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		if d.inFlight.takeOver(recovery) != nil {
			return
		}
		wg.Go(func() {
			defer func() { <-slots }()
			defer d.inFlight.leave(recovery)
			recover(i)
		})
	}
}

// recovery is the name under which [Daemon.inFlight] counts recoveries, in place of a namespace.
const recovery = "\x00recovery"

// drainAll ends the daemon in order. It takes no new connection and ends the streams. Then it
// waits for the calls; those that last longer than the drain timeout are given up and are in doubt.
func (d *Daemon) drainAll(srv *http.Server, aside func(context.Context)) error {
	d.log.Info("draining", "calls", d.inFlight.count())
	if err := notify("STOPPING=1"); err != nil {
		d.log.Warn("the service manager was not told", "error", err)
	}
	close(d.drain)
	ctx, cancel := context.WithTimeout(context.Background(), d.conf().Limits.DrainTimeout.D)
	defer cancel()
	finished := make(chan struct{})
	calls := d.inFlight.close()
	go func() {
		defer close(finished)
		<-calls
		d.timers.Wait()
	}()
	err := srv.Shutdown(ctx)
	aside(ctx)
	select {
	case <-finished:
	case <-ctx.Done():
		d.log.Warn("the time to drain is over", "calls", d.inFlight.count())
		d.end()
		<-finished
	}
	d.leases.releaseAll()
	if errors.Is(err, context.DeadlineExceeded) {
		return nil // srv.Close closes the connections that are left
	}
	return err
}

// suspect has [Daemon.watch] look at once whether the store has stopped.
func (d *Daemon) suspect() {
	select {
	case d.doubted <- struct{}{}:
	default:
	}
}

// watchSpace logs when the free space of the disk falls below the low-water mark, from where on
// the store begins no call, and when it is above the mark again. Only watch calls it.
func (d *Daemon) watchSpace(s engine.Stats) {
	short := s.FreeKnown && s.FreeBytes < s.LowWater
	if short == d.short {
		return
	}
	if d.short = short; short {
		d.log.Warn("new calls are refused: the disk is nearly full", "free_bytes", s.FreeBytes, "low_water_bytes", s.LowWater)
	} else {
		d.log.Info("new calls are taken again: the disk has room", "free_bytes", s.FreeBytes)
	}
}

// watch returns a channel that is closed when the store has stopped. It looks at the store when
// a request got STORE_UNAVAILABLE, and once a second for failures that no request sees.
func (d *Daemon) watch() (dead <-chan struct{}, stop func()) {
	died, over, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
			case <-d.doubted:
			}
			s := d.db.Stats()
			if s.Poisoned != "" {
				close(died)
				return
			}
			d.watchSpace(s)
		}
	}()
	return died, func() {
		close(over)
		<-gone
	}
}

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
	Data    string         // directory of the store; "" for one that Open opens
	URL     string         // of such a store, without a password
	Create  bool           // make a new store also where Data is an empty directory
	Socket  string         // path of the socket; unused where the service manager hands one in
	Config  *config.Config // nil means [config.Default]
	Logger  *slog.Logger   // nil means [slog.Default]
	Version string         // for the Server header

	// Clock is for tests; nil means time.Now.
	Clock func() time.Time
	// Ready, where it is set, is called once calls are taken.
	Ready func()
	// Opened, where it is set, is given the runtime before anything is served: for who measures
	// a call without the socket beside one through it.
	Opened func(*runtime.Runtime)
	// Tune, where it is set, changes what the store is opened with: for tests and for who
	// measures without a disk.
	Tune func(*engine.Options)
	// Open, where it is set, opens a store that is in no directory of this machine.
	Open func(context.Context, Options) (Store, error)
	// Near, where it is set, answers requests of this process while the daemon serves.
	Near *Near
	// Idle leaves the open traces and what is due as they are: for a daemon that is there to
	// settle one call, and knows no tool server.
	Idle bool

	// Reload reads the configuration again; nil where it came from no file. It is called when a peer
	// asks for it and for each signal of Hangup.
	Reload func() (*config.Config, error)
	Hangup <-chan os.Signal

	readOnly bool                // the store is opened for reading, see [Reader]
	synced   func(time.Duration) // is told of each sync of the store's log
}

// Run serves until ctx ends or the store stops. When ctx ends it drains: it takes no more
// connections, lets the calls under way come to their ends for the time that the
// configuration gives, and returns nil. An error is one of the start, or says why the
// store stopped; the process is then to exit with a failure, for what the disk holds is
// known only to the next open.
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
		// A goroutine in fdatasync keeps its processor: one more lets the others work.
		goruntime.GOMAXPROCS(goruntime.NumCPU() + 1)
	}
	if memory := config.Memory(); memory > 0 && os.Getenv("GOMEMLIMIT") == "" {
		// Collect garbage in time, before the kernel ends the process for it.
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
		// Removed before the store is closed: whoever finds the file finds this daemon.
		defer d.nameSocket(o.Data, s)()
	}
	return d.run(ctx, s, o)
}

// open opens the store and puts the daemon together. The store's lock comes first: who
// has it is the only daemon of this store.
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
			d.chores.snapshots.owe()
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
		options.Lock = nil // it names a file of a machine, and the answer may be asked for on another
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

// follow begins what follows the log beside the calls: evidence, deliveries of audit records, the index of
// lists. stop ends it, all at once: each may wait for a neighbour that hangs.
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

// close gives up what open took, once nothing runs any more. What neighbours are given last they are given at the same time: of
// several that hang the slowest alone is waited for.
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
	d.flush(context.Background()) // once nothing of the store waits for it
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
	defer aside(d.life) // where it did not drain, and the life of its calls is over

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
		<-started // it was told to end, and whether it came to its own is no matter now
	}
	return errors.Join(err, srv.Close())
}

// start makes the daemon ready and then takes up what an earlier process left. It is
// ready before the first send of recovery: who asks about a call gets an answer.
func (d *Daemon) start(ctx context.Context, o Options) error {
	d.suggestNow(ctx)
	open, err := d.rt.Classify(ctx)
	if err != nil {
		d.log.Error("the open traces cannot be read", "error", err)
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

// takeUp recovers what nobody runs, as it was found when the daemon began.
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

// recoveries makes n recoveries, some at once, each as a call that no client waits for: when the
// daemon drains, those begun come to their ends and no other is begun.
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
		if d.inFlight.take(recovery, recovery) != nil {
			return
		}
		wg.Go(func() {
			defer func() { <-slots }()
			defer d.inFlight.leave(recovery)
			recover(i)
		})
	}
}

// recovery is the name under which recoveries are counted beside the namespaces' calls.
const recovery = "\x00recovery"

// drainAll ends the daemon in order: no new connection, streams end, calls come to their
// ends or, when the time is over, are given up and are in doubt.
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
		return nil // its connections are closed with the server
	}
	return err
}

// suspect is called when something says that the store may have stopped.
func (d *Daemon) suspect() {
	select {
	case d.doubted <- struct{}{}:
	default:
	}
}

// watchSpace logs when the free space of the disk goes below the low-water mark, where no
// call is begun any more, and when it is back above it. Only watch calls it.
func (d *Daemon) watchSpace(s engine.Stats) {
	short := s.FreeKnown && s.FreeBytes < s.LowWater
	if short == d.short {
		return
	}
	if d.short = short; short {
		d.log.Warn("no call is begun: the disk is nearly full", "free_bytes", s.FreeBytes, "low_water_bytes", s.LowWater)
	} else {
		d.log.Info("calls are begun again: the disk has room", "free_bytes", s.FreeBytes)
	}
}

// watch returns a channel that is closed when the store has stopped. It looks when a
// request was told so, and once a second for what fails without one.
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

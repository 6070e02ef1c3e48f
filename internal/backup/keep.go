// Package backup keeps a backup of a store current, beside the calls that the store serves.
//
// # Invariants
//
//	whole   at any moment the place can be restored from       [engine.DB.Backup] TestKilledDaemonLeavesABackup
//	one     a place has the backup of one store, by its id      [Keeper.Step]      TestBackupOfAnotherStoreIsRefused
//	behind  the work takes at most its share of the time        [Keeper.Run]       TestBackupKeepsToItsShare
//	told    the age of a backup, and why it is old, is reported [Keeper.State]     TestFailedBackupIsTold
package backup

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/backup/bucket"
	"github.com/tgad/tgad/internal/backup/manifest"
	"github.com/tgad/tgad/schemas/tga"
)

// Store is a store in a directory that is open.
type Store interface {
	Backup(ctx context.Context, dir string) error
	Stats() engine.Stats
}

// Settings say where a backup goes, and how often. They may change between two calls of
// [Options].Settings.
type Settings struct {
	To    string        // a directory, or the address of a bucket; "" is nowhere
	Spool string        // local directory in which the backup of a bucket is prepared
	Every time.Duration // between the beginnings of two backups
	Share int           // percent of the time that the work may take
}

// Options are what a [Keeper] needs.
type Options struct {
	Data     string // the store's directory
	Settings func() Settings
	Log      *slog.Logger
	Clock    func() time.Time
	// Bucket opens the bucket that an address names.
	Bucket func(address string) (bucket.Objects, error)
}

// Keeper keeps the backup of one store.
type Keeper struct {
	store Store
	o     Options
	began time.Time

	turn  chan struct{} // a semaphore: full while a backup is made
	found stamp         // of the store when the newest backup began; needs the turn
	group uint64        // the log group that this backup ends with; needs the turn

	bucket spooling // needs the turn

	mu    sync.Mutex
	state State     // of the place that was tried last
	whole time.Time // when the backup there was last complete
}

// State is the state of a backup.
type State struct {
	To    string // "" if no backup is kept
	Every time.Duration
	// Age is how long ago the backup had everything that the store had. If that is not known, it is
	// how long ago the keeper was made.
	Age      time.Duration
	Took     time.Duration // time that the newest backup took
	Made     uint64
	Failures uint64
	Err      error // of the newest try
}

// New returns a keeper. It makes no backup until [Keeper.Run] or [Keeper.Step].
func New(s Store, o Options) *Keeper {
	return &Keeper{store: s, o: o, turn: make(chan struct{}, 1), began: o.Clock()}
}

// State returns the present state of the backup.
func (k *Keeper) State() State {
	of := k.o.Settings()
	k.mu.Lock()
	defer k.mu.Unlock()
	s, whole := k.state, k.whole
	if of.To == "" {
		return State{Made: s.Made, Failures: s.Failures}
	}
	if s.To != of.To {
		s, whole = State{To: of.To, Made: s.Made, Failures: s.Failures}, k.began
	}
	s.Every, s.Age = of.Every, max(k.o.Clock().Sub(whole), 0)
	return s
}

// look is how often the settings are read while nothing is due.
const look = time.Second

// Run makes backups until ctx ends. Between two backups it rests so long that the work takes at
// most its share of the time. It assumes that a backup works during half of the time that it takes.
func (k *Keeper) Run(ctx context.Context) {
	var due time.Time
	failed := 0 // times, one after the other
	for ctx.Err() == nil {
		s := k.o.Settings()
		if began := time.Now(); s.To != "" && !began.Before(due) && k.store.Stats().Frozen == "" {
			before, err := k.Step(ctx, s)
			k.told(before, err)
			if failed++; err == nil {
				failed = 0
			}
			due = began.Add(rest(time.Since(began), s, failed))
		}
		wait := look
		if left := time.Until(due); s.To != "" && left > 0 {
			wait = min(left, look)
		}
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
	}
}

// Pauses after a failed backup, if `every` is longer. Each pause is twice the one before.
const (
	firstRetry = 10 * time.Second
	mostRetry  = 10 * time.Minute
)

// rest returns how long after the beginning of a backup the next one begins. took is how long the backup took, and failed how
// many backups failed in a row. A failed backup is repeated before `every` is over, so that the store has a backup again soon
// after the cause of the failure is gone.
func rest(took time.Duration, s Settings, failed int) time.Duration {
	every := s.Every
	if failed > 0 {
		every = min(every, min(firstRetry<<min(failed-1, 10), mostRetry))
	}
	return max(every, took/2*100/time.Duration(max(s.Share, 1)))
}

// told logs a new error, and the end of an error.
func (k *Keeper) told(before, err error) {
	switch {
	case errors.Is(err, context.Canceled):
	case err != nil && (before == nil || before.Error() != err.Error()):
		k.o.Log.Error("the backup is not kept current", "error", err)
	case err == nil && before != nil:
		k.o.Log.Info("the backup is current again")
	}
}

// stamp changes when something is written to the store or its files are exchanged.
type stamp struct {
	commits, rewritten, appends uint64
	store                       tga.ID
}

func stampOf(s engine.Stats) stamp { return stamp{s.Commits, s.Rewritten, s.Cursor, s.StoreID} }

// foreign makes the error for a place that has the backup of another store.
func foreign(to string, has, is tga.ID) error {
	return tga.Errorf(tga.ValidationError, "%s holds the backup of store %s, and this is store %s: name another place. If this store was restored from that backup, run tgad backup --to %s once, and it goes on there",
		to, has, is, to)
}

// Step makes one backup, if the store has anything new. before is the error of the step before.
func (k *Keeper) Step(ctx context.Context, s Settings) (before, err error) {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	began, clock := time.Now(), k.o.Clock()
	made, err := k.make(ctx, s)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state.To != s.To {
		k.state, k.whole = State{To: s.To, Made: k.state.Made, Failures: k.state.Failures}, k.began
	}
	before = k.state.Err
	switch {
	case err == nil:
		k.whole, k.state.Err = clock, nil
		if made {
			k.state.Made++
			k.state.Took = time.Since(began)
		}
	case ctx.Err() == nil: // a canceled step is no failure
		k.state.Err = err
		k.state.Failures++
	}
	return before, err
}

// make is Step once it has the turn. made is false if the backup had everything already.
func (k *Keeper) make(ctx context.Context, s Settings) (made bool, err error) {
	if bucket.Is(s.To) {
		return k.toBucket(ctx, s, false)
	}
	if access.Within(s.To, k.o.Data) {
		return false, tga.Errorf(tga.ValidationError, "[backup] to %s is within the store", s.To) // only the store may have files there
	}
	stats := k.store.Stats()
	now := stampOf(stats)
	m, err := manifest.Read(s.To)
	if err != nil {
		return false, err
	}
	if m != nil && m.Store != stats.StoreID {
		return false, foreign(s.To, m.Store, stats.StoreID)
	}
	if m != nil && m.End.Group == k.group && now == k.found {
		return false, nil
	}
	if err := k.store.Backup(ctx, s.To); err != nil {
		return false, err
	}
	if m, err = manifest.Read(s.To); err != nil {
		return true, err
	}
	if m != nil {
		k.found, k.group = now, m.End.Group
	}
	return true, nil
}

// Last makes the last backup of a store, to which nothing is appended any more.
func (k *Keeper) Last(ctx context.Context) error {
	s := k.o.Settings()
	if s.To == "" {
		return nil
	}
	_, err := k.Step(ctx, s)
	return err
}

// Once makes the backup in a bucket on request. Unlike [Keeper.Step] it also accepts a bucket with the
// backup of a store with another id, if this store's log continues that store's log.
func (k *Keeper) Once(ctx context.Context, to string) error {
	s := k.o.Settings()
	s.To = to
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	k.found = stamp{} // so that the bucket is read in any case
	_, err := k.toBucket(ctx, s, true)
	return err
}

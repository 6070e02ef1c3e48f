// Package backup keeps a backup of a store current, beside the calls that the store serves.
//
// # Invariants
//
//	whole   at each moment a restore takes what is there       [engine.DB.Backup] TestKilledDaemonLeavesABackup
//	one     a place has the backup of one store, by its id      [Keeper.Step]      TestBackupOfAnotherStoreIsRefused
//	behind  the work takes at most its share of the time        [Keeper.Run]       TestBackupKeepsToItsShare
//	told    that a backup is old, and why, is said              [Keeper.State]     TestFailedBackupIsTold
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

// Settings say where a backup goes, and how often. They may be others at each look.
type Settings struct {
	To    string        // a directory, or the address of a bucket; "" is nowhere
	Spool string        // directory by way of which a bucket gets it
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

	turn  chan struct{} // has one while a backup is made
	found stamp         // of the store when the newest backup began; with the turn
	group uint64        // that the backup ends with then; likewise

	bucket spooling // with the turn

	mu    sync.Mutex
	state State     // of the place that was tried last
	whole time.Time // when the backup there had all that the store had
}

// State says how a backup is.
type State struct {
	To    string // "" where none is kept
	Every time.Duration
	// Age is how long ago it had all that the store had; where that is not known, how long ago the
	// keeper was made.
	Age      time.Duration
	Took     time.Duration // of the newest
	Made     uint64
	Failures uint64
	Err      error // of the newest try
}

// New returns a keeper that has done nothing yet.
func New(s Store, o Options) *Keeper {
	return &Keeper{store: s, o: o, turn: make(chan struct{}, 1), began: o.Clock()}
}

// State returns how the backup is now.
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

// look is how often the settings are looked at while nothing is due.
const look = time.Second

// Run makes backups until ctx ends. Between two of them it rests for so long that the work takes
// its share of the time at most: a backup works for half of the time that it takes.
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

// Pauses after a backup that failed, where `every` is longer: each is twice the one before.
const (
	firstRetry = 10 * time.Second
	mostRetry  = 10 * time.Minute
)

// rest is how long after the beginning of a backup that took so long the next one begins. One that failed, so many times one
// after the other, is made again before `every` is over: a store is without a backup for no longer than what was in the way.
func rest(took time.Duration, s Settings, failed int) time.Duration {
	every := s.Every
	if failed > 0 {
		every = min(every, min(firstRetry<<min(failed-1, 10), mostRetry))
	}
	return max(every, took/2*100/time.Duration(max(s.Share, 1)))
}

// told logs an error that was not told yet, and that it is over.
func (k *Keeper) told(before, err error) {
	switch {
	case errors.Is(err, context.Canceled):
	case err != nil && (before == nil || before.Error() != err.Error()):
		k.o.Log.Error("the backup is not kept current", "error", err)
	case err == nil && before != nil:
		k.o.Log.Info("the backup is current again")
	}
}

// stamp is another one where something was written to the store or its files were exchanged.
type stamp struct {
	commits, rewritten, appends uint64
	store                       tga.ID
}

func stampOf(s engine.Stats) stamp { return stamp{s.Commits, s.Rewritten, s.Cursor, s.StoreID} }

// foreign refuses a place that has the backup of another store.
func foreign(to string, has, is tga.ID) error {
	return tga.Errorf(tga.ValidationError, "%s holds the backup of store %s, and this is store %s: name another place. If this store was restored from that backup, run tgad backup --to %s once, and it goes on there",
		to, has, is, to)
}

// Step makes the backup once, where there is anything new. before is the error of the try before.
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
	case ctx.Err() == nil: // else nothing failed
		k.state.Err = err
		k.state.Failures++
	}
	return before, err
}

// make is Step with the turn. made is false where the backup had everything already.
func (k *Keeper) make(ctx context.Context, s Settings) (made bool, err error) {
	if bucket.Is(s.To) {
		return k.toBucket(ctx, s, false)
	}
	if access.Within(s.To, k.o.Data) {
		return false, tga.Errorf(tga.ValidationError, "[backup] to %s is within the store", s.To) // whose files are its own
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

// Last makes the backup of a store that nobody appends to any more.
func (k *Keeper) Last(ctx context.Context) error {
	s := k.o.Settings()
	if s.To == "" {
		return nil
	}
	_, err := k.Step(ctx, s)
	return err
}

// Once makes the backup in a bucket because somebody asks for it, also where the bucket has that of a
// store with another id whose log this one goes on with.
func (k *Keeper) Once(ctx context.Context, to string) error {
	s := k.o.Settings()
	s.To = to
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	k.found = stamp{} // it looks at the bucket in any case
	_, err := k.toBucket(ctx, s, true)
	return err
}

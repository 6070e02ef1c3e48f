// Package workspace keeps snapshots of a directory around tool calls that change it: before each
// call is sent and after it was answered. Unlike package workstate it undoes nothing by itself,
// because a person or another program may work in the directory too. A restore first shows its
// plan ([Keeper.Plan]), and is done only if the directory is still as the plan saw it.
//
// Package hostdir makes the snapshots, in a repository beside the directory. The record of a call
// is a file beside the repository. Any number of processes may use one workspace: each holds its
// lock only while it looks at the directory. Calls that run at once are not separated: the
// snapshots of one contain what the other changes meanwhile.
//
// # Invariants
//
//	before   a call is sent when the snapshot before it and its record are durable   [Keeper.Before]    TestKilledAtEachStep
//	after    a record names a snapshot after its call only where that is durable     [Pending.After]    TestKilledAtEachStep
//	hands    nothing but [Keeper.Restore] changes the directory                      [Keeper]           TestKilledAtEachStep
//	seen     a restore changes nothing that its plan did not see                     [Keeper.Restore]   TestRestoreIsBoundToItsPlan
//	back     what a restore replaced is kept as a snapshot, and can be restored      [Keeper.Restore]   TestRestoreCanBeUndone
//	bounded  at most [Options].Keep records, and what they refer to, are kept        [Keeper.Before]    TestOldSnapshotsAreDropped
package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/runtime/workstate/hostdir"
	"github.com/tgad/tgad/schemas/tga"
)

// DefaultKeep is how many records a workspace keeps if its options do not say.
const DefaultKeep = 100

// Options configure a Keeper.
type Options struct {
	Dir string
	// Aside is where snapshots and records are stored; "" is Dir followed by ".tgad". It must not
	// lie in Dir.
	Aside   string
	Exclude []string // paths below Dir, with slashes, that are left alone
	Keep    int      // records; 0 is DefaultKeep
	Known   bool     // open only a workspace that already has snapshots: else NOT_FOUND
	Clock   func() time.Time
}

// Keeper keeps the snapshots of a workspace. Its methods may be called from any number of
// goroutines.
type Keeper struct {
	dir, aside string
	exclude    []string
	keep       int
	clock      func() time.Time
	turn       chan struct{} // serializes this process; the repository's lock serializes all processes

	// step is called with what was just made durable; a test ends the process there.
	step func(name string)
}

// Open opens a workspace. It checks the directory's place at once, so that problems are reported
// now: VALIDATION_ERROR, or PERMISSION_DENIED if Aside belongs to another user.
func Open(ctx context.Context, o Options) (*Keeper, error) {
	if o.Dir == "" {
		return nil, tga.Errorf(tga.ValidationError, "a workspace needs a directory")
	}
	if o.Keep < 0 {
		return nil, tga.Errorf(tga.ValidationError, "%d snapshots are to be kept: want 1 or more", o.Keep)
	}
	k := &Keeper{exclude: slices.Sorted(slices.Values(o.Exclude)), keep: o.Keep, clock: o.Clock, turn: make(chan struct{}, 1), step: func(string) {}}
	if k.keep == 0 {
		k.keep = DefaultKeep
	}
	if k.clock == nil {
		k.clock = time.Now
	}
	var err error
	if k.dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, tga.Errorf(tga.ValidationError, "workspace %s: %w", o.Dir, err)
	}
	// Two names of one directory are one workspace.
	if real, err := filepath.EvalSymlinks(k.dir); err == nil {
		k.dir = real
	}
	if o.Aside == "" {
		o.Aside = k.dir + ".tgad"
	}
	if k.aside, err = filepath.Abs(o.Aside); err != nil {
		return nil, tga.Errorf(tga.ValidationError, "snapshots %s: %w", o.Aside, err)
	}
	if _, err := os.Stat(filepath.Join(k.aside, "calls")); o.Known && err != nil {
		return nil, tga.Errorf(tga.NotFound, "there are no snapshots of %s in %s: %w", k.dir, k.aside, err)
	}
	if err := access.MkdirAll(filepath.Join(k.aside, "calls")); err != nil {
		return nil, tga.Errorf(tga.ValidationError, "a place for the snapshots of %s: %w", k.dir, err)
	}
	found, err := access.Check(k.aside)
	if err == nil && found.Refuse != "" {
		return nil, tga.Errorf(tga.PermissionDenied, "snapshots %s: %s", k.aside, found.Refuse)
	}
	if err == nil {
		err = k.with(ctx, k.exclude, func(*hostdir.Dir) error { return nil })
	}
	if err != nil {
		return nil, err
	}
	return k, nil
}

// Dir and Aside return the absolute paths of the workspace and of its snapshots.
func (k *Keeper) Dir() string   { return k.dir }
func (k *Keeper) Aside() string { return k.aside }

// lockPause is how long a process waits before it tries again to take a lock that another process
// holds.
const lockPause = 20 * time.Millisecond

// with runs f with the directory while no other process and no other call looks at it. It waits
// for them until ctx ends: STATE_LOCK_ACQUIRE_FAILED.
func (k *Keeper) with(ctx context.Context, exclude []string, f func(d *hostdir.Dir) error) (err error) {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return tga.Errorf(tga.StateLockAcquireFailed, "workspace %s: %w", k.dir, context.Cause(ctx))
	}
	for {
		d, err := hostdir.Open(ctx, k.dir, filepath.Join(k.aside, "snapshots"), hostdir.Options{Exclude: exclude})
		if err == nil {
			return errors.Join(f(d), d.Close())
		}
		if !errors.Is(err, tga.StateLockAcquireFailed) {
			return err
		}
		select {
		case <-time.After(lockPause):
		case <-ctx.Done():
			return err
		}
	}
}

// Call is a call that is about to be sent.
type Call struct {
	TraceID tga.ID
	Attempt uint32
	Server  string
	Tool    string
}

// Pending is a call between its two snapshots.
type Pending struct {
	k      *Keeper
	record Record
}

// Before takes the snapshot before a call. When it returns nil, the snapshot and the call's
// record are durable. After an error the call must not be sent.
func (k *Keeper) Before(ctx context.Context, c Call) (*Pending, error) {
	p := &Pending{k: k, record: Record{
		Version: tga.WorkspaceVersion, Kind: KindCall, TraceID: c.TraceID.String(), Attempt: c.Attempt, Server: c.Server, Tool: c.Tool, Exclude: k.exclude,
	}}
	err := k.with(ctx, k.exclude, func(d *hostdir.Dir) error {
		all, err := k.list()
		if err != nil {
			return err
		}
		if p.record.Before, err = snapshot(ctx, d); err != nil {
			return err
		}
		k.step("snapshot before")
		p.record.Number, p.record.Began = next(all), tga.MillisOf(k.clock())
		if err := k.prune(ctx, d, append(all, p.record)); err != nil {
			return err
		}
		// The record comes last: after an error there is none of a call that is not sent.
		if err := k.write(p.record); err != nil {
			return err
		}
		k.step("record before")
		return nil
	})
	return p, err
}

// Outcomes of a call, as far as its sender knows.
const (
	Succeeded = "succeeded"
	Failed    = "failed"
	InDoubt   = "in_doubt" // it may have run
	NotSent   = "not_sent"
)

// afterWait bounds the snapshot after a call, because the call's answer waits for it.
const afterWait = time.Minute

// After takes the snapshot after a call. If that fails, the record says why; the call has run,
// and its outcome does not change. The error is for the log.
func (p *Pending) After(ctx context.Context, outcome string) error {
	// Look at what the call left even if the call's time is over.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterWait)
	defer cancel()
	return p.k.with(ctx, p.record.Exclude, func(d *hostdir.Dir) error {
		tree, failed := snapshot(ctx, d)
		p.k.step("snapshot after")
		r := p.record
		r.After, r.Outcome, r.Ended = tree, outcome, tga.MillisOf(p.k.clock())
		if failed != nil {
			r.Problem = failed.Error()
		}
		err := p.k.rewrite(r)
		p.k.step("record after")
		return errors.Join(failed, err)
	})
}

func snapshot(ctx context.Context, d *hostdir.Dir) (string, error) {
	n, err := d.Snapshot(ctx)
	if err != nil {
		return "", err
	}
	return hostdir.SnapshotID(n)
}

func next(all []Record) uint64 {
	if len(all) == 0 {
		return 1
	}
	return all[len(all)-1].Number + 1
}

// prune drops the oldest records once there are more than are kept, so that three quarters of
// that number remain. It then drops the snapshots that no record refers to. It drops many at once
// because repacking a repository takes time.
func (k *Keeper) prune(ctx context.Context, d *hostdir.Dir, all []Record) error {
	if len(all) <= k.keep {
		return nil
	}
	keep := max(k.keep-k.keep/4, 1)
	for _, r := range all[:len(all)-keep] {
		if err := k.remove(r.Number); err != nil {
			return err
		}
	}
	var live []*workstate.Node
	for _, r := range all[len(all)-keep:] {
		for _, id := range []string{r.Before, r.After} {
			if id == "" {
				continue
			}
			n, err := hostdir.SnapshotOf(id)
			if err != nil {
				return err
			}
			live = append(live, n)
		}
	}
	return d.Collect(ctx, live)
}

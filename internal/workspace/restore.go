package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/runtime/workstate/hostdir"
	"github.com/tgad/tgad/schemas/tga"
)

// List returns the records that are kept, oldest first.
func (k *Keeper) List(ctx context.Context) (all []Record, err error) {
	err = k.with(ctx, k.exclude, func(*hostdir.Dir) error {
		all, err = k.list()
		return err
	})
	return all, err
}

// Find returns the record with a number, or what the records of a trace say together: a call that
// was sent more than once has one for each attempt. NOT_FOUND if there is neither.
func Find(all []Record, name string) (Record, error) {
	var call *Record // from before its first attempt to after its last
	for _, r := range all {
		switch {
		case decimal(r.Number) == name:
			return r, nil
		case r.TraceID != name:
		case call == nil:
			call = &r
		default:
			call.After, call.Outcome, call.Problem, call.Ended = r.After, r.Outcome, r.Problem, r.Ended
		}
	}
	if call == nil {
		return Record{}, tga.Errorf(tga.NotFound, "no snapshot of %q is kept", name)
	}
	return *call, nil
}

// Beside returns the other records whose calls ran at the same time as a record's: their changes
// are in its snapshots too. A call that has not ended counts as running until now.
func Beside(all []Record, r Record) (list []Record) {
	for _, o := range all {
		if o.Number != r.Number && (o.Ended == 0 || o.Ended >= r.Began) && (r.Ended == 0 || o.Began <= r.Ended) {
			list = append(list, o)
		}
	}
	return list
}

// Change is a path in which two snapshots differ.
type Change = hostdir.FileChange

// Diff returns what changed from before a record to after it. A record without a snapshot after
// it is compared with the directory as it is now; then now is true.
func (k *Keeper) Diff(ctx context.Context, r Record) (changes []Change, now bool, err error) {
	err = k.with(ctx, r.Exclude, func(d *hostdir.Dir) error {
		after := r.After
		if after == "" {
			now = true
			if after, err = snapshot(ctx, d); err != nil {
				return err
			}
		}
		changes, err = differ(ctx, d, r.Before, after)
		return err
	})
	return changes, now, err
}

func differ(ctx context.Context, d *hostdir.Dir, from, to string) ([]Change, error) {
	nodes, err := nodesOf(from, to)
	if err != nil {
		return nil, err
	}
	return d.Diff(ctx, nodes[0], nodes[1])
}

func nodesOf(ids ...string) (nodes []*workstate.Node, err error) {
	for _, id := range ids {
		n, err := hostdir.SnapshotOf(id)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// Plan is what a restore will do.
type Plan struct {
	To      Record   // the directory becomes what it was before this record
	Now     string   // snapshot of what the plan saw
	Changes []Change // from the current content to the restored content
	Undone  []Record // records whose changes are undone, newest first
	Digest  string   // identifies the plan: the directory, its content, and the content that it will get
}

// Plan returns what a restore to the state before a record would do. It changes nothing in the
// directory.
func (k *Keeper) Plan(ctx context.Context, name string) (*Plan, error) {
	all, err := k.List(ctx)
	if err != nil {
		return nil, err
	}
	p := &Plan{}
	if p.To, err = Find(all, name); err != nil {
		return nil, err
	}
	err = k.with(ctx, p.To.Exclude, func(d *hostdir.Dir) error {
		if p.Now, err = snapshot(ctx, d); err == nil {
			p.Changes, err = differ(ctx, d, p.Now, p.To.Before)
		}
		return err
	})
	for _, r := range slices.Backward(all) {
		if r.Number >= p.To.Number && r.Outcome != NotSent {
			p.Undone = append(p.Undone, r)
		}
	}
	raw, merr := json.Marshal([]string{k.dir, p.Now, p.To.Before})
	if merr != nil {
		return nil, merr
	}
	p.Digest = tga.Sum(raw).String()[:16]
	return p, err
}

// Restore carries out a plan and returns its record: a restore to the state before that record
// undoes it. STATE_CONFLICT if the directory is no longer as the plan saw it, RESTORE_FAILED if
// something is in the way; then nothing is changed. A restore that a crash cut off can be planned
// and done again.
func (k *Keeper) Restore(ctx context.Context, p *Plan) (Record, error) {
	r := Record{Version: tga.WorkspaceVersion, Kind: KindRestore, Of: p.To.Number, Before: p.Now, Exclude: p.To.Exclude}
	err := k.with(ctx, p.To.Exclude, func(d *hostdir.Dir) error {
		nodes, err := nodesOf(p.Now, p.To.Before)
		if err != nil {
			return err
		}
		all, err := k.list()
		if err != nil {
			return err
		}
		r.Number, r.Began = next(all), tga.MillisOf(k.clock())
		// Write the record that keeps the old content first, so that a crash in the middle loses
		// neither.
		if err := k.write(r); err != nil {
			return err
		}
		k.step("record of the restore")
		failed := d.RestoreFrom(ctx, nodes[0], nodes[1])
		k.step("restored")
		if errors.Is(failed, tga.StateConflict) {
			return errors.Join(tga.Errorf(tga.StateConflict, "%s was changed since the plan was made: look at a new one: %w", k.dir, failed), k.remove(r.Number))
		}
		if r.Ended = tga.MillisOf(k.clock()); failed == nil {
			r.After, r.Outcome = p.To.Before, Succeeded
		} else {
			r.After, r.Outcome, r.Problem = p.Now, Failed, failed.Error()
		}
		if err := k.write(r); err != nil {
			return err
		}
		if failed != nil {
			return failed
		}
		return k.prune(ctx, d, append(all, r))
	})
	return r, err
}

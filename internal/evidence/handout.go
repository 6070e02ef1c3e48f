package evidence

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tgad/tgad/internal/evidence/checkpoint"
)

// goOn follows the log, and makes a checkpoint if one is due: after opts.Leaves appends at once, and after fewer at the
// time next. If nothing was appended by then, it hands the kept checkpoint to places that could not be reached before.
func (k *Keeper) goOn(ctx context.Context, next *time.Time) error {
	err := k.follow(ctx)
	grown, due := k.tree.Size()-k.kept(), !time.Now().Before(*next)
	switch {
	case err != nil:
	case grown > 0 && (due || grown >= k.opts.Leaves):
		*next = time.Now().Add(k.opts.Every)
		err = k.checkpoint(ctx)
	case due && k.owes():
		*next = time.Now().Add(k.opts.Every)
		err = k.handOutKept(ctx)
	}
	return err
}

// finish makes the last checkpoint of a keeper. If nothing was appended since the newest one, it hands that one to the
// places that lack it.
func (k *Keeper) finish(ctx context.Context) error {
	err := k.follow(ctx)
	switch {
	case err != nil:
	case k.tree.Size() > k.kept():
		err = k.checkpoint(ctx)
	case k.owes():
		err = k.handOutKept(ctx)
	}
	return err
}

// owes says whether there is a place that was not asked yet, or is not known to have the newest checkpoint.
func (k *Keeper) owes() bool {
	raw, _ := k.Newest()
	size := k.kept()
	return slices.ContainsFunc(k.places, func(p *place) bool { return !p.asked || raw != nil && p.lacks(raw, size) }) &&
		k.store.Stats().Frozen == ""
}

// lacks says whether a place is not known to have a checkpoint. A judge has every checkpoint that it has signed.
func (p *place) lacks(raw []byte, size int64) bool {
	if j, judges := p.Target.(checkpoint.Judge); judges && p.has < size && j.Signed(raw) {
		p.has = size
	}
	return p.has < size
}

// handOutKept hands out the newest kept checkpoint, if the process that signed it was stopped or did not reach a place.
// Without this, no place would ever know of the last appends of a store that is not used any more.
func (k *Keeper) handOutKept(ctx context.Context) error {
	raw, _ := k.Newest()
	c, err := checkpoint.Unverified(raw)
	if raw == nil || err != nil || c.Size != k.kept() { // there is none, or a person accepted that the store has less
		return k.askMissing(ctx)
	}
	if head, err := k.tree.Head(c.Size); err != nil || head != c.Head {
		return errors.Join(err, k.askMissing(ctx))
	}
	return k.handOut(ctx, raw, c.Size)
}

// askMissing asks the places that could not be reached.
func (k *Keeper) askMissing(ctx context.Context) error {
	for _, p := range k.places {
		if p.asked {
			continue
		}
		if err := k.ask(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// handOut hands a kept checkpoint to the places outside that lack it, and keeps the cosignatures of witnesses.
func (k *Keeper) handOut(ctx context.Context, raw []byte, size int64) error {
	if k.shared != nil && !k.shared.leads(ctx) {
		return nil // this process hung, and another one signs now: what that one hands out is newer
	}
	cosigned := k.push(ctx, raw, size)
	if len(cosigned) == 0 || bytes.Contains(raw, cosigned) {
		return nil
	}
	return k.keep(append(bytes.Clone(raw), cosigned...), size)
}

// push hands a checkpoint to all places that lack it, concurrently, and returns the cosignatures of witnesses.
func (k *Keeper) push(ctx context.Context, raw []byte, size int64) (cosigned []byte) {
	ctx, cancel := context.WithTimeout(ctx, placeTime)
	defer cancel()
	var mu sync.Mutex
	var pushes sync.WaitGroup
	for _, p := range k.places {
		pushes.Go(func() {
			if !p.asked {
				if err := k.ask(ctx, p); err != nil {
					p.say(err)
				}
			}
			if !p.asked || !p.lacks(raw, size) || k.store.Stats().Frozen != "" {
				return
			}
			by, err := p.Put(ctx, raw, k.tree.ProvePrefix)
			if f, refused := k.refusal(ctx, err); refused { // for example if a copy of the store runs elsewhere
				err = errors.Join(err, k.find(p.Name(), f))
			}
			p.say(err)
			if err == nil {
				p.has = size
				mu.Lock()
				cosigned = append(cosigned, by...)
				mu.Unlock()
			}
		})
	}
	pushes.Wait()
	k.count(append(bytes.Clone(raw), cosigned...))
	return cosigned
}

// count logs when checkpoints begin to lack cosignatures, and when they have them again.
func (k *Keeper) count(raw []byte) {
	if k.opts.Cosigned == 0 {
		return
	}
	_, by, err := k.trusted().Open(raw)
	lacking := err != nil || len(by) < k.opts.Cosigned
	switch {
	case lacking && !k.lacking:
		k.log.Warn("a checkpoint lacks signatures of witnesses", "has", len(by), "want", k.opts.Cosigned, "error", err)
	case k.lacking && !lacking:
		k.log.Info("checkpoints have the signatures of witnesses again", "has", len(by))
	}
	k.lacking = lacking
}

package evidence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/evidence/checkpoint"
)

// place is a place outside of the store, with its state. Only the goroutine that runs the keeper
// uses it, and for each place one goroutine of [Keeper.push].
type place struct {
	checkpoint.Target
	log     *slog.Logger
	asked   bool   // its checkpoint was compared with the tree; before that it is not written to
	has     int64  // size of the newest checkpoint that it is known to have
	trouble string // the error that was logged last, "" while it works
}

func (p *place) judges() bool {
	_, is := p.Target.(checkpoint.Judge)
	return is
}

// say logs the error of a place when it changes.
func (p *place) say(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case text == p.trouble:
	case text == "":
		p.log.Info("checkpoints reach the place again", "place", p.Name())
	default:
		p.log.Warn("checkpoints do not reach a place", "place", p.Name(), "error", text)
	}
	p.trouble = text
}

// errDoubted is returned in place of a proof while the store is frozen, so that no judge gets one.
var errDoubted = errors.New("the store is doubted")

// ask compares the newest checkpoint of a place with the tree. It logs errors of the place, and
// returns only those of the store.
func (k *Keeper) ask(ctx context.Context, p *place) error {
	ctx, cancel := context.WithTimeout(ctx, placeTime)
	defer cancel()
	own, _ := k.Newest()
	prove := k.tree.ProvePrefix
	var raw []byte
	var err error
	switch doubted := k.store.Stats().Frozen != ""; {
	case p.judges() && doubted && own == nil:
		return nil // there is no checkpoint to show it; it is asked before it is first written to
	case p.judges() && doubted:
		prove = func(int64, int64) (tlog.TreeProof, error) { return nil, errDoubted }
	case p.judges() && own == nil && !k.mayShow():
		return nil // the process that signs asks it
	case own == nil && k.mayShow(): // whoever rolled the store back may have removed its checkpoints too
		own, err = k.sign()
	}
	if err == nil {
		raw, err = p.Newest(ctx, own, prove)
	}
	if errors.Is(err, errDoubted) {
		return nil // the judge asked for a proof, so it has seen fewer appends than the store has
	}
	if f, refused := k.refusal(ctx, err); refused {
		p.asked = true
		return k.find(p.Name(), f)
	}
	if err != nil {
		p.say(fmt.Errorf("it was not asked for what it has: %w", err))
		return nil
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		p.asked = true
		return nil
	}
	c, _, err := k.trusted().Open(raw)
	if err != nil {
		p.say(fmt.Errorf("it has what the store's key did not sign, and is left alone until that is taken away: %w", err))
		return nil
	}
	p.asked = true
	why, err := k.compare(ctx, c)
	if err == nil && why == "" {
		p.has = c.Size
	}
	if err != nil || why == "" {
		return err
	}
	return k.find(p.Name(), finding{c.Size, c.Head, why})
}

// mayShow says whether this process may sign a checkpoint that is not kept, to show it to a place.
func (k *Keeper) mayShow() bool { return k.shared == nil || k.shared.mayShow() }

// refusal is the finding of a place that refused a checkpoint because it has seen more appends, or
// other ones.
func (k *Keeper) refusal(ctx context.Context, err error) (f finding, refused bool) {
	var newer *checkpoint.NewerError
	var other *checkpoint.OtherError
	switch {
	case errors.As(err, &newer) && k.shared != nil && k.shared.has(ctx, newer.Size):
		return finding{}, false // another process has signed that meanwhile
	case errors.As(err, &newer):
		return finding{size: newer.Size, why: fmt.Sprintf("it has seen %d appends, and the store signs for %d: the store was rolled back", newer.Size, k.tree.Size())}, true
	case errors.As(err, &other):
		return finding{size: other.Size, why: fmt.Sprintf("it has seen other appends among the first %d: what happened was rewritten", other.Size)}, true
	}
	return finding{}, false
}

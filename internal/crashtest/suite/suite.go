// Package suite has the list of all crash tiers, the loop that runs chosen tiers within a
// time budget, and their result.
package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tgad/tgad/internal/crashtest"
	"github.com/tgad/tgad/internal/crashtest/machine"
	"github.com/tgad/tgad/internal/crashtest/proc"
)

// memory are the tiers whose stores are in memory.
var memory = []crashtest.Tier{
	{Name: "mem", Share: 5, Run: crashtest.Mem},
	{Name: "rapid", Share: 2, Run: machine.Tier},
	{Name: "corrupt", Share: 2, Run: crashtest.Corrupted},
	{Name: "trust", Share: 2, Run: crashtest.TrustTier},
	{Name: "turn", Share: 2, Run: crashtest.TurnTier},
	{Name: "state", Share: 1, Run: crashtest.StateTier},
}

// tiers are all tiers in the order in which they run. "planted", which tests the others,
// comes first, so that it has enough time.
var tiers = slices.Concat(
	[]crashtest.Tier{
		// It ends once every bug is found. On a slow machine that takes longer than a short budget.
		{Name: "planted", Share: 1, Least: 5 * time.Minute, Run: crashtest.Planted},
		crashtest.Sharded(memory[0]),
		crashtest.Sharded(memory[1]),
		crashtest.Sharded(memory[2]),
		crashtest.Sharded(memory[3]),
		crashtest.Sharded(memory[4]),
		crashtest.Sharded(memory[5]),
		{Name: "badinput", Share: 2, Run: crashtest.BadInput},
		{Name: "kill", Share: 1, Run: crashtest.Kill},
	},
	proc.Tiers(),
)

// RunChild runs a part of a tier, a victim or an oracle if the process was started as
// one, and then does not return. A program that calls [Run] calls it before it looks at
// its arguments.
func RunChild() {
	proc.RunChild()
	crashtest.RunShard(memory...)
}

// Names lists the tiers.
func Names() (names []string) {
	for _, t := range tiers {
		names = append(names, t.Name)
	}
	return names
}

// Options say what runs.
type Options struct {
	Tiers  []string
	Budget time.Duration // for all of them; each has its share
	Seed   uint64
	Images string    // directory for the images of failures
	Stores string    // directory for stores of real processes, "" = a temporary one
	Bugs   []string  // the planted bugs to try, nil = all
	Out    io.Writer // progress
}

// Run runs tiers and returns their result, with an error if a property does not hold.
func Run(ctx context.Context, o Options) (*crashtest.Result, error) {
	chosen, err := choose(o.Tiers)
	if err != nil {
		return nil, err
	}
	res := crashtest.NewResult(o.Seed)
	if _, err := fmt.Fprintf(o.Out, "seed %d, commit %s, %s, images of failures in %s\n", o.Seed, res.Commit, res.Machine, o.Images); err != nil {
		return nil, err
	}
	begin := time.Now()
	var failed []error
	for i, t := range chosen {
		if ctx.Err() != nil {
			break
		}
		tierBegin := time.Now()
		r := &crashtest.Run{Seed: o.Seed, SaveDir: o.Images, Stores: o.Stores, Bugs: o.Bugs, Out: o.Out, Context: ctx}
		r.Deadline = tierBegin.Add(share(chosen[i:], o.Budget-time.Since(begin)))
		t.Run(r)
		r.Show()
		took := time.Since(tierBegin)
		r.Say("tier %-10s %6.0f s", t.Name, took.Seconds())
		if err := r.Err(); err != nil {
			failed = append(failed, fmt.Errorf("tier %s: %w", t.Name, err))
		}
		res.Ran(t.Name, took, r)
	}
	res.Counts.Seconds = int64(time.Since(begin).Seconds())
	return res, errors.Join(append(failed, ctx.Err())...)
}

// share returns the time for the first of the remaining tiers. Time that it does not use goes to
// the others. If its least time is more than its share, it takes the rest from the others, and
// then exceeds the budget.
func share(tiers []crashtest.Tier, left time.Duration) time.Duration {
	shares := 0
	for _, t := range tiers {
		shares += t.Share
	}
	return max(tiers[0].Least, left*time.Duration(tiers[0].Share)/time.Duration(shares))
}

// choose returns the tiers of these names, in the order in which they run.
func choose(names []string) (chosen []crashtest.Tier, err error) {
	for _, name := range names {
		if !slices.Contains(Names(), name) {
			return nil, fmt.Errorf("tier %q is none of %s", name, strings.Join(Names(), " "))
		}
	}
	for _, t := range tiers {
		if slices.Contains(names, t.Name) {
			chosen = append(chosen, t)
		}
	}
	return chosen, nil
}

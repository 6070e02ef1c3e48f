//go:build linux

package proc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/tgad/tgad/internal/crashtest"
	"github.com/tgad/tgad/runtime"
)

// crowd is a life with many callers at once. Their keys are few, so that they meet; those
// of an earlier life ask again for what they may have got.
func crowd(ctx context.Context, rt *runtime.Runtime, store runtime.Store, outside *dialer, task victimTask) error {
	var (
		wg   sync.WaitGroup
		errs = make([]error, task.Callers)
	)
	for caller := range task.Callers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(task.Seed, uint64(task.Life*task.Callers+caller)))
			for n := range callsOfCaller {
				c := anyCall(r)
				c.Trace = traceID(task.Seed, (task.Life*task.Callers+caller)*callsOfCaller+n)
				if errs[caller] = live(ctx, rt, store, outside, c); errs[caller] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// crowdKeys is how many keys of each tool a crowd uses.
const crowdKeys = 300

// anyCall is one call of a crowd. Of a key nearly all ask for the same thing.
func anyCall(r *rand.Rand) call {
	kinds := []call{
		{Tool: "park.answers"},
		{Tool: "park.answers", How: executor},
		{Tool: "dedupe_key.answers", Seal: r.IntN(8) == 0},
		{Tool: "dedupe_args.loses_reply"},
		{Tool: "park.loses_reply", How: operator},
		{Tool: "park.loses_call", How: operator},
		{Tool: "none.answers"},
		{Tool: "none.long"},
		{Tool: "read_only.answers"},
		{Tool: "park.answers", Server: crashtest.People},
		{Tool: "park.answers", Server: crashtest.Denied},
	}
	c := kinds[r.IntN(len(kinds))]
	c.Server = cmp.Or(c.Server, crashtest.Allowed)
	key := r.IntN(crowdKeys)
	c.Key = fmt.Sprintf("%s-%s-%d", c.How, c.Server, key)
	if r.IntN(30) == 0 {
		key += crowdKeys
	}
	c.Args = fmt.Sprintf(`{"amount":%d}`, key)
	return c
}

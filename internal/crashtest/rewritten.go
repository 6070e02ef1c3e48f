package crashtest

import (
	"context"
	"fmt"

	"github.com/tgad/tgad/schemas/tga"
)

// Rewritten returns a life cycle in which full segments of the log are rewritten in each way
// that there is: compressed with every body, shrunk to the bodies that are still somebody's, and
// emptied of all of them. Its long answers fill the small segments of a world.
func Rewritten(licence string) []Step {
	calls := func(behaviour string, n int) func(p *Process, key string) {
		return func(p *Process, key string) {
			for i := range n {
				ignore(p.Call(0, Request(Allowed, licence+"."+behaviour, fmt.Sprintf("%s-%d", key, i), 5)))
			}
		}
	}
	archive := func(p *Process, before tga.Millis) { ignore(p.DB.SealTraces(context.Background(), before)) }
	return []Step{
		{"fill", calls(Long, 3)},
		{"in doubt", call(Allowed, licence, LosesReply)},
		{"compress", func(p *Process, _ string) { ignore(p.DB.Rewrite(context.Background())) }},
		{"archive", func(p *Process, key string) {
			archive(p, tga.MillisOf(p.World.Clock())+1)
			calls(Long, 3)(p, key)
		}},
		{"rewrite again", func(p *Process, key string) {
			calls(Answers, 2)(p, key)
			ignore(p.DB.Rewrite(context.Background()))
		}},
	}
}

// rewritten crashes a store around the rewriting of its log's segments, and then asks for every
// key again.
func (r *Run) rewritten(seed uint64) {
	s := Scenario{Name: "rewritten", Licences: []string{"park", "dedupe_key"}, Steps: Rewritten}
	r.Explore(s, seed, []int{0, 70, 100}, 1, Thoroughness{Depth: 2, Nested: 211, Again: 16, Retry: 4})
}

package runtime

import (
	"context"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// TestWithoutATracerNothingIsAllocated: the code for spans allocates nothing in a call without a Tracer.
func TestWithoutATracerNothingIsAllocated(t *testing.T) {
	var sp spans
	ctx, l := context.Background(), &loop{state: tga.Pending}
	var res Result
	var req Request
	var err error
	n := testing.AllocsPerRun(100, func() {
		ctx, a := sp.begin(ctx, "tgad.call", tga.ID{}, "payments", "charge")
		sp.leave(ctx, l, &req)
		_, s := sp.step(ctx, l)
		s.end(l, nil)
		a.end(&res, &err)
	})
	if n != 0 || req.own != nil {
		t.Errorf("%v allocations, own meta %v", n, req.own)
	}
}

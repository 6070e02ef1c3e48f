package runtime

import (
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// TestHeldArgumentsAreBounded: at the limit all arguments are held; one byte past it the oldest are dropped.
// Dropped arguments no longer count.
func TestHeldArgumentsAreBounded(t *testing.T) {
	h := &heldArgs{most: 30}
	id := func(n byte) tga.ID { return tga.ID{15: n} }
	for n := range byte(3) {
		h.hold(id(n), make([]byte, 10))
	}
	if h.of(id(0)) == nil || h.bytes != 30 {
		t.Errorf("at the limit %d bytes are held", h.bytes)
	}
	h.hold(id(2), make([]byte, 11)) // the same trace, with more
	if h.of(id(0)) != nil || h.of(id(1)) == nil || h.of(id(2)) == nil || h.bytes != 21 {
		t.Errorf("past it %d bytes are held", h.bytes)
	}
	h.let(id(1))
	h.let(id(1))
	if h.bytes != 11 {
		t.Errorf("%d bytes are held", h.bytes)
	}
	h.hold(id(3), make([]byte, 31))
	if h.bytes != 0 || h.of(id(3)) != nil {
		t.Errorf("more than fits: %d bytes are held", h.bytes)
	}
	for n := range 1000 {
		h.hold(id(byte(n)), make([]byte, 1))
		h.let(id(byte(n)))
	}
	if len(h.order) > 100 || len(h.args) != 0 {
		t.Errorf("%d places are left of nothing", len(h.order))
	}
	h.hold(id(1), nil)
	if h.of(id(1)) != nil {
		t.Error("a call that is not redacted is held")
	}
}

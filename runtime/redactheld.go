package runtime

import (
	"cmp"
	"slices"
	"sync"

	"github.com/tgad/tgad/schemas/tga"
)

// heldArgs holds the whole arguments of redacted calls that remote executors are sending. The answer
// arrives later, in a request of its own, and may repeat parts of the arguments: with heldArgs those parts
// can be removed. The arguments are only in memory, so after a restart an answer is redacted without them.
// Of more than heldBytes the oldest are dropped.
type heldArgs struct {
	mu    sync.Mutex
	args  map[tga.ID][]byte
	order []tga.ID // oldest first; some may be gone
	bytes int
	most  int // 0 = heldBytes
}

const heldBytes = 64 << 20

func (h *heldArgs) hold(trace tga.ID, whole []byte) {
	if whole == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.args == nil {
		h.args = map[tga.ID][]byte{}
	}
	if was, ok := h.args[trace]; ok {
		h.bytes -= len(was)
	} else {
		h.order = append(h.order, trace)
	}
	h.args[trace] = whole
	for h.bytes += len(whole); h.bytes > cmp.Or(h.most, heldBytes) && len(h.order) > 0; h.order = h.order[1:] {
		h.drop(h.order[0])
	}
	if len(h.order) > 2*len(h.args)+64 {
		h.order = slices.DeleteFunc(h.order, func(t tga.ID) bool { return h.args[t] == nil })
	}
}

// of returns the arguments of a trace, nil if they are not held.
func (h *heldArgs) of(trace tga.ID) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.args[trace]
}

// let drops the arguments of a trace.
func (h *heldArgs) let(trace tga.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(trace)
}

func (h *heldArgs) drop(trace tga.ID) {
	h.bytes -= len(h.args[trace])
	delete(h.args, trace)
}

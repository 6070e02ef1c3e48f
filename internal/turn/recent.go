package turn

import (
	"slices"
	"sync"

	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/schemas/tga"
)

// recent caches the messages that the newest turns added to their conversations. A turn that has
// ended does not change, and the next turn of its session needs its messages. The zero value is
// ready for use.
type recent struct {
	mu    sync.Mutex
	turns map[tga.ID]said
	order []tga.ID // oldest first
	bytes int
}

type said struct {
	messages []message.Message
	bytes    int
}

// Bounds of what is kept.
const (
	mostRecent      = 4096
	mostRecentBytes = 16 << 20
)

func (r *recent) get(id tga.ID) ([]message.Message, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.turns[id]
	return slices.Clip(s.messages), ok
}

// put caches the messages of a turn. Messages are never changed once they are made.
func (r *recent) put(id tga.ID, messages []message.Message) {
	size := 0
	for _, m := range messages {
		size += 256
		for _, p := range m.Content {
			size += len(p.Text) + len(p.Data) + len(p.URI)
		}
		for _, c := range m.ToolCalls {
			size += len(c.Arguments)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.turns[id]; known || size > mostRecentBytes {
		return
	}
	if r.turns == nil {
		r.turns = map[tga.ID]said{}
	}
	r.turns[id], r.order, r.bytes = said{messages, size}, append(r.order, id), r.bytes+size
	for len(r.order) > mostRecent || r.bytes > mostRecentBytes {
		r.bytes -= r.turns[r.order[0]].bytes
		delete(r.turns, r.order[0])
		r.order = r.order[1:]
	}
}

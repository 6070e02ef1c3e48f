package clip

import "bytes"

// Head is a writer that keeps the first Most bytes and discards the rest, without an error. So a
// program that writes more does not block, and fills no memory.
type Head struct {
	Most int
	Over bool // more than Most bytes were written
	kept bytes.Buffer
}

// Write implements [io.Writer].
func (h *Head) Write(b []byte) (int, error) {
	room := max(0, h.Most-h.kept.Len())
	h.Over = h.Over || len(b) > room
	h.kept.Write(b[:min(len(b), room)])
	return len(b), nil
}

// Bytes returns the bytes that were kept.
func (h *Head) Bytes() []byte { return h.kept.Bytes() }

func (h *Head) String() string { return h.kept.String() }

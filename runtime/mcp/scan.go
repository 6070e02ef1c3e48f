package mcp

import (
	"crypto/sha256"
	"hash"
	"strconv"

	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// message is one JSON-RPC message that is arriving. Its result and its error are kept as the
// bytes that the server wrote, each up to a limit. So the limit bounds the memory that a message
// of any length takes.
type message struct {
	mcpraw.Scanner
	env           mcpraw.Envelope // set by done
	result, fault capture
}

func newMessage(limit int64) *message {
	m := &message{result: capture{limit: limit}, fault: capture{limit: limit}}
	m.Result, m.Fault = &m.result, &m.fault
	return m
}

// add takes the next part of the message. It never fails.
func (m *message) add(p []byte) error {
	_, err := m.Write(p)
	return err
}

// line begins another line of an event's data. A line end is white space in JSON.
func (m *message) line() error { return m.add([]byte("\n")) }

// done is called at the message's end. It reports whether the message is whole and valid.
func (m *message) done() bool {
	m.env = m.Finish()
	return m.env.Bad == "" && !m.env.Batch
}

// number returns the message's id if it is an integer, as the ids of a link are. Some servers
// write 7.0 or "7" for 7.
func (m *message) number() (int64, bool) {
	f, err := strconv.ParseFloat(mcpraw.ScalarText(m.env.RawID), 64)
	if err != nil || f != float64(int64(f)) {
		return 0, false
	}
	return int64(f), true
}

// capture keeps a value up to its limit. Of a longer value it keeps only length and digest.
type capture struct {
	limit   int64
	present bool
	data    []byte // nil beyond the limit
	bytes   int64
	sum     hash.Hash // set beyond the limit
}

// Write takes the next part of the value. It never fails.
func (c *capture) Write(p []byte) (int, error) {
	c.present = true
	c.bytes += int64(len(p))
	switch {
	case c.sum != nil:
		c.sum.Write(p)
	case c.bytes > c.limit:
		c.sum = sha256.New()
		c.sum.Write(c.data)
		c.sum.Write(p)
		c.data = nil
	default:
		c.data = append(c.data, p...)
	}
	return len(p), nil
}

// truncated reports whether the value was longer than its limit.
func (c *capture) truncated() bool { return c.sum != nil }

// digest returns the SHA-256 of the whole value.
func (c *capture) digest() tga.Digest {
	if c.sum == nil {
		return tga.Sum(c.data)
	}
	var d tga.Digest
	c.sum.Sum(d[:0])
	return d
}

package mcpfront

import (
	"bytes"
	"io"
	"sync"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// Revision 2025-03-26 lets a client send several messages as one array. They are taken
// apart: each goes to the tool server on its own, and the answers to its requests go
// back as one array.

// batchReply collects the answers to a batch.
type batchReply struct {
	name []byte // of the batch, where its client has several under way; nil = it has not
	mu   sync.Mutex
	want int
	got  [][]byte
	// owed are the calls whose occurrence is over once the array was delivered: their
	// traces by their names.
	owed map[string]tga.ID
}

// add takes one answer. It returns the whole array once all are there.
func (b *batchReply) add(parts ...io.WriterTo) ([]byte, error) {
	var buf bytes.Buffer
	for _, p := range parts {
		if _, err := p.WriteTo(&buf); err != nil {
			return nil, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got = append(b.got, buf.Bytes())
	return b.whole(), nil
}

// whole returns the array where all that is to be in it is there. The lock is held.
func (b *batchReply) whole() []byte {
	if len(b.got) != b.want || b.want == 0 {
		return nil
	}
	return append(append([]byte{'['}, bytes.Join(b.got, []byte{','})...), ']')
}

// spare says that one of the answers does not come: its request was given up.
func (c *conv) spare(b *batchReply) {
	if b == nil {
		return
	}
	b.mu.Lock()
	b.want--
	whole := b.whole()
	b.mu.Unlock()
	_ = c.giveWhole(b, whole) // a client that is gone is seen by put
}

// deliverIn is [attempt.Desk.Deliver] for an answer that may be one of a batch: that is delivered
// when the array is.
func (c *conv) deliverIn(b *batchReply, name string, trace tga.ID, give func() error) (err error) {
	if b == nil {
		c.s.Deliver(c.to, map[string]tga.ID{name: trace}, func() error { err = give(); return err })
		return err
	}
	b.mu.Lock()
	if b.owed == nil {
		b.owed = map[string]tga.ID{}
	}
	b.owed[name] = trace
	b.mu.Unlock()
	if err = give(); err != nil {
		b.mu.Lock()
		delete(b.owed, name)
		b.mu.Unlock()
	}
	return err
}

// giveWhole hands an array to the client; nil is none yet.
func (c *conv) giveWhole(b *batchReply, whole []byte) error {
	if whole == nil {
		return nil
	}
	env := &mcpraw.Envelope{Batch: true, RawID: b.name}
	b.mu.Lock()
	owed := b.owed
	b.mu.Unlock()
	if len(owed) == 0 {
		return c.put(c.out.Hand, env, frames.Text(whole))
	}
	// Elsewhere: it may be the tool server's answer that was the last, and its next
	// message is not to wait for the log.
	c.giving(nil)
	c.work.Go(func() {
		defer c.given()
		c.s.Deliver(c.to, owed, func() error { return c.put(c.out.Send, env, frames.Text(whole)) }) // a client that is gone is seen by put
	})
	return nil
}

// fromBatch takes a client's batch apart.
func (c *conv) fromBatch(f *frames.Frame) {
	b := &batchReply{name: f.RawID}
	all := frames.Split(f)
	if all == nil {
		_ = c.put(c.out.Hand, &mcpraw.Envelope{Batch: true, RawID: b.name},
			frames.Text(say.Fault([]byte("null"), mcpraw.CodeInvalidRequest, "", "", "the batch is empty, no JSON, or too long")))
		return
	}
	for _, e := range all {
		if frames.OwesAnswer(e) {
			b.want++
		}
	}
	for _, e := range all {
		if e.Batch {
			e.Bad, e.Batch = "a batch stands in it", false
		}
		c.fromClient(e, b)
	}
}

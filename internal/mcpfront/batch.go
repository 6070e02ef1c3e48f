package mcpfront

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/tgad/tgad/internal/clip"
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
	name []byte // id of the batch, for a client that has several under way; nil = none
	mu   sync.Mutex
	want int
	got  [][]byte
	// owed are the traces, by name, of the calls that count as delivered once the array was
	// delivered.
	owed map[string]tga.ID
}

// add adds one answer. It returns the whole array once all answers are there, else nil.
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

// whole returns the array if all its answers are there, else nil. If no answer is left to come of an array that has a POST, it
// is empty: that ends the POST. The caller holds the lock.
func (b *batchReply) whole() []byte {
	switch {
	case len(b.got) != b.want, b.want == 0 && b.name == nil:
		return nil
	case b.want == 0:
		return []byte{}
	}
	return append(append([]byte{'['}, bytes.Join(b.got, []byte{','})...), ']')
}

// spare says that one of the answers will not come, because its request was given up.
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

// deliverIn is [attempt.Desk.Deliver] for an answer that may be part of a batch. Such an answer
// counts as delivered when the array is.
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

// unread is the error of an answer of a batch that could not be read from its file.
type unread struct{ error }

func (u unread) Unwrap() error { return u.error }

// notRead answers a request of a batch with an error if err says that its answer could not be read: the rest of the array
// must not wait for it. It does nothing for any other err.
func (b *batchReply) notRead(c *conv, id []byte, err error) {
	if errors.As(err, new(unread)) {
		c.s.Log.Error("an answer of a batch cannot be read", "id", clip.Bytes(string(id), 80), "error", err)
		c.fail(id, b, mcpraw.CodeGone, tga.StoreUnavailable, "", "the answer came, and tgad could not read it from its file: "+err.Error())
	}
}

// giveWhole hands a whole array to the client. It does nothing if whole is nil.
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
	// In a goroutine: the caller may be the reader of the tool server's messages, which must
	// not wait for the log.
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
			e.Bad, e.Batch = "it contains a nested batch", false
		}
		c.fromClient(e, b)
	}
}

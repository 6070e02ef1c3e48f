package attempt

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/paper"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Permits notes each permit that is in use, so that the next shim can give it up if this one is killed.
type Permits struct {
	s     *Desk
	book  *paper.Book // permits of calls that the tool server has; nil = none is noted
	taken sync.Once
}

// NewPermits makes the permits of a conversation. Without a book no permit is noted.
func NewPermits(s *Desk, book *paper.Book) *Permits { return &Permits{s: s, book: book} }

// TakeOver gives up, once, the permits that an earlier shim has left. It is called when this
// shim's tool server runs.
func (p *Permits) TakeOver() {
	p.taken.Do(func() { p.s.Work.Go(p.giveUpOld) })
}

// giveUpOld gives up the permits that an earlier shim of this slot has left. That shim was
// killed. If the tool server is a process, the old one is gone too, because the new one is
// started only after that. So the licence decides about such a call now, and not when its
// permit is stale. A read call is ended: it had no effect, and no client can get its answer.
func (p *Permits) giveUpOld() {
	if p.book == nil {
		return
	}
	old := map[string]string{}
	err := p.book.Each("", func(trace, permit string) { old[trace] = permit })
	for trace, said := range old {
		if p.noted(trace) {
			continue
		}
		word, isRead := strings.CutSuffix(said, readMark)
		id, idErr := tga.ParseID(trace)
		permit, permitErr := runtime.ParsePermit(word)
		if idErr == nil && permitErr == nil {
			err = errors.Join(err, p.giveUpOne(id, permit, isRead))
		}
		if p.s.Life.Err() != nil {
			break // the log may not know it: the note stays for the next shim
		}
		err = errors.Join(err, p.book.Change(trace, func(old string) string {
			if old == said {
				return ""
			}
			return old // this shim has begun the call again and noted a new permit
		}))
	}
	if err != nil {
		p.s.Log.Info("calls of an earlier shim were not given up; repeats of them wait until their permits are stale", "error", err)
	}
}

// giveUpOne tells the log that nobody uses a permit any more. It waits for a log that is away.
func (p *Permits) giveUpOne(id tga.ID, permit runtime.Permit, isRead bool) error {
	return asklog.Persist(p.s.Life, func(ctx context.Context) error {
		if !isRead {
			return p.s.o.Log.GiveUp(ctx, id, permit, "the shim that sent it was killed before it had the answer", 0)
		}
		_, err := p.s.o.Log.Finish(ctx, id, permit, runtime.Finished{Who: "tgad mcp", Reply: runtime.Reply{
			Status: tga.StatusError, ErrorCode: string(tga.ToolError), ErrorMessage: "its executor was killed before the answer was recorded; the call only reads",
		}})
		return err
	})
}

// noted reports whether this shim is executing a trace itself.
func (p *Permits) noted(trace string) bool {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	for _, a := range p.s.open {
		if a.Trace().String() == trace && a.q.Sent.Load() {
			return true
		}
	}
	return false
}

// readMark is the suffix of a noted permit of a read call.
const readMark = " read"

// Note notes that a permit is in use. strike removes the note.
func (p *Permits) Note(b runtime.Begun, isRead bool) (strike func()) {
	if p.book == nil {
		return func() {}
	}
	trace, word := b.Result.TraceID.String(), b.Permit.String()
	if isRead {
		word += readMark
	}
	if err := p.book.Change(trace, func(string) string { return word }); err != nil {
		p.s.Log.Warn("a permit was not noted", "trace", trace, "error", err)
	}
	return func() {
		err := errors.Join(p.book.Change(trace, func(string) string { return "" }), p.book.Shrink())
		if err != nil {
			p.s.Log.Warn("could not remove the note of a finished permit", "trace", trace, "error", err)
		}
	}
}

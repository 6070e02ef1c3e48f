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

// Permits are those that are out: a note of each, for the shim that follows a killed one.
type Permits struct {
	s     *Desk
	book  *paper.Book // of calls that are with the tool server; nil = not noted
	taken sync.Once
}

// NewPermits are those of a conversation; without a book none is noted.
func NewPermits(s *Desk, book *paper.Book) *Permits { return &Permits{s: s, book: book} }

// TakeOver gives up, once, what an earlier shim has left. The tool server of this one is there.
func (p *Permits) TakeOver() {
	p.taken.Do(func() { p.s.Work.Go(p.giveUpOld) })
}

// giveUpOld gives up the permits that an earlier shim of this slot has left. It was
// killed, and its tool server is gone: this one was started only after that. So a call
// that it was at is answered by licence now, and not when its permit is stale. A read
// call is ended: it did nothing, and nobody can ask for its answer any more.
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
		err = errors.Join(err, p.book.Change(trace, func(old string) string {
			if old == said {
				return ""
			}
			return old // it is at work again, in this shim
		}))
	}
	if err != nil {
		p.s.Log.Info("calls of an earlier shim were not given up; repeats of them wait until their permits are stale", "error", err)
	}
}

// giveUpOne tells the log that a permit is out no more. A log that is away is told later.
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

// noted reports whether a trace is at work in this very shim.
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

// readMark ends the note of a permit of a read call.
const readMark = " read"

// Note writes down that a permit is out, and strike that it is not any more.
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
			p.s.Log.Warn("a permit that is over was not struck out", "trace", trace, "error", err)
		}
	}
}

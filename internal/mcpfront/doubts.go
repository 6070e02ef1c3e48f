package mcpfront

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/tgad/tgad/internal/mcpfront/attempt"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// doubtList offers a client the shim's own tools while calls are in doubt.
type doubtList struct {
	c      *conv
	listed atomic.Bool // the client's newest list of tools has the shim's own tools
}

// callOwn answers a call of a tool of the shim's own.
func (y *doubtList) callOwn(own func(context.Context, *toolcall.Params) (string, error), f *frames.Frame, p *toolcall.Params, b *batchReply) {
	w := &waiting{id: f.RawID, method: f.Method, batch: b}
	f.Close()
	if err := y.c.register(w); err != nil {
		y.c.fail(w.id, b, mcpraw.CodeInvalidRequest, "", "", err.Error())
		return
	}
	version := p.Revision()
	y.c.work.Go(func() {
		ctx, cancel := context.WithTimeout(y.c.life, y.c.s.opts.LogTimeout)
		defer cancel()
		said, err := own(ctx, p)
		y.c.giving(w)
		defer y.c.given()
		if err != nil {
			_ = y.c.answer(w, `,"result":`, say.ToolError(version, tga.CodeOf(err), "", p.Tool+": "+err.Error()))
			return
		}
		_ = y.c.answer(w, `,"result":`, say.Text(version, said))
		y.changed()
	})
}

// withDoubts adds the shim's own tools to the last page of a list while a call is in doubt.
// If it cannot add to the list, the list passes unchanged.
func (y *doubtList) withDoubts(w *waiting, f *frames.Frame) *frames.Frame {
	own := y.c.s.owns.Offered(w.asks)
	if len(own) == 0 || !f.Result.Present() || int64(len(f.Head)) != f.Size {
		return f
	}
	result := f.Head[f.Result.From:f.Result.To]
	from, to, ok := mcpraw.Locate(result, "/tools")
	if !ok || result[from] != '[' || mcpraw.ScalarText(mcpraw.At(result, "/nextCursor")) != "" {
		return f
	}
	doubt := y.inDoubt()
	if !y.c.shared { // a shared conversation has several clients, each with its own newest list
		y.listed.Store(doubt)
	}
	if !doubt {
		return f
	}
	add := strings.Join(own, ",")
	for _, b := range result[from+1 : to-1] {
		if b > ' ' {
			add = "," + add
			break
		}
	}
	at := f.Result.From + int64(to) - 1
	return frames.Replace(f, mcpraw.Span{From: at, To: at}, []byte(add))
}

// inDoubt reports whether a call of this tool server is in doubt. It is false if the log cannot
// be asked.
func (y *doubtList) inDoubt() bool {
	ctx, cancel := context.WithTimeout(y.c.life, y.c.s.opts.CancelGrace)
	defer cancel()
	all, err := y.c.s.owns.Doubts(ctx)
	if err != nil {
		y.c.s.Log.Debug("whether calls are in doubt cannot be seen", "error", err)
	}
	return len(all) > 0
}

// changed tells clients that their list of tools has changed, because the first call has come
// into doubt or the last doubt has ended. It tells them in the way in which the tool server
// tells of such changes, and only if the tool server has said that it does.
func (y *doubtList) changed() {
	handshake := !y.c.shared && y.c.opening.ListChanged()
	subscribed := y.c.subs.subscribedToTools()
	if len(y.c.s.owns.Offered(y.c.opening.Elicits())) == 0 || !handshake && len(subscribed) == 0 {
		return
	}
	doubt := y.inDoubt()
	if y.listed.Swap(doubt) == doubt {
		return
	}
	if handshake {
		y.c.toClient(frames.NewFrame([]byte(`{"jsonrpc":"2.0","method":"` + say.ToolsChanged + `"}`)))
	}
	for _, id := range subscribed {
		y.c.toClient(say.Changed(id, say.ToolsChanged, ""))
	}
}

// subscribedToTools returns the ids of the subscriptions to changes of the list of tools.
func (u *subscriptions) subscribedToTools() (all [][]byte) {
	u.c.mu.Lock()
	defer u.c.mu.Unlock()
	for _, w := range u.c.pending {
		if w.sub != nil && w.sub.acked && w.sub.tools && w.sub.life.Err() == nil {
			all = append(all, w.id)
		}
	}
	return all
}

// look finds out whether the outcome of a call has changed the clients' list of tools.
func (y *doubtList) look(out *attempt.Outcome) {
	if out.Code == tga.EffectInDoubt || y.listed.Load() {
		y.changed()
	}
}

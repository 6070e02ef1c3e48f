package mcpfront

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/mcpfront/attempt"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// A client that cannot ask its person sees the calls in doubt by a tool of the shim's own. It
// reads, and settles nothing: a model does not license its own repeat. It is in the tool
// server's list while something is in doubt, so that what passes is otherwise exact. Another one,
// by which a model settles a doubt, is offered where the operator says so (settletool.go).

const doubtDefinition = `{"name":"` + say.DoubtTool + `","description":"Lists the calls of this server's tools that may have run and have no recorded answer, ` +
	`with their arguments. Do not repeat them or do the same in another way: ask the user, who settles each with a command that is listed.",` +
	`"inputSchema":` + say.NoArgs + `,"annotations":{"readOnlyHint":true,"openWorldHint":false}}`

// Limits of what the tool shows.
const (
	maxDoubts    = 50
	maxDoubtArgs = 2000 // characters of the arguments of one call
)

// doubtful is one call in doubt as the tool shows it.
type doubtful struct {
	Trace     string   `json:"trace_id"`
	Tool      string   `json:"tool"`
	Arguments string   `json:"arguments"`
	Since     string   `json:"since"`
	Why       string   `json:"why,omitempty"`
	Commands  []string `json:"commands"`
}

// doubts are the calls of this tool server that are in doubt.
func (s *Shim) doubts(ctx context.Context) ([]wire.OpenTrace, error) {
	all, err := s.opts.Look.InDoubt(ctx)
	var ours []wire.OpenTrace
	for _, t := range all {
		if t.ToolServer == s.opts.Server && t.Namespace == cmp.Or(s.opts.Namespace, tga.DefaultNamespace) {
			ours = append(ours, t)
		}
	}
	return ours, err
}

// ownTool is what answers a call of a tool of the shim's own; nil where the tool is not one.
func (s *Shim) ownTool(name string) func(context.Context, *toolcall.Params) (string, error) {
	switch {
	case s.opts.Look == nil:
		return nil
	case name == say.DoubtTool:
		return func(ctx context.Context, _ *toolcall.Params) (string, error) {
			raw, err := s.doubtsText(ctx)
			return string(raw), err
		}
	case name == say.SettleTool && s.opts.SettleTool:
		return s.settleDoubt
	}
	return nil
}

// doubtList is what a client's list of tools says of calls in doubt.
type doubtList struct {
	c      *conv
	listed atomic.Bool // the client's list of tools has the shim's own in it
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

func (s *Shim) doubtsText(ctx context.Context) ([]byte, error) {
	all, err := s.doubts(ctx)
	if err != nil {
		return nil, err
	}
	shown := struct {
		Calls []doubtful `json:"calls_in_doubt"`
		More  int        `json:"more,omitempty"`
	}{[]doubtful{}, max(0, len(all)-maxDoubts)}
	for _, t := range all[:min(len(all), maxDoubts)] {
		asked, err := s.opts.Look.Request(ctx, t.TraceID)
		if err != nil {
			return nil, err
		}
		d := doubtful{
			Trace: t.TraceID.String(), Tool: t.ToolName, Arguments: clip.Runes(string(asked.Request.Proposal.Args), maxDoubtArgs), Since: t.Since.String(),
			Commands: s.DoubtVerbs(t.TraceID),
		}
		if t.Doubt != nil {
			d.Why = t.Doubt.Cause
		}
		shown.Calls = append(shown.Calls, d)
	}
	return json.MarshalIndent(shown, "", " ")
}

// ownTools are the definitions of the shim's own tools that a client is offered while something
// is in doubt, by whether it can ask its person.
func (s *Shim) ownTools(asks bool) (all []string) {
	if s.opts.Look == nil {
		return nil
	}
	if !asks || s.opts.SettleTool {
		all = append(all, doubtDefinition)
	}
	if s.opts.SettleTool {
		all = append(all, settleDefinition)
	}
	return all
}

// withDoubts adds the shim's own tools to the last page of a list while something is in doubt.
// A list that cannot be added to passes as it is.
func (y *doubtList) withDoubts(w *waiting, f *frames.Frame) *frames.Frame {
	own := y.c.s.ownTools(w.asks)
	if len(own) == 0 || !f.Result.Present() || int64(len(f.Head)) != f.Size {
		return f
	}
	result := f.Head[f.Result.From:f.Result.To]
	from, to, ok := mcpraw.Locate(result, "/tools")
	if !ok || result[from] != '[' || mcpraw.ScalarText(mcpraw.At(result, "/nextCursor")) != "" {
		return f
	}
	doubt := y.inDoubt()
	if !y.c.shared { // else another client may not have heard of it
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

// inDoubt reports whether a call of this tool server is in doubt, as far as the log says so.
func (y *doubtList) inDoubt() bool {
	ctx, cancel := context.WithTimeout(y.c.life, y.c.s.opts.CancelGrace)
	defer cancel()
	all, err := y.c.s.doubts(ctx)
	if err != nil {
		y.c.s.Log.Debug("whether calls are in doubt cannot be seen", "error", err)
	}
	return len(all) > 0
}

// changed tells clients that their list of tools is another one now, because a call is in
// doubt or none is any more: in the way in which the tool server tells of such a change, and only
// where it has said that it does. A client that has heard nothing asks for the list when it likes.
func (y *doubtList) changed() {
	handshake := !y.c.shared && y.c.opening.listChanged()
	subscribed := y.c.subs.subscribedToTools()
	if len(y.c.s.ownTools(y.c.opening.elicits())) == 0 || !handshake && len(subscribed) == 0 {
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

// subscribedToTools are the ids of the subscriptions to changes of the list of tools.
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

// look finds out whether the clients' list of tools has changed with a call.
func (y *doubtList) look(out *attempt.Outcome) {
	if out.Code == tga.EffectInDoubt || y.listed.Load() {
		y.changed()
	}
}

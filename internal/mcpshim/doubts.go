package mcpshim

import (
	"context"
	"encoding/json"

	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/runtime/mcp/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// A client that cannot ask its person sees the calls in doubt by a tool of the shim's own. It
// reads, and settles nothing: a model does not license its own repeat. It is in the tool
// server's list while something is in doubt, so that what passes is otherwise exact.

// doubtTool is its name; a tool server's tool of this name cannot be called.
const doubtTool = "tgad_in_doubt"

const doubtDefinition = `{"name":"` + doubtTool + `","description":"Lists the calls of this server's tools that may have run and have no recorded answer, ` +
	`with their arguments. Do not repeat them or do the same in another way: ask the user, who settles each with a command that is listed.",` +
	`"inputSchema":` + noArgs + `,"annotations":{"readOnlyHint":true,"openWorldHint":false}}`

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
func (s *Shim) doubts(ctx context.Context) ([]client.OpenTrace, error) {
	all, err := s.opts.Look.InDoubt(ctx)
	var ours []client.OpenTrace
	for _, t := range all {
		if t.ToolServer == s.opts.Server && t.Namespace == firstOf(s.opts.Namespace, tga.DefaultNamespace) {
			ours = append(ours, t)
		}
	}
	return ours, err
}

// showDoubts answers a call of the tool.
func (c *conv) showDoubts(f *frame, p *callParams, b *batchReply) {
	w := &waiting{id: f.RawID, method: f.Method, batch: b}
	f.close()
	if err := c.register(w); err != nil {
		c.fail(w.id, b, codeInvalidRequest, "", "", err.Error())
		return
	}
	version := p.metaText(metaVersion)
	c.work.Go(func() {
		raw, err := c.s.doubtsText(c.life)
		c.giving(w)
		defer c.given()
		if err != nil {
			c.reply(w, toolError(version, tga.CodeOf(err), "", "The calls in doubt cannot be listed: "+err.Error()))
			return
		}
		c.reply(w, textResult(version, string(raw)))
	})
}

func (s *Shim) doubtsText(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.LogTimeout)
	defer cancel()
	all, err := s.doubts(ctx)
	if err != nil {
		return nil, err
	}
	shown := struct {
		Calls []doubtful `json:"calls_in_doubt"`
		More  int        `json:"more,omitempty"`
	}{[]doubtful{}, max(0, len(all)-maxDoubts)}
	for _, t := range all[:min(len(all), maxDoubts)] {
		asked, err := s.opts.Look.Proposal(ctx, t.TraceID)
		if err != nil {
			return nil, err
		}
		d := doubtful{
			Trace: t.TraceID.String(), Tool: t.ToolName, Arguments: mcpraw.ClipRunes(string(asked.Args), maxDoubtArgs), Since: t.Since.String(),
			Commands: s.doubtVerbs(t.TraceID),
		}
		if t.Doubt != nil {
			d.Why = t.Doubt.Cause
		}
		shown.Calls = append(shown.Calls, d)
	}
	return json.MarshalIndent(shown, "", " ")
}

// withDoubts adds the tool to the last page of a list for a client that cannot ask its person,
// while something is in doubt. A list that cannot be added to passes as it is.
func (c *conv) withDoubts(w *waiting, f *frame) *frame {
	if c.s.opts.Look == nil || w.asks || !f.Result.Present() || int64(len(f.head)) != f.size {
		return f
	}
	result := f.head[f.Result.From:f.Result.To]
	from, to, ok := mcpraw.Locate(result, "/tools")
	if !ok || result[from] != '[' || mcpraw.ScalarText(mcpraw.At(result, "/nextCursor")) != "" {
		return f
	}
	ctx, cancel := context.WithTimeout(c.life, c.s.opts.CancelGrace)
	defer cancel()
	all, err := c.s.doubts(ctx)
	if err != nil {
		c.s.log.Debug("whether calls are in doubt cannot be seen", "error", err)
	}
	if len(all) == 0 {
		return f
	}
	add := doubtDefinition
	for _, b := range result[from+1 : to-1] {
		if b > ' ' {
			add = "," + add
			break
		}
	}
	at := f.Result.From + int64(to) - 1
	return replace(f, mcpraw.Span{From: at, To: at}, []byte(add))
}

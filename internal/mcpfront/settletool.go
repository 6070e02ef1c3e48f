package mcpfront

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// The tool by which a model settles a call in doubt exists only where the operator has said so, and uses the
// right of the shim's own peer. What a model may say, and that it licenses no send, is the log's rule:
// [runtime.ViaModel].

const settleDefinition = `{"name":"` + say.SettleTool + `","description":"Settles a call of this server's tools of which nobody knows whether it ran. ` +
	`Say what you have found out, for instance with a read-only tool; the record says that a model decided. The same call does not run again after that: ` +
	`if it has to, ask the user.","inputSchema":{"type":"object","required":["trace_id","outcome","evidence"],"additionalProperties":false,"properties":{` +
	`"trace_id":{"type":"string","description":"of the call, as ` + say.DoubtTool + ` or the call's own answer names it"},` +
	`"outcome":{"type":"string","enum":["ran","abandon"],"description":"ran: it was executed and succeeded. abandon: that cannot be found out"},` +
	`"evidence":{"type":"string","minLength":1,"maxLength":4000,"description":"how you know"},` +
	`"result":{"type":"string","maxLength":500,"description":"with ran: what it did, in a sentence"}}},` +
	`"annotations":{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":false,"openWorldHint":false}}`

// Limits of what a model says, in characters.
const (
	maxEvidence = 4000
	maxSaid     = 500
)

// settling is the arguments of the tool.
type settling struct {
	Trace    string `json:"trace_id"`
	Outcome  string `json:"outcome"`
	Evidence string `json:"evidence"`
	Result   string `json:"result,omitempty"`
}

func (s *Shim) settleDoubt(ctx context.Context, p *toolcall.Params) (string, error) {
	var said settling
	if err := wire.Decode(p.Args, &said); err != nil {
		return "", err
	}
	id, err := tga.ParseID(said.Trace)
	if err != nil {
		return "", err
	}
	if n := len([]rune(said.Evidence)); n < 1 || n > maxEvidence {
		return "", tga.Errorf(tga.ValidationError, "evidence has %d characters, want 1..%d: how do you know?", n, maxEvidence)
	}
	if n := len([]rune(said.Result)); n > maxSaid || n > 0 && said.Outcome != "ran" {
		return "", tga.Errorf(tga.ValidationError, "result has %d characters: want at most %d, and only with the outcome ran", n, maxSaid)
	}
	all, err := s.doubts(ctx)
	if err != nil {
		return "", err
	}
	if !slices.ContainsFunc(all, func(t wire.OpenTrace) bool { return t.TraceID == id }) {
		return "", tga.Errorf(tga.NotFound, "no call of this server's tools is in doubt under the trace %s", id)
	}
	switch said.Outcome {
	case "ran":
		var evidence []byte
		if evidence, err = json.Marshal(map[string]string{"a_model_says": said.Evidence}); err != nil {
			return "", err
		}
		// What it did stays a model's words: they are not served as the tool's own answer.
		_, err = s.opts.Look.Resolve(ctx, id, runtime.Resolution{
			Reply: runtime.Reply{Status: tga.StatusSuccess, Summary: said.Result}, Via: runtime.ViaModel, Evidence: evidence,
		})
	case "abandon":
		_, err = s.opts.Look.AbandonVia(ctx, id, runtime.ViaModel, "a model says: "+said.Evidence)
	default:
		err = tga.Errorf(tga.ValidationError, "outcome %.40q: want ran or abandon. That a call did not run is not yours to say: ask the user, who can settle it with:\n  %s",
			said.Outcome, s.Verb("resolve", id, "--outcome not-run", "--evidence 'how you know'"))
	}
	if err != nil {
		return "", err
	}
	return "Settled as " + said.Outcome + ", and recorded as decided by a model. The same call is answered with that and does not run again. The record: " +
		s.Verb("show", id), nil
}

package owntool

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// A client that cannot ask its person can list the calls in doubt with a tool of the shim's own. That
// tool only reads: a model must not license its own repeat. It is in the tool server's list only while
// a call is in doubt, so that at other times the list passes exactly. A second tool, by which a model
// settles a doubt, is offered only if the operator configures it.

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

// Tools are tgad's own tools that the clients of a tool server are offered; nil is none.
type Tools struct {
	look                    *client.Client
	server, namespace, find string
	settles                 bool // a model may settle a call in doubt
}

// New makes tools that look up calls by look; it returns nil if look is nil. find are the flags by which the
// verbs of the command find the log.
func New(look *client.Client, server, namespace, find string, settles bool) *Tools {
	if look == nil {
		return nil
	}
	return &Tools{look, server, cmp.Or(namespace, tga.DefaultNamespace), find, settles}
}

// Doubts returns the calls of this tool server that are in doubt.
func (t *Tools) Doubts(ctx context.Context) ([]wire.OpenTrace, error) {
	all, err := t.look.InDoubt(ctx)
	var ours []wire.OpenTrace
	for _, open := range all {
		if open.ToolServer == t.server && open.Namespace == t.namespace {
			ours = append(ours, open)
		}
	}
	return ours, err
}

// Of returns the function that answers a call of one of tgad's own tools, nil for any other tool.
func (t *Tools) Of(name string) func(context.Context, *toolcall.Params) (string, error) {
	switch {
	case t == nil:
		return nil
	case name == say.DoubtTool:
		return func(ctx context.Context, _ *toolcall.Params) (string, error) {
			raw, err := t.doubtsText(ctx)
			return string(raw), err
		}
	case name == say.SettleTool && t.settles:
		return t.settleDoubt
	}
	return nil
}

// doubtsText makes the answer of the tool that lists the calls in doubt.
func (t *Tools) doubtsText(ctx context.Context) ([]byte, error) {
	all, err := t.Doubts(ctx)
	if err != nil {
		return nil, err
	}
	shown := struct {
		Calls []doubtful `json:"calls_in_doubt"`
		More  int        `json:"more,omitempty"`
	}{[]doubtful{}, max(0, len(all)-maxDoubts)}
	for _, open := range all[:min(len(all), maxDoubts)] {
		asked, err := t.look.Request(ctx, open.TraceID)
		if err != nil {
			return nil, err
		}
		d := doubtful{
			Trace: open.TraceID.String(), Tool: open.ToolName, Arguments: clip.Runes(string(asked.Request.Proposal.Args), maxDoubtArgs), Since: open.Since.String(),
			Commands: story.DoubtVerbs(t.find, open.TraceID, 0),
		}
		if open.Doubt != nil {
			d.Why = open.Doubt.Cause
		}
		shown.Calls = append(shown.Calls, d)
	}
	return json.MarshalIndent(shown, "", " ")
}

// Offered returns the definitions that a client is offered while a call is in doubt. asks says
// whether the client can ask its person.
func (t *Tools) Offered(asks bool) (all []string) {
	if t == nil {
		return nil
	}
	if !asks || t.settles {
		all = append(all, doubtDefinition)
	}
	if t.settles {
		all = append(all, settleDefinition)
	}
	return all
}

// settleDefinition is the definition of the tool by which a model settles a call in doubt. The tool exists only if the
// operator configures it, and uses the rights of the shim's own peer. The log enforces which outcomes a model may
// state, and that none of them licenses a send: see [runtime.ViaModel].
const settleDefinition = `{"name":"` + say.SettleTool + `","description":"Settles a call of this server's tools of which nobody knows whether it ran. ` +
	`Say what you have found out, for instance with a read-only tool; the record says that a model decided. The same call does not run again after that: ` +
	`if it has to, ask the user.","inputSchema":{"type":"object","required":["trace_id","outcome","evidence"],"additionalProperties":false,"properties":{` +
	`"trace_id":{"type":"string","description":"of the call, as ` + say.DoubtTool + ` or the call's own answer names it"},` +
	`"outcome":{"type":"string","enum":["ran","abandon"],"description":"ran: it was executed and succeeded. abandon: that cannot be found out"},` +
	`"evidence":{"type":"string","minLength":1,"maxLength":4000,"description":"how you know"},` +
	`"result":{"type":"string","maxLength":500,"description":"with ran: what it did, in a sentence"}}},` +
	`"annotations":{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":false,"openWorldHint":false}}`

// Limits of a model's texts, in characters.
const (
	maxEvidence = 4000
	maxSaid     = 500
)

// settling has the arguments of the tool.
type settling struct {
	Trace    string `json:"trace_id"`
	Outcome  string `json:"outcome"`
	Evidence string `json:"evidence"`
	Result   string `json:"result,omitempty"`
}

// settleDoubt settles a call in doubt with the outcome that a model states.
func (t *Tools) settleDoubt(ctx context.Context, p *toolcall.Params) (string, error) {
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
	all, err := t.Doubts(ctx)
	if err != nil {
		return "", err
	}
	if !slices.ContainsFunc(all, func(open wire.OpenTrace) bool { return open.TraceID == id }) {
		return "", tga.Errorf(tga.NotFound, "no call of this server's tools is in doubt under the trace %s", id)
	}
	switch said.Outcome {
	case "ran":
		var evidence []byte
		if evidence, err = json.Marshal(map[string]string{"a_model_says": said.Evidence}); err != nil {
			return "", err
		}
		// The result is recorded as a summary: a model's words are never served as the tool's own answer.
		_, err = t.look.Resolve(ctx, id, runtime.Resolution{
			Reply: runtime.Reply{Status: tga.StatusSuccess, Summary: said.Result}, Via: runtime.ViaModel, Evidence: evidence,
		})
	case "abandon":
		_, err = t.look.AbandonVia(ctx, id, runtime.ViaModel, "a model says: "+said.Evidence)
	default:
		err = tga.Errorf(tga.ValidationError, "outcome %.40q: want ran or abandon. That a call did not run is not yours to say: ask the user, who can settle it with:\n  %s",
			said.Outcome, story.Verb(t.find, "resolve", id, "--outcome not-run", "--evidence 'how you know'"))
	}
	if err != nil {
		return "", err
	}
	return "Settled as " + said.Outcome + ", and recorded as decided by a model. The same call is answered with that and does not run again. The record: " +
		story.Verb(t.find, "show", id), nil
}

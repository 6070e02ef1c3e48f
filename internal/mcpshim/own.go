package mcpshim

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// ownTool is one of the tools that tgad itself offers: they look, and change nothing.
type ownTool struct {
	name, description, schema string
	run                       func(ctx context.Context, c *client.Client, args []byte) ([]byte, error)
}

const (
	noArgs    = `{"type":"object","properties":{},"additionalProperties":false}`
	traceArgs = `{"type":"object","properties":{"trace_id":{"type":"string","description":"id of the trace"}},"required":["trace_id"],"additionalProperties":false}`
	maybeArgs = `{"type":"object","properties":{"trace_id":{"type":"string","description":"id of the trace; all of the log without it"}},"additionalProperties":false}`
)

var ownTools = []ownTool{
	{"list", "Lists the tool calls that are not at their end: waiting, running, or in doubt.", noArgs, ownList},
	{"show", "Shows everything that is recorded about one tool call: what was asked, decided, sent and answered.", traceArgs, ownShow},
	{"in_doubt", "Lists the tool calls that may have run and have no recorded answer. Do not repeat them; ask the user what happened.", noArgs, ownInDoubt},
	{"verify", "Checks the hash chain of one tool call, or of all, and reports what does not agree.", maybeArgs, ownVerify},
}

// maxOwn bounds the list that a tool of tgad's answers with.
const maxOwn = 200

func ownList(ctx context.Context, c *client.Client, _ []byte) ([]byte, error) {
	all := []byte(`{"traces":[`)
	n := 0
	for t, err := range c.Traces(ctx, client.TracesQuery{}) {
		if err != nil {
			return nil, err
		}
		if n++; n > maxOwn {
			break
		}
		if n > 1 {
			all = append(all, ',')
		}
		all = client.Append(all, t)
	}
	return append(all, ']', '}'), nil
}

func ownShow(ctx context.Context, c *client.Client, args []byte) ([]byte, error) {
	id, err := tga.ParseID(scalarText(at(args, "/trace_id")))
	if err != nil {
		return nil, err
	}
	t, err := c.Trace(ctx, id)
	if err != nil {
		return nil, err
	}
	return client.Append(nil, t), nil
}

func ownInDoubt(ctx context.Context, c *client.Client, _ []byte) ([]byte, error) {
	list, err := c.InDoubt(ctx)
	if err != nil {
		return nil, err
	}
	all := []byte(`{"traces":[`)
	for i, t := range list[:min(len(list), maxOwn)] {
		if i > 0 {
			all = append(all, ',')
		}
		all = client.Append(all, t)
	}
	return append(all, ']', '}'), nil
}

func ownVerify(ctx context.Context, c *client.Client, args []byte) ([]byte, error) {
	var id tga.ID
	if said := scalarText(at(args, "/trace_id")); said != "" {
		var err error
		if id, err = tga.ParseID(said); err != nil {
			return nil, err
		}
	}
	v, err := c.Verify(ctx, id)
	if err != nil {
		return nil, err
	}
	return client.Append(nil, v), nil
}

// revisions are the protocol revisions that the own tools are offered under, newest
// first.
var revisions = []string{"2025-11-25", "2025-06-18", "2025-03-26"}

// ServeOwn offers tgad's own read-only tools to a client on in and out.
func ServeOwn(ctx context.Context, c *client.Client, in io.Reader, out io.Writer) error {
	lines, to := newFrames(in, maxBatchBytes), newSink(out)
	for {
		f, err := lines.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		answer := ownAnswer(ctx, c, f)
		f.close()
		if answer == nil {
			continue
		}
		if err := to.write(text(answer)); err != nil {
			return err
		}
	}
}

// ownAnswer answers one message; nil where it wants none.
func ownAnswer(ctx context.Context, c *client.Client, f *frame) []byte {
	say := func(kind string, value []byte) []byte {
		b := append([]byte(`{"jsonrpc":"2.0","id":`), f.rawID...)
		return append(append(append(b, kind...), value...), '}')
	}
	refuse := func(code int, words string) []byte {
		b := append([]byte(`{"code":`), itoa(code)...)
		return say(`,"error":`, append(appendString(append(b, `,"message":`...), words), '}'))
	}
	if f.bad != "" || f.batch {
		if f.rawID == nil {
			f.rawID = []byte("null")
		}
		return refuse(codeInvalidRequest, "the message is not understood: "+f.bad)
	}
	if !f.isRequest() {
		return nil
	}
	params, err := f.bytes(f.params, maxBatchBytes)
	if err != nil {
		return refuse(codeInvalidParams, err.Error())
	}
	switch f.method {
	case "initialize":
		revision := revisions[0]
		for _, r := range revisions {
			if scalarText(at(params, "/protocolVersion")) == r {
				revision = r
			}
		}
		return say(`,"result":`, []byte(`{"protocolVersion":"`+revision+`","capabilities":{"tools":{}},"serverInfo":{"name":"tgad","version":"1"}}`))
	case "ping":
		return say(`,"result":`, []byte("{}"))
	case "tools/list":
		return say(`,"result":`, ownListing())
	case "tools/call":
		return say(`,"result":`, ownCall(ctx, c, params))
	}
	return refuse(-32601, "no such method")
}

func ownListing() []byte {
	b := []byte(`{"tools":[`)
	for i, t := range ownTools {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"name":`...), t.name)
		b = appendString(append(b, `,"description":`...), t.description)
		b = append(append(b, `,"inputSchema":`...), t.schema...)
		b = append(b, `,"annotations":{"readOnlyHint":true,"openWorldHint":false}}`...)
	}
	return append(b, "]}"...)
}

func ownCall(ctx context.Context, c *client.Client, params []byte) []byte {
	name := scalarText(at(params, "/name"))
	for _, t := range ownTools {
		if t.name != name {
			continue
		}
		value, err := t.run(ctx, c, at(params, "/arguments"))
		if err != nil {
			return toolError("", tga.CodeOf(err), "", err.Error())
		}
		b := appendString([]byte(`{"content":[{"type":"text","text":`), string(value))
		if json.Valid(value) {
			b = append(append(b, `}],"structuredContent":`...), value...)
			return append(b, '}')
		}
		return append(b, "}]}"...)
	}
	return toolError("", tga.NotFound, "", "there is no tool "+clip(name, 128))
}

package say

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// tool is one of the read-only tools that tgad itself offers.
type tool struct {
	name, description, schema string
	run                       func(ctx context.Context, c *client.Client, args []byte) ([]byte, error)
}

const (
	NoArgs    = `{"type":"object","properties":{},"additionalProperties":false}`
	traceArgs = `{"type":"object","properties":{"trace_id":{"type":"string","description":"id of the trace"}},"required":["trace_id"],"additionalProperties":false}`
	maybeArgs = `{"type":"object","properties":{"trace_id":{"type":"string","description":"id of the trace; all of the log without it"}},"additionalProperties":false}`
)

var tools = []tool{
	{"list", "Lists the tool calls that are not at their end: waiting, running, or in doubt.", NoArgs, ownList},
	{"show", "Shows everything that is recorded about one tool call: what was asked, decided, sent and answered.", traceArgs, ownShow},
	{"in_doubt", "Lists the tool calls that may have run and have no recorded answer. Do not repeat them; ask the user what happened.", NoArgs, ownInDoubt},
	{"verify", "Checks the hash chain of one tool call, or of all, and reports what does not agree.", maybeArgs, ownVerify},
}

// maxMessage is the longest message that tgad's own tools accept, in bytes; maxOwn is the largest
// number of traces that they list.
const (
	maxMessage = 16 << 20
	maxOwn     = 200
)

func ownList(ctx context.Context, c *client.Client, _ []byte) ([]byte, error) {
	all := []byte(`{"traces":[`)
	n := 0
	for t, err := range c.Traces(ctx, wire.TracesQuery{}) {
		if err != nil {
			return nil, err
		}
		if n++; n > maxOwn {
			break
		}
		if n > 1 {
			all = append(all, ',')
		}
		all = wire.Append(all, t)
	}
	return append(all, ']', '}'), nil
}

func ownShow(ctx context.Context, c *client.Client, args []byte) ([]byte, error) {
	id, err := tga.ParseID(mcpraw.ScalarText(mcpraw.At(args, "/trace_id")))
	if err != nil {
		return nil, err
	}
	t, err := c.Trace(ctx, id)
	if err != nil {
		return nil, err
	}
	return wire.Append(nil, t), nil
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
		all = wire.Append(all, t)
	}
	return append(all, ']', '}'), nil
}

func ownVerify(ctx context.Context, c *client.Client, args []byte) ([]byte, error) {
	var id tga.ID
	if said := mcpraw.ScalarText(mcpraw.At(args, "/trace_id")); said != "" {
		var err error
		if id, err = tga.ParseID(said); err != nil {
			return nil, err
		}
	}
	v, err := c.Verify(ctx, id)
	if err != nil {
		return nil, err
	}
	return wire.Append(nil, v), nil
}

const (
	ownInfo        = `{"name":"tgad","version":"1"}`
	ownCapable     = `{"tools":{}}`
	metaServerInfo = "io.modelcontextprotocol/serverInfo"
	// ownCache says that the answer is the same for every client, and valid for an hour.
	ownCache = `"ttlMs":3600000,"cacheScope":"public"`
)

// Serve offers tgad's own read-only tools to a client on in and out. It speaks the revision of
// the client's handshake, or for each request the revision that the request names.
func Serve(ctx context.Context, c *client.Client, in io.Reader, out io.Writer) error {
	lines, to := frames.NewFrames(in, maxMessage), frames.NewSink(out)
	for {
		f, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		answers := ownAnswer(ctx, c, f)
		f.Close()
		for _, answer := range answers {
			if err := to.Write(frames.Text(answer)); err != nil {
				return err
			}
		}
	}
}

// ownFault says why a request is refused.
type ownFault struct {
	code  int
	words string
	data  []byte // nil = none
}

// ownAnswer answers one message. It returns nothing for a message that wants no answer.
func ownAnswer(ctx context.Context, c *client.Client, f *frames.Frame) [][]byte {
	say := func(kind string, value []byte) []byte {
		b := append([]byte(`{"jsonrpc":"2.0","id":`), f.RawID...)
		return append(append(append(b, kind...), value...), '}')
	}
	refuse := func(fault *ownFault) [][]byte {
		b := tga.AppendString([]byte(`{"code":`+strconv.Itoa(fault.code)+`,"message":`), fault.words)
		if fault.data != nil {
			b = append(append(b, `,"data":`...), fault.data...)
		}
		return [][]byte{say(`,"error":`, append(b, '}'))}
	}
	if f.Bad != "" || f.Batch {
		code, why := mcpraw.CodeInvalidRequest, f.Bad
		switch {
		case f.Batch:
			f.RawID, why = []byte("null"), "it is an array of messages"
		case f.RawID == nil:
			f.RawID, code = []byte("null"), mcpraw.CodeParse
		}
		return refuse(&ownFault{code: code, words: "the message is not understood: " + why})
	}
	if !f.IsRequest() {
		return nil
	}
	params, err := f.Bytes(f.Params, maxMessage)
	if err != nil {
		return refuse(&ownFault{code: mcpraw.CodeInvalidParams, words: err.Error()})
	}
	modern, fault := ownRevision(f.Method, params)
	if fault != nil {
		return refuse(fault)
	}
	if modern && f.Method == Listen {
		// The tools never change, so the subscription is granted nothing and ends at once.
		meta := append(append([]byte(`{"`+MetaSubscription+`":`), f.RawID...), '}')
		ack := append(append([]byte(`{"jsonrpc":"2.0","method":"`+Ack+`","params":{"_meta":`), meta...), `,"notifications":{}}}`...)
		return [][]byte{ack, say(`,"result":`, stamp(With([]byte("{}"), "_meta", meta)))}
	}
	result, fault := ownResult(ctx, c, f.Method, params, modern)
	switch {
	case fault != nil:
		return refuse(fault)
	case modern:
		result = stamp(result)
	}
	return [][]byte{say(`,"result":`, result)}
}

// ownRevision reports whether a request names a revision without a handshake.
func ownRevision(method string, params []byte) (modern bool, _ *ownFault) {
	said := mcpraw.At(params, "/_meta/"+tga.EscapeToken(mcpraw.MetaRevision))
	version := mcpraw.Revision(mcpraw.ScalarText(said))
	capabilities := mcpraw.At(params, "/_meta/"+tga.EscapeToken(MetaCapabilities))
	switch {
	case said == nil && method == "server/discover":
		return false, &ownFault{code: mcpraw.CodeInvalidParams, words: "the request does not name its protocol revision in _meta"}
	case said == nil:
		return false, nil
	case !slices.Contains(mcpraw.Revisions, version):
		data := append(quoted([]byte(`{"supported":`), mcpraw.Revisions), `,"requested":`...)
		return false, &ownFault{code: mcpraw.CodeUnsupported, words: "this protocol revision is not supported", data: append(tga.AppendString(data, string(version)), '}')}
	case !version.Stateless():
		return false, nil
	case capabilities == nil || capabilities[0] != '{':
		return false, &ownFault{code: mcpraw.CodeInvalidParams, words: "the request does not say in _meta what its client can do"}
	}
	return true, nil
}

func quoted(b []byte, words []mcpraw.Revision) []byte {
	b = append(b, '[')
	for i, w := range words {
		if i > 0 {
			b = append(b, ',')
		}
		b = tga.AppendString(b, string(w))
	}
	return append(b, ']')
}

// ownResult makes the result of a request.
func ownResult(ctx context.Context, c *client.Client, method string, params []byte, modern bool) ([]byte, *ownFault) {
	switch {
	case method == "tools/list":
		return ownListing(modern), nil
	case method == "tools/call":
		return ownCall(ctx, c, params, modern)
	case modern && method == "server/discover":
		return append(quoted([]byte(`{"supportedVersions":`), mcpraw.Revisions), `,"capabilities":`+ownCapable+`,`+ownCache+`}`...), nil
	case !modern && method == "initialize":
		revision := mcpraw.Revision(mcpraw.ScalarText(mcpraw.At(params, "/protocolVersion"))).Agree()
		return []byte(`{"protocolVersion":"` + string(revision) + `","capabilities":` + ownCapable + `,"serverInfo":` + ownInfo + `}`), nil
	case !modern && method == "ping":
		return []byte("{}"), nil
	}
	return nil, &ownFault{code: mcpraw.CodeNoMethod, words: "no such method"}
}

// stamp adds the members that every result has in revision 2026-07-28: its type, and which server
// made it.
func stamp(result []byte) []byte {
	if from, to, ok := mcpraw.Locate(result, "/_meta"); ok {
		out := append(append([]byte{}, result[:from]...), With(result[from:to], metaServerInfo, []byte(ownInfo))...)
		result = append(out, result[to:]...)
	} else {
		result = With(result, "_meta", With([]byte("{}"), metaServerInfo, []byte(ownInfo)))
	}
	if mcpraw.At(result, "/resultType") == nil {
		result = With(result, "resultType", []byte(`"complete"`))
	}
	return result
}

func ownListing(modern bool) []byte {
	b := []byte(`{"tools":[`)
	for i, t := range tools {
		if i > 0 {
			b = append(b, ',')
		}
		b = tga.AppendString(append(b, `{"name":`...), t.name)
		b = tga.AppendString(append(b, `,"description":`...), t.description)
		b = append(append(b, `,"inputSchema":`...), t.schema...)
		b = append(b, `,"annotations":{"readOnlyHint":true,"openWorldHint":false}}`...)
	}
	b = append(b, ']')
	if modern {
		b = append(b, ","+ownCache...)
	}
	return append(b, '}')
}

func ownCall(ctx context.Context, c *client.Client, params []byte, modern bool) ([]byte, *ownFault) {
	name, version := mcpraw.ScalarText(mcpraw.At(params, "/name")), mcpraw.Handshake
	if modern {
		version = mcpraw.Newest
	}
	for _, t := range tools {
		if t.name != name {
			continue
		}
		value, err := t.run(ctx, c, mcpraw.At(params, "/arguments"))
		if err != nil {
			return ToolError(version, tga.CodeOf(err), "", err.Error()), nil
		}
		b := tga.AppendString([]byte(`{"content":[{"type":"text","text":`), string(value))
		if json.Valid(value) {
			b = append(append(b, `}],"structuredContent":`...), value...)
			return append(b, '}'), nil
		}
		return append(b, "}]}"...), nil
	}
	return nil, &ownFault{code: mcpraw.CodeInvalidParams, words: "there is no tool " + clip.Bytes(name, 128)}
}

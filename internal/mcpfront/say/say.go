// Package say makes the MCP messages of tgad itself: answers in place of a tool server's, additions
// to a tool server's answers, and the tools by which tgad shows its log.
package say

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// Names in `_meta`.
const (
	MetaTrace    = "dev.tgad/traceId"
	metaReplayed = "dev.tgad/replayed"
	metaRedacted = "dev.tgad/redacted"
	metaDigest   = "dev.tgad/entryDigest"
	metaCode     = "dev.tgad/code"

	MetaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	MetaClientInfo   = "io.modelcontextprotocol/clientInfo"
	// MetaSubscription is the id of the request that a notification belongs to.
	MetaSubscription = "io.modelcontextprotocol/subscriptionId"
)

// Names of tgad's own tools. A tool server's tool with such a name cannot be called.
const (
	DoubtTool  = "tgad_in_doubt"
	SettleTool = "tgad_settle"
)

// Methods of a subscription.
const (
	Listen = "subscriptions/listen"
	Ack    = "notifications/subscriptions/acknowledged"
)

// Fault makes an answer with a JSON-RPC error.
func Fault(id []byte, code int, tgaCode tga.Code, trace, words string) []byte {
	raw := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	raw = append(append(raw, `,"error":{"code":`...), strconv.Itoa(code)...)
	raw = tga.AppendString(append(raw, `,"message":`...), "tgad: "+words)
	if tgaCode != "" {
		raw = tga.AppendString(append(raw, `,"data":{"code":`...), string(tgaCode))
		if trace != "" {
			raw = tga.AppendString(append(raw, `,"traceId":`...), trace)
		}
		raw = append(raw, '}')
	}
	return append(raw, "}}"...)
}

// ToolError makes the result of a call for which there is no effect to show: words for a model,
// and codes for a program.
func ToolError(version mcpraw.Revision, code tga.Code, trace, words string) []byte {
	raw := tga.AppendString(content(version), words)
	raw = tga.AppendString(append(raw, `}],"isError":true,"_meta":{"`+metaCode+`":`...), string(code))
	if trace != "" {
		raw = tga.AppendString(append(raw, `,"`+MetaTrace+`":`...), trace)
	}
	return append(raw, "}}"...)
}

// Text makes a result that has only words.
func Text(version mcpraw.Revision, words string) []byte {
	return append(tga.AppendString(content(version), words), `}]}`...)
}

// Recorded is a recorded answer as a part of a message. A person who settles a call may record an answer in any form: one
// that is no JSON object becomes the words of a result. A message is one line, so line ends between tokens go.
func Recorded(version mcpraw.Revision, value []byte) []byte {
	if _, err := mcpraw.Members(value); err != nil || !json.Valid(value) {
		return Text(version, string(value))
	}
	if !bytes.ContainsAny(value, "\n\r") {
		return value
	}
	var line bytes.Buffer
	_ = json.Compact(&line, value) // no error: it is valid
	return line.Bytes()
}

// content begins a result that has words.
func content(version mcpraw.Revision) []byte {
	if version.Stateless() {
		return []byte(`{"resultType":"complete","content":[{"type":"text","text":`)
	}
	return []byte(`{"content":[{"type":"text","text":`)
}

// Replayed marks a result as a recorded one, and as redacted if parts of the answer were taken out
// before it was stored. Everything else in the result stays unchanged.
func Replayed(result []byte, trace tga.ID, digest tga.Digest, redacted bool) []byte {
	ours := []byte(`"` + metaReplayed + `":true,"` + MetaTrace + `":"` + trace.String() + `","` + metaDigest + `":"` + digest.String() + `"`)
	if redacted {
		ours = append(ours, `,"`+metaRedacted+`":true`...)
	}
	all, err := mcpraw.Members(result)
	if err != nil {
		return result // not an object: nothing can be added
	}
	for _, m := range all {
		if m.Name != "_meta" {
			continue
		}
		inner, err := mcpraw.Members(result[m.From:m.To])
		if err != nil {
			return result
		}
		out := append([]byte(nil), result[:m.From]...)
		out = append(append(out, '{'), ours...)
		for _, i := range inner {
			switch i.Name {
			case metaReplayed, metaRedacted, MetaTrace, metaDigest:
				continue // set by an inner shim
			}
			out = append(out, ',')
			out = append(out, result[m.From+i.Start:m.From+i.To]...)
		}
		return append(append(out, '}'), result[m.To:]...)
	}
	end := len(result)
	for result[end-1] != '}' {
		end--
	}
	out := append([]byte(nil), result[:end-1]...)
	if len(all) > 0 {
		out = append(out, ',')
	}
	out = append(append(out, `"_meta":{`...), ours...)
	return append(append(out, '}'), result[end-1:]...)
}

// With adds a member before the other members of an object.
func With(object []byte, name string, value []byte) []byte {
	b := append(append(tga.AppendString([]byte{'{'}, name), ':'), value...)
	if rest := bytes.TrimSpace(object[1:]); rest[0] != '}' {
		b = append(b, ',')
	}
	return append(b, object[1:]...)
}

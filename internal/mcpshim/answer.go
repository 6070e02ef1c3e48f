package mcpshim

import (
	"crypto/rand"
	"encoding/hex"
	"io"
	"strconv"

	"github.com/tgad/tgad/internal/mcpfront/wire"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

func parts(all ...io.WriterTo) []io.WriterTo { return all }

func randomHex() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// fail answers a request with a JSON-RPC error.
func (c *conv) fail(id []byte, b *batchReply, code int, tgaCode tga.Code, trace, words string) {
	env := mcpraw.Envelope{RawID: id, ID: mcpraw.Span{From: 0, To: 1}} // an answer, where it matters
	_ = c.hand(b, &env, wire.Text(faultOf(id, code, tgaCode, trace, words)))
}

// faultOf makes an answer of a JSON-RPC error.
func faultOf(id []byte, code int, tgaCode tga.Code, trace, words string) []byte {
	raw := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	raw = append(append(raw, `,"error":{"code":`...), []byte(itoa(code))...)
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

func itoa(n int) string { return strconv.Itoa(n) }

// toolError is the result of a call that has no effect to show: words for a model, and
// codes for a program.
func toolError(version mcpraw.Revision, code tga.Code, trace, words string) []byte {
	raw := []byte(`{`)
	if version.Stateless() {
		raw = append(raw, `"resultType":"complete",`...)
	}
	raw = tga.AppendString(append(raw, `"content":[{"type":"text","text":`...), words)
	raw = tga.AppendString(append(raw, `}],"isError":true,"_meta":{"`+metaCode+`":`...), string(code))
	if trace != "" {
		raw = tga.AppendString(append(raw, `,"`+metaTrace+`":`...), trace)
	}
	return append(raw, "}}"...)
}

// textResult is the result of a call that has run and of which only words are known.
func textResult(version mcpraw.Revision, words string) []byte {
	raw := []byte(`{`)
	if version.Stateless() {
		raw = append(raw, `"resultType":"complete",`...)
	}
	return append(tga.AppendString(append(raw, `"content":[{"type":"text","text":`...), words), `}]}`...)
}

// optional is text with something before it; "" for none.
func optional(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}

// replayed adds to a recorded result that it is one. What is there stays as it is.
func replayed(result []byte, trace tga.ID, digest tga.Digest) []byte {
	ours := []byte(`"` + metaReplayed + `":true,"` + metaTrace + `":"` + trace.String() + `","` + metaDigest + `":"` + digest.String() + `"`)
	all, err := mcpraw.Members(result)
	if err != nil {
		return result // no object: nothing can be added to it
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
			case metaReplayed, metaTrace, metaDigest:
				continue // of an inner shim
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

//go:build unix

package mcpfront

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/tgad/tgad/internal/mcpfront/entry"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

const paramHeader = "Mcp-Param-"

// refusedParams compares the headers of a call's arguments with the arguments. A header that
// the tool's definition does not name is nobody's, and so are all of a tool that is in no
// list, of a tool server that lists none, and of a definition that breaks the rules. Where
// the tool server could not be asked the call is refused: its headers may be those of
// another call.
func (k *catalog) refusedParams(ctx context.Context, h http.Header, m *frames.Frame) *entry.Refusal {
	if m.Method != "tools/call" {
		return nil
	}
	p, err := toolcall.Parse(m.Head[m.Params.From:m.Params.To])
	if err != nil {
		return nil // and so it is refused for that
	}
	marks, err := k.marks(ctx, p)
	if err != nil {
		no := &entry.Refusal{Status: http.StatusOK, Code: mcpraw.CodeGone, Words: "the call was not sent: the definition of its tool cannot be had, to compare the headers with: " + err.Error()}
		errors.As(err, &no.Challenge)
		return no
	}
	if marks.Bad != nil {
		return nil
	}
	for _, mark := range marks.Headers {
		if !sameParam(h.Values(paramHeader+mark.Header), mark, p.Args) {
			return entry.Mismatch(paramHeader + mark.Header)
		}
	}
	return nil
}

// sameParam reports whether the values of a header are that of its argument: none for one
// that is not given, or null.
func sameParam(values []string, mark mcpraw.ParamHeader, args []byte) bool {
	want, err := mcpraw.ParamValues([]mcpraw.ParamHeader{mark}, args)
	if err != nil {
		return false // no header can carry it
	}
	if len(want) == 0 || len(values) != 1 {
		return len(want) == len(values)
	}
	text, ok := headerText(values[0])
	if !ok {
		return false
	}
	return text == want[0].Value || isNumber(args, mark.Path) && integer(text) == want[0].Value
}

// headerText is what the value of a header says: in base64 where it is marked so.
func headerText(v string) (text string, ok bool) {
	const from, to = "=?base64?", "?="
	for i := range len(v) {
		if (v[i] < ' ' || v[i] > '~') && v[i] != '\t' {
			return "", false
		}
	}
	if len(v) < len(from)+len(to) || !strings.HasPrefix(v, from) || !strings.HasSuffix(v, to) {
		return v, true
	}
	b, err := base64.StdEncoding.Strict().DecodeString(v[len(from) : len(v)-len(to)])
	return string(b), err == nil
}

// isNumber reports whether an argument is a number: one is compared by its value, 42.0 is 42.
func isNumber(args []byte, path []string) bool {
	pointer := ""
	for _, name := range path {
		pointer += "/" + tga.ReadableToken(name)
	}
	v := mcpraw.At(args, pointer)
	return len(v) > 0 && (v[0] == '-' || v[0] >= '0' && v[0] <= '9')
}

// integer is a number as a header of the shim's would say it; "" for what is none.
func integer(text string) string {
	if text == "" || text[0] == '"' || !json.Valid([]byte(text)) {
		return ""
	}
	all, err := mcpraw.ParamValues([]mcpraw.ParamHeader{{Path: []string{"n"}}}, []byte(`{"n":`+text+`}`))
	if err != nil || len(all) != 1 {
		return ""
	}
	return all[0].Value
}

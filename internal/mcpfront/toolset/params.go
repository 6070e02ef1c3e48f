package toolset

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// paramHeader begins the names of the headers of arguments.
const paramHeader = "Mcp-Param-"

// Differs returns the name of a header that differs from its argument, "" if none does.
func (m Mirror) Differs(h http.Header, args []byte) string {
	for _, mark := range m.Headers {
		if name := paramHeader + mark.Header; !sameParam(h.Values(name), mark, args) {
			return name
		}
	}
	return ""
}

// sameParam reports whether the values of a header match its argument. For an absent or null
// argument the header must be absent.
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

// headerText decodes the value of a header. ok is false if the value is not valid.
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

// isNumber reports whether an argument is a number. Numbers are compared by value: 42.0 is 42.
func isNumber(args []byte, path []string) bool {
	pointer := ""
	for _, name := range path {
		pointer += "/" + tga.ReadableToken(name)
	}
	v := mcpraw.At(args, pointer)
	return len(v) > 0 && (v[0] == '-' || v[0] >= '0' && v[0] <= '9')
}

// integer is a number in the form that the shim writes into a header, "" if it has no such form.
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

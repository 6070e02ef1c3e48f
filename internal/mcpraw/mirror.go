package mcpraw

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"slices"
	"strings"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/schemas/tga"
)

// Headers of a request over HTTP of a revision without a handshake.
const (
	versionHeader = "Mcp-Protocol-Version"
	methodHeader  = "Mcp-Method"
	nameHeader    = "Mcp-Name"
	paramHeader   = "Mcp-Param-"
)

// named has, by method, the member of the params that the header Mcp-Name repeats. The tasks
// extension defines the header for tasks.
var named = map[string]string{
	"tools/call": "/name", "prompts/get": "/name", "resources/read": "/uri",
	"tasks/get": "/taskId", "tasks/update": "/taskId", "tasks/cancel": "/taskId",
}

// NameOf returns the value of a request's header Mcp-Name, "" for a method without one.
func NameOf(method string, params []byte) string {
	p := named[method]
	if p == "" {
		return ""
	}
	return ScalarText(At(params, p))
}

// Mirror sets the headers of a request of a revision without a handshake: those that every
// request has, and those of the arguments that the tool's definition wants repeated. It first
// removes every Mcp-Param header that an operator has configured, because it would stand for an
// argument that was not given.
func Mirror(h http.Header, version Revision, method, name string, params []ParamValue) {
	for k := range h {
		if strings.HasPrefix(http.CanonicalHeaderKey(k), paramHeader) {
			h.Del(k)
		}
	}
	h.Set(versionHeader, string(version))
	h.Set(methodHeader, method)
	h.Del(nameHeader)
	if name != "" {
		h.Set(nameHeader, headerText(name))
	}
	for _, p := range params {
		h.Set(paramHeader+p.Header, headerText(p.Value))
	}
}

// Marks around a value that a header carries in base64.
const encodedFrom, encodedTo = "=?base64?", "?="

// headerText is the form of a value in a header. Visible ASCII with blanks only inside stays as
// it is. Any other value is in base64, which the receiver decodes. So is an empty value, because
// some receivers take an empty header for an absent one.
func headerText(v string) string {
	plain := v != "" && v == strings.Trim(v, " \t") && !(strings.HasPrefix(v, encodedFrom) && strings.HasSuffix(v, encodedTo))
	for i := 0; plain && i < len(v); i++ {
		plain = v[i] >= ' ' && v[i] <= '~'
	}
	if plain {
		return v
	}
	return encodedFrom + base64.StdEncoding.EncodeToString([]byte(v)) + encodedTo
}

// Mismatch names a header of a request of a revision without a handshake that differs from the
// body. It returns "" if none does, or if the request is of another revision. It does not check
// the headers of arguments, which needs the tool's definition. A request about a task may lack
// the header Mcp-Name, because not every client sends it.
func Mismatch(h http.Header, method string, params []byte) string {
	said, version, name := RevisionOf(params), Revision(h.Get(versionHeader)), NameOf(method, params)
	if !said.Stateless() && !version.Stateless() {
		return ""
	}
	switch {
	case version != said:
		return versionHeader
	case h.Get(methodHeader) != method:
		return methodHeader
	case h.Get(nameHeader) == "" && strings.HasPrefix(method, "tasks/"):
	case headerValue(h.Get(nameHeader)) != name:
		return nameHeader
	}
	return ""
}

// headerValue is the value that a header carries; it undoes [headerText].
func headerValue(v string) string {
	if len(v) < len(encodedFrom)+len(encodedTo) || !strings.HasPrefix(v, encodedFrom) || !strings.HasSuffix(v, encodedTo) {
		return v
	}
	b, err := base64.StdEncoding.DecodeString(v[len(encodedFrom) : len(v)-len(encodedTo)])
	if err != nil {
		return v
	}
	return string(b)
}

// ParamHeader is an argument that a tool's definition wants repeated in a header.
type ParamHeader struct {
	Header string   // the header's name after Mcp-Param-
	Path   []string // names of the members that lead from the arguments to the value
}

// ParamValue is the header of an argument with its value.
type ParamValue struct{ Header, Value string }

// paramMark is the annotation of a property's schema that names its header.
const paramMark = "x-mcp-header"

// maxSchemaDepth is how deep a schema may be nested.
const maxSchemaDepth = 64

// Keywords whose value is another schema, a list of schemas, or a map of schemas.
var (
	oneSchema = []string{
		"items", "additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties",
		"contains", "propertyNames", "not", "if", "then", "else", "contentSchema",
	}
	listOfSchemas = []string{"allOf", "anyOf", "oneOf", "prefixItems", "items"}
	mapOfSchemas  = []string{"patternProperties", "$defs", "definitions", "dependentSchemas"}
)

// ParamHeaders returns the annotations of a tool's inputSchema in the order of its properties. A
// schema that is no object has none. The error is VALIDATION_ERROR if an annotation breaks a rule
// of the revision; then the tool must be neither offered nor called.
func ParamHeaders(schema []byte) ([]ParamHeader, error) {
	r := &annotations{seen: map[string]bool{}}
	if err := r.walk(schema, nil, true, 0); err != nil {
		return nil, err
	}
	return r.found, nil
}

type annotations struct {
	found []ParamHeader
	seen  map[string]bool // names of headers, in lower case
}

// walk reads a schema. reachable says that only properties lead to the schema.
func (r *annotations) walk(schema []byte, path []string, reachable bool, depth int) error {
	if first := bytes.TrimLeft(schema, " \t\r\n"); len(first) == 0 || first[0] != '{' {
		return nil // true, false, or none
	}
	at := "/" + strings.Join(path, "/")
	if depth > maxSchemaDepth {
		return tga.Errorf(tga.LimitExceeded, "the schema is nested more than %d deep at %s", maxSchemaDepth, clip.Bytes(at, 128))
	}
	all, err := Members(schema)
	if err != nil {
		return err
	}
	var kind []byte
	for _, m := range all {
		if m.Name == "type" {
			kind = schema[m.From:m.To]
		}
	}
	for _, m := range all {
		v := schema[m.From:m.To]
		switch {
		case m.Name == paramMark:
			err = r.mark(v, kind, path, reachable)
		case m.Name == "properties":
			err = r.each(v, path, reachable, depth)
		case slices.Contains(mapOfSchemas, m.Name):
			err = r.each(v, path, false, depth)
		case slices.Contains(listOfSchemas, m.Name) && v[0] == '[':
			var list []json.RawMessage
			if json.Unmarshal(v, &list) == nil {
				for _, s := range list {
					if err = r.walk(s, path, false, depth+1); err != nil {
						return err
					}
				}
			}
		case slices.Contains(oneSchema, m.Name):
			err = r.walk(v, path, false, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// each reads the schemas of a map.
func (r *annotations) each(schemas []byte, path []string, reachable bool, depth int) error {
	all, err := Members(schemas)
	if err != nil {
		return nil // not a map of schemas, so it has no annotations
	}
	for _, m := range all {
		if err := r.walk(schemas[m.From:m.To], append(slices.Clone(path), m.Name), reachable, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// mark checks and adds one annotation.
func (r *annotations) mark(v, kind []byte, path []string, reachable bool) error {
	at := clip.Bytes("/"+strings.Join(path, "/"), 128)
	var name string
	switch {
	case !reachable || len(path) == 0:
		return tga.Errorf(tga.ValidationError, "%s at %s is not on a property that properties alone lead to", paramMark, at)
	case v[0] != '"' || json.Unmarshal(v, &name) != nil || !token(name):
		return tga.Errorf(tga.ValidationError, "%s at %s is no name of a header: %s", paramMark, at, clip.Bytes(string(v), 128))
	case r.seen[strings.ToLower(name)]:
		return tga.Errorf(tga.ValidationError, "%s at %s: the header %q is there twice", paramMark, at, name)
	case !scalarType(kind):
		return tga.Errorf(tga.ValidationError, "%s at %s: want the type string, integer or boolean, not %s", paramMark, at, clip.Bytes(string(kind), 128))
	}
	r.seen[strings.ToLower(name)] = true
	r.found = append(r.found, ParamHeader{Header: name, Path: path})
	return nil
}

// scalarType reports whether a header can carry a schema's type. The type may also be a list of
// such a type and null, which stands for an absent value.
func scalarType(kind []byte) bool {
	var one string
	var list []string
	if json.Unmarshal(kind, &one) == nil {
		list = []string{one}
	} else if json.Unmarshal(kind, &list) != nil {
		return false
	}
	n := 0
	for _, k := range list {
		switch k {
		case "string", "integer", "boolean":
			n++
		case "null":
		default:
			return false
		}
	}
	return n == 1
}

// token reports whether s is a field name of HTTP (RFC 9110 §5.1).
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// maxSafe is the largest integer that every JSON parser reads the same.
var maxSafe = big.NewInt(1<<53 - 1)

// maxDigits is the largest number of digits of a number that is parsed.
const maxDigits = 128

// ParamValues returns the headers of a call with these arguments. An absent argument, or null,
// has none. The error is VALIDATION_ERROR, with a pointer into the arguments, if no header can
// carry an argument.
func ParamValues(headers []ParamHeader, args []byte) ([]ParamValue, error) {
	var all []ParamValue
	for _, h := range headers {
		pointer := ""
		for _, name := range h.Path {
			pointer += "/" + tga.EscapeToken(name)
		}
		v := At(args, pointer)
		if v == nil || string(v) == "null" {
			continue
		}
		text, ok := scalarValue(v)
		if !ok {
			return nil, tga.Errorf(tga.ValidationError,
				"the tool server wants it in the header %s%s, which takes a string, a boolean or an integer up to 2^53-1", paramHeader, h.Header).At(pointer)
		}
		all = append(all, ParamValue{Header: h.Header, Value: text})
	}
	return all, nil
}

// scalarValue is the text of a value in a header. A number becomes a plain integer, whatever its
// form in the arguments.
func scalarValue(v []byte) (string, bool) {
	switch v[0] {
	case '"':
		var s string
		err := json.Unmarshal(v, &s)
		return s, err == nil
	case 't', 'f':
		return string(v), true
	case '{', '[':
		return "", false
	}
	// Bound the exponent too: a short number with a large exponent has many digits.
	digits, exponent, _ := strings.Cut(strings.ToLower(string(v)), "e")
	if len(digits) > maxDigits || len(strings.TrimLeft(exponent, "+-0")) > 2 {
		return "", false
	}
	r, ok := new(big.Rat).SetString(string(v))
	if !ok || !r.IsInt() || r.Num().CmpAbs(maxSafe) > 0 {
		return "", false
	}
	return r.Num().String(), true
}

package outcome

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

// Key says where the tool's server wants the idempotency key; "" = not there.
type Key struct {
	Argument string `toml:"argument"` // JSON Pointer into the arguments, to a member of an object that is there
	Header   string `toml:"header"`   // name of an HTTP header
	Meta     string `toml:"meta"`     // member of MCP _meta
}

// Key returns where a tool's server wants the idempotency key, in addition to where its
// transport puts it; zero if nothing is configured.
func (r *Rules) Key(server, name string) Key {
	if t := r.find(server, name); t != nil {
		return t.key
	}
	return Key{}
}

// PlaceArgument returns the canonical args with key as the string at a JSON Pointer.
// The object that gets the member must exist. If the member exists already, it must be the
// same string: another value is VALIDATION_ERROR, because the caller meant something by it.
func PlaceArgument(args []byte, at, key string) ([]byte, error) {
	fail := func(err error) ([]byte, error) {
		return nil, tga.Errorf(tga.ValidationError, "place the idempotency key: %w", err).At(at)
	}
	p, err := parsePointer(at)
	if err != nil {
		return fail(err)
	}
	if key == "" {
		return fail(errors.New("there is none"))
	}
	quoted, err := quote(key)
	if err != nil {
		return fail(err)
	}
	// In canonical form, "the same string" is a comparison of bytes.
	if quoted, err = tga.Canonicalize(quoted, tga.Limits{}); err != nil {
		return fail(err)
	}
	if args, err = tga.Canonicalize(args, tga.Limits{}); err != nil {
		return fail(err)
	}
	placed, err := place(args, p, quoted)
	if err != nil {
		return fail(err)
	}
	return tga.Canonicalize(placed, tga.Limits{})
}

// place returns object with quoted as the member that p leads to.
func place(object []byte, p pointer, quoted []byte) ([]byte, error) {
	if object[0] != '{' {
		return nil, fmt.Errorf("what should have the member %.80q is no object", p[0])
	}
	name, err := quote(p[0])
	if err != nil {
		return nil, err
	}
	out := []byte("{")
	there := false
	var failed error
	add := func(name, raw []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, name...), ':'), raw...)
	}
	eachMember(object, func(n string, raw []byte) {
		if n == p[0] {
			there = true
			if len(p) > 1 {
				raw, failed = place(raw, p[1:], quoted)
			} else if !bytes.Equal(quoted, raw) {
				failed = errors.New("another value is there")
			}
		}
		if name, err := quote(n); err == nil {
			add(name, raw)
		} else if failed == nil {
			failed = err
		}
	})
	switch {
	case failed != nil:
		return nil, failed
	case there:
	case len(p) > 1:
		return nil, fmt.Errorf("there is no object %.80q", p[0])
	default:
		add(name, quoted)
	}
	return append(out, '}'), nil
}

// headerName is a token of RFC 9110 §5.6.2.
var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// ownHeaders are headers that frame or authorize a request, or that tgad sets itself.
var ownHeaders = []string{
	"authorization", "connection", "content-encoding", "content-length", "content-type", "cookie", "expect", "host",
	"keep-alive", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade",
}

// metaName is a name in MCP _meta: an optional prefix of labels with a slash, and a name.
var metaName = regexp.MustCompile(`^(?:[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?$`)

// metaReserved are names that the protocol gives a meaning.
var metaReserved = []string{"progressToken", "traceparent", "tracestate", "baggage"}

func (k *Key) check(at string) error {
	if k.Argument != "" {
		if _, err := parsePointer(k.Argument); err != nil {
			return wrong(at, "argument", "%w", err)
		}
	}
	lower := strings.ToLower(k.Header)
	if k.Header != "" && (len(k.Header) > 128 || !headerName.MatchString(k.Header) || slices.Contains(ownHeaders, lower) || strings.HasPrefix(lower, "tgad-")) {
		return wrong(at, "header", "%.80q cannot carry the key", k.Header)
	}
	prefix, _, _ := strings.Cut(k.Meta, "/")
	reserved := slices.Contains(metaReserved, k.Meta) || slices.ContainsFunc(strings.Split(prefix, "."), func(label string) bool {
		return strings.Contains(k.Meta, "/") && (label == "mcp" || label == "modelcontextprotocol" || label == "tgad")
	})
	if k.Meta != "" && (len(k.Meta) > 128 || !metaName.MatchString(k.Meta) || reserved) {
		return wrong(at, "meta", "%.80q cannot carry the key", k.Meta)
	}
	return nil
}

package verify

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Names says what a question may be made of.
type Names struct {
	what     string   // "change", "call"
	fields   []string // plain names
	pointers bool     // JSON Pointers into the arguments too
}

// Names of a change's members, and of a call's. A call's arguments are named by JSON
// Pointers.
var (
	ChangeNames = Names{"change", []string{"resource_type", "resource_id", "operation", "version", "etag", "external_ref"}, false}
	CallNames   = Names{"call", []string{"key", "server", "tool", "trace_id", "tool_call_id"}, true}
)

// Check refuses a name that the subject cannot have.
func (n Names) Check(key, name string) error {
	if n.pointers && strings.HasPrefix(name, "/") && ValidPointer(name) {
		return nil
	}
	if slices.Contains(n.fields, name) {
		return nil
	}
	also := ""
	if n.pointers {
		also = ", or a JSON Pointer into its arguments"
	}
	return Invalid(key, "a %s has no field %.80q; use one of %s%s", n.what, name, strings.Join(n.fields, ", "), also)
}

// Subject is the change or call that is asked about.
type Subject struct {
	fields map[string]string
	args   Doc
}

// OfChange makes a subject with [ChangeNames].
func OfChange(c tga.StateChange) Subject {
	return Subject{fields: map[string]string{
		"resource_type": c.ResourceType, "resource_id": c.ResourceID, "operation": c.Operation,
		"version": c.Version, "etag": c.ETag, "external_ref": c.ExternalRef,
	}}
}

// OfCall makes a subject with [CallNames].
func OfCall(c runtime.Call) Subject {
	return Subject{args: c.Args, fields: map[string]string{
		"key": c.Key, "server": c.Server, "tool": c.Tool,
		"trace_id": c.TraceID.String(), "tool_call_id": c.ToolCallID.String(),
	}}
}

// value returns the value of a name as JSON, or nil if the subject has none. An empty
// field counts as none.
func (s Subject) value(name string) (Doc, error) {
	if strings.HasPrefix(name, "/") {
		v, _, err := s.args.Lookup(name)
		return v, err
	}
	if s.fields[name] == "" {
		return nil, nil
	}
	return json.Marshal(s.fields[name])
}

// Text returns the value of a name as text, or "" if the subject has none. For an object
// or an array it returns a VALIDATION_ERROR.
func (s Subject) Text(name string) (string, error) {
	if !strings.HasPrefix(name, "/") {
		return s.fields[name], nil
	}
	v, err := s.value(name)
	if v == nil || err != nil {
		return "", err
	}
	text, ok := v.Text()
	if !ok {
		return "", tga.Errorf(tga.ValidationError, "the argument %s is no string, number or word", name).At(name)
	}
	return text, nil
}

// Unlooked returns those of the marks version and etag that the change has, that nothing
// compared, and that the configuration does not ignore. Without this check, a resource
// that merely exists would count as unchanged, whatever its content is.
func Unlooked(c tga.StateChange, compared, ignored []string) []string {
	var left []string
	for _, m := range [...]struct{ name, value string }{{"version", c.Version}, {"etag", c.ETag}} {
		if m.value != "" && !slices.Contains(compared, m.name) && !slices.Contains(ignored, m.name) {
			left = append(left, m.name)
		}
	}
	return left
}

// CheckIgnored refuses a name under the key ignore that is no mark of content.
func CheckIgnored(names []string) error {
	for _, n := range names {
		if n != "version" && n != "etag" {
			return Invalid("ignore", "%.80q: want version or etag", n)
		}
	}
	return nil
}

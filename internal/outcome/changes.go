package outcome

import (
	"fmt"

	"github.com/tgad/tgad/schemas/tga"
)

// maxReported is how many omitted changes an error names.
const maxReported = 10

// change is a Change ready for use.
type change struct {
	each   pointer // nil = one change
	fields [6]template
}

// changeFields are the members of a change in the order of change.fields. The first
// three are required.
var changeFields = [...]struct {
	name     string
	required bool
	text     func(*Change) string
	set      func(*tga.StateChange) *string
}{
	{"resource_type", true, func(c *Change) string { return c.ResourceType }, func(s *tga.StateChange) *string { return &s.ResourceType }},
	{"resource_id", true, func(c *Change) string { return c.ResourceID }, func(s *tga.StateChange) *string { return &s.ResourceID }},
	{"operation", true, func(c *Change) string { return c.Operation }, func(s *tga.StateChange) *string { return &s.Operation }},
	{"version", false, func(c *Change) string { return c.Version }, func(s *tga.StateChange) *string { return &s.Version }},
	{"etag", false, func(c *Change) string { return c.ETag }, func(s *tga.StateChange) *string { return &s.ETag }},
	{"external_ref", false, func(c *Change) string { return c.ExternalRef }, func(s *tga.StateChange) *string { return &s.ExternalRef }},
}

func (t *tool) compileChange(c *Change, at string) (change, error) {
	var u change
	var err error
	names := t.documents()
	if c.Each != "" {
		if u.each, err = parseIn(c.Each, names); err != nil {
			return change{}, wrong(at, "each", "%w", err)
		}
		names = t.documents(docItem)
	}
	for i, f := range changeFields {
		text := f.text(c)
		if text == "" && f.required {
			return change{}, wrong(at, f.name, "is missing")
		}
		if u.fields[i], err = parseTemplate(text, names); err != nil {
			return change{}, wrong(at, f.name, "%w", err)
		}
	}
	return u, nil
}

// changesOf returns what the templates find. A change that lacks a required value, or
// that no record can hold, is left out, and the error says so.
func (t *tool) changesOf(d documents) ([]tga.StateChange, error) {
	var changes []tga.StateChange
	var left []error
	out := 0
	leave := func(i int, where string, err error) {
		if out++; out <= maxReported {
			left = append(left, fmt.Errorf("change %d%s left out: %w", i, where, err))
		}
	}
	for i := range t.changes {
		u := &t.changes[i]
		items := []*value{nil}
		if u.each != nil {
			array, _ := d.find(u.each)
			if array == nil || array.kind() != '[' {
				leave(i, "", fmt.Errorf("there is no array at %s", u.each))
				continue
			}
			array.open()
			items = array.elements
		}
		for n, item := range items {
			where := ""
			if item != nil {
				d[docItem], where = item, fmt.Sprintf(", item %d,", n)
			}
			c, err := u.fill(d)
			if err == nil && len(changes) == tga.MaxStateChanges {
				// All later changes would be left out for the same reason.
				leave(i, where, tga.Errorf(tga.LimitExceeded, "there are %d already", len(changes)))
				return changes, join(left...)
			}
			if err != nil {
				leave(i, where, err)
				continue
			}
			changes = append(changes, c)
		}
		delete(d, docItem)
	}
	if out > maxReported {
		left = append(left, fmt.Errorf("%d more left out", out-maxReported))
	}
	return changes, join(left...)
}

func (u *change) fill(d documents) (tga.StateChange, error) {
	var c tga.StateChange
	for i, f := range changeFields {
		s, absent, err := u.fields[i].text(d)
		if absent && !f.required {
			continue
		}
		if err != nil {
			return c, fmt.Errorf("%s: %w", f.name, err)
		}
		*f.set(&c) = s
	}
	_, err := tga.EncodeStateChanges([]tga.StateChange{c})
	return c, err
}

// codeOr returns the code of err. An error of this package has no code: it is SCHEMA_VIOLATION,
// because the answer is not what the rules say it is.
func codeOr(err error) tga.Code {
	if c := tga.CodeOf(err); c != "" {
		return c
	}
	return tga.SchemaViolation
}

// join joins the errors that are not nil into one error on one line.
func join(errs ...error) error {
	var all error
	for _, err := range errs {
		switch {
		case err == nil:
		case all == nil:
			all = err
		default:
			all = fmt.Errorf("%w; %w", all, err)
		}
	}
	return all
}

package verify

import (
	"fmt"
	"strings"
)

// Check is one thing that an answer must say. It holds if the value under Pointer is there
// and satisfies each of these that is set: it equals Equals, it equals the subject's Field,
// it contains Contains. If none is set, the value must be there and not null.
type Check struct {
	Pointer  string  `toml:"pointer"`  // JSON Pointer into the answer; "" = the whole of it
	Equals   *string `toml:"equals"`   // a string's characters, or a number, true, false or null as written
	Field    string  `toml:"field"`    // member of the change, or of the call
	Contains string  `toml:"contains"` // part of a string
}

// Truth is what an answer says of a check.
type Truth uint8

// Truths. Unsaid means that the value is not there or has no text. A rule that needs it
// does not hold, and nothing else follows from that.
const (
	Unsaid Truth = iota
	Holds
	Fails
)

// Validate refuses a check that cannot be evaluated. key is the check's key in the
// configuration.
func (c Check) Validate(key string, names Names) error {
	if !ValidPointer(c.Pointer) {
		return Invalid(key+".pointer", "%.80q is no JSON Pointer", c.Pointer)
	}
	if c.Pointer == "" && c.Equals == nil && c.Field == "" && c.Contains == "" {
		return Invalid(key, "it asks nothing: want pointer, equals, field or contains")
	}
	if c.Equals != nil && c.Field != "" {
		return Invalid(key+".field", "it cannot stand beside equals")
	}
	if c.Field != "" {
		return names.Check(key+".field", c.Field)
	}
	return nil
}

// Of evaluates c. If the subject does not have the field, there is nothing to compare
// with, and the check only requires that the value is there.
func (c Check) Of(d Doc, s Subject) (Truth, error) {
	value, ok, err := d.Lookup(c.Pointer)
	if err != nil || !ok {
		return Unsaid, err
	}
	want := c.Equals
	if c.Field != "" {
		text, err := s.Text(c.Field)
		if err != nil {
			return Unsaid, err
		}
		if text != "" {
			want = &text
		}
	}
	if want != nil && !value.Is(*want) {
		return Fails, nil
	}
	text, isText := value.Text()
	if c.Contains != "" && !isText {
		return Unsaid, nil
	}
	if !strings.Contains(text, c.Contains) {
		return Fails, nil
	}
	if want == nil && c.Contains == "" && string(value) == "null" {
		return Unsaid, nil
	}
	return Holds, nil
}

// All evaluates checks that must all hold. It returns Fails if one fails, or else Unsaid
// if one is unsaid.
func All(checks []Check, d Doc, s Subject) (Truth, error) {
	all := Holds
	for i, c := range checks {
		t, err := c.Of(d, s)
		if err != nil {
			return Unsaid, fmt.Errorf("check %d: %w", i, err)
		}
		if t == Fails {
			return Fails, nil
		}
		if t == Unsaid {
			all = Unsaid
		}
	}
	return all, nil
}

// ValidateAll validates checks under one key.
func ValidateAll(key string, checks []Check, names Names) error {
	for i, c := range checks {
		if err := c.Validate(fmt.Sprintf("%s.%d", key, i), names); err != nil {
			return err
		}
	}
	return nil
}

// Fields are the fields that checks compare with.
func Fields(checks []Check) []string {
	var names []string
	for _, c := range checks {
		if c.Field != "" {
			names = append(names, c.Field)
		}
	}
	return names
}

package manifest

import (
	"fmt"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

// Report says what was done with a manifest's values. Places are JSON Pointers (RFC 6901).
type Report struct {
	APIVersion string `json:"api_version"` // as written
	// Taken has one row for each field that the manifest sets.
	Taken []Taken `json:"taken"`
	// Ignored lists the values that were not used, only the topmost place of each.
	Ignored []string `json:"ignored"`
	// Contradictions lists places whose value differs from the one that was taken.
	Contradictions []Contradiction `json:"contradictions"`
	// Warnings say which values are not followed as written, or not at all.
	Warnings []Warning `json:"warnings"`
}

// Taken says where a field's value comes from.
type Taken struct {
	Field string `json:"field"` // a name of [Fields]
	From  string `json:"from"`
	// Variable is the name of the placeholder that gave the value. Default says that the value
	// was the placeholder's own default.
	Variable string `json:"variable,omitempty"`
	Default  bool   `json:"default,omitempty"`
}

// Contradiction is a second place for a field, with another value.
type Contradiction struct {
	Field string `json:"field"`
	Taken string `json:"taken"` // the place that was taken
	Other string `json:"other"`
}

// Warning is a remark about a place.
type Warning struct {
	At      string `json:"at"`
	Line    int    `json:"line"`
	Message string `json:"message"`
}

// Mistake is one reason why a manifest cannot be run.
type Mistake struct {
	Line    int      `json:"line"`   // from 1
	Column  int      `json:"column"` // from 1, in characters; 1 if only the line is known
	Code    tga.Code `json:"code"`
	Pointer string   `json:"pointer"`
	Message string   `json:"message"`
}

// Error returns "line L, column C: message (at pointer)".
func (m *Mistake) Error() string {
	s := fmt.Sprintf("line %d, column %d: %s", m.Line, m.Column, m.Message)
	if m.Pointer != "" {
		s += " (at " + m.Pointer + ")"
	}
	return s
}

// Unwrap returns the mistake as the error type of the module.
func (m *Mistake) Unwrap() error {
	return tga.Errorf(m.Code, "line %d, column %d: %s", m.Line, m.Column, m.Message).At(m.Pointer)
}

// Error says why a manifest cannot be run. It has one or more mistakes, in the order of the text.
// errors.Is matches the code of any of them.
type Error struct{ Mistakes []*Mistake }

// Error returns a line for each mistake.
func (e *Error) Error() string {
	var b strings.Builder
	for i, m := range e.Mistakes {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(string(m.Code) + ": " + m.Error())
	}
	return b.String()
}

// Unwrap returns the mistakes.
func (e *Error) Unwrap() []error {
	all := make([]error, len(e.Mistakes))
	for i, m := range e.Mistakes {
		all[i] = m
	}
	return all
}

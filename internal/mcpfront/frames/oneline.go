package frames

import "github.com/tgad/tgad/internal/mcpraw"

// oneLine makes a JSON text that arrives in parts one line: both sides of a shim may read lines, and would take a text of several
// for several messages. Between tokens a line end is white space, and becomes a blank. The zero value is ready for use.
type oneLine struct {
	quoted, escape bool
	torn           bool // a string has a line end, which JSON does not allow: without it the string would be another one
}

// join changes the next part in place.
func (o *oneLine) join(part []byte) {
	for i, c := range part {
		switch {
		case c == '\n' || c == '\r':
			part[i] = ' '
			o.torn = o.torn || o.quoted
			o.escape = false
		case o.escape:
			o.escape = false
		case o.quoted && c == '\\':
			o.escape = true
		case c == '"':
			o.quoted = !o.quoted
		}
	}
}

// checked returns the envelope of the whole text. A text that is torn does not pass.
func (o *oneLine) checked(e mcpraw.Envelope) mcpraw.Envelope {
	if !o.torn || e.Bad != "" {
		return e
	}
	return mcpraw.Envelope{Bad: "a string in it has a line end", RawID: e.RawID}
}

// OneLine makes a frame of a JSON text in memory that may have line ends, and makes the text one line.
func OneLine(text []byte) *Frame {
	var o oneLine
	o.join(text)
	f := NewFrame(text)
	f.Envelope = o.checked(f.Envelope)
	return f
}

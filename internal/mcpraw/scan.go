package mcpraw

import (
	"encoding/json"
	"io"
	"strings"

	"github.com/tgad/tgad/internal/clip"
)

// Span is a part of a message: the bytes From (inclusive) to To (exclusive). The zero span is an
// absent member.
type Span struct{ From, To int64 }

// Present reports whether the member is there.
func (s Span) Present() bool { return s.To > s.From }

// Envelope says where the members of a message are. Other members are skipped, however long they
// are.
type Envelope struct {
	Batch  bool   // the message is an array
	Bad    string // why the message may not pass; "" = it may
	ID     Span
	RawID  []byte // the id's bytes
	Method string // "" where the message is an answer
	Params Span
	Result Span
	Fault  Span // the error member
}

// IsRequest, IsNotification and IsAnswer tell the kind of a message that is not Bad.
func (e *Envelope) IsRequest() bool      { return e.Method != "" && e.ID.Present() }
func (e *Envelope) IsNotification() bool { return e.Method != "" && !e.ID.Present() }
func (e *Envelope) IsAnswer() bool       { return e.Method == "" && e.ID.Present() && !e.Batch }

// IsStray reports whether the message is an answer to no request: its id is null or absent. JSON-RPC has such errors.
func (e *Envelope) IsStray() bool {
	return e.Bad == "" && e.Method == "" && !e.ID.Present() && !e.Batch
}

// Longest id or method (maxName) and longest member name (maxKey) that are kept, in bytes.
const (
	maxName = 256
	maxKey  = 64
)

// known are the members of an envelope. If a name differs from one of them only in case, or
// occurs twice, two parsers may see different messages. Then the message that is checked here
// might not be the one that the tool server acts on.
var known = []string{"jsonrpc", "id", "method", "params", "result", "error"}

// Scanner finds the members of a JSON-RPC message while the message arrives. The zero Scanner is
// ready for use. It checks only the syntax that it needs to find the members: the code that reads
// a member must check the member's inside.
type Scanner struct {
	// Result and Fault, if not nil, get the bytes of the result and the error member as they
	// arrive. Their Write must not fail.
	Result, Fault io.Writer

	env Envelope

	pos    int64
	state  scanState
	key    []byte
	keyLen int
	name   string // name of the member that is being read; "" = a member that is skipped
	from   int64
	keep   *[]byte   // gets the bytes of the id or the method; nil otherwise
	tell   io.Writer // Result or Fault; nil otherwise
	depth  int
	quoted bool
	escape bool
	scalar bool
	seen   [6]bool
	id     []byte
	method []byte
}

type scanState uint8

const (
	scanStart    scanState = iota // before the opening brace
	scanKeyOrEnd                  // after the opening brace
	scanKey                       // after a comma
	scanInKey
	scanColon
	scanValue
	scanInValue
	scanComma // after a value
	scanDone  // after the closing brace
	scanArray // in a batch: its elements are scanned later
	scanBad
)

// Write scans the next part of the message. It never fails.
func (s *Scanner) Write(p []byte) (int, error) {
	for i := 0; i < len(p); {
		switch s.state {
		case scanInValue:
			n := s.value(p[i:])
			i += n
			s.pos += int64(n)
		case scanBad, scanArray:
			s.pos += int64(len(p) - i)
			i = len(p)
		default:
			s.step(p[i])
			i++
			s.pos++
		}
	}
	return len(p), nil
}

func (s *Scanner) fail(why string) {
	if s.env.Bad == "" {
		s.env.Bad = why
	}
	s.state = scanBad
}

func (s *Scanner) step(c byte) {
	space := c == ' ' || c == '\t' || c == '\r' || c == '\n'
	switch {
	case s.state == scanInKey:
		s.keyByte(c)
	case s.state == scanValue && !space:
		s.begin(c)
	case space:
	case s.state == scanStart && c == '{':
		s.state = scanKeyOrEnd
	case s.state == scanStart && c == '[':
		s.env.Batch, s.state = true, scanArray
	case (s.state == scanKeyOrEnd || s.state == scanKey) && c == '"':
		s.state, s.key, s.keyLen = scanInKey, s.key[:0], 0
	case s.state == scanColon && c == ':':
		s.state = scanValue
	case s.state == scanComma && c == ',':
		s.state = scanKey
	case (s.state == scanComma || s.state == scanKeyOrEnd) && c == '}':
		s.state = scanDone
	default:
		s.fail("it is no JSON object")
	}
}

func (s *Scanner) keyByte(c byte) {
	switch {
	case s.escape:
		s.escape = false
	case c == '\\':
		s.escape = true
	case c == '"':
		s.state = scanColon
		return
	}
	s.keyLen++
	if len(s.key) < maxKey {
		s.key = append(s.key, c)
	}
}

// member returns the index in known of the name that was read, and whether it is there.
func (s *Scanner) member() (int, bool) {
	if s.keyLen > maxKey {
		return 0, false
	}
	name := string(s.key)
	if strings.ContainsRune(name, '\\') {
		var plain string
		if json.Unmarshal([]byte(`"`+name+`"`), &plain) != nil {
			s.fail("a member's name is no JSON string")
			return 0, false
		}
		name = plain
	}
	for i, k := range known {
		if name == k {
			return i, true
		}
		if strings.EqualFold(name, k) {
			s.fail("the member " + clip.Bytes(name, maxKey) + " looks like " + k)
			return 0, false
		}
	}
	return 0, false
}

// begin is called with the first byte of a value.
func (s *Scanner) begin(c byte) {
	i, ok := s.member()
	if s.state == scanBad {
		return
	}
	s.name, s.keep, s.tell, s.from = "", nil, nil, s.pos
	if ok {
		if s.seen[i] {
			s.fail("the member " + known[i] + " is there twice")
			return
		}
		s.seen[i], s.name = true, known[i]
		switch s.name {
		case "id":
			s.keep = &s.id
		case "method":
			s.keep = &s.method
		case "result":
			s.tell = s.Result
		case "error":
			s.tell = s.Fault
		}
	}
	s.state = scanInValue
	s.depth, s.quoted, s.scalar, s.escape = 0, false, false, false
	switch c {
	case '{', '[':
		s.depth = 1
	case '"':
		s.quoted = true
	case '}', ']', ',', ':':
		s.fail("a value is missing")
		return
	default:
		s.scalar = true
	}
	s.capture([]byte{c})
}

func (s *Scanner) capture(p []byte) {
	if s.tell != nil {
		_, _ = s.tell.Write(p) // must not fail, see Scanner
	}
	if s.keep == nil {
		return
	}
	if len(*s.keep)+len(p) > maxName {
		s.fail("its " + s.name + " is longer than 256 bytes")
		return
	}
	*s.keep = append(*s.keep, p...)
}

// value scans the part of p that belongs to the current value, and returns the part's length.
func (s *Scanner) value(p []byte) int {
	n := 0
	for n < len(p) {
		c := p[n]
		ended := false
		switch {
		case s.escape:
			s.escape = false
		case s.quoted:
			if c == '\\' {
				s.escape = true
			} else if c == '"' {
				s.quoted = false
				ended = s.depth == 0
			}
		case s.scalar:
			switch c {
			case ' ', '\t', '\r', '\n', ',', '}':
				s.capture(p[:n])
				s.end(s.pos + int64(n)) // step reads the delimiter
				return n
			}
		default:
			switch c {
			case '"':
				s.quoted = true
			case '{', '[':
				s.depth++
			case '}', ']':
				s.depth--
				ended = s.depth == 0
			}
		}
		n++
		if ended {
			s.capture(p[:n])
			s.end(s.pos + int64(n))
			return n
		}
	}
	s.capture(p)
	return n
}

// end notes the span of the current value.
func (s *Scanner) end(to int64) {
	if s.state == scanBad {
		return
	}
	s.state = scanComma
	at := Span{s.from, to}
	switch s.name {
	case "id":
		s.env.ID = at
	case "params":
		s.env.Params = at
	case "result":
		s.env.Result = at
	case "error":
		s.env.Fault = at
	}
}

// Blank reports whether only white space has come so far.
func (s *Scanner) Blank() bool { return s.state == scanStart }

// Finish is called at the message's end and returns the message's envelope.
func (s *Scanner) Finish() Envelope {
	e := &s.env
	switch s.state {
	case scanDone, scanArray, scanBad:
	default:
		s.fail("it ends too early")
	}
	if e.Bad != "" || e.Batch {
		e.RawID = nil
		if e.Bad != "" && len(s.id) > 0 && len(s.id) <= maxName && json.Valid(s.id) {
			e.RawID = s.id // so that an error answer can name the request
		}
		return *e
	}
	if s.seen[2] {
		if json.Unmarshal(s.method, &e.Method) != nil || e.Method == "" {
			e.Bad = "its method is no name"
			return *e
		}
	}
	if string(s.id) == "null" {
		// Some peers write a null id in notifications. An answer with it belongs to no request.
		e.ID, s.id = Span{}, nil
	}
	if len(s.id) > 0 {
		if c := s.id[0]; !json.Valid(s.id) || c == '{' || c == '[' || c == 't' || c == 'f' {
			e.Bad = "its id is neither a string nor a number"
			return *e
		}
		e.RawID = s.id
	}
	switch answers := e.Result.Present() || e.Fault.Present(); {
	case e.Method == "" && !answers:
		e.Bad = "it is neither a request nor an answer"
	case e.Method != "" && answers:
		e.Bad = "it is both a request and an answer"
	}
	return *e
}

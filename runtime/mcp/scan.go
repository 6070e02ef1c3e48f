package mcp

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"hash"
	"strconv"

	"github.com/tgad/tgad/schemas/tga"
)

// scanner splits one JSON-RPC message into its members while it arrives. Nothing is
// decoded: the result is the bytes that the server wrote, and a message of any length
// takes no more memory than its limit. encoding/json would need the whole message at
// hand, and its typed path turns 9007199254740993 into …992.
//
// It checks only what it needs to find the members. What is inside a member is checked
// by whoever reads it.
type scanner struct {
	limit int64 // for result and error

	state  scanState
	key    []byte
	member *capture // the value being read; nil = one that nobody asks for
	depth  int      // of brackets inside the value
	quoted bool     // inside a string
	escape bool     // after a backslash in a string
	scalar bool     // the value is neither string nor container

	id, method, result, fault capture
}

type scanState uint8

const (
	scanStart    scanState = iota // before the opening brace
	scanKeyOrEnd                  // after it
	scanKey                       // after a comma
	scanInKey
	scanColon
	scanValue
	scanInValue
	scanComma // after a value
	scanDone  // after the closing brace
	scanBad   // no JSON-RPC message
)

// The longest id and method that are kept.
const (
	maxKey  = 64
	maxName = 256
)

func newScanner(limit int64) *scanner {
	s := &scanner{limit: limit}
	s.id.limit, s.method.limit = maxName, maxName
	s.result.limit, s.fault.limit = limit, limit
	return s
}

// Write takes the next part of the message. It never fails.
func (s *scanner) Write(p []byte) (int, error) {
	for i := 0; i < len(p); {
		if s.state == scanInValue {
			i += s.value(p[i:])
			continue
		}
		s.step(p[i])
		i++
	}
	return len(p), nil
}

func (s *scanner) step(c byte) {
	space := c == ' ' || c == '\t' || c == '\r' || c == '\n'
	switch {
	case s.state == scanInKey:
		s.keyByte(c)
	case s.state == scanValue && !space:
		s.begin(c)
	case space || s.state == scanBad:
	case s.state == scanStart && c == '{':
		s.state = scanKeyOrEnd
	case (s.state == scanKeyOrEnd || s.state == scanKey) && c == '"':
		s.state, s.key = scanInKey, s.key[:0]
	case s.state == scanColon && c == ':':
		s.state = scanValue
	case s.state == scanComma && c == ',':
		s.state = scanKey
	case (s.state == scanComma || s.state == scanKeyOrEnd) && c == '}':
		s.state = scanDone
	default:
		s.state = scanBad
	}
}

func (s *scanner) keyByte(c byte) {
	switch {
	case s.escape:
		s.escape = false
	case c == '\\':
		s.escape = true
	case c == '"':
		s.state = scanColon
		return
	}
	if len(s.key) < maxKey {
		s.key = append(s.key, c)
	}
}

// begin is called with the first byte of a value. A member that comes twice makes the
// message ambiguous: two readers could see two answers in it.
func (s *scanner) begin(c byte) {
	s.member = nil
	switch string(s.key) {
	case "id":
		s.member = &s.id
	case "method":
		s.member = &s.method
	case "result":
		s.member = &s.result
	case "error":
		s.member = &s.fault
	}
	if s.member != nil {
		if s.member.present {
			s.state = scanBad
			return
		}
		s.member.present = true
		s.member.write([]byte{c})
	}
	s.state = scanInValue
	s.depth, s.quoted, s.scalar = 0, false, false
	switch c {
	case '{', '[':
		s.depth = 1
	case '"':
		s.quoted = true
	case '}', ']', ',', ':':
		s.state = scanBad
	default:
		s.scalar = true
	}
}

// value takes the part of p that belongs to the current value and returns its length.
func (s *scanner) value(p []byte) int {
	n := 0
	for n < len(p) && s.state == scanInValue {
		c := p[n]
		switch {
		case s.escape:
			s.escape = false
		case s.quoted:
			switch c {
			case '\\':
				s.escape = true
			case '"':
				s.quoted = false
				if s.depth == 0 {
					s.state = scanComma
				}
			}
		case s.scalar:
			switch c {
			case ' ', '\t', '\r', '\n', ',', '}':
				s.state = scanComma
				s.keep(p[:n])
				return n // the delimiter is step's to read
			}
		default:
			switch c {
			case '"':
				s.quoted = true
			case '{', '[':
				s.depth++
			case '}', ']':
				s.depth--
				if s.depth == 0 {
					s.state = scanComma
				}
			}
		}
		n++
	}
	s.keep(p[:n])
	return n
}

func (s *scanner) keep(p []byte) {
	if s.member != nil {
		s.member.write(p)
	}
}

// done reports whether a whole message was read.
func (s *scanner) done() bool { return s.state == scanDone }

// number returns the message's id where it is a number of ours. Some servers write
// 7.0 for 7.
func (s *scanner) number() (int64, bool) {
	f, err := strconv.ParseFloat(string(s.id.data), 64)
	if err != nil || f != float64(int64(f)) {
		return 0, false
	}
	return int64(f), true
}

// isNullID reports whether the message has no id to answer to.
func (s *scanner) isNullID() bool {
	return !s.id.present || bytes.Equal(s.id.data, []byte("null"))
}

// name returns the method, "" for a reply.
func (s *scanner) name() string {
	var name string
	if !s.method.present || json.Unmarshal(s.method.data, &name) != nil {
		return ""
	}
	return name
}

// capture keeps a value up to its limit, and beyond it the length and digest of all.
type capture struct {
	limit   int64
	present bool
	data    []byte // nil beyond the limit
	bytes   int64
	sum     hash.Hash // set beyond the limit
}

func (c *capture) write(p []byte) {
	c.bytes += int64(len(p))
	switch {
	case c.sum != nil:
		c.sum.Write(p)
	case c.bytes > c.limit:
		c.sum = sha256.New()
		c.sum.Write(c.data)
		c.sum.Write(p)
		c.data = nil
	default:
		c.data = append(c.data, p...)
	}
}

// truncated reports whether the value was longer than its limit.
func (c *capture) truncated() bool { return c.sum != nil }

// digest returns the SHA-256 of the whole value.
func (c *capture) digest() tga.Digest {
	if c.sum == nil {
		return tga.Sum(c.data)
	}
	var d tga.Digest
	c.sum.Sum(d[:0])
	return d
}

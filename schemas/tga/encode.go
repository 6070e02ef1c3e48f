package tga

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The encoders of this package write canonical JSON: members in order, nothing
// between tokens. FuzzEncodersAgreeWithJCS tests that.

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string with the escapes of RFC 8785 §3.2.2.2 and
// no other.
func appendString[S string | []byte](dst []byte, s S) []byte {
	dst = append(dst, '"')
	start := len(dst)
	if dst = append(dst, s...); noEscapes(dst[start:]) {
		return append(dst, '"')
	}
	dst = dst[:start]
	from := 0
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' {
			dst = append(dst, s[from:i]...)
			dst = appendRune(dst, rune(c))
			from = i + 1
		}
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

// AppendString appends s as a JSON string in the spelling of RFC 8785. Bytes that are not UTF-8
// become U+FFFD, because JSON cannot hold them.
func AppendString(dst []byte, s string) []byte {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\ufffd")
	}
	return appendString(dst, s)
}

// noEscapes reports whether b needs no escapes, eight bytes at a time. It may return false for
// a string that needs none. Most strings need none, so the caller copies them first.
func noEscapes(b []byte) bool {
	for ; len(b) >= 8; b = b[8:] {
		if !allVerbatim(binary.LittleEndian.Uint64(b)) {
			return false
		}
	}
	for _, c := range b {
		if !verbatim[c] {
			return false
		}
	}
	return true
}

// appendRune appends the escape of a character that needs one.
func appendRune(dst []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[r>>4&0xf], hexDigits[r&0xf])
}

// object writes one canonical object. Members are added in canonical order.
type object struct {
	b     []byte
	begun bool
}

func newObject(dst []byte) object { return object{b: append(dst, '{')} }

// name starts a member. Every name of the contracts is free of escapes.
func (o *object) name(name string) {
	if o.begun {
		o.b = append(o.b, ',')
	}
	o.begun = true
	o.b = append(o.b, '"')
	o.b = append(o.b, name...)
	o.b = append(o.b, '"', ':')
}

func (o *object) str(name, s string) {
	o.name(name)
	o.b = appendString(o.b, s)
}

// optional writes a string member unless s is "".
func (o *object) optional(name, s string) {
	if s != "" {
		o.str(name, s)
	}
}

func (o *object) orNull(name, s string) {
	if s == "" {
		o.raw(name, []byte("null"))
		return
	}
	o.str(name, s)
}

func (o *object) raw(name string, value []byte) {
	o.name(name)
	o.b = append(o.b, value...)
}

func (o *object) digest(name string, d Digest) {
	o.name(name)
	o.b = append(o.b, '"')
	o.b = hex.AppendEncode(o.b, d[:])
	o.b = append(o.b, '"')
}

func (o *object) id(name string, id ID) {
	o.name(name)
	o.b = append(o.b, '"')
	o.b, _ = id.AppendText(o.b) // cannot fail
	o.b = append(o.b, '"')
}

func (o *object) ts(name string, ts Millis) {
	o.name(name)
	o.b = append(o.b, '"')
	o.b, _ = ts.AppendText(o.b) // cannot fail
	o.b = append(o.b, '"')
}

// uint writes an integer. Every number of the contracts is at most MaxSafeInteger, which a
// double holds exactly.
func (o *object) uint(name string, v uint64) {
	o.name(name)
	o.b = strconv.AppendUint(o.b, v, 10)
}

func (o *object) int(name string, v int64) {
	o.name(name)
	o.b = strconv.AppendInt(o.b, v, 10)
}

func (o *object) bool(name string, v bool) {
	o.name(name)
	o.b = strconv.AppendBool(o.b, v)
}

func (o *object) end() []byte { return append(o.b, '}') }

package tga

import (
	"encoding/binary"
	"unicode/utf16"
	"unicode/utf8"
)

// quoted reads a string whose opening quote is at the current position. plain says that its
// spelling is that of RFC 8785.
func (d *document) quoted() (start, end int, plain, escaped bool, err *Error) {
	d.pos++
	start, plain = d.pos, true
	for {
		d.pos += verbatimPrefix(d.text[d.pos:])
		if d.pos == len(d.text) {
			return 0, 0, false, false, d.refuse("the text ends inside a string")
		}
		switch c := d.text[d.pos]; {
		case c == '"':
			end = d.pos
			d.pos++
			return start, end, plain, escaped, nil
		case c == '\\':
			escaped = true
			canonical, err := d.escape()
			if err != nil {
				return 0, 0, false, false, err
			}
			plain = plain && canonical
		case c < 0x20:
			return 0, 0, false, false, d.refuse("a control character in a string")
		default:
			r, size := utf8.DecodeRune(d.text[d.pos:])
			if r == utf8.RuneError && size == 1 {
				return 0, 0, false, false, d.refuse("invalid UTF-8")
			}
			d.pos += size
		}
	}
}

// verbatim are the bytes that stand for themselves in a string and are a character each.
var verbatim = func() (set [256]bool) {
	for c := 0x20; c < utf8.RuneSelf; c++ {
		set[c] = c != '"' && c != '\\'
	}
	return set
}()

// verbatimPrefix returns how many bytes at the start of b are verbatim.
func verbatimPrefix(b []byte) int {
	rest := b // reslicing needs no bounds check and no index: that halves the time of a long string
	for len(rest) >= 16 {
		if !allVerbatim(binary.LittleEndian.Uint64(rest)) || !allVerbatim(binary.LittleEndian.Uint64(rest[8:])) {
			break
		}
		rest = rest[16:]
	}
	if len(rest) >= 8 && allVerbatim(binary.LittleEndian.Uint64(rest)) {
		rest = rest[8:]
	}
	for len(rest) > 0 && verbatim[rest[0]] {
		rest = rest[1:]
	}
	return len(b) - len(rest)
}

// allVerbatim reports whether each of eight bytes is verbatim. It may return false although
// all are: the subtraction of one byte can borrow from the next, which then looks wrong.
func allVerbatim(b uint64) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	quote, backslash := b^(ones*'"'), b^(ones*'\\')
	return (b|(b-ones*0x20)|(quote-ones)|(backslash-ones))&highs == 0
}

// escape checks the escape at the current position and reports whether RFC 8785 would write
// it that way.
func (d *document) escape() (canonical bool, err *Error) {
	if d.pos+1 >= len(d.text) {
		return false, d.refuse("the text ends inside an escape")
	}
	switch d.text[d.pos+1] {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		d.pos += 2
		return true, nil
	case '/':
		d.pos += 2
		return false, nil
	case 'u':
	default:
		return false, d.refuse("an unknown escape")
	}
	r, ok := hex4(d.text[d.pos:])
	if !ok {
		return false, d.refuse(`want four hex digits after \u`)
	}
	if utf16.IsSurrogate(r) {
		low, ok := hex4(d.text[d.pos+6:])
		if !ok || utf16.DecodeRune(r, low) == utf8.RuneError {
			return false, d.refuse("a surrogate without its other half")
		}
		d.pos += 12
		return false, nil
	}
	spelled := d.text[d.pos : d.pos+6]
	d.pos += 6
	return r < 0x20 && string(spelled) == string(appendRune(nil, r)), nil
}

// hex4 reads \uXXXX at the start of b.
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unescape appends the characters of a checked string to dst.
func unescape(dst, raw []byte) []byte {
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			dst = append(dst, raw[i])
			i++
			continue
		}
		switch c := raw[i+1]; c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, _ := hex4(raw[i:])
			if utf16.IsSurrogate(r) {
				low, _ := hex4(raw[i+6:])
				r = utf16.DecodeRune(r, low)
				i += 6
			}
			dst = utf8.AppendRune(dst, r)
			i += 4
		default:
			dst = append(dst, c)
		}
		i += 2
	}
	return dst
}

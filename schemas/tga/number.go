package tga

import (
	"bytes"
	"math"
	"strconv"
)

// number reads a number (RFC 8259 §6). It refuses a number that changes when it is converted
// to a double and printed; see [Gate].
func (d *document) number() *Error {
	start := d.pos
	if d.peek() == '-' {
		d.pos++
	}
	intStart := d.pos
	if d.peek() == '0' {
		d.pos++
	} else if !d.digits() {
		return d.refuse("want a digit after -")
	}
	intDigits, simple := d.pos-intStart, true
	if d.peek() == '.' {
		d.pos++
		simple = false
		if !d.digits() {
			return d.refuse("want a digit after the decimal point")
		}
	}
	if c := d.peek(); c == 'e' || c == 'E' {
		d.pos++
		simple = false
		if c := d.peek(); c == '+' || c == '-' {
			d.pos++
		}
		if !d.digits() {
			return d.refuse("want a digit in the exponent")
		}
	}
	switch d.peek() {
	case ',', ']', '}', ' ', '\t', '\n', '\r', 0:
	default: // 01, 1_0, 0x1
		return d.refuse("unexpected character after a number")
	}
	raw := d.text[start:d.pos]
	// Integers of up to 15 digits are below 2^53 and print as they are written.
	if simple && intDigits <= 15 && (raw[0] != '-' || raw[1] != '0') {
		d.add(kindNumber, true, start, d.pos)
		return nil
	}
	f, ok := parseDouble(raw)
	var buf [32]byte
	if ok {
		printed := appendDouble(buf[:0], f)
		if bytes.Equal(raw, printed) {
			d.add(kindNumber, true, start, d.pos)
			return nil
		}
		ok = decimalOf(raw).equal(decimalOf(printed))
	}
	if !ok {
		d.pos = start
		return d.refuse("number " + clip(string(raw)) + " is not what its double prints as: send it as a string")
	}
	d.add(kindNumber, false, start, d.pos)
	return nil
}

func (d *document) digits() bool {
	start := d.pos
	for c := d.peek(); '0' <= c && c <= '9'; c = d.peek() {
		d.pos++
	}
	return d.pos > start
}

// parseDouble returns the double nearest to a number in JSON's grammar. ok is false if that
// would be infinite.
func parseDouble(raw []byte) (f float64, ok bool) {
	f, err := strconv.ParseFloat(string(raw), 64)
	return f, err == nil
}

// appendDouble appends f as ECMAScript's Number::toString does (RFC 8785 §3.2.2.3).
// f is finite. Both zeros are 0.
func appendDouble(dst []byte, f float64) []byte {
	if f == 0 {
		return append(dst, '0')
	}
	if abs := math.Abs(f); abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// Go writes at least two digits of exponent, ECMAScript only those it needs.
	if n := len(dst); dst[n-2] == '0' && (dst[n-3] == '-' || dst[n-3] == '+') {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}

// decimal is the value 0.digits × 10^exp, without zeros at either end of digits. Zero
// has no digits.
type decimal struct {
	negative bool
	digits   []byte
	exp      int
}

func (x decimal) equal(y decimal) bool {
	return x.negative == y.negative && x.exp == y.exp && bytes.Equal(x.digits, y.digits)
}

// decimalOf reads a number in JSON's grammar without rounding it.
func decimalOf(raw []byte) decimal {
	var x decimal
	if raw[0] == '-' {
		x.negative = true
		raw = raw[1:]
	}
	mantissa := raw
	if e := bytes.IndexAny(raw, "eE"); e != -1 {
		mantissa = raw[:e]
		x.exp = saturatingInt(raw[e+1:])
	}
	whole, fraction, _ := bytes.Cut(mantissa, []byte("."))
	x.exp += len(whole)
	x.digits = append(append(make([]byte, 0, 32), whole...), fraction...)
	leading := len(x.digits)
	x.digits = bytes.TrimLeft(x.digits, "0")
	x.exp -= leading - len(x.digits)
	x.digits = bytes.TrimRight(x.digits, "0")
	if len(x.digits) == 0 {
		return decimal{}
	}
	return x
}

// saturatingInt reads an exponent and limits it to ±2^40. A number with a larger exponent is
// out of the range of doubles, however many digits its text has, and the limit keeps it there.
func saturatingInt(b []byte) int {
	negative := false
	if b[0] == '-' || b[0] == '+' {
		negative = b[0] == '-'
		b = b[1:]
	}
	n := 0
	for _, c := range b {
		n = min(n*10+int(c-'0'), 1<<40)
	}
	if negative {
		return -n
	}
	return n
}

package tga

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// Digest is a SHA-256 digest. Its text form is 64 lowercase hex digits. The zero
// Digest is the prev_entry_digest of a genesis entry.
type Digest [sha256.Size]byte

// Sum returns the digest of b.
func Sum(b []byte) Digest { return sha256.Sum256(b) }

// ParseDigest reads 64 lowercase hex digits. It refuses upper case, because two spellings of
// one digest would give one entry two canonical forms.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	if len(s) != 2*len(d) || !unhex(d[:], s) {
		return Digest{}, Errorf(ValidationError, "digest %q: want 64 lowercase hex digits", clip(s))
	}
	return d, nil
}

// String returns the 64 lowercase hex digits of d.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// IsZero reports whether d is the all-zero digest.
func (d Digest) IsZero() bool { return d == Digest{} }

// AppendText appends the text form of d to b.
func (d Digest) AppendText(b []byte) ([]byte, error) { return hex.AppendEncode(b, d[:]), nil }

// MarshalText returns the text form of d.
func (d Digest) MarshalText() ([]byte, error) { return d.AppendText(nil) }

// UnmarshalText reads the text form; see [ParseDigest].
func (d *Digest) UnmarshalText(b []byte) error {
	v, err := ParseDigest(string(b))
	if err == nil {
		*d = v
	}
	return err
}

// ID is a UUIDv7 (RFC 9562 §5.7). Its text form is lowercase with hyphens. The
// zero ID means "absent" and has no legal text form of its own.
type ID [16]byte

const idTextLen = 36

// MakeID turns b into a UUIDv7: it sets the version and the variant, six bits in all. b is the
// beginning of a digest, or a time and random bytes.
func MakeID(b [16]byte) ID {
	b[6], b[8] = b[6]&0x0f|0x70, b[8]&0x3f|0x80
	return b
}

// ParseID reads a lowercase UUIDv7. Another version, another variant or an upper
// case digit is refused (docs/FORMAT.md).
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != idTextLen || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return ID{}, Errorf(ValidationError, "id %q: want a lowercase UUIDv7", clip(s))
	}
	if !unhex(id[0:4], s[0:8]) || !unhex(id[4:6], s[9:13]) || !unhex(id[6:8], s[14:18]) ||
		!unhex(id[8:10], s[19:23]) || !unhex(id[10:16], s[24:36]) {
		return ID{}, Errorf(ValidationError, "id %q: want a lowercase UUIDv7", clip(s))
	}
	if !id.isV7() {
		return ID{}, Errorf(ValidationError, "id %q: not a version 7 UUID", clip(s))
	}
	return id, nil
}

func (id *ID) isV7() bool { return id[6]>>4 == 7 && id[8]>>6 == 2 }

// String returns the text form of id.
func (id ID) String() string {
	b, _ := id.AppendText(make([]byte, 0, idTextLen)) // cannot fail
	return string(b)
}

// IsZero reports whether id is absent.
func (id ID) IsZero() bool { return id == ID{} }

// AppendText appends the text form of id to b.
func (id ID) AppendText(b []byte) ([]byte, error) {
	b = hex.AppendEncode(b, id[0:4])
	b = append(b, '-')
	b = hex.AppendEncode(b, id[4:6])
	b = append(b, '-')
	b = hex.AppendEncode(b, id[6:8])
	b = append(b, '-')
	b = hex.AppendEncode(b, id[8:10])
	b = append(b, '-')
	return hex.AppendEncode(b, id[10:16]), nil
}

// MarshalText returns the text form of id.
func (id ID) MarshalText() ([]byte, error) { return id.AppendText(nil) }

// UnmarshalText reads the text form; see [ParseID].
func (id *ID) UnmarshalText(b []byte) error {
	v, err := ParseID(string(b))
	if err == nil {
		*id = v
	}
	return err
}

// Millis is a point in time in milliseconds since the Unix epoch, UTC. Its text
// form is RFC 3339 with exactly three fractional digits and Z (docs/FORMAT.md).
type Millis int64

const millisLayout = "2006-01-02T15:04:05.000Z"

// The first and the last time that the text form can express.
const (
	firstMillis Millis = -62167219200000 // 0000-01-01T00:00:00.000Z
	LastMillis  Millis = 253402300799999 // 9999-12-31T23:59:59.999Z
)

// MillisOf truncates t to milliseconds.
func MillisOf(t time.Time) Millis { return Millis(t.UnixMilli()) }

// ParseMillis reads only the text form: no offset, no other precision, no leap second.
func ParseMillis(s string) (Millis, error) {
	year, ok := 0, len(s) == len(millisLayout)
	var part [6]int // month, day, hour, minute, second, millisecond
	if ok {
		ok = s[4] == '-' && s[7] == '-' && s[10] == 'T' && s[13] == ':' && s[16] == ':' && s[19] == '.' && s[23] == 'Z'
		for i, at := range [...][2]int{{5, 7}, {8, 10}, {11, 13}, {14, 16}, {17, 19}, {20, 23}} {
			ok = undecimal(&part[i], s[at[0]:at[1]]) && ok
		}
		ok = undecimal(&year, s[:4]) && ok
	}
	month, day, hour, minute, second, milli := part[0], part[1], part[2], part[3], part[4], part[5]
	if !ok || month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 || second > 59 {
		return 0, Errorf(ValidationError, "time %q: want YYYY-MM-DDThh:mm:ss.mmmZ", clip(s))
	}
	t := time.Date(year, time.Month(month), day, hour, minute, second, milli*1e6, time.UTC)
	if t.Day() != day { // the month has no such day, so Date returned a day of the next month
		return 0, Errorf(ValidationError, "time %q: want YYYY-MM-DDThh:mm:ss.mmmZ", clip(s))
	}
	return Millis(t.UnixMilli()), nil
}

// undecimal reads a number that consists only of decimal digits.
func undecimal(at *int, s string) bool {
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
		n = n*10 + int(s[i]-'0')
	}
	*at = n
	return true
}

// Time returns m as a time.Time in UTC.
func (m Millis) Time() time.Time { return time.UnixMilli(int64(m)).UTC() }

// String returns the text form of m.
func (m Millis) String() string { return m.Time().Format(millisLayout) }

// AppendText appends the text form of m to b.
func (m Millis) AppendText(b []byte) ([]byte, error) {
	t := m.Time()
	year, month, day := t.Date()
	if uint(year) > 9999 { // or below 0: no layout writes such a year in a form that is read back
		return t.AppendFormat(b, millisLayout), nil
	}
	hour, minute, second := t.Clock()
	milli := t.Nanosecond() / 1e6
	d := func(n int) byte { return '0' + byte(n%10) }
	return append(b, d(year/1000), d(year/100), d(year/10), d(year), '-', d(int(month)/10), d(int(month)), '-', d(day/10), d(day),
		'T', d(hour/10), d(hour), ':', d(minute/10), d(minute), ':', d(second/10), d(second),
		'.', d(milli/100), d(milli/10), d(milli), 'Z'), nil
}

// MarshalText returns the text form of m.
func (m Millis) MarshalText() ([]byte, error) { return m.AppendText(nil) }

// UnmarshalText reads the text form; see [ParseMillis].
func (m *Millis) UnmarshalText(b []byte) error {
	v, err := ParseMillis(string(b))
	if err == nil {
		*m = v
	}
	return err
}

// unhex reads lowercase hex digits, two for each byte of dst, and reports whether s has
// those and no other.
func unhex(dst []byte, s string) bool {
	if len(s) != 2*len(dst) {
		return false
	}
	var bad byte
	for i := range dst {
		high, low := hexValue[s[2*i]], hexValue[s[2*i+1]]
		bad |= high | low
		dst[i] = high<<4 | low&0xf
	}
	return bad&0xf0 == 0
}

// hexValue is the value of a lowercase hex digit, 0xff for every other byte.
var hexValue = func() (v [256]byte) {
	for i := range v {
		v[i] = 0xff
	}
	for i, c := range []byte(hexDigits) {
		v[c] = byte(i)
	}
	return v
}()

// clip bounds what an error repeats of a caller's input.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

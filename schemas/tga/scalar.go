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

// ParseDigest reads 64 lowercase hex digits. Upper case is refused: two spellings
// of one digest would give two canonical forms of one entry.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	if len(s) != 2*len(d) || !isLowerHex(s) {
		return Digest{}, Errorf(ValidationError, "digest %q: want 64 lowercase hex digits", clip(s))
	}
	if _, err := hex.Decode(d[:], []byte(s)); err != nil {
		return Digest{}, Errorf(ValidationError, "digest %q: %v", clip(s), err)
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

// ParseID reads a lowercase UUIDv7. Another version, another variant or an upper
// case digit is refused (docs/FORMAT.md).
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != idTextLen || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return ID{}, Errorf(ValidationError, "id %q: want a lowercase UUIDv7", clip(s))
	}
	hexDigits := s[0:8] + s[9:13] + s[14:18] + s[19:23] + s[24:36]
	if !isLowerHex(hexDigits) {
		return ID{}, Errorf(ValidationError, "id %q: want a lowercase UUIDv7", clip(s))
	}
	if _, err := hex.Decode(id[:], []byte(hexDigits)); err != nil {
		return ID{}, Errorf(ValidationError, "id %q: %v", clip(s), err)
	}
	if id[6]>>4 != 7 || id[8]>>6 != 2 {
		return ID{}, Errorf(ValidationError, "id %q: not a version 7 UUID", clip(s))
	}
	return id, nil
}

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

// MillisOf truncates t to milliseconds.
func MillisOf(t time.Time) Millis { return Millis(t.UnixMilli()) }

// ParseMillis reads the text form and no other: no offset, no other precision, no
// leap second.
func ParseMillis(s string) (Millis, error) {
	// Parse accepts more than the layout says (a comma, more digits); the round
	// trip does not.
	t, err := time.Parse(millisLayout, s)
	var buf [len(millisLayout)]byte
	if err != nil || len(s) != len(millisLayout) || string(t.UTC().AppendFormat(buf[:0], millisLayout)) != s {
		return 0, Errorf(ValidationError, "time %q: want YYYY-MM-DDThh:mm:ss.mmmZ", clip(s))
	}
	return Millis(t.UnixMilli()), nil
}

// Time returns m as a time.Time in UTC.
func (m Millis) Time() time.Time { return time.UnixMilli(int64(m)).UTC() }

// String returns the text form of m.
func (m Millis) String() string { return m.Time().Format(millisLayout) }

// AppendText appends the text form of m to b.
func (m Millis) AppendText(b []byte) ([]byte, error) {
	return m.Time().AppendFormat(b, millisLayout), nil
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

func isLowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// clip bounds what an error repeats of a caller's input.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

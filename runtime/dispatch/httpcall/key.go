package httpcall

import "strings"

// KeyText is the idempotency key as it stands in a header, or in gRPC metadata. A key
// of visible ASCII stands there as it is. Any other (other characters, spaces at an end,
// which HTTP trims, or the two characters %" at the beginning) is written as a Display
// String of RFC 9651 §3.3.8: %" and ", and between them the key's UTF-8 with each byte
// that is %, ", or not visible ASCII as % and two lowercase hex digits. Two keys never
// have the same text, and the key can be read back.
func KeyText(key string) string {
	if plainKey(key) {
		return key
	}
	const hex = "0123456789abcdef"
	b := []byte(displayString)
	for i := range len(key) {
		if c := key[i]; c < ' ' || c > '~' || c == '%' || c == '"' {
			b = append(b, '%', hex[c>>4], hex[c&0xf])
		} else {
			b = append(b, c)
		}
	}
	return string(append(b, '"'))
}

// displayString is how the text of an encoded key begins. A key that begins so is
// encoded too, else it could be the text of another.
const displayString = `%"`

func plainKey(key string) bool {
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return false
		}
	}
	return key == strings.Trim(key, " ") && !strings.HasPrefix(key, displayString)
}

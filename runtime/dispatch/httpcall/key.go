package httpcall

import "strings"

// KeyText returns the idempotency key in the form for a header, or for gRPC metadata. A key
// of visible ASCII is not changed. Any other key (with other characters, with spaces at an
// end, which HTTP trims, or with the two characters %" at the beginning) is written as a
// Display String of RFC 9651 §3.3.8: %" and ", and between them the key's UTF-8 with each
// byte that is %, ", or not visible ASCII as % and two lowercase hex digits. Two keys never
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

// displayString begins the text of an encoded key. A key that begins like this is
// encoded too, because otherwise it could equal the text of another key.
const displayString = `%"`

func plainKey(key string) bool {
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return false
		}
	}
	return key == strings.Trim(key, " ") && !strings.HasPrefix(key, displayString)
}

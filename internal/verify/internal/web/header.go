package web

import (
	"net/http"
	"strings"

	"github.com/tgad/tgad/internal/verify"
)

// ReadHeaders reads a file of headers, "Name: value" a line, empty lines and # comments
// aside, and returns them with what must be hidden. Only its owner may have access. ""
// is no file. key is for errors, which never repeat a line.
func ReadHeaders(key, path string) (http.Header, verify.Secrets, error) {
	if path == "" {
		return nil, nil, nil
	}
	raw, err := verify.ReadSecret(key, path)
	if err != nil {
		return nil, nil, err
	}
	header, values := http.Header{}, []string(nil)
	n := 0
	for line := range strings.Lines(string(raw)) {
		n++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if !ok || !isName(name) || !isValue(value) || header.Get(name) != "" {
			return nil, nil, verify.Invalid(key, "%s:%d: want \"Name: value\", each name once", path, n)
		}
		header.Set(name, value)
		values = append(values, value)
	}
	return header, verify.NewSecrets(values...), nil
}

// isName reports whether s is a token of RFC 9110 §5.6.2.
func isName(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool {
		letter := 'a' <= r|0x20 && r|0x20 <= 'z'
		return !letter && (r < '0' || r > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	}) < 0
}

// isValue reports whether a header carries s: visible ASCII, spaces and tabs between.
func isValue(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool { return r != '\t' && (r < ' ' || r > '~') }) < 0
}

// Package secretfile reads files whose content is secret: tokens, passwords and headers. It
// defines who may have access to such a file, and the grammar of a headers file.
//
// Its errors have no code, and never repeat the content of a file.
//
// # Invariants
//
//	closed  a secret that others can read, or could have written, is not used   [Read]      TestWhoMayHaveAccess
//	silent  no error holds a part of the content                                [Headers]   TestHeadersAreChecked
//	                                                                            [Env]       TestVariablesAreChecked
package secretfile

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"

	"github.com/tgad/tgad/internal/access"
)

// MaxBytes is how long a file of secrets may be.
const MaxBytes = 64 << 10

// Read returns the content of a regular file of 1 to [MaxBytes] bytes that are not all blank. Its
// owner is this process's user or root. A group may read it (Kubernetes gives a secret mode 0440
// and the group of the pod) and not write it; others have no access.
func Read(path string) ([]byte, error) { return read(path, access.Of) }

func read(path string, judge func(fs.FileInfo) access.Finding) ([]byte, error) {
	f, info, err := access.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if found := judge(info); found.Refuse != "" {
		return nil, fmt.Errorf("%s: %s", path, found.Refuse)
	}
	if mode := info.Mode(); !mode.IsRegular() || mode.Perm()&0o027 != 0 {
		return nil, fmt.Errorf("%s has mode %v: want a file that its owner, or a group, can read, and nobody else: 0600 or 0640", path, mode)
	}
	raw, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(raw)) == 0 || len(raw) > MaxBytes {
		return nil, fmt.Errorf("%s: want 1 to %d bytes, not all blank", path, MaxBytes)
	}
	return raw, nil
}

// Headers reads a file of HTTP headers: one "Name: value" a line, each name once. It ignores
// empty lines and lines that begin with #. The names of the result are in canonical form. For
// the path "" it returns no headers.
func Headers(path string) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	raw, err := Read(path)
	if err != nil {
		return nil, err
	}
	headers, n := map[string]string{}, 0
	for line := range strings.Lines(string(raw)) {
		n++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if !ok || !isName(name) || !isValue(value) || headers[http.CanonicalHeaderKey(name)] != "" {
			return nil, fmt.Errorf("%s:%d: want \"Name: value\", each name once", path, n)
		}
		headers[http.CanonicalHeaderKey(name)] = value
	}
	return headers, nil
}

// Env reads a file of environment variables: one "NAME=value" a line, each name once. It ignores
// empty lines and lines that begin with #. A value is used as it is, without the white space
// around it: there are no quotes or escapes. For the path "" it returns no variables.
func Env(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	raw, err := Read(path)
	if err != nil {
		return nil, err
	}
	var all []string
	seen, n := map[string]bool{}, 0
	for line := range strings.Lines(string(raw)) {
		n++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || !isVariable(name) || seen[name] || strings.ContainsRune(value, 0) {
			return nil, fmt.Errorf("%s:%d: want NAME=value, each name once", path, n)
		}
		seen[name] = true
		all = append(all, name+"="+strings.TrimSpace(value))
	}
	return all, nil
}

// isVariable reports whether s is a POSIX name of an environment variable.
func isVariable(s string) bool {
	return s != "" && (s[0] < '0' || s[0] > '9') && strings.IndexFunc(s, func(r rune) bool {
		letter := 'a' <= r|0x20 && r|0x20 <= 'z'
		return !letter && (r < '0' || r > '9') && r != '_'
	}) < 0
}

// isName reports whether s is a token of RFC 9110 §5.6.2.
func isName(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool {
		letter := 'a' <= r|0x20 && r|0x20 <= 'z'
		return !letter && (r < '0' || r > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	}) < 0
}

// isValue reports whether s can be a header's value: visible ASCII, spaces and tabs.
func isValue(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool { return r != '\t' && (r < ' ' || r > '~') }) < 0
}

package config

import "regexp"

// hidden stands where a secret was.
const hidden = "***"

const secretWord = `(?:passw(?:or)?d|passphrase|secret|token|api[-_]?key|access[-_]?key|credential)`

var masks = []struct {
	is *regexp.Regexp
	by string
}{
	{regexp.MustCompile(`(?i)([\w.-]*` + secretWord + `[\w.-]*["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s&"',;}]+)`), "${1}" + hidden},
	{regexp.MustCompile(`(://[^/\s:@]*:)[^/\s@]+@`), "${1}" + hidden + "@"},
	{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[\w.~+/=-]+`), "${1} " + hidden},
	{regexp.MustCompile(`\b(?:sk|pk|rk|ghp|gho|ghs|github_pat|glpat|xox[abp])[-_][\w-]{8,}`), hidden},
}

var secretFlag = regexp.MustCompile(`(?i)^--?[\w-]*` + secretWord + `[\w-]*$`)

// Mask takes what looks like a secret out of a text: a password in an address, what follows a name
// such as token, and keys in the forms of well-known providers. The names of files that hold
// secrets stay.
func Mask(s string) string {
	for _, m := range masks {
		s = m.is.ReplaceAllStringFunc(s, func(found string) string {
			if fileKey.MatchString(found) {
				return found
			}
			return m.is.ReplaceAllString(found, m.by)
		})
	}
	return s
}

// fileKey is a key that names a file, and no secret.
var fileKey = regexp.MustCompile(`(?i)^[\w.-]*(?:file|path|dir|command|env|max_tokens)["']?\s*[=:]`)

// MaskWords is [Mask] for a command: a word after a flag such as --token is one too.
func MaskWords(words []string) []string {
	var out []string
	for i, w := range words {
		if i > 0 && secretFlag.MatchString(words[i-1]) {
			w = hidden
		}
		out = append(out, Mask(w))
	}
	return out
}

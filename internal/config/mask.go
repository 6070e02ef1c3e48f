package config

import "regexp"

// hidden replaces a secret.
const hidden = "***"

const secretWord = `(?:passw(?:or)?d|passphrase|secret|token|api[-_]?key|access[-_]?key|credential)`

var masks = []struct {
	is *regexp.Regexp
	by string
}{
	{regexp.MustCompile(`(?i)([\w.-]*` + secretWord + `[\w.-]*["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s&"',;}]+)`), "${1}" + hidden},
	{regexp.MustCompile(`(://[^/\s:"']*:)[^/\s"']+@`), "${1}" + hidden + "@"},
	{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[\w.~+/=-]+`), "${1} " + hidden},
	{regexp.MustCompile(`\b(?:sk|pk|rk|ghp|gho|ghs|github_pat|glpat|xox[abp])[-_][\w-]{8,}`), hidden},
}

var secretFlag = regexp.MustCompile(`(?i)^--?[\w-]*` + secretWord + `[\w-]*$`)

// Mask replaces everything in a text that looks like a secret: a password in an address, the value
// after a name such as token, and keys in the forms of well-known providers. It keeps the names of
// files that hold secrets.
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

var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// maskQuoted is [Mask] for the values that a message quotes.
func maskQuoted(message string) string { return quoted.ReplaceAllStringFunc(message, Mask) }

// fileKey matches a key whose value is the name of a file and not a secret.
var fileKey = regexp.MustCompile(`(?i)^[\w.-]*(?:file|path|dir|command|env|max_tokens)["']?\s*[=:]`)

// MaskWords is [Mask] for a command. It also replaces the word after a flag such as --token.
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

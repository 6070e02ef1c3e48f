package verify

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strings"

	"github.com/tgad/tgad/internal/secretfile"
)

// ReadSecret reads a file of secrets ([secretfile.Read]). key is for errors, which never repeat
// the content.
func ReadSecret(key, path string) ([]byte, error) {
	raw, err := secretfile.Read(path)
	if err != nil {
		return nil, Invalid(key, "%w", err)
	}
	return raw, nil
}

// Secrets are texts that must not appear in evidence.
type Secrets []string

// leastSecret is the length from which a text is hidden. Shorter texts count as no secret,
// and hiding them would blank out parts of ordinary words.
const leastSecret = 6

const hidden = "[hidden]"

// NewSecrets makes a set of the values, of their words ("Bearer …", the user and the
// password of a Basic login), and of the escaped forms in which an answer might echo them.
func NewSecrets(values ...string) Secrets {
	var all Secrets
	add := func(s string) {
		for _, form := range [...]string{s, url.QueryEscape(s), url.PathEscape(s), strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s)} {
			if len(form) >= leastSecret && !slices.Contains(all, form) {
				all = append(all, form)
			}
		}
	}
	for _, v := range values {
		add(v)
		for _, word := range strings.Fields(v) {
			add(word)
			if login, err := base64.StdEncoding.DecodeString(word); err == nil {
				if user, password, ok := strings.Cut(string(login), ":"); ok {
					add(string(login))
					add(user)
					add(password)
				}
			}
		}
	}
	// The longest first: replacing only a part of a secret would leave the rest visible.
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	return all
}

// Hide replaces every secret in a text.
func (s Secrets) Hide(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, hidden)
	}
	return text
}

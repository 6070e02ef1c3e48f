package web

import (
	"net/http"

	"github.com/tgad/tgad/internal/secretfile"
	"github.com/tgad/tgad/internal/verify"
)

// ReadHeaders reads a file of headers ([secretfile.Headers]) and returns them with the secrets that
// evidence must not contain. "" is no file. key is for errors.
func ReadHeaders(key, path string) (http.Header, verify.Secrets, error) {
	given, err := secretfile.Headers(path)
	if err != nil {
		return nil, nil, verify.Invalid(key, "%w", err)
	}
	if given == nil {
		return nil, nil, nil
	}
	header, values := http.Header{}, make([]string, 0, len(given))
	for name, value := range given {
		header.Set(name, value)
		values = append(values, value)
	}
	return header, verify.NewSecrets(values...), nil
}

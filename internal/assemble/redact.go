package assemble

import (
	"bytes"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/redact"
	"github.com/tgad/tgad/internal/secretfile"
	"github.com/tgad/tgad/schemas/tga"
)

// redactor makes the redactor of a configuration; nil if that has no key for one. A key inside the
// store is refused: whoever copies the store could use it to guess small redacted values.
func redactor(c *config.Config, store string) (*redact.Redactor, error) {
	if c.Redaction.KeyFile == "" {
		return nil, nil
	}
	path := c.Path(c.Redaction.KeyFile)
	if store != "" && access.Within(path, store) {
		return nil, tga.Errorf(tga.ValidationError, "redaction: the key %s lies in the store: who copies the store has it then. Put it elsewhere", path)
	}
	key, err := secretfile.Read(path)
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "redaction: %w", err)
	}
	r, err := redact.New(bytes.TrimRight(key, "\r\n"), c.RedactionOf)
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "redaction: %s: %w", path, err)
	}
	return r, nil
}

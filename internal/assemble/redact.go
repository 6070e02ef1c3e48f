package assemble

import (
	"bytes"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/redact"
	"github.com/tgad/tgad/internal/secretfile"
	"github.com/tgad/tgad/schemas/tga"
)

// redactor takes out of calls what a file says, nil where it has no key. A key inside of the
// store is refused: who copies the store could guess small values with it.
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

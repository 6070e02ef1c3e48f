package assemble

import (
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/keyring"
)

// Keyring opens the key ring that a file names, for the store in a directory, or for one in a database where store is ""; nil
// where it names none. Of a store in a database other processes have the ring too. The caller closes it after the store.
func Keyring(c *config.Config, store string) (*keyring.Ring, error) {
	k := c.Keyring
	if k.Path == "" {
		return nil, nil
	}
	return keyring.Open(c.Path(k.Path), keyring.Options{
		KEK:       keyring.KEK{File: c.Path(k.KEKFile), Command: k.KEKCommand, Socket: c.Path(k.KEKSocket), Timeout: k.KEKTimeout.D},
		BySubject: k.By == config.BySubject,
		Store:     store,
		Shared:    store == "",
	})
}

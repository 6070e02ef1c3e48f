package assemble

import (
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/keyring"
)

// Keyring opens the key ring that the configuration names; nil if it names none. store is the directory of the store, "" for one
// in a database; other processes may then have the ring open too. The caller closes the ring after the store.
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

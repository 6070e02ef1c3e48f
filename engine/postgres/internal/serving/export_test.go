package serving

import (
	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/internal/daemon"
)

// Served is a store as the daemon asks for it.
func Served(s *postgres.Store) daemon.Proving { return served{s, s.Fleet()} }

// Check is what tgad verify has of a store.
var Check = check

package serving

import (
	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/internal/daemon"
	"github.com/tgad/tgad/internal/evidence"
)

// Served is a store as the daemon asks for it.
func Served(s *postgres.Store) daemon.Proving { return served{s, s.Fleet(), ringed{}} }

// Tables are those of its evidence.
func Tables(s *postgres.Store) evidence.Tables { return tables{s.Fleet().Evidence()} }

// Check is what tgad verify has of a store.
var Check = check

package serving

import (
	"log/slog"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/internal/daemon"
	"github.com/tgad/tgad/internal/evidence"
)

// Served is a store as the daemon asks for it.
func Served(s *postgres.Store) daemon.Proving { return served{s, s.Fleet(), ringed{}} }

// All are all stores of a fleet as the daemon asks for them.
func All(a *postgres.AllStores) daemon.Store { return all{a, slog.New(slog.DiscardHandler)} }

// Tables are those of its evidence.
func Tables(s *postgres.Store) evidence.Tables { return tables{s.Fleet().Evidence()} }

// Check is what tgad verify has of a store.
var Check = check

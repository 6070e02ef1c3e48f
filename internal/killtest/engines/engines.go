// Package engines has the adapters of the kill test that need no dependencies beyond those of tgad: tgad with
// a store in a directory, an outbox in SQLite, and a loop that writes a file. The other engines are in a
// separate module, bench/adapters.
package engines

import "github.com/tgad/tgad/internal/killtest/adapter"

// Named are the adapters by the names that --store has for them.
func Named() map[string]adapter.Engine {
	return map[string]adapter.Engine{"dir": Tgad, "outbox": Outbox, "file": File}
}

package assemble

import (
	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/schemas/tga"
)

// StoreOptions are the options of the engine that a file sets.
func StoreOptions(c *config.Config) engine.Options {
	s := c.Store
	o := engine.Options{
		WitnessFile:   c.Path(s.WitnessFile),
		LowWaterBytes: uint64(s.LowWaterBytes.N), MemTableBytes: uint64(s.MemTableBytes.N), CacheBytes: s.CacheBytes.N,
		RewriteShare: s.RewriteShare,
	}
	if id, err := tga.ParseID(s.ID); err == nil { // "" means none; any other mistake was reported before
		o.StoreID = id
	}
	return o
}

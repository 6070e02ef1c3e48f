package config

import (
	"github.com/tgad/tgad/schemas/tga"
)

// Store is the part about the disk. Zero means the engine's default.
type Store struct {
	// ID pins the store: another one, a new one or none is refused.
	ID string `toml:"id"`
	// WitnessFile is a file on another disk, by which a store that was copied or rolled
	// back is recognised.
	WitnessFile string `toml:"witness_file"`

	LowWaterBytes Bytes `toml:"low_water_bytes"`
	MemTableBytes Bytes `toml:"memtable_bytes"`
	CacheBytes    Bytes `toml:"cache_bytes"`
	// RewriteShare is how much of the processors, in percent, the compression of the log may
	// take; -1 is none of it.
	RewriteShare int `toml:"rewrite_share"`
}

func (s *Store) check(r *report) {
	if s.ID != "" {
		if _, err := tga.ParseID(s.ID); err != nil {
			r.add("store.id", "%q: want the id that tgad init prints", s.ID)
		}
	}
	if s.RewriteShare < -1 || s.RewriteShare > 100 {
		r.add("store.rewrite_share", "%d: want 1 to 100, or -1 for none", s.RewriteShare)
	}
	for key, b := range map[string]Bytes{
		"low_water_bytes": s.LowWaterBytes, "memtable_bytes": s.MemTableBytes, "cache_bytes": s.CacheBytes,
	} {
		r.bytes("store."+key, b)
	}
}

package config

import "time"

// Backup is the part about the backup that the daemon keeps current by itself. Without To there is
// none.
type Backup struct {
	To    string   `toml:"to"`    // the directory
	Every Duration `toml:"every"` // between two backups of a store that grows; 10s
	Share int      `toml:"share"` // percent of the time that the work may take; 15
}

// On says whether there is anything to do.
func (b *Backup) On() bool { return b.To != "" }

// shortestBackup is the least time between two backups.
const shortestBackup = 100 * time.Millisecond

func (b *Backup) check(r *report, store *Store) {
	r.duration("backup.every", b.Every)
	r.count("backup.share", b.Share)
	if b.Every.D != 0 && b.Every.D < shortestBackup {
		r.add("backup.every", "%s: want %s or more", b.Every.D, shortestBackup)
	}
	if b.Share > 100 {
		r.add("backup.share", "%d: want 1 to 100", b.Share)
	}
	if b.On() && store.URL != "" {
		r.add("backup.to", "it is of a store in a directory, and [store] url names a database: back that up")
	}
}

func (b *Backup) fill() {
	if b.Every.D == 0 {
		b.Every.D = 10 * time.Second
	}
	if b.Share == 0 {
		b.Share = 15
	}
}

package config

import (
	"time"

	"github.com/tgad/tgad/internal/backup/bucket"
)

// Backup is the part about the backup that the daemon updates by itself. Without To there is none.
type Backup struct {
	To    string   `toml:"to"`    // a directory, or s3://BUCKET/PREFIX
	Every Duration `toml:"every"` // between two backups of a store that grows; 10s
	Share int      `toml:"share"` // percent of the time that the work may take; 15

	// For a bucket. What is absent comes from the environment.
	Spool           string `toml:"spool"`    // directory for the backup before it is uploaded; the store's path and ".spool"
	Endpoint        string `toml:"endpoint"` // URL of the service
	Region          string `toml:"region"`
	CredentialsFile string `toml:"credentials_file"`
	CAFile          string `toml:"ca_file"`
}

// Bucket says whether the backup goes to a bucket.
func (b *Backup) Bucket() bool { return bucket.Is(b.To) }

// On says whether the configuration asks for a backup.
func (b *Backup) On() bool { return b.To != "" }

// shortestBackup is the least time between two backups.
const shortestBackup = 100 * time.Millisecond

func (b *Backup) check(r *report, c *Config, by Builder) {
	r.duration("backup.every", b.Every)
	r.count("backup.share", b.Share)
	if b.Every.D != 0 && b.Every.D < shortestBackup {
		r.add("backup.every", "%s: want %s or more", b.Every.D, shortestBackup)
	}
	if b.Share > 100 {
		r.add("backup.share", "%d: want 1 to 100", b.Share)
	}
	b.checkBucket(r, c, by)
	if b.On() && c.Store.URL != "" {
		r.add("backup.to", "it is of a store in a directory, and [store] url names a database: back that up")
	}
}

// checkBucket checks the keys for a bucket.
func (b *Backup) checkBucket(r *report, c *Config, by Builder) {
	if !b.Bucket() {
		for key, value := range map[string]string{"spool": b.Spool, "endpoint": b.Endpoint, "region": b.Region, "credentials_file": b.CredentialsFile, "ca_file": b.CAFile} {
			if value != "" {
				r.add("backup."+key, "it is of a bucket, and to names none: want s3://BUCKET/PREFIX")
			}
		}
		return
	}
	if _, _, err := bucket.Parse(b.To); err != nil {
		r.add("backup.to", "%v", err)
	}
	if b.Endpoint != "" {
		r.url("backup.endpoint", b.Endpoint)
	}
	if by != nil {
		r.refused("backup.to", by.CheckBackup(c, b))
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

package assemble

import (
	"path/filepath"

	"github.com/tgad/tgad/internal/backup/bucket"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/optional"
)

// CheckBackup implements [config.Builder].
func (builder) CheckBackup(*config.Config, *config.Backup) error { return optional.HasBucket() }

// Bucket prepares the bucket at an address, with the other settings of [backup].
func Bucket(c *config.Config, address string) (bucket.Objects, error) {
	b := c.Backup
	return optional.Bucket(optional.BucketOptions{
		Address: address, Endpoint: b.Endpoint, Region: b.Region,
		CredentialsFile: c.Path(b.CredentialsFile), CAFile: c.Path(b.CAFile),
	})
}

// BackupPlace returns where the backup of the store in a directory goes by [backup], and its spool.
func BackupPlace(c *config.Config, data string) (to, spool string) {
	to, spool = c.Backup.To, c.Path(c.Backup.Spool)
	if !c.Backup.Bucket() {
		to = c.Path(to)
	}
	if spool == "" {
		spool = filepath.Clean(data) + ".spool"
	}
	return to, spool
}

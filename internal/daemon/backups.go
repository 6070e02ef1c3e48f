package daemon

import (
	"context"
	"time"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/backup"
	"github.com/tgad/tgad/internal/backup/bucket"
)

// openBackups prepares the backup of the table [backup]. It does so also if the configuration has no
// such table, because a reload may add it.
func (d *Daemon) openBackups(o Options) {
	if d.can.archive == nil || o.Data == "" || d.atRest {
		return
	}
	d.backups = backup.New(struct {
		Store
		archive
	}{d.db, d.can.archive}, backup.Options{
		Data: o.Data, Log: d.log, Clock: d.clock,
		Settings: func() backup.Settings {
			c := d.conf()
			to, spool := assemble.BackupPlace(c, o.Data)
			return backup.Settings{To: to, Spool: spool, Every: c.Backup.Every.D, Share: c.Backup.Share}
		},
		Bucket: func(address string) (bucket.Objects, error) { return assemble.Bucket(d.conf(), address) },
	})
}

// backedUp is the state of the backup; zero if none is kept.
func (d *Daemon) backedUp() backup.State {
	if d.backups == nil {
		return backup.State{}
	}
	return d.backups.State()
}

// keepBackups updates the backup until the daemon drains.
func (d *Daemon) keepBackups() {
	ctx, stop := d.untilDrain()
	defer stop()
	if d.awaitClassified(ctx) {
		d.backups.Run(ctx)
	}
}

// lastBackup is how long the last update of the backup may take.
const lastBackup = 10 * time.Second

// backUpLast updates the backup once more, when no call can append any more.
func (d *Daemon) backUpLast() {
	if d.backups == nil || !d.ready.Load() || d.db.Stats().Frozen != "" || d.db.Stats().Poisoned != "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastBackup)
	defer cancel()
	if err := d.backups.Last(ctx); err != nil {
		d.log.Error("the backup lacks what was appended last", "error", err)
	}
}

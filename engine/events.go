package engine

import (
	"errors"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// maxBackgroundErrors is how many flushes or compactions may fail, with none that
// succeeds between them, before the store is poisoned. On a full disk a flush fails
// thousands of times a second and appends block: better to stop and say so.
const maxBackgroundErrors = 16

// events listens to Pebble. The functions are called with Pebble's mutex held, so they
// call nothing of Pebble.
func (db *DB) events() *pebble.EventListener {
	var failures atomic.Int32 // in a row
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			db.stats.backgroundErrors.Add(1)
			db.log.Error("pebble: background work failed", "error", err)
			db.space.dropBallast(db.log)
			if failures.Add(1) < maxBackgroundErrors {
				return
			}
			if pebble.IsCorruptionError(err) {
				err = indexDamaged(err)
				if !db.readOnly {
					err = errors.Join(err, db.indexDir.spoil())
				}
			}
			db.health.poison(err)
			// Pebble would go on trying without a pause.
			db.health.endGoroutine()
		},
		FlushBegin: func(pebble.FlushInfo) { db.health.begun.Store(true) },
		FlushEnd: func(info pebble.FlushInfo) {
			if info.Err == nil {
				failures.Store(0)
				db.stats.flushes.Add(1)
			}
		},
		CompactionEnd: func(info pebble.CompactionInfo) {
			if info.Err == nil {
				failures.Store(0)
				db.stats.compactions.Add(1)
			}
		},
		WriteStallBegin: func(info pebble.WriteStallBeginInfo) {
			db.stats.stalls.Add(1)
			db.log.Warn("pebble: commits wait", "reason", info.Reason)
		},
		// A damaged block concerns the keys in it: the read that met it returns the
		// error, and the trace it belongs to is reported. The default ends the process.
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			db.stats.corruptions.Add(1)
			db.log.Error("pebble: damaged data", "path", info.Path, "error", indexDamaged(info.Details))
		},
	}
}

func (db *DB) slowDisk(info vfs.DiskSlowInfo) {
	db.stats.slowWrites.Add(1)
	db.log.Warn("slow disk", "info", info.String())
}

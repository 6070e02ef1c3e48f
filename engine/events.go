package engine

import (
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// maxBackgroundErrors is how many flushes or compactions may fail, with none that
// succeeds between them, before the store is poisoned. On a full disk a flush fails
// thousands of times a second and appends block: better to stop and say so.
const maxBackgroundErrors = 16

// listener hears what Pebble and the disk under it say.
type listener struct {
	log    *slog.Logger
	health *health
	stats  *counters
	space  *space
	spoil  func() error // says on the disk that the index is damaged; nil where nothing is written
}

func (o *opening) listener() *listener {
	l := &listener{log: o.log, health: &o.health, stats: &o.stats, space: &o.space}
	if !o.readOnly {
		l.spoil = o.indexDir().spoil
	}
	return l
}

// events listens to Pebble. The functions are called with Pebble's mutex held, so they
// call nothing of Pebble.
func (l *listener) events() *pebble.EventListener {
	var failures atomic.Int32 // in a row
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			l.stats.backgroundErrors.Add(1)
			l.log.Error("pebble: background work failed", "error", err)
			l.space.dropBallast(l.log)
			if failures.Add(1) < maxBackgroundErrors {
				return
			}
			if pebble.IsCorruptionError(err) {
				err = indexDamaged(err)
				if l.spoil != nil {
					err = errors.Join(err, l.spoil())
				}
			}
			l.health.poison(err)
			// Pebble would go on trying without a pause.
			l.health.endGoroutine()
		},
		FlushBegin: func(pebble.FlushInfo) { l.health.begun.Store(true) },
		FlushEnd: func(info pebble.FlushInfo) {
			if info.Err == nil {
				failures.Store(0)
				l.stats.flushes.Add(1)
			}
		},
		CompactionEnd: func(info pebble.CompactionInfo) {
			if info.Err == nil {
				failures.Store(0)
				l.stats.compactions.Add(1)
			}
		},
		WriteStallBegin: func(info pebble.WriteStallBeginInfo) {
			l.stats.stalls.Add(1)
			l.log.Warn("pebble: commits wait", "reason", info.Reason)
		},
		// A damaged block concerns the keys in it: the read that met it returns the
		// error, and the trace it belongs to is reported. The default ends the process.
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			l.stats.corruptions.Add(1)
			l.log.Error("pebble: damaged data", "path", info.Path, "error", indexDamaged(info.Details))
		},
	}
}

func (l *listener) slowDisk(info vfs.DiskSlowInfo) {
	l.stats.slowWrites.Add(1)
	l.log.Warn("slow disk", "info", info.String())
}

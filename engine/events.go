package engine

import (
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// maxBackgroundErrors is how many flushes or compactions may fail in a row before the store
// is poisoned. On a full disk a flush fails thousands of times a second and appends block.
// Poisoning ends that and reports it.
const maxBackgroundErrors = 16

// listener handles the events of Pebble and of the disk under it.
type listener struct {
	log    *slog.Logger
	health *health
	stats  *counters
	space  *space
	spoil  func() error // marks the index on disk as damaged; nil if the store is not written to
}

func (o *opening) listener() *listener {
	l := &listener{log: o.log, health: &o.health, stats: &o.stats, space: &o.space}
	if !o.readOnly {
		l.spoil = o.indexDir().spoil
	}
	return l
}

// events returns the listener for Pebble. Pebble calls these functions with its mutex held, so
// they must not call Pebble.
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
			// Otherwise Pebble would retry without a pause.
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
		// A damaged block concerns only its keys: the read that found it returns the error,
		// and its trace is reported. Pebble's default would end the process.
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

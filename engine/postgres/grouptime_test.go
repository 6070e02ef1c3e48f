package postgres_test

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestAppendsOfAGroupShareTheirTime: many appends are one transaction, and no standby is there that it waits for. Each of them is
// answered when the patience of the store is over, and not after the looks for all others, each with a patience of its own.
func TestAppendsOfAGroupShareTheirTime(t *testing.T) {
	p := migrated(t)
	s := open(t, pgserver.DSN(p), postgres.Options{Committers: 1, Patience: time.Second, Lease: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	const appends = 60
	var builders [appends]*storetest.Builder
	var leases [appends]chain.Lease
	for i := range appends {
		builders[i], leases[i] = begun(t, s)
	}
	connected(t, p, s)
	if err := p.SyncStandbys("ghost"); err != nil {
		t.Fatal(err)
	}
	var answered atomic.Int64
	for i := range appends {
		go func() {
			if _, err := s.Append(bg, leases[i], builders[i].End(tga.StatusSuccess)); tga.CodeOf(err) != tga.StoreUnavailable {
				t.Errorf("append: %v, and no standby has it", err)
			}
			answered.Add(1)
		}()
	}
	until(t, fmt.Sprint(appends, " answers"), func() bool { return answered.Load() == appends })
	if err := p.SyncStandbys(""); err != nil {
		t.Fatal(err)
	}
}

package postgres_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// TestSessionThatAnotherHasIsNotShared: a standby that was not synchronous is promoted, and lacks the session of a process. Another
// process gets the same number there. The first one notices, and takes no trace that the other has.
func TestSessionThatAnotherHasIsNotShared(t *testing.T) {
	primary, standby := pair(t)
	if err := primary.SyncStandbys(""); err != nil {
		t.Fatal(err)
	}
	if err := standby.Stop(); err != nil { // it hears of nothing more
		t.Fatal(err)
	}
	o := postgres.Options{Lease: time.Minute, Patience: time.Minute, Logger: slog.New(slog.DiscardHandler)}
	o.Name = "a"
	a := open(t, pgserver.DSN(primary, standby), o)
	primary.Kill()
	if err := standby.Start(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(); err != nil {
		t.Fatal(err)
	}
	o.Name = "b"
	b := open(t, pgserver.DSN(standby), o)
	x, lease := begun(t, b)
	if a.Holder(x.TraceID) == ledger.HolderGone {
		t.Error("the process counts the other as gone")
	}
	ctx, cancel := context.WithTimeout(bg, 2*time.Second)
	defer cancel()
	if _, err := a.Acquire(ctx, x.TraceID); tga.CodeOf(err) != tga.StateLockAcquireFailed {
		t.Errorf("the lease of the other: %v", err)
	}
	if _, err := b.Append(bg, lease, x.End(tga.StatusSuccess)); err != nil {
		t.Errorf("append of the other: %v", err)
	}
	if mine, other := a.Fleet().Stats().Session, b.Fleet().Stats().Session; mine == other {
		t.Errorf("both have session %d", mine)
	}
	begun(t, a)
}

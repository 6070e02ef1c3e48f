package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/evidence/monitor"
)

// stopping is a source that interrupts its caller.
type stopping struct{ stop context.CancelFunc }

func (s stopping) Checkpoint(ctx context.Context) ([]byte, [][]byte, error) {
	s.stop()
	return nil, nil, ctx.Err()
}

func (stopping) Evidence(context.Context, io.Writer, int64, int64, []byte) error {
	return errors.New("nothing was signed")
}

func (stopping) Tile(context.Context, string) ([]byte, error) {
	return nil, errors.New("nothing was signed")
}

// TestInterruptedMonitorHasNotCheckedAll: if monitor --once is interrupted, its exit code says so. Without
// --once an interrupt is its regular end.
func TestInterruptedMonitorHasNotCheckedAll(t *testing.T) {
	dir := t.TempDir()
	code, public, errs := says("evidence", "keygen", "shop.example/tgad", "-o", filepath.Join(dir, "key"))
	if code != 0 {
		t.Fatal(errs)
	}
	for once, want := range map[bool]int{true: cli.ExitInterrupted, false: cli.ExitOK} {
		ctx, cancel := context.WithCancel(t.Context())
		m, err := monitor.Open(stopping{cancel}, monitor.Options{Key: strings.TrimSpace(public), State: filepath.Join(dir, "state")})
		if err != nil {
			t.Fatal(err)
		}
		a := proving{&app{Streams: cli.Streams{Out: io.Discard, Err: io.Discard}}}
		err = a.follow(ctx, m, time.Hour, once, slog.New(slog.DiscardHandler))
		if got := cli.ExitCode(err); got != want {
			t.Errorf("once %v: exit code %d (%v), want %d", once, got, err, want)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

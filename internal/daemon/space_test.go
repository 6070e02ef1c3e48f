package daemon

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/testlog"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// TestLowWaterIsSaid: a daemon that refuses new calls because the disk is nearly full is not
// ready, says why, and has a line in its log.
func TestLowWaterIsSaid(t *testing.T) {
	b := setup(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	var log testlog.Buffer
	o := b.options()
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	o.Tune = func(e *engine.Options) { e.LowWaterBytes = 1 << 62 }
	up, done := make(chan struct{}), make(chan error, 1)
	o.Ready = func() { close(up) }
	go func() { done <- Run(ctx, o) }()
	<-up
	b.client = client.New(b.socket, client.Options{Name: "test"})
	defer b.client.Close()
	_, err := b.client.Call(t.Context(), charge("k"))
	wantCode(t, err, tga.StoreUnavailable)
	if err := b.client.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "low-water mark") {
		t.Errorf("/readyz says %v", err)
	}
	for until := time.Now().Add(10 * time.Second); !strings.Contains(log.String(), "the disk is nearly full"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("the log says\n%s", log.String())
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

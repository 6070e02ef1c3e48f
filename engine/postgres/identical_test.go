package postgres_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// halted is a store that calls first before the first append that writes a value beside the log.
type halted struct {
	runtime.Store
	first func()
}

// Append implements [runtime.Store].
func (h *halted) Append(ctx context.Context, lease chain.Lease, b chain.Batch) (chain.Appended, error) {
	if slices.ContainsFunc(b.Attachments, func(a chain.Attachment) bool { return a.Kind == chain.AttachStream }) {
		h.first()
	}
	return h.Store.Append(ctx, lease, b)
}

// TestIdenticalCallsAtTwoProcesses: while one process decides about a call without a key, or notes that such a call's answer was
// delivered, an identical call begins at another process. That one waits, and knows the first call.
func TestIdenticalCallsAtTwoProcesses(t *testing.T) {
	request := func(conn string) runtime.BeginRequest {
		return runtime.BeginRequest{
			Request: runtime.Request{Server: "payments", Tool: "charge", Args: []byte(`{"a":1}`)}, BeginID: conn,
			Connection: runtime.Connection{ID: conn},
		}
	}
	for name, delivers := range map[string]bool{"a begin": false, "a delivery": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, shard := database(t)
			tools := &outside{sends: map[string]int{}}
			two := governed(t, open(t, dsn, postgres.Options{Shard: shard}), tools)
			ctx, cancel := context.WithTimeout(bg, time.Minute)
			defer cancel()
			type begun struct {
				runtime.Begun
				error
			}
			second := make(chan begun, 1)
			h := &halted{Store: open(t, dsn, postgres.Options{Shard: shard})}
			h.first = sync.OnceFunc(func() {
				go func() {
					b, err := two.Begin(ctx, request("two"))
					second <- begun{b, err}
				}()
				select {
				case b := <-second:
					t.Errorf("the other process does not wait: %s, %v", b.Standing, b.error)
					second <- b
				case <-time.After(time.Second):
				}
			})
			one, wants := governed(t, h, tools), runtime.BeginWait
			if delivers {
				wants = runtime.BeginSend // it is a new call
				first, err := two.Begin(ctx, request("one"))
				if err == nil {
					_, err = two.Finish(ctx, first.Result.TraceID, first.Permit, runtime.Finished{Reply: runtime.Reply{Status: tga.StatusSuccess}})
				}
				if err == nil {
					err = one.Delivered(ctx, first.Result.TraceID)
				}
				if err != nil {
					t.Fatal(err)
				}
			} else if b, err := one.Begin(ctx, request("one")); err != nil || b.Standing != runtime.BeginSend {
				t.Fatalf("the first begin: %s, %v", b.Standing, err)
			}
			b := <-second
			if b.error != nil || b.Standing != wants {
				t.Errorf("the other begin: %s, %v; want %s", b.Standing, b.error, wants)
			}
			if b, err := two.Begin(ctx, request("three")); err != nil || b.Standing != runtime.BeginWait {
				t.Errorf("a third begin: %s, %v; want that it waits", b.Standing, err)
			}
		})
	}
}

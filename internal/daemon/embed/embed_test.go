package embed

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// TestProcessesShareAStore: the first has the daemon, the others use it, and when it goes
// one of them takes over.
func TestProcessesShareAStore(t *testing.T) {
	dir, err := os.MkdirTemp("", "tgad-embed-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx := context.Background()
	var all []*Daemon
	for range 3 {
		e, err := Start(ctx, filepath.Join(dir, "store"), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	if all[0].Socket != all[2].Socket {
		t.Fatalf("sockets %s, %s", all[0].Socket, all[2].Socket)
	}
	// The first one's way is a short one until it goes, the last one's only then.
	ways := []*client.Client{all[0].Client(client.Options{}), all[2].Client(client.Options{}), client.New(all[0].Socket, client.Options{})}
	begin := func(c *client.Client, key string) runtime.Begun {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
			b, err := c.Begin(ctx, runtime.BeginRequest{BeginID: "b" + key, Request: runtime.Request{Server: "s", Tool: "t", Args: []byte("{}"), Key: key}})
			// Who takes the store over looks at each open trace first, and holds it meanwhile.
			held := err == nil && b.Standing == runtime.BeginWait && errors.Is(b.Cause, tga.StateLockAcquireFailed)
			if err == nil && !held {
				return b
			}
			if !held && !errors.Is(err, tga.StoreUnavailable) || time.Now().After(end) {
				t.Fatal(b.Standing, b.Cause, err)
			}
		}
	}
	first := begin(ways[0], "1")
	if first.Standing != runtime.BeginSend {
		t.Fatalf("standing %s, %v", first.Standing, first.Cause)
	}
	for _, e := range all {
		// Whoever is left, the permit of the first daemon is good, and the same begin is it.
		for i, c := range ways {
			if again := begin(c, "1"); again.Permit != first.Permit || again.Attempt != 1 {
				t.Errorf("way %d: again %+v", i, again)
			}
		}
		e.Close()
	}
	for _, c := range ways {
		c.Close()
	}
}

func TestLongPathsHaveASocketElsewhere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 30))
	t.Setenv("XDG_RUNTIME_DIR", "/run/x")
	socket, err := socketOf(dir)
	if err != nil || !strings.HasPrefix(socket, "/run/x/tgad-mcp/") || len(socket) > 60 {
		t.Errorf("socket %s, %v", socket, err)
	}
	if socket, err = socketOf("/tmp"); err != nil || socket != "/tmp/run/tgad.sock" {
		t.Errorf("socket %s, %v", socket, err)
	}
}

// TestAloneSharesItsStoreWithNobody: who starts with the store beside it reaches nobody, as its rules are
// not theirs, and it does not start beside them. When it is over the store is theirs.
func TestAloneSharesItsStoreWithNobody(t *testing.T) {
	dir, err := os.MkdirTemp("", "tgad-embed-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	store, ctx := filepath.Join(dir, "store"), t.Context()
	alone, err := Alone(ctx, store, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	own := alone.Client(client.Options{})
	defer own.Close()
	if err := own.Ready(ctx); err != nil {
		t.Error(err)
	}
	beside, err := Start(ctx, store, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := beside.Client(client.Options{})
	defer c.Close()
	if err := c.Ready(ctx); err == nil {
		t.Error("another process is served by the rules of this one")
	}
	if _, err := Alone(ctx, store, nil, nil); !errors.Is(err, tga.StateLockAcquireFailed) {
		t.Errorf("a second one started: %v", err)
	}
	alone.Close()
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		if err := c.Ready(ctx); err == nil {
			break
		} else if time.Now().After(until) {
			t.Fatal(err)
		}
	}
	if _, err := Alone(ctx, store, nil, nil); !errors.Is(err, tga.StateLockAcquireFailed) {
		t.Errorf("it started beside others: %v", err)
	}
	beside.Close()
}

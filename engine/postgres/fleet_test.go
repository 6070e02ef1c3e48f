package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// outside is a tool server that counts what reaches it.
type outside struct {
	mu    sync.Mutex
	sends map[string]int
	hold  time.Duration
}

// Dispatch implements [runtime.Dispatcher].
func (o *outside) Dispatch(_ context.Context, call runtime.Call) (runtime.Reply, error) {
	o.mu.Lock()
	o.sends[call.Key]++
	o.mu.Unlock()
	time.Sleep(o.hold)
	return runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{"ok":true}`)}, nil
}

func (o *outside) of(key string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sends[key]
}

// governed is a runtime on a store of its own connections, as a process of a fleet has it.
func governed(t testing.TB, s runtime.Store, tools runtime.Dispatcher) *runtime.Runtime {
	t.Helper()
	rt, err := runtime.New(s, tools, runtime.AllowAll, runtime.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

// TestOneSendPerKey: the same keys arrive at two processes at once. Each is sent once, and both
// get the one answer.
func TestOneSendPerKey(t *testing.T) {
	dsn, shard := database(t)
	tools := &outside{sends: map[string]int{}}
	keys := 50
	if !testing.Short() {
		keys = 500
	}
	var replicas []*runtime.Runtime
	for range 2 {
		replicas = append(replicas, governed(t, open(t, dsn, postgres.Options{Shard: shard}), tools))
	}
	ctx, cancel := context.WithTimeout(bg, 2*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	next := make(chan string)
	for i := range 16 {
		wg.Go(func() {
			for key := range next {
				res, err := replicas[i%2].Call(ctx, runtime.Request{Server: "payments", Tool: "charge", Key: key})
				if err != nil || res.State != tga.Completed || string(res.Value) != `{"ok":true}` {
					t.Errorf("%s: %v %q, %v", key, res.State, res.Value, err)
				}
			}
		})
	}
	for i := range keys {
		for range 4 {
			next <- fmt.Sprint("key ", i)
		}
	}
	close(next)
	wg.Wait()
	for i := range keys {
		if n := tools.of(fmt.Sprint("key ", i)); n != 1 {
			t.Errorf("key %d was sent %d times", i, n)
		}
	}
}

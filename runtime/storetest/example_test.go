package storetest_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/memstore"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// counted is an example of a store of your own. It keeps everything in another store, and counts
// the appends. A store that keeps data itself implements every method of runtime.Store.
type counted struct {
	runtime.Store
	appended atomic.Int64
}

func (s *counted) Append(ctx context.Context, lease chain.Lease, b chain.Batch) (chain.Appended, error) {
	done, err := s.Store.Append(ctx, lease, b) // it is on disk now, or nothing of it counts
	if err == nil && !done.Replayed {
		s.appended.Add(int64(len(b.Artifacts)))
	}
	return done, err
}

// TestCounted shows how to test a store: each claim of the suite gets an empty store. Reopen
// ends the store like a crash, and opens it again.
func TestCounted(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Harness {
		disk := new(memstore.Disk)
		open := func() runtime.Store { return &counted{Store: memstore.Open(disk, time.Now)} }
		return storetest.Harness{Store: open(), Reopen: open}
	})
}

// A runtime can use every store that passes Run.
func ExampleRun() {
	store := &counted{Store: memstore.Open(new(memstore.Disk), time.Now)}
	sent := 0
	send := func(context.Context, runtime.Call) (runtime.Reply, error) {
		sent++
		return runtime.Reply{Status: tga.StatusSuccess}, nil
	}
	rt, err := runtime.New(store, runtime.DispatcherFunc(send), runtime.AllowAll, runtime.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 { // the second is served from the record
		res, err := rt.Call(context.Background(), runtime.Request{Server: "payments", Tool: "charge", Key: "order-1"})
		fmt.Println(res.State, err)
	}
	fmt.Println("sent", sent, "appended", store.appended.Load()) // request, decision, call and effect of each
	// Output:
	// COMPLETED <nil>
	// COMPLETED <nil>
	// sent 1 appended 8
}

package evidence_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/evidence"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// A program with a store of its own signs checkpoints of it. The caller of a tool gets a receipt,
// which proves later that the store had the call, and an auditor gets a file.
func Example() {
	dir, err := os.MkdirTemp("", "tgad-evidence-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if err := prove(context.Background(), dir); err != nil {
		fmt.Println(err)
	}
	// Output:
	// COMPLETED
	// 2 appends, 0 pending, in a checkpoint of payments.example/tgad
	// the other disk has it too: true
	// proved
}

func prove(ctx context.Context, dir string) (err error) {
	store, key, outside := filepath.Join(dir, "store"), filepath.Join(dir, "key"), filepath.Join(dir, "checkpoint")
	public, err := evidence.NewKey("payments.example/tgad", key) // once; auditors get public
	if err != nil {
		return err
	}
	db, err := engine.Open(store, engine.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	k, err := evidence.Open(ctx, db, store, key, evidence.Options{Files: []string{outside}, Every: 10 * time.Millisecond})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }() // before the store
	charge := func(context.Context, runtime.Call) (runtime.Reply, error) {
		return runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{"receipt":17}`)}, nil
	}
	rt, err := runtime.New(db, runtime.DispatcherFunc(charge), runtime.AllowAll, runtime.Options{Receipt: k.Receipt})
	if err != nil {
		return err
	}
	res, err := rt.Call(ctx, runtime.Request{Server: "payments", Tool: "charge", Key: "order-1", Args: []byte(`{"amount":100}`)})
	if err != nil {
		return err
	}
	fmt.Println(res.State)
	r, err := rt.Receipt(ctx, res.TraceID)
	for err == nil && r.Pending > 0 { // until the next checkpoint
		time.Sleep(time.Millisecond)
		r, err = rt.Receipt(ctx, res.TraceID)
	}
	if err != nil {
		return err
	}
	origin, _, _ := strings.Cut(r.Checkpoint, "\n")
	fmt.Printf("%d appends, %d pending, in a checkpoint of %s\n", len(r.Leaves), r.Pending, origin)
	var file strings.Builder
	if err := k.Export(ctx, &file, res.TraceID); err != nil {
		return err
	}
	for raw := []byte{}; len(raw) == 0; time.Sleep(time.Millisecond) { // it gets there a moment later
		if raw, err = os.ReadFile(outside); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	fmt.Println("the other disk has it too: true")
	return verify(file.String(), public) // as tgad evidence verify FILE --key PUBLIC does
}

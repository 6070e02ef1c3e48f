// Command embed is the smallest gateway: one governed call on a store of its own.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// charge stands for the tool server. It returns runtime.ErrNotSent when it is certain
// that the call did not reach it, and any other error when it cannot tell.
func charge(_ context.Context, c runtime.Call) (runtime.Reply, error) {
	fmt.Printf("charging %s under key %s\n", c.Args, c.Key)
	return runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{"receipt":17}`)}, nil
}

func run(ctx context.Context, dir string) error {
	db, err := engine.Open(dir, engine.Options{})
	if err != nil {
		return err
	}
	defer func() { log.Print("closed: ", db.Close()) }()
	rt, err := runtime.New(db, runtime.DispatcherFunc(charge), runtime.AllowAll, runtime.Options{})
	if err != nil {
		return err
	}
	if _, err := rt.RecoverAll(ctx, 8); err != nil { // what a crash left behind, first
		return err
	}
	res, err := rt.Call(ctx, runtime.Request{
		Server: "payments", Tool: "charge", Key: "order-1", Args: []byte(`{"amount":100}`),
	})
	if err != nil { // EFFECT_IN_DOUBT, IDEMPOTENCY_KEY_CONFLICT, …
		return err
	}
	fmt.Printf("%s: %s\n", res.State, res.Value)
	return res.Err()
}

// main keeps its store in the directory that it is given, or in one of this user's in the
// directory for temporary files. Run it twice: the second answer comes from the record.
func main() {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("tgad-embed-%d", os.Getuid()))
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	if err := run(context.Background(), dir); err != nil {
		log.Fatal(err)
	}
}

package hostdir_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tgad/tgad/runtime/workstate/hostdir"
)

// A directory goes back to what it was when a snapshot was taken. The snapshots are in a git repository beside it.
func ExampleOpen() {
	if err := run(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// notes.txt M
	// draft
}

func run() error {
	ctx := context.Background()
	at, err := os.MkdirTemp("", "hostdir")
	if err != nil {
		return err
	}
	defer os.RemoveAll(at)
	notes := filepath.Join(at, "work", "notes.txt")
	if err := os.Mkdir(filepath.Dir(notes), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(notes, []byte("draft\n"), 0o600); err != nil {
		return err
	}
	dir, err := hostdir.Open(ctx, filepath.Dir(notes), filepath.Join(at, "snapshots"), hostdir.Options{})
	if err != nil {
		return err
	}
	defer dir.Close()
	before, err := dir.Snapshot(ctx)
	if err != nil {
		return err
	}
	if err := os.WriteFile(notes, []byte("a tool was here\n"), 0o600); err != nil {
		return err
	}
	after, err := dir.Snapshot(ctx)
	if err != nil {
		return err
	}
	changes, err := dir.Diff(ctx, before, after)
	if err != nil {
		return err
	}
	for _, c := range changes {
		fmt.Printf("%s %c\n", c.Path, c.Status)
	}
	if err := dir.Restore(ctx, before); err != nil {
		return err
	}
	text, err := os.ReadFile(notes)
	fmt.Print(string(text))
	return err
}

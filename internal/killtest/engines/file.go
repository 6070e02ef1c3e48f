package engines

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tgad/tgad/internal/killtest/adapter"
)

// File does what much hand-written code does: if no file says that the call was made, it makes the call with
// a few attempts, and then writes the file.
var File = adapter.Engine{
	Name: "retry loop that writes a file",
	Start: func(_ context.Context, dir string, world adapter.World) (adapter.Worker, error) {
		return &loop{dir, world}, nil
	},
}

type loop struct {
	dir   string
	world adapter.World
}

func (l *loop) Call(ctx context.Context, key string, amount int) (a adapter.Answer, err error) {
	if a, err = l.Status(ctx, key); err != nil || a.Outcome == adapter.Completed {
		return a, err
	}
	for wait := 10 * time.Millisecond; ; wait *= 2 {
		if a.Receipt, err = adapter.Charge(ctx, l.world, key, amount); err == nil {
			break
		}
		if wait > 100*time.Millisecond {
			return adapter.Answer{}, fmt.Errorf("after some attempts: %w", err)
		}
		time.Sleep(wait)
	}
	a.Outcome = adapter.Completed
	return a, l.write(key, a)
}

func (l *loop) Status(_ context.Context, key string) (a adapter.Answer, err error) {
	raw, err := os.ReadFile(l.path(key))
	if errors.Is(err, os.ErrNotExist) {
		return adapter.Answer{Outcome: adapter.Unknown}, nil
	} else if err != nil {
		return a, err
	}
	return a, json.Unmarshal(raw, &a)
}

func (l *loop) path(key string) string { return filepath.Join(l.dir, key+".json") }

// write replaces the file atomically, after its content is on the disk.
func (l *loop) write(key string, a adapter.Answer) error {
	raw, err := json.Marshal(a)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(l.dir, "part-")
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), l.path(key))
}

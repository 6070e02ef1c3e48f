package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/wal"
)

// TestBackupRests: a copy rests for as long as it works, and reads and writes the same bytes.
func TestBackupRests(t *testing.T) {
	fs := vfs.NewMem()
	f, err := fs.Create("from", vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write(make([]byte, 4<<20))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	// Each look at the clock is a millisecond later: every fifth step has worked a slice.
	now, rested, worked := time.Unix(0, 0), time.Duration(0), time.Duration(0)
	pace := &pacer{rest: 1, now: func() time.Time {
		now, worked = now.Add(time.Millisecond), worked+time.Millisecond
		return now
	}, sleep: func(_ context.Context, d time.Duration) { rested += d }}
	paced := pacedFS{fs, t.Context(), pace}
	plain, err := wal.CopyFile(t.Context(), fs, "from", "plain", 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := wal.CopyFile(t.Context(), paced, "from", "to", 4<<20)
	if err != nil || digest != plain {
		t.Errorf("%x, want %x, %v", digest, plain, err)
	}
	if worked < 100*time.Millisecond || rested < worked*8/10 || rested > worked {
		t.Errorf("worked %s, rested %s", worked, rested)
	}
	if vfs.Root(paced) != vfs.Root(fs) {
		t.Error("it is another file system")
	}
}

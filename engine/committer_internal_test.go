package engine

import (
	"context"
	"testing"
	"time"

	"github.com/tgad/tgad/wal/chain"
)

// TestGroupWaitsForNobodyWhoDoesNotCome: the committer lets calls that are about to append do so first, and
// goes on without them if none has appended.
func TestGroupWaitsForNobodyWhoDoesNotCome(t *testing.T) {
	db := inMemory(t)
	db.commits.coming.Add(1) // somebody who waits for a lock, say
	defer db.commits.coming.Add(-1)
	done := make(chan error, 1)
	go func() {
		w := db.commits.newWriter()
		w.set([]byte("mx"), []byte("a value"))
		done <- db.commits.apply(w)
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the group waits for ever")
	}
}

// TestWhoIsComingIsCounted: once its batch is queued or refused, nobody is coming any more.
func TestWhoIsComingIsCounted(t *testing.T) {
	db := inMemory(t)
	id := numbered(1, 1)
	lease, err := db.Acquire(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	note := chain.Batch{Notes: []chain.NewNote{{Kind: "remark", Who: "tester", Body: []byte(`{}`)}}}
	for range 3 {
		if _, err := db.admit(context.Background(), parts{{lease: lease, batch: note}}); err == nil {
			t.Fatal("a note of a trace that is not there was taken")
		}
	}
	if n := db.commits.coming.Load(); n != 0 {
		t.Errorf("%d are coming", n)
	}
}

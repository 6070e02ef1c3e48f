package runtime_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestArchivedKeysAreKnownWithoutTheIndex archives every trace, deletes the index and calls with
// every key again. Each call gets its recorded answer, and nothing reaches the tool server.
func TestArchivedKeysAreKnownWithoutTheIndex(t *testing.T) {
	b := setup(t, park)
	b.tool.answer = func(n int, _ runtime.Call) (runtime.Reply, error) {
		if n%3 == 0 {
			return runtime.Reply{Status: tga.StatusFailure, ErrorMessage: fmt.Sprint("refused ", n)}, nil
		}
		return ok(fmt.Sprintf(`{"charge":%d}`, n)), nil
	}
	const calls = 30
	var first []runtime.Result
	for i := range calls {
		first = append(first, b.mustCall(charge(fmt.Sprint("key-", i))))
	}
	b.advance(time.Hour)
	if done, err := b.db.SealTraces(t.Context(), tga.MillisOf(b.clock())); err != nil || done.Traces != calls {
		t.Fatalf("%+v %v", done, err)
	}
	b.close()
	if err := os.RemoveAll(filepath.Join(b.dir, "index")); err != nil {
		t.Fatal(err)
	}
	b.open()
	for i, was := range first {
		is := b.mustCall(charge(fmt.Sprint("key-", i)))
		if is.ServedFrom != was.TraceID || string(is.Value) != string(was.Value) || is.Status != was.Status || is.ErrorMessage != was.ErrorMessage {
			t.Errorf("key %d: %+v, was %+v", i, is, was)
		}
	}
	b.wantSends(calls)
}

package turn_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// filesWith lists the files under a directory that contain a text.
func filesWith(t *testing.T, fs vfs.FS, dir, text string) (found []string) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		if info, err := fs.Stat(path); err != nil {
			continue // the file is gone
		} else if info.IsDir() {
			found = append(found, filesWith(t, fs, path, text)...)
			continue
		}
		f, err := fs.Open(path)
		if err != nil {
			continue
		}
		b, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte(text)) {
			found = append(found, path)
		}
	}
	return found
}

// TestErasedInvocation: all parts of an invocation are found, whichever of its turns is named:
// its turns, the turns of its delegate, its questions and calls. After the erasure nothing of it
// is in the store, it is not begun again, and its session goes on. Another invocation stays.
func TestErasedInvocation(t *testing.T) {
	const secret = "nobody-reads-this-anywhere"
	for _, ring := range []engine.Keyring{nil, new(chaintest.Ring)} {
		w := newWorld(t, delegating(turn.Delegation{Type: turn.Supervisor}), func(w *world) { w.ring = ring })
		first := w.run(`call ask {"message":"call echo {\"s\":\"` + secret + `\"}"}`)
		second, err := w.r.Run(t.Context(), turn.Request{Agent: "helper", SessionID: "other", Message: []byte(`call echo {"s":"this stays"}`)})
		if err != nil {
			t.Fatal(err)
		}
		if found := filesWith(t, w.disk, "store", secret); (found == nil) != (ring != nil) {
			t.Errorf("sealed %v: it stands in %v", ring != nil, found)
		}
		exists := func(ctx context.Context, id tga.ID) (bool, error) {
			_, err := w.db.Load(ctx, id)
			if errors.Is(err, tga.NotFound) {
				return false, nil
			}
			return err == nil, err
		}
		parts := func(id tga.ID) (turns, traces []tga.ID) {
			t.Helper()
			turns, traces, err := turn.Parts(t.Context(), w.db, id, exists)
			if err != nil {
				t.Fatal(err)
			}
			return turns, traces
		}
		turns, traces := parts(first.InteractionID)
		all := 0
		for _, err := range w.db.Traces(t.Context(), tga.ID{}) {
			if all++; err != nil {
				t.Fatal(err)
			}
		}
		others, theirs := parts(second.InvocationID)
		if len(turns) != 4 || len(traces) != all-len(theirs) || len(others) != 2 || len(theirs) != 3 {
			t.Errorf("%d turns, %d of %d traces; of the other invocation %d, %d", len(turns), len(traces), all, len(others), len(theirs))
		}
		for _, id := range turns {
			if got, _ := parts(id); id != turns[2] && id != turns[3] && !slices.Equal(got, turns) {
				t.Errorf("named by %s: %v, want %v", id, got, turns)
			}
		}
		what := engine.Erasure{Turns: turns, Traces: traces, Who: "operator", Reason: "r"}
		done, err := w.db.Erase(t.Context(), what)
		if err != nil || done.Turns != 4 || done.Traces != len(traces) {
			t.Fatalf("erased %+v, %v", done, err)
		}
		for range 2 {
			if found := filesWith(t, w.disk, "store", secret); found != nil {
				t.Errorf("sealed %v: it stands in %v", ring != nil, found)
			}
			asked := len(w.out.requests)
			_, err = w.r.Run(t.Context(), turn.Request{Agent: "helper", SessionID: "s", InteractionID: first.InvocationID, Message: []byte("done again")})
			if tga.CodeOf(err) != tga.IdempotencyKeyExpired || len(w.out.requests) != asked {
				t.Errorf("begun again: %v, %d questions", err, len(w.out.requests)-asked)
			}
			if _, err := w.r.Records(t.Context(), first.InteractionID); tga.CodeOf(err) != tga.IdempotencyKeyExpired {
				t.Errorf("its records: %v", err)
			}
			if res := w.run("done more"); res.Status != turn.Completed {
				t.Errorf("its session: %+v", res)
			}
			if _, err := w.r.Records(t.Context(), second.InteractionID); err != nil {
				t.Errorf("another's records: %v", err)
			}
			w.restart()
		}
	}
}

// failing is a reader that reads one stream, and then fails.
type failing struct {
	runtime.AttachmentReader
	left int
	t    *testing.T
}

func (f *failing) Attachments(ctx context.Context, kind chain.AttachmentKind, prefix []byte) iter.Seq2[chain.Attachment, error] {
	f.left--
	switch {
	case f.left >= 0:
		return f.AttachmentReader.Attachments(ctx, kind, prefix)
	case f.left < -100:
		f.t.Fatal("it goes on for ever")
	}
	return func(yield func(chain.Attachment, error) bool) {
		yield(chain.Attachment{}, tga.Errorf(tga.StoreUnavailable, "the disk is gone"))
	}
}

// TestPartsOfAStoreThatFails: the search ends with the store's error wherever it fails.
func TestPartsOfAStoreThatFails(t *testing.T) {
	w := newWorld(t, delegating(turn.Delegation{Type: turn.Supervisor}))
	res := w.run(`call ask {"message":"call echo {}"}`)
	exists := func(context.Context, tga.ID) (bool, error) { return false, nil }
	n := 0
	for ; ; n++ {
		turns, _, err := turn.Parts(t.Context(), &failing{w.db, n, t}, res.InvocationID, exists)
		if err == nil {
			if len(turns) != 4 {
				t.Errorf("turns %v", turns)
			}
			break
		}
		if !errors.Is(err, tga.StoreUnavailable) {
			t.Errorf("after %d streams: %v", n, err)
		}
	}
	if n < 5 {
		t.Errorf("it reads %d streams", n)
	}
}

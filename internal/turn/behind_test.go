package turn_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/schemas/tga"
)

// TestReadBehindAFailedCallCounts: a call reads what a call before it has read and then failed,
// and sets what follows from it. While the turn waits, another turn changes what was read. The
// turn's state is refused, as it is if nothing failed before the call.
func TestReadBehindAFailedCallCounts(t *testing.T) {
	for _, before := range []string{"", "call peek {}\n"} {
		w := newWorld(t, func(w *world) {
			w.supervisor = asks("late")
			w.tool("late", func(context.Context, string) (string, error) { return "{}", nil })
			w.tool("peek", func(ctx context.Context, _ string) (string, error) {
				v, _ := turn.StateFrom(ctx)
				_, err := v.Get("n")
				return "", errors.Join(err, errors.New("no"))
			})
			w.tool("copy", func(ctx context.Context, _ string) (string, error) {
				v, _ := turn.StateFrom(ctx)
				n, err := v.Get("n")
				if err != nil {
					return "", err
				}
				return "{}", v.Set("copy", n, 0)
			})
		})
		w.run("call count {}")
		res := w.run(before + "call copy {}\ncall late {}")
		w.run("call count {}")
		if err := approvals["settle"](w, res.Waiting); err != nil {
			t.Fatal(err)
		}
		end, err := w.r.Resume(t.Context(), res.InteractionID)
		if err != nil || end.Status != turn.Unsuccessful || end.Failure.Code != tga.GenericStateError {
			t.Errorf("%q: %+v, %v", before, end, err)
		}
		if got := w.read("copy"); got["copy"] != nil {
			t.Errorf("%q: copy is %s, of what n no longer is", before, got["copy"])
		}
	}
}

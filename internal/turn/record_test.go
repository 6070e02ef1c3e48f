package turn_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/schemas/tga"
)

// TestCountsOfTokensAreBounded: a model's server gives counts that are none. Negative ones give the
// session no tokens, and ones that are too large to be recorded do not keep the turn from its end.
func TestCountsOfTokensAreBounded(t *testing.T) {
	for _, c := range []struct{ total, want int64 }{{-1000, 0}, {1<<53 + 1, 1<<53 - 1}} {
		var left []int64
		w := newWorld(t, func(w *world) {
			w.agents[0].Constraints.MaxTokens = 1 << 53
			w.options = func(o *turn.Options) { o.Tokens = func(message.Message) int { return 0 } }
			w.say = func(q turn.Question) (turn.Answer, error) {
				left = append(left, *q.Parameters.MaxTokens)
				a, err := obedient(q)
				a.Usage = turn.Usage{Input: c.total, Output: c.total, Total: c.total}
				return a, err
			}
		})
		res := w.run("done x")
		if res.Status != turn.Completed || res.Usage.Total != c.want {
			t.Errorf("%d: %+v", c.total, res)
		}
		if w.run("done y"); len(left) != 2 || left[1] != 1<<53-c.want {
			t.Errorf("%d: answers may have %v tokens", c.total, left)
		}
	}
}

// TestDeepValuesAreRecorded: a tool's schema, and a value of the state, as deep as they may be. The
// records of the turn put more around them.
func TestDeepValuesAreRecorded(t *testing.T) {
	deep := strings.Repeat(`{"a":`, tga.DefaultMaxDepth) + "1" + strings.Repeat("}", tga.DefaultMaxDepth)
	w := newWorld(t, func(w *world) {
		w.tool("dig", func(ctx context.Context, _ string) (string, error) {
			v, _ := turn.StateFrom(ctx)
			return "{}", v.Set("deep", json.RawMessage(deep), 0)
		})
		w.defs[len(w.defs)-1].InputSchema = json.RawMessage(deep)
	})
	if res := w.run("call dig {}"); res.Status != turn.Completed {
		t.Errorf("%+v, %v", res.Status, res.Failure)
	}
	if got := w.read("deep"); string(got["deep"]) != deep {
		t.Errorf("the state has %s", got)
	}
}

// TestRecordThatCannotBeStoredFailsTheTurn: the turn ends, and does not stay open for ever.
func TestRecordThatCannotBeStoredFailsTheTurn(t *testing.T) {
	w := newWorld(t, func(w *world) {
		seed := int64(1<<53 + 1) // no double has it
		w.agents[0].Model.Parameters.Seed = &seed
	})
	if res := w.run("done x"); res.Status != turn.Unsuccessful || res.Failure.Code != tga.ValidationError {
		t.Errorf("%+v, %v", res.Status, res.Failure)
	}
	if open, err := w.r.OpenTurns(t.Context()); err != nil || len(open) != 0 {
		t.Errorf("open: %v, %v", open, err)
	}
}

package daemon

import (
	"context"
	"errors"
	"testing"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestQuestionThatCannotBeReadIsNamed: the key of one question cannot be had. Whoever asks what waits for people is
// told the others and which one that is, and the count has all of them.
func TestQuestionThatCannotBeReadIsNamed(t *testing.T) {
	ring := new(chaintest.Ring)
	b := setup(t, "[[rule]]\ndecision = \"NEEDS_APPROVAL\"\n")
	var s *sharedStore
	b.open = func(_ context.Context, o Options) (Store, error) {
		options := assemble.StoreOptions(o.Config)
		options.Keyring = ring
		db, err := engine.Open(b.data, options)
		s = &sharedStore{directory: directory{DB: db}}
		return s, err
	}
	b.start()
	var traces []tga.ID
	for _, key := range []string{"a", "b"} {
		res, err := b.client.Call(t.Context(), charge(key))
		wantCode(t, err, tga.EscalationRequired)
		traces = append(traces, res.TraceID)
	}
	lost, err := s.Load(t.Context(), traces[0])
	if err != nil {
		t.Fatal(err)
	}
	ring.Lost = lost.Key
	list, err := b.client.Approvals(t.Context())
	var unread runtime.UnreadApprovals
	if !errors.As(err, &unread) || len(unread) != 1 || unread[0].TraceID != traces[0] || unread[0].Code != tga.StoreUnavailable || len(list) != 1 || list[0].TraceID != traces[1] {
		t.Errorf("%+v, %v", list, err)
	}
	if n := b.scrape("tgad_approvals_pending"); n != 2 {
		t.Errorf("%v are counted", n)
	}
	ring.Lost = 0
	if list, err := b.client.Approvals(t.Context()); err != nil || len(list) != 2 {
		t.Errorf("%+v, %v", list, err)
	}
}

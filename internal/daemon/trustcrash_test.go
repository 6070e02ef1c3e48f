package daemon

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// killed runs f against a daemon in a process of its own, kills that with SIGKILL, and
// starts another on the same store.
func (b *bench) killed(f func(ctx context.Context)) {
	b.t.Helper()
	cmd := b.command(nil)
	f(b.t.Context())
	if err := cmd.Process.Kill(); err != nil {
		b.t.Fatal(err)
	}
	_ = cmd.Wait() // killed: it has no good exit
	b.client.Close()
	b.start()
}

// patient is a context that waits for a lease: the recovery of a start may have it.
func (b *bench) patient() context.Context {
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	b.t.Cleanup(cancel)
	return ctx
}

// end follows a trace until it is terminal.
func (b *bench) end(trace tga.ID) runtime.Result {
	b.t.Helper()
	for _, err := range b.client.Entries(b.t.Context(), trace, 0, true) {
		if err != nil {
			b.t.Fatal(err)
		}
	}
	res, err := b.client.Recover(b.patient(), trace)
	if err != nil {
		b.t.Fatal(err)
	}
	return res
}

// TestPendingApprovalSurvivesAKill: the request waits on, with the votes it has; one more
// sends it, once.
func TestPendingApprovalSurvivesAKill(t *testing.T) {
	b := setup(t, "[[rule]]\ndecision = \"NEEDS_APPROVAL\"\n")
	var waiting runtime.Result
	b.killed(func(ctx context.Context) {
		var err error
		waiting, err = b.client.Call(ctx, charge("k"))
		wantCode(t, err, tga.EscalationRequired)
	})
	list, err := b.client.Approvals(t.Context())
	if err != nil || len(list) != 1 || list[0].TraceID != waiting.TraceID || list[0].Kind != wire.KindDecision {
		t.Fatalf("approvals %+v %v", list, err)
	}
	if n := b.tool.sends("k"); n != 0 {
		t.Errorf("%d sends before it was approved", n)
	}
	res, err := b.client.Decide(b.patient(), waiting.TraceID, wire.DecideRequest{Approve: true, Rationale: "the invoice was checked"})
	if err != nil || res.State != tga.Completed || b.tool.sends("k") != 1 {
		t.Errorf("%+v %v, %d sends", res, err, b.tool.sends("k"))
	}
}

// TestExpiryOfAnApprovalSurvivesAKill: nobody decides, and the next daemon records that it
// is too late.
func TestExpiryOfAnApprovalSurvivesAKill(t *testing.T) {
	b := setup(t, "[[rule]]\ndecision = \"NEEDS_APPROVAL\"\nwithin = \"1s\"\n")
	var waiting runtime.Result
	b.killed(func(ctx context.Context) {
		var err error
		waiting, err = b.client.Call(ctx, charge("k"))
		wantCode(t, err, tga.EscalationRequired)
	})
	if res := b.end(waiting.TraceID); res.State != tga.Denied {
		t.Errorf("%+v", res)
	}
	if n := b.tool.sends("k"); n != 0 || b.scrape("tgad_approvals_expired_total") != 1 || b.scrape("tgad_approvals_pending") != 0 {
		t.Errorf("%d sends, %v expired, %v pending", n, b.scrape("tgad_approvals_expired_total"), b.scrape("tgad_approvals_pending"))
	}
}

// TestPendingConfirmationSurvivesAKill: the question about the record waits on, and its
// answer ends what waited for it.
func TestPendingConfirmationSurvivesAKill(t *testing.T) {
	s := newShop(t)
	b := setup(t, s.config(`replay = "human"`))
	var first, waiting runtime.Result
	b.killed(func(ctx context.Context) {
		var err error
		if first, err = b.client.Call(ctx, book("k")); err != nil {
			t.Fatal(err)
		}
		s.remove("item-1")
		waiting, err = b.client.Call(ctx, replay("k"))
		wantCode(t, err, tga.ConfirmationRequired)
	})
	list, err := b.client.Approvals(t.Context())
	if err != nil || len(list) != 1 || list[0].TraceID != first.TraceID || !slices.Contains(list[0].Waiting, waiting.TraceID) {
		t.Fatalf("approvals %+v %v", list, err)
	}
	if raw, err := b.client.Evidence(t.Context(), list[0].EvidenceDigest, first.TraceID); err != nil || len(raw) == 0 {
		t.Errorf("evidence %s %v", raw, err)
	}
	// The recovery of a start looks too, and may ask what is being answered.
	for state := tga.Authorized; !state.Terminal(); {
		_, err := b.client.Decide(b.patient(), first.TraceID, wire.DecideRequest{Rationale: "the booking is really gone"})
		if err != nil && !errors.Is(err, tga.StateInvalidTransition) {
			t.Fatal(err)
		}
		timeline, err := b.client.Trace(t.Context(), waiting.TraceID)
		if err != nil {
			t.Fatal(err)
		}
		if state, err = tga.ParseState(timeline.Call.State); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if res := b.end(waiting.TraceID); res.State != tga.Failed || res.ErrorCode != tga.ConfirmationMismatch {
		t.Errorf("what waited: %+v", res)
	}
	if tried, _, _ := s.counts("k"); tried != 1 {
		t.Errorf("%d sends", tried)
	}
}

// TestDueQuestionSurvivesAKill: the shop booked and lost the acknowledgement, and cannot
// say so to the first daemon, nor to the second when it starts. It is asked on.
func TestDueQuestionSurvivesAKill(t *testing.T) {
	s := newShop(t)
	s.lose()
	s.blind = func(int) bool { return true }
	b := setup(t, s.config(""))
	var doubtful runtime.Result
	b.killed(func(ctx context.Context) {
		var err error
		doubtful, err = b.client.Call(ctx, book("k"))
		wantCode(t, err, tga.EffectInDoubt)
		s.set(func() {
			known := s.asked
			s.blind = func(n int) bool { return n <= known+3 }
		})
	})
	if res := b.end(doubtful.TraceID); res.State != tga.Completed || string(res.Value) != booked("item-1") {
		t.Errorf("%+v", res)
	}
	if tried, standing, _ := s.counts("k"); tried != 1 || standing != 1 {
		t.Errorf("%d requests, %d bookings", tried, standing)
	}
}

// TestDueRetrySurvivesAKill: the shop did nothing and said so; the new attempt that was due
// is made by the next daemon, once, under the same key.
func TestDueRetrySurvivesAKill(t *testing.T) {
	s := newShop(t)
	s.booking = busyOnce
	b := setup(t, s.config(`retry = { attempts = 3, first = "1s", max = "1s" }`))
	b.killed(func(ctx context.Context) {
		res, err := b.client.Call(ctx, book("k"))
		if err != nil || res.State != tga.Failed || res.Class.String() != "retryable_failure" {
			t.Fatalf("%+v %v", res, err)
		}
	})
	for {
		if _, standing, _ := s.counts("k"); standing > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if res, err := b.client.Call(t.Context(), book("k")); err != nil || res.State != tga.Completed {
		t.Errorf("%+v %v", res, err)
	}
	if tried, standing, _ := s.counts("k"); tried != 2 || standing != 1 || b.scrape("tgad_retries_total") != 1 {
		t.Errorf("%d requests, %d bookings, %v retries", tried, standing, b.scrape("tgad_retries_total"))
	}
}

// busyOnce refuses the first request with a key as not executed.
func busyOnce(n int, w http.ResponseWriter, _ func() string) bool {
	if n == 1 {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	return n == 1
}

// TestDrainLetsATimersCallEnd: a new attempt that a timer makes is under way when the daemon
// is told to stop. It comes to its end, and is no doubt.
func TestDrainLetsATimersCallEnd(t *testing.T) {
	s := newShop(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	s.booking = func(n int, w http.ResponseWriter, book func() string) bool {
		if busyOnce(n, w, book) {
			return true
		}
		close(arrived)
		<-release
		io.WriteString(w, book())
		return true
	}
	b := start(t, s.config(`retry = { attempts = 1, first = "10ms", max = "10ms" }`))
	if res, err := b.client.Call(t.Context(), book("k")); err != nil || res.State != tga.Failed {
		t.Fatalf("%+v %v", res, err)
	}
	<-arrived
	b.client.Close()
	b.cancel()
	for b.client.Healthy(context.Background()) == nil { // the listener closes once it drains
		time.Sleep(time.Millisecond)
	}
	close(release)
	b.stop()
	b.start()
	res, err := b.client.Call(t.Context(), book("k"))
	if tried, standing, _ := s.counts("k"); err != nil || res.State != tga.Completed || tried != 2 || standing != 1 {
		t.Errorf("%+v %v: %d requests, %d bookings", res, err, tried, standing)
	}
	if s.asked != 0 {
		t.Error("it was in doubt: the shop was asked")
	}
}

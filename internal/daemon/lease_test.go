package daemon

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// TestExpiredLeaseReleases: a holder that does not renew loses the lease to a waiting peer. Its later
// appends are refused, and a repeat of an earlier one is answered from the log.
func TestExpiredLeaseReleases(t *testing.T) {
	b := start(t, "")
	c := mintChain(t, "k", nil)
	first, err := b.client.Lease(t.Context(), c.trace, 300*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.Append(t.Context(), c.trace, appending(first.Lease, c.request)); err != nil {
		t.Fatal(err)
	}
	_, err = b.client.Lease(t.Context(), c.trace, time.Minute)
	wantCode(t, err, tga.StateLockAcquireFailed)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	second, err := b.client.Lease(ctx, c.trace, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if second.Lease == first.Lease || second.Epoch == first.Epoch {
		t.Errorf("leases %+v and %+v", first, second)
	}
	_, err = b.client.Append(t.Context(), c.trace, appending(first.Lease, c.decision))
	wantCode(t, err, tga.StateConcurrentExecution)
	if done, err := b.client.Append(t.Context(), c.trace, appending(first.Lease, c.request)); err != nil || !done.Replayed {
		t.Errorf("the append that was made: %+v %v", done, err)
	}
	_, err = b.client.Renew(t.Context(), first, time.Minute)
	wantCode(t, err, tga.StateConcurrentExecution)
	if done, err := b.client.Append(t.Context(), c.trace, appending(second.Lease, c.decision)); err != nil || done.Head.Seq != 2 {
		t.Errorf("the new holder: %+v %v", done, err)
	}
	if r, err := b.client.Release(t.Context(), first); err != nil || r.Released {
		t.Errorf("a release of what is gone: %+v %v", r, err)
	}
	// The daemon's own loop waits its turn like everybody.
	_, err = b.client.Recover(t.Context(), c.trace)
	wantCode(t, err, tga.StateLockAcquireFailed)
	if r, err := b.client.Release(t.Context(), second); err != nil || !r.Released {
		t.Errorf("release: %+v %v", r, err)
	}
}

// TestEndedLeasesAreRememberedWithinABound: the daemon remembers as many ended leases as may be held. For a forgotten token it gives the same
// answer as for a token that never existed: no lease has it.
func TestEndedLeasesAreRememberedWithinABound(t *testing.T) {
	b := start(t, "[limits]\nleases = 2\n")
	c := mintChain(t, "k", nil)
	var ended []wire.Lease
	for range 3 {
		l, err := b.client.Lease(t.Context(), c.trace, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.client.Release(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		ended = append(ended, l)
	}
	for i, want := range []tga.Code{tga.StateLockAcquireFailed, tga.StateConcurrentExecution, tga.StateConcurrentExecution} {
		_, err := b.client.Append(t.Context(), c.trace, appending(ended[i].Lease, c.request))
		wantCode(t, err, want)
		if strings.Contains(err.Error(), "no lease has this token") != (i == 0) {
			t.Errorf("lease %d: %v", i, err)
		}
	}
}

// TestRenewedLeaseLives: a renewed lease does not end at its old end.
func TestRenewedLeaseLives(t *testing.T) {
	b := start(t, "")
	c := mintChain(t, "k", nil)
	lease, err := b.client.Lease(t.Context(), c.trace, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	renewed, err := b.client.Renew(t.Context(), lease, time.Hour)
	if err != nil || renewed.Lease != lease.Lease || renewed.Epoch != lease.Epoch || renewed.Expires <= lease.Expires {
		t.Errorf("renewed %+v of %+v: %v", renewed, lease, err)
	}
	if _, err := b.client.Append(t.Context(), c.trace, c.begin(lease.Lease)); err != nil {
		t.Error(err)
	}
}

// TestAppendIsAnsweredTwice: the same append again is answered from the log, one by one
// and in a batch, with the entries that it made.
func TestAppendIsAnsweredTwice(t *testing.T) {
	b := start(t, "")
	c := mintChain(t, "k", nil)
	lease, err := b.client.Lease(t.Context(), c.trace, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	var first [2]wire.Appended
	appends := [2]func(string) wire.AppendRequest{c.begin, c.end}
	for i, m := range appends {
		if first[i], err = b.client.Append(t.Context(), c.trace, m(lease.Lease)); err != nil {
			t.Fatal(err)
		}
	}
	before := b.scrape("tgad_commits_total")
	for i, m := range appends {
		again, err := b.client.Append(t.Context(), c.trace, m(""))
		want := first[i]
		want.Replayed = true
		if err != nil || first[i].Replayed || !reflect.DeepEqual(again, want) {
			t.Errorf("again %+v %v, want %+v", again, err, want)
		}
	}
	if after := b.scrape("tgad_commits_total"); after != before {
		t.Errorf("%v commits for nothing", after-before)
	}
	raw, _, err := b.client.Document(t.Context(), c.trace, tga.PointerResult)
	if err != nil || string(raw) != string(c.answer) {
		t.Errorf("the document is %q %v", raw, err)
	}
}

// TestTraceThatGrowsIsVerified: an append that comes while a trace is verified is no fault of the trace.
func TestTraceThatGrowsIsVerified(t *testing.T) {
	b, s := startShared(t, "")
	c := mintChain(t, "k", nil)
	lease, err := b.client.Lease(t.Context(), c.trace, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.Append(t.Context(), c.trace, appending(lease.Lease, c.request)); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.listed = func() { // the note that names the peer names the new entry too
		if _, err := b.client.Append(t.Context(), c.trace, appending(lease.Lease, c.decision)); err != nil {
			t.Error(err)
		}
	}
	s.mu.Unlock()
	for entries := 1; entries <= 2; entries++ {
		if v, err := b.client.Verify(t.Context(), c.trace); err != nil || !v.OK || v.Entries != entries {
			t.Errorf("%+v, %v, want %d entries", v, err, entries)
		}
	}
}

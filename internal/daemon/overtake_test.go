package daemon

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestPeersLeaseHoldsNobodyUp: a peer with append takes the leases of traces that it may not append to,
// for the longest possible time. Resolving, abandoning and voting still work without a wait. After
// that its lease is over, and it cannot renew it.
func TestPeersLeaseHoldsNobodyUp(t *testing.T) {
	b := startForPeers(t, "[[rule]]\ntool = \"asked\"\ndecision = \"NEEDS_APPROVAL\"\n[[rule]]\ndecision = \"APPROVE\"\n[approval]\nself = false\n")
	w := &rawWorld{bench: b}
	b.tool.loses()
	const admin, voter = 2004, 2003
	for _, x := range []struct {
		name string
		uid  uint32
		typ  tga.ArtifactType
		verb string
		body string
	}{
		{"ran", admin, tga.EffectType, "resolve", `{"status":"SUCCESS","result":{"seen":true},"evidence":"line 7"}`},
		{"not run", admin, tga.EffectType, "resolve", `{"status":"FAILURE","outcome_class":"retryable_failure","evidence":"line 7"}`},
		{"abandon", admin, tga.EffectType, "abandon", `{"reason":"nobody knows"}`},
		{"vote", voter, tga.DecisionType, "decide", `{"approve":true,"rationale":"looked at it, fine"}`},
		{"deny", voter, tga.DecisionType, "decide", `{"approve":false,"rationale":"looked at it, not fine"}`},
	} {
		c := w.in(runtime.OfProcess, 0, x.typ)
		path := "/v1/traces/" + c.trace.String()
		held := b.as(2002, peerGID, []ask{{Method: "POST", Path: path + "/lease", Body: `{"ttl_ms":3600000}`}})[0]
		if held.Status != http.StatusOK {
			t.Fatalf("%s: the lease: %s", x.name, held.Answer)
		}
		start := time.Now()
		got := b.as(x.uid, peerGID, []ask{{Method: "POST", Path: path + "/" + x.verb, Body: x.body}})[0]
		if got.Status != http.StatusOK {
			t.Errorf("%s: %d %s after %v", x.name, got.Status, got.Answer, time.Since(start))
		}
		token := struct{ Lease string }{}
		must(t, held.Answer, &token)
		for range 2 { // the second time, too, the daemon remembers that there was such a lease
			renewed := b.as(2002, peerGID, []ask{{Method: "POST", Path: path + "/lease:renew", Body: `{"lease":"` + token.Lease + `"}`}})[0]
			if renewed.Code != string(tga.StateConcurrentExecution) {
				t.Errorf("%s: renewed afterwards: %d %s", x.name, renewed.Status, renewed.Answer)
			}
		}
	}
}

// TestSenderByItselfIsAliveWhileItHoldsTheLease: a resolution that says that a peer's own call did not run
// is refused while that peer holds the lease, and accepted afterwards. A resolution that says that it
// ran is accepted at once.
func TestSenderByItselfIsAliveWhileItHoldsTheLease(t *testing.T) {
	b := start(t, "")
	ctx := t.Context()
	notRun := runtime.Resolution{Reply: runtime.Reply{Status: tga.StatusFailure, Class: ledger.ClassRetryable}, Evidence: []byte("line 7")}
	ran := runtime.Resolution{Reply: runtime.Reply{Status: tga.StatusSuccess}, Evidence: []byte("line 8")}
	for _, releases := range []bool{false, true} {
		c := mintChain(t, "k", nil)
		if releases {
			c = mintChain(t, "k2", nil)
		}
		lease, err := b.client.Lease(ctx, c.trace, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.client.Append(ctx, c.trace, c.begin(lease.Lease)); err != nil {
			t.Fatal(err)
		}
		_, err = b.client.Resolve(ctx, c.trace, notRun)
		wantCode(t, err, tga.StateLockAcquireFailed)
		if !releases {
			if res, err := b.client.Resolve(ctx, c.trace, ran); err != nil || res.State != tga.Completed {
				t.Errorf("%+v %v", res, err)
			}
			_, err = b.client.Append(ctx, c.trace, c.end(lease.Lease)) // its own word comes late
			wantCode(t, err, tga.StateConcurrentExecution)
			continue
		}
		if _, err := b.client.Release(ctx, lease); err != nil {
			t.Fatal(err)
		}
		notRun.Attempts = 2 // of which there is one
		_, err = b.client.Resolve(ctx, c.trace, notRun)
		wantCode(t, err, tga.StateConcurrentExecution)
		notRun.Attempts = 1
		if res, err := b.client.Resolve(ctx, c.trace, notRun); err != nil || res.State != tga.Failed {
			t.Errorf("%+v %v", res, err)
		}
	}
}

// TestForeignLeaseGivesNoStanding: a peer with append leases a trace that is not its own, for the longest
// possible time. The daemon and the peer that made the call work on it as if nobody held it: a lease is
// a sign of life only for a call that its holder sends itself.
func TestForeignLeaseGivesNoStanding(t *testing.T) {
	b := startForPeers(t, "[[rule]]\ndecision = \"APPROVE\"\n")
	w := &rawWorld{bench: b}
	b.tool.loses()
	ctx := t.Context()
	const admin, holder, sender = 2004, 2002, 2008
	notRun := ask{Method: "POST", Body: `{"status":"FAILURE","outcome_class":"retryable_failure","evidence":"line 7"}`}
	leased := func(uid uint32, trace tga.ID) {
		t.Helper()
		if got := b.as(uid, peerGID, []ask{{Method: "POST", Path: "/v1/traces/" + trace.String() + "/lease", Body: `{"ttl_ms":3600000}`}})[0]; got.Status != http.StatusOK {
			t.Fatalf("the lease: %s", got.Answer)
		}
	}
	as := func(uid uint32, a ask, path string) ask {
		a.Path = path
		return b.as(uid, peerGID, []ask{a})[0]
	}

	doubt := w.in(runtime.OfProcess, 0, tga.EffectType)
	leased(holder, doubt.trace)
	if _, err := b.client.Recover(ctx, doubt.trace); tga.CodeOf(err) != tga.EffectInDoubt {
		t.Errorf("recover: %v", err)
	}

	begun, err := b.client.Begin(ctx, runtime.BeginRequest{Request: runtime.Request{Server: "remote", Tool: "charge", Key: "begun"}, BeginID: "b-1"})
	if err != nil || begun.Standing != runtime.BeginSend {
		t.Fatalf("%+v %v", begun, err)
	}
	leased(holder, begun.Result.TraceID)
	if res, err := b.client.Finish(ctx, begun.Result.TraceID, begun.Permit, runtime.Finished{Reply: runtime.Reply{Status: tga.StatusSuccess}}); err != nil || res.State != tga.Completed {
		t.Errorf("finish: %+v %v", res, err)
	}

	// A call that another peer sends by itself: that peer's lease counts, and no other's.
	for _, c := range []struct {
		name string
		uid  uint32
		want int
	}{{"a third peer holds it", holder, http.StatusOK}, {"its sender holds it", sender, http.StatusLocked}} {
		own := w.raw(sender, tga.EffectType)
		leased(c.uid, own.trace)
		if got := as(admin, notRun, "/v1/traces/"+own.trace.String()+"/resolve"); got.Status != c.want {
			t.Errorf("%s: not run: %d %s", c.name, got.Status, got.Answer)
		}
	}

	// Its sender takes it at once, and other peers keep each other out as before.
	own := w.raw(sender, tga.EffectType)
	leased(holder, own.trace)
	if got := as(holder, ask{Method: "POST", Body: `{}`}, "/v1/traces/"+own.trace.String()+"/lease"); got.Status != http.StatusLocked {
		t.Errorf("a second lease that is as weak: %d %s", got.Status, got.Answer)
	}
	leased(sender, own.trace)
}

func must(t *testing.T, answer string, to any) {
	t.Helper()
	if err := json.Unmarshal([]byte(answer), to); err != nil {
		t.Fatalf("%s: %v", answer, err)
	}
}

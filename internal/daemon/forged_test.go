package daemon

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/capability"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// TestForgedEffectLicensesNothing is an attack by a peer with read and append: to a call in doubt that
// the daemon sent, it appends a definite failure, and then requests a new attempt.
func TestForgedEffectLicensesNothing(t *testing.T) {
	b := startForPeers(t, "")
	w := &rawWorld{bench: b}
	b.tool.loses()
	c := w.in(runtime.OfProcess, 0, tga.EffectType)
	key := c.request.Request.IdempotencyKey
	for _, batch := range []bool{false, true} {
		if code := w.appendAs(2002, c.trace, batch, appending("", c.effect)); code != string(tga.PermissionDenied) {
			t.Errorf("the forged effect: %q", code)
		}
	}
	got := b.as(2002, peerGID, []ask{{
		Method: "POST", Path: "/v1/tool-calls", Body: fmt.Sprintf(`{"tool_server":"pay","tool_name":"charge_opaque","idempotency_key":%q,"retry":true,"args":{"lose":true}}`, key),
	}})[0]
	if got.Code != string(tga.EffectInDoubt) || b.tool.sends(key) != 2 {
		t.Errorf("retried: %d %s, %d sends", got.Status, got.Answer, b.tool.sends(key))
	}
}

// TestOnlyASupervisorsSignatureApproves: an approval from outside counts with a token that
// a configured supervisor signed for this very call, and with no other.
func TestOnlyASupervisorsSignatureApproves(t *testing.T) {
	dir := shortDir(t)
	own := filepath.Join(dir, "own")
	b := start(t, fmt.Sprintf("[capability]\nkey_file = %q\n", own))
	ring := func(path, issuer, audience string, o capability.Options) *capability.Ring {
		t.Helper()
		r, err := capability.Open(path, issuer, audience, o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	private := filepath.Join(filepath.Dir(signer.keys), "private")
	late := func() time.Time { return time.Now().Add(-2 * time.Hour) }
	for _, x := range []struct {
		name string
		by   *capability.Ring
		edit func(*runtime.Grant)
		code tga.Code
	}{
		{name: "none", code: tga.CapabilityInvalid},
		{name: "the daemon's own key", by: ring(own, "tests", "tgad", capability.Options{}), code: tga.CapabilityInvalid},
		{name: "a stranger's key", by: ring(filepath.Join(dir, "stranger"), "tests", "tgad", capability.Options{}), code: tga.CapabilityInvalid},
		{name: "another issuer", by: ring(private, "others", "tgad", capability.Options{}), code: tga.CapabilityInvalid},
		{name: "another audience", by: ring(private, "tests", "others", capability.Options{}), code: tga.CapabilityInvalid},
		{name: "expired", by: ring(private, "tests", "tgad", capability.Options{Clock: late}), code: tga.CapabilityInvalid},
		{name: "other arguments", by: signer.Ring, edit: func(g *runtime.Grant) { g.ArgsDigest = tga.Sum([]byte(`{"amount":500}`)) }, code: tga.CapabilityInvalid},
		{name: "another trace", by: signer.Ring, edit: func(g *runtime.Grant) { g.TraceID = newID() }, code: tga.CapabilityInvalid},
		{name: "another tool", by: signer.Ring, edit: func(g *runtime.Grant) { g.Tool = "refund" }, code: tga.CapabilityInvalid},
		{name: "this call", by: signer.Ring},
	} {
		t.Run(x.name, func(t *testing.T) {
			b.t = t
			c, token := mintChain(t, "raw-"+x.name, nil), ""
			if x.by != nil {
				g := c.grant()
				if x.edit != nil {
					x.edit(&g)
				}
				var err error
				if token, err = x.by.Mint(t.Context(), g); err != nil {
					t.Fatal(err)
				}
			}
			c = c.decided(t, tga.Approve, token)
			lease, err := b.client.Lease(t.Context(), c.trace, 0)
			if err != nil {
				t.Fatal(err)
			}
			if x.code != "" {
				_, err = b.client.Append(t.Context(), c.trace, c.begin(lease.Lease)) // in one append with its request
				wantCode(t, err, x.code)
			}
			if _, err := b.client.Append(t.Context(), c.trace, appending(lease.Lease, c.request)); err != nil {
				t.Fatal(err)
			}
			before := b.everything()
			_, err = b.client.Append(t.Context(), c.trace, appending(lease.Lease, c.decision))
			if x.code != "" {
				wantCode(t, err, x.code)
				if after := b.everything(); after != before {
					t.Error("the refused decision changed the store")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if again, err := b.client.Append(t.Context(), c.trace, appending(lease.Lease, c.decision)); err != nil || !again.Replayed {
				t.Errorf("the same again: %+v %v", again, err)
			}
		})
	}
}

// TestWithdrawnSupervisorSendsNothing: what a remote supervisor approved is looked at again
// before the first send, with the keys that the operator has left there.
func TestWithdrawnSupervisorSendsNothing(t *testing.T) {
	keys := filepath.Join(shortDir(t), "keys")
	set, err := os.ReadFile(signer.keys)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(keys, set, 0o600); err != nil {
		t.Fatal(err)
	}
	b := start(t, fmt.Sprintf("[[supervisor]]\nuid = [%d]\nissuer = \"tests\"\nkeys_file = %q\n", os.Geteuid(), keys))
	w := &rawWorld{bench: b}
	for _, withdrawn := range []bool{false, true} {
		key := fmt.Sprint("withdrawn-", withdrawn)
		c := mintChainOn(t, "pay", key, nil)
		w.appended(c, func(lease string) wire.AppendRequest { return appending(lease, c.request, c.decision) })
		sends := 1
		if withdrawn {
			sends = 0
			if err := os.Remove(keys); err != nil {
				t.Fatal(err)
			}
		}
		res, err := b.client.Recover(t.Context(), c.trace)
		if withdrawn {
			wantCode(t, err, tga.CapabilityInvalid)
		} else if err != nil || res.State != tga.Completed {
			t.Errorf("%+v %v", res, err)
		}
		if n := b.tool.sends(key); n != sends {
			t.Errorf("withdrawn %v: %d sends, want %d", withdrawn, n, sends)
		}
	}
}

// TestSubmitterIsThePeer: whatever a raw request says of its submitter, it is the peer that
// appended it, before and after a restart; so it cannot approve what it asked for, and
// cannot lay it at another's door.
func TestSubmitterIsThePeer(t *testing.T) {
	b := startForPeers(t, "[[rule]]\ndecision = \"NEEDS_APPROVAL\"\n[approval]\nself = false\n")
	w := &rawWorld{bench: b}
	for _, x := range []struct {
		name      string
		submitter any
		code      tga.Code
	}{
		{"absent", nil, ""}, {"its own", "uid:2008", ""}, {"another", "uid:2003", tga.PermissionDenied},
		{"empty", "", tga.PermissionDenied}, {"a number", tga.Number("2008"), tga.PermissionDenied},
	} {
		for _, batch := range []bool{false, true} {
			meta := tga.Meta{}
			if x.submitter != nil {
				meta[tga.MetaSubmitter] = x.submitter
			}
			c := mintChainOn(t, "pay", fmt.Sprint(x.name, batch), meta)
			if code := w.appendAs(2008, c.trace, batch, appending("", c.request)); code != string(x.code) {
				t.Errorf("submitter %s (batch %v): %q, want %q", x.name, batch, code, x.code)
			}
			if x.code != "" {
				continue
			}
			path := "/v1/traces/" + c.trace.String()
			vote := ask{Method: "POST", Path: path + "/decide", Body: `{"approve":true,"rationale":"I asked for it myself"}`}
			got := b.as(2008, peerGID, []ask{{Method: "POST", Path: path + "/recover", Body: `{}`}, vote})
			if got[0].Code != string(tga.EscalationRequired) || got[1].Code != string(tga.PermissionDenied) {
				t.Errorf("submitter %s: recovered %d %s, decided %d %s", x.name, got[0].Status, got[0].Code, got[1].Status, got[1].Answer)
			}
			b.stop()
			b.start()
			got = b.as(2008, peerGID, []ask{vote})
			for end := time.Now().Add(10 * time.Second); got[0].Code == string(tga.StateLockAcquireFailed) && time.Now().Before(end); {
				got = b.as(2008, peerGID, []ask{vote}) // recovery looks at the trace just now, and the answer says: again
			}
			if got[0].Code != string(tga.PermissionDenied) {
				t.Errorf("submitter %s, after a restart: %d %s", x.name, got[0].Status, got[0].Answer)
			}
			if got := b.as(2003, peerGID, []ask{vote}); got[0].Status != http.StatusOK {
				t.Errorf("submitter %s, another's vote: %d %s", x.name, got[0].Status, got[0].Answer)
			}
		}
	}
}

// TestPeersCannotForgeTheDaemonsWord: the members of meta by which the daemon says what it
// did are refused in what a peer appends, each where it stands.
func TestPeersCannotForgeTheDaemonsWord(t *testing.T) {
	b := start(t, "")
	w := &rawWorld{bench: b}
	if !slices.Contains(daemonsOwn[tga.RequestType], tga.MetaClientLicence) {
		t.Error("a peer may write a licence into a request of its own, which the daemon would send")
	}
	for typ, names := range daemonsOwn {
		for _, name := range names {
			c := w.raw(0, typ)
			all := []*tga.Artifact{c.request, c.decision, c.call, c.effect}
			a := *all[typ-1]
			a.Meta = tga.Meta{name: "forged"}
			if err := a.Seal(); err != nil {
				t.Fatal(err)
			}
			lease, err := b.client.Lease(t.Context(), c.trace, 0)
			if err != nil {
				t.Fatal(err)
			}
			before := b.everything()
			_, err = b.client.Append(t.Context(), c.trace, appending(lease.Lease, &a))
			wantCode(t, err, tga.ValidationError)
			if after := b.everything(); after != before {
				t.Errorf("%s in a %s: the store changed", name, typ)
			}
		}
	}
	for _, mode := range []string{tga.AttemptApart, tga.AttemptExternal, "other"} {
		c := w.raw(0, tga.CallType)
		call := *c.call
		call.Meta = tga.Meta{tga.MetaAttempt: mode}
		if err := call.Seal(); err != nil {
			t.Fatal(err)
		}
		lease, err := b.client.Lease(t.Context(), c.trace, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.client.Append(t.Context(), c.trace, appending(lease.Lease, &call))
		wantCode(t, err, tga.ValidationError)
	}
}

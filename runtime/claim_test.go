package runtime_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// claimed is one pair of the grid: the operator's licence of a tool, and the claim of the program that runs it.
type claimed struct {
	read       bool
	own, claim string // words of licences; claim "" = the program says nothing
	counts     bool   // client_licence
	crash      bool
}

func (c claimed) tool() string {
	return fmt.Sprintf("%s.%s.%v.%v", map[bool]string{true: "read", false: "write"}[c.read], c.own, c.counts, c.crash)
}

func (c claimed) key() string { return c.tool() + "." + c.claim }

// held returns the licence that must hold for the pair; "" if the claim is refused, with code.
func (c claimed) held() (word string, code tga.Code) {
	if c.claim == "" {
		return c.own, ""
	}
	if c.claim == "read_only" && !c.read {
		return "", tga.ValidationError
	}
	if c.counts {
		return c.claim, ""
	}
	// Without client_licence, a program may claim the operator's licence or a stricter one.
	if allowed := map[string]string{
		"park":        "park",
		"probe":       "park probe",
		"dedupe_key":  "park dedupe_key",
		"dedupe_args": "park probe dedupe_key dedupe_args read_only",
		"read_only":   "park probe dedupe_key dedupe_args read_only",
	}[c.own]; strings.Contains(" "+allowed+" ", " "+c.claim+" ") {
		return c.claim, ""
	}
	return "", tga.PermissionDenied
}

// claimPolicy reads a policy off a tool's name.
func claimPolicy(t *testing.T, counts func() bool) func(string, string) runtime.Policy {
	return func(_, tool string) runtime.Policy {
		words := strings.Split(tool, ".")
		kind, err := ledger.ParseLicence(words[1])
		if err != nil {
			t.Error(err)
		}
		p := runtime.Policy{Licence: ledger.Licence{Kind: kind}, LicenceSet: true, PermitTime: time.Minute, ClientLicence: words[2] == "true" && counts()}
		if words[0] == "read" {
			p.Class = tga.ClassRead
		}
		if kind == ledger.DedupeKey || p.ClientLicence {
			p.Licence.Window = time.Hour
		}
		return p
	}
}

func licenceOf(t *testing.T, word string) *ledger.Licence {
	if word == "" {
		return nil
	}
	kind, err := ledger.ParseLicence(word)
	if err != nil {
		t.Fatal(err)
	}
	l := ledger.Licence{Kind: kind}
	if kind == ledger.DedupeKey {
		l.Window = time.Hour
	}
	return &l
}

func (b *bench) claims(tool, key, beginID string, claim *ledger.Licence) (runtime.Begun, error) {
	req := charge(key)
	req.Tool = tool
	return b.rt.Begin(context.Background(), runtime.BeginRequest{Request: req, BeginID: beginID, Licence: claim})
}

// TestEveryPairOfLicences tests every pair of an operator's licence and a program's claim, with and
// without client_licence, with and without a crash: which claims are refused, under which licence an attempt
// is made, and what happens to it after its executor is gone and the store was opened again.
func TestEveryPairOfLicences(t *testing.T) {
	serial.Test(t)
	var all []claimed
	for _, own := range kinds {
		for _, claim := range append([]string{""}, "park", "probe", "dedupe_key", "dedupe_args", "read_only") {
			for bits := range 8 {
				c := claimed{bits&1 != 0, own.String(), claim, bits&2 != 0, bits&4 != 0}
				if own != ledger.ReadOnly || c.read {
					all = append(all, c)
				}
			}
		}
	}
	b := setup(t, runtime.Policy{}, func(b *bench) { b.opts.Policy = claimPolicy(t, func() bool { return true }) })
	traces := map[string]tga.ID{}
	for _, c := range all {
		held, code := c.held()
		begun, err := b.claims(c.tool(), c.key(), "first "+c.key(), licenceOf(t, c.claim))
		if code != "" {
			if wantCode(t, err, code); err != nil && !strings.Contains(err.Error(), c.claim) {
				t.Errorf("%s: the refusal does not name the claim: %v", c.key(), err)
			}
			if begun.Standing != "" || begun.Result.Seq != 0 {
				t.Errorf("%s is refused, and begun: %+v", c.key(), begun)
			}
			continue
		}
		if err != nil || begun.Standing != runtime.BeginSend {
			t.Errorf("%s: %s, %v", c.key(), begun.Standing, err)
			continue
		}
		traces[c.key()] = begun.Result.TraceID
		if got := b.licenceIn(begun.Result.TraceID); got != held && !(held == "read_only" && got == "") {
			t.Errorf("%s: the log says that the attempt was made under %q, want %q", c.key(), got, held)
		}
		if !c.crash {
			if _, err := b.finish(begun, ok(`1`)); err != nil {
				t.Errorf("%s: %v", c.key(), err)
			}
		}
	}
	b.advance(time.Minute)
	b.reopen()
	if _, err := b.rt.RecoverAll(context.Background(), 4); err != nil {
		t.Error(err)
	}
	for _, c := range all {
		held, code := c.held()
		if code != "" {
			continue
		}
		want := runtime.BeginInDoubt
		switch {
		case !c.crash:
			want = runtime.BeginServe
		case held == "dedupe_key" || held == "dedupe_args" || held == "read_only":
			want = runtime.BeginSend
		}
		begun, err := b.claims(c.tool(), c.key(), "second "+c.key(), licenceOf(t, c.claim))
		if err != nil || begun.Standing != want || begun.Result.TraceID != traces[c.key()] && want != runtime.BeginServe {
			t.Errorf("%s: after that %s, %v, %v; want %s", c.key(), begun.Standing, begun.Cause, err, want)
		}
	}
	b.wantSends(0) // by this process: whoever began a call sends it
}

// licenceIn is the word of the licence that the log has of a trace's attempt; "" where it has none.
func (b *bench) licenceIn(trace tga.ID) string {
	b.t.Helper()
	t, err := b.store.Load(context.Background(), trace)
	if err != nil {
		b.t.Fatal(err)
	}
	l := runtime.LicenceOf(t)
	if l == nil {
		return ""
	}
	return l.Kind.String()
}

// TestWhoAsksNowClaimsForNow: the program that made an attempt gives the claim of the attempt, and the
// program that asks now gives the current claim. A call in doubt is sent again only if both claims and the
// operator allow it.
func TestWhoAsksNowClaimsForNow(t *testing.T) {
	for _, c := range []struct {
		first, second string
		counts        bool // when the second asks
		want          runtime.Standing
		code          tga.Code
	}{
		{"dedupe_args", "dedupe_args", true, runtime.BeginSend, ""},
		{"dedupe_args", "", true, runtime.BeginInDoubt, ""},
		{"dedupe_args", "park", true, runtime.BeginInDoubt, ""},
		{"park", "dedupe_args", true, runtime.BeginInDoubt, ""},
		{"", "dedupe_args", true, runtime.BeginInDoubt, ""},
		{"dedupe_args", "dedupe_args", false, "", tga.PermissionDenied},
		{"dedupe_args", "", false, runtime.BeginInDoubt, ""},
	} {
		t.Run(fmt.Sprintf("%s,%s,%v", c.first, c.second, c.counts), func(t *testing.T) {
			counts := true
			b := setup(t, runtime.Policy{}, func(b *bench) { b.opts.Policy = claimPolicy(t, func() bool { return counts }) })
			const tool = "write.park.true"
			if begun, err := b.claims(tool, "order-1", "first", licenceOf(t, c.first)); err != nil || begun.Standing != runtime.BeginSend {
				t.Fatalf("%s, %v", begun.Standing, err)
			}
			b.advance(time.Minute)
			counts = c.counts
			b.reopen()
			begun, err := b.claims(tool, "order-1", "second", licenceOf(t, c.second))
			if begun.Standing != c.want || tga.CodeOf(err) != c.code {
				t.Errorf("%s, %v, %v; want %s %s", begun.Standing, begun.Cause, err, c.want, c.code)
			}
		})
	}
}

// TestClaimedWindowCloses: a claim of a window licenses what the operator's own does, and no longer.
func TestClaimedWindowCloses(t *testing.T) {
	for wait, want := range map[time.Duration]runtime.Standing{50 * time.Minute: runtime.BeginSend, 61 * time.Minute: runtime.BeginInDoubt} {
		b := setup(t, runtime.Policy{}, func(b *bench) { b.opts.Policy = claimPolicy(t, func() bool { return true }) })
		const tool = "write.park.true"
		claim := &ledger.Licence{Kind: ledger.DedupeKey} // the window is the operator's bound
		if _, err := b.claims(tool, "order-1", "first", claim); err != nil {
			t.Fatal(err)
		}
		b.advance(wait)
		b.reopen()
		begun, err := b.claims(tool, "order-1", "second", claim)
		if err != nil || begun.Standing != want {
			t.Errorf("after %v: %s, %v", wait, begun.Standing, err)
		}
	}
}

// TestClaimHasNoOtherWayIn: no name in a request's meta claims a licence, and one that a peer writes
// into a request of its own making counts for nothing: this process would send that call.
func TestClaimHasNoOtherWayIn(t *testing.T) {
	b := setup(t, runtime.Policy{}, func(b *bench) { b.opts.Policy = claimPolicy(t, func() bool { return true }) })
	req := charge("order-1")
	req.Tool = "write.park.true"
	req.Meta = tga.Meta{tga.MetaClientLicence: "dedupe_args"}
	_, err := b.rt.Begin(context.Background(), runtime.BeginRequest{Request: req, BeginID: "first"})
	wantCode(t, err, tga.ValidationError)

	a := &tga.Artifact{
		Type: tga.RequestType, ID: newID(), TraceID: newID(), PlanID: newID(), TS: tga.MillisOf(b.clock()),
		Meta: req.Meta,
		Request: &tga.ActionRequest{
			AgentID: newID(), RiskLevel: tga.RiskWrite, Intent: "call the tool of a test", IdempotencyKey: "order-2",
			Resources: []tga.Resource{{Kind: "service", ID: "s"}}, Proposal: tga.Proposal{ToolServer: req.Server, ToolName: req.Tool, Args: []byte(`{}`)},
		},
	}
	if err := a.Seal(); err != nil {
		t.Fatal(err)
	}
	lease, err := b.store.Acquire(t.Context(), a.TraceID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.store.Append(t.Context(), lease, chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: a}}}); err != nil {
		t.Fatal(err)
	}
	b.store.Release(lease)
	b.tool.answer = unknown
	_, err = b.rt.Recover(context.Background(), a.TraceID)
	wantCode(t, err, tga.EffectInDoubt)
	b.wantSends(1)
	if got := b.licenceIn(a.TraceID); got != "park" {
		t.Errorf("made under %q", got)
	}
}

// TestClaimedProbeIsAsked: the daemon's own question follows the claim that the request has, as long as
// the operator lets it count.
func TestClaimedProbeIsAsked(t *testing.T) {
	for _, c := range []struct {
		claim  string
		counts bool // when the daemon asks
		asked  int
	}{
		{"probe", true, 1}, {"probe", false, 0}, {"", true, 0}, {"park", true, 0},
	} {
		t.Run(fmt.Sprintf("%s,%v", c.claim, c.counts), func(t *testing.T) {
			counts := true
			p := &prober{answer: func(int, runtime.Call) (runtime.Probed, error) { return found, nil }}
			b := setup(t, runtime.Policy{}, func(b *bench) {
				b.opts.Policy = claimPolicy(t, func() bool { return counts })
				b.opts.Trust.Prober = func(string, string) runtime.Prober { return p }
			})
			begun, err := b.claims("write.park.true", "order-1", "first", licenceOf(t, c.claim))
			if err != nil {
				t.Fatal(err)
			}
			b.advance(time.Minute)
			counts = c.counts
			b.reopen()
			res, err := b.rt.Recover(context.Background(), begun.Result.TraceID)
			if (c.asked == 1) != (res.State == tga.Completed && res.ResolvedBy == "probe") || (c.asked == 0) != (tga.CodeOf(err) == tga.EffectInDoubt) {
				t.Errorf("%v by %q, %v", res.State, res.ResolvedBy, err)
			}
			if p.asked != c.asked {
				t.Errorf("the tool server was asked %d times, want %d", p.asked, c.asked)
			}
		})
	}
}

// TestClaimIsReadFromTheRequest: of a request that Begin made, and what nobody can read claims nothing.
func TestClaimIsReadFromTheRequest(t *testing.T) {
	for _, c := range []struct {
		meta tga.Meta
		want string
	}{
		{tga.Meta{tga.MetaExecutor: tga.AttemptExternal, tga.MetaClientLicence: "dedupe_args"}, "dedupe_args"},
		{tga.Meta{tga.MetaExecutor: tga.AttemptExternal, tga.MetaClientLicence: "all"}, "park"},
		{tga.Meta{tga.MetaExecutor: tga.AttemptExternal, tga.MetaClientLicence: true}, "park"},
		{tga.Meta{tga.MetaExecutor: tga.AttemptExternal}, ""},
		{tga.Meta{tga.MetaClientLicence: "dedupe_args"}, ""},
	} {
		got := ""
		if l := runtime.ClaimOf(&chain.Trace{Request: &tga.Artifact{Meta: c.meta}}); l != nil {
			got = l.Kind.String()
		}
		if got != c.want {
			t.Errorf("%v claims %q, want %q", c.meta, got, c.want)
		}
	}
	if l := runtime.ClaimOf(&chain.Trace{}); l != nil {
		t.Errorf("an erased request claims %v", l)
	}
}

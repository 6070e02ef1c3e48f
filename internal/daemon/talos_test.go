package daemon

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// TestRawAppendsFollowProfileTalos: what a peer appends of its own making passes the same
// schemas as what the daemon writes, or is refused with the member; under another profile
// it is taken.
func TestRawAppendsFollowProfileTalos(t *testing.T) {
	talos := start(t, fmt.Sprintf("profile = \"talos\"\n[capability]\nkey_file = %q\n", filepath.Join(shortDir(t), "keys")))
	strict := start(t, "")
	sealed := func(a *tga.Artifact) *tga.Artifact {
		t.Helper()
		if err := a.Seal(); err != nil {
			t.Fatal(err)
		}
		return a
	}
	effect := func(c callChain, change func(*tga.ToolEffect)) *tga.Artifact {
		a, e := *c.effect, *c.effect.Effect
		a.Effect = &e
		e.DocumentHashes, e.ContentHashAlg = nil, ""
		change(&e)
		return sealed(&a)
	}
	for name, x := range map[string]struct {
		last    func(c callChain) [][]*tga.Artifact // appended after the request, the last of them refused
		pointer string                              // of the refusal; "" = taken
	}{
		"the chain": {func(c callChain) [][]*tga.Artifact {
			return [][]*tga.Artifact{{c.decision, c.call}, {effect(c, func(*tga.ToolEffect) {})}}
		}, ""},
		"an error without a message": {func(c callChain) [][]*tga.Artifact {
			return [][]*tga.Artifact{{c.decision, c.call}, {effect(c, func(e *tga.ToolEffect) {
				e.Outcome = tga.Outcome{Status: tga.StatusFailure, Error: &tga.OutcomeError{Code: "X"}}
			})}}
		}, "/artifacts/0/artifact/outcome/error/message"},
		"a denial": {func(c callChain) [][]*tga.Artifact {
			return [][]*tga.Artifact{{c.decided(t, tga.Deny, "").decision}}
		}, ""},
		"a denial with a token": {func(c callChain) [][]*tga.Artifact {
			return [][]*tga.Artifact{{c.decided(t, tga.Deny, c.decision.Decision.MintedCapability).decision}}
		}, "/artifacts/0/artifact/minted_capability"},
	} {
		for _, b := range []*bench{talos, strict} {
			c := mintChain(t, name, nil)
			lease, err := b.client.Lease(t.Context(), c.trace, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.client.Append(t.Context(), c.trace, appending(lease.Lease, c.request)); err != nil {
				t.Fatal(err)
			}
			appends := x.last(c)
			for i, artifacts := range appends {
				if _, err = b.client.Append(t.Context(), c.trace, appending(lease.Lease, artifacts...)); err != nil && i < len(appends)-1 {
					t.Fatal(err)
				}
			}
			var e *tga.Error
			switch refused := b == talos && x.pointer != ""; {
			case !refused && err != nil:
				t.Errorf("%s: %v", name, err)
			case refused && (!errors.As(err, &e) || e.Code != tga.SchemaViolation || e.Pointer != x.pointer):
				t.Errorf("%s: %v, want it refused at %s", name, err, x.pointer)
			}
			if _, err := b.client.Release(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, b := range []*bench{talos, strict} {
		c := mintChainOn(t, "Remote", "k", nil)
		lease, err := b.client.Lease(t.Context(), c.trace, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.client.Append(t.Context(), c.trace, appending(lease.Lease, c.request))
		if named := err != nil && strings.Contains(err.Error(), "a-z 0-9 _ -"); named != (b == talos) {
			t.Errorf("a server in capitals: %v", err)
		}
	}
}

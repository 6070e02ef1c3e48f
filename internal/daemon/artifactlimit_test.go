package daemon

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// TestArtifactLimitIsOfTheCanonicalForm: on each way into the log, a request may have exactly as many bytes
// in canonical form as the limit says, in whichever member they are. White space does not count.
func TestArtifactLimitIsOfTheCanonicalForm(t *testing.T) {
	const most = 4096
	b := start(t, fmt.Sprintf("[limits]\nartifact_bytes = %d\n", most))
	ctx := t.Context()
	for name, fill := range map[string]func(*runtime.Request, string){
		"args":      func(r *runtime.Request, s string) { r.Args = []byte(`{"a":"` + s + `"}`) },
		"meta":      func(r *runtime.Request, s string) { r.Meta = tga.Meta{"a": s} },
		"resources": func(r *runtime.Request, s string) { r.Resources = []tga.Resource{{Kind: "doc", ID: s}} },
	} {
		ask := func(way, key string, n int) (tga.ID, error) {
			req := charge(key)
			fill(&req, strings.Repeat("x", n))
			if way == "call" {
				res, err := b.client.Call(ctx, req)
				return res.TraceID, err
			}
			req.Server, req.Tool = "remote", "put"
			begun, err := b.client.Begin(ctx, runtime.BeginRequest{Request: req, BeginID: name + key})
			return begun.Result.TraceID, err
		}
		for _, way := range []string{"call", "begin"} {
			id, err := ask(way, name+way+"1", 100)
			if err != nil {
				t.Fatal(err)
			}
			trace, err := b.client.Trace(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			room := most - len(trace.Entries[0].Artifact)
			if _, err := ask(way, name+way+"2", 100+room); err != nil {
				t.Errorf("%s by %s at the limit: %v", name, way, err)
			}
			before := b.everything()
			_, err = ask(way, name+way+"3", 100+room+1)
			wantCode(t, err, tga.LimitExceeded)
			if after := b.everything(); after != before {
				t.Errorf("%s by %s: a refused request changed the store", name, way)
			}
		}
	}

	for extra, ok := range map[int]bool{0: true, 1: false} {
		c := mintChain(t, "raw", tga.Meta{"a": ""})
		c = mintChain(t, "raw", tga.Meta{"a": strings.Repeat("x", most+extra-len(c.request.Canonical))})
		if n := len(c.request.Canonical); n != most+extra {
			t.Fatalf("the artifact has %d bytes", n)
		}
		lease, err := b.client.Lease(ctx, c.trace, 0)
		if err != nil {
			t.Fatal(err)
		}
		spaced := json.RawMessage("{ " + strings.Repeat("\n", 200) + string(c.request.Canonical[1:]))
		_, err = b.client.Append(ctx, c.trace, wire.AppendRequest{Lease: lease.Lease, Artifacts: []wire.NewArtifact{{Artifact: spaced}}})
		if code := tga.CodeOf(err); ok != (err == nil) || !ok && code != tga.LimitExceeded {
			t.Errorf("%d bytes appended: %v", most+extra, err)
		}
	}
}

// TestCallOfTheLongestRequest: a peer that appends its call itself can make the call of a request that has as many bytes as the limit
// says: the call repeats it, and has some more members. What else a peer adds to the call counts.
func TestCallOfTheLongestRequest(t *testing.T) {
	const most = 4096
	b := start(t, fmt.Sprintf("[limits]\nartifact_bytes = %d\n", most))
	ctx := t.Context()
	mint := func(pad int) callChain {
		return mintChainOf(t, "remote", "k", nil, []byte(`{"a":"`+strings.Repeat("x", pad)+`"}`))
	}
	for extra, ok := range map[int]bool{0: true, callRoom: false} {
		c := mint(0)
		c = mint(most - len(c.request.Canonical))
		if n := len(c.request.Canonical); n != most {
			t.Fatalf("the request has %d bytes", n)
		}
		c.call.Meta = tga.Meta{"a": strings.Repeat("x", extra)}
		if err := c.call.Seal(); err != nil {
			t.Fatal(err)
		}
		lease, err := b.client.Lease(ctx, c.trace, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range []*tga.Artifact{c.request, c.decision, c.call} {
			if err != nil {
				t.Fatal(err)
			}
			_, err = b.client.Append(ctx, c.trace, wire.AppendRequest{Lease: lease.Lease, Artifacts: []wire.NewArtifact{{Artifact: a.Canonical}}})
		}
		if code := tga.CodeOf(err); ok != (err == nil) || !ok && code != tga.LimitExceeded {
			t.Errorf("a call with %d bytes, %d of them meta: %v", len(c.call.Canonical), extra, err)
		}
	}
}

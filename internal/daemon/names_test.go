package daemon

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// namedServers are beside pay (http, a name is its path) and remote (external): a server
// with paths of its own, and one that speaks MCP.
const namedServers = `
[[server]]
id = "paths"
type = "http"
url = "%URL%"
paths = { pay = "v2/pay", refund_all = "v2/refund_all" }

[[server]]
id = "mcp"
type = "mcp-url"
url = "%URL%"

[[rule]]
tool = "refund_all"
decision = "DENY"

[[rule]]
tool = "appr"
decision = "NEEDS_APPROVAL"

[[rule]]
decision = "APPROVE"
`

// request makes the request of a call as a peer appends it.
func (b *bench) rawRequest(req runtime.Request) *tga.Artifact {
	b.t.Helper()
	a := &tga.Artifact{
		Type: tga.RequestType, ID: newID(), TraceID: newID(), PlanID: newID(), TS: tga.MillisOf(time.Now()),
		Request: &tga.ActionRequest{
			AgentID: newID(), RiskLevel: tga.RiskWrite, Intent: "a request with a name of its own", IdempotencyKey: req.Key,
			Resources: []tga.Resource{{Kind: "service", ID: "x"}},
			Proposal:  tga.Proposal{ToolServer: req.Server, ToolName: req.Tool, Args: req.Args},
		},
	}
	if err := a.Seal(); err != nil {
		b.t.Fatal(err)
	}
	return a
}

// entrances are all ways by which a tool's name enters the log over the socket. Each returns
// the code that the peer was given.
var entrances = map[string]func(b *bench, req runtime.Request) error{
	"call": func(b *bench, req runtime.Request) error {
		_, err := b.client.Call(b.t.Context(), req)
		return err
	},
	"begin": func(b *bench, req runtime.Request) error {
		_, err := b.client.Begin(b.t.Context(), runtime.BeginRequest{Request: req, BeginID: req.Key})
		return err
	},
	"append": func(b *bench, req runtime.Request) error {
		a := b.rawRequest(req)
		_, err := b.client.Append(b.t.Context(), a.TraceID, appending(b.lease(a.TraceID), a))
		return err
	},
	"batch": func(b *bench, req runtime.Request) error {
		a := b.rawRequest(req)
		all, err := b.client.AppendBatch(b.t.Context(), []wire.BatchItem{{TraceID: a.TraceID, AppendRequest: appending(b.lease(a.TraceID), a)}})
		if err == nil && all[0].Problem != nil {
			err = tga.Errorf(all[0].Problem.Code, "refused")
		}
		return err
	},
}

func (b *bench) lease(trace tga.ID) string {
	b.t.Helper()
	l, err := b.client.Lease(b.t.Context(), trace, time.Hour)
	if err != nil {
		b.t.Fatal(err)
	}
	return l.Lease
}

// TestAToolHasOneName hands in every spelling of tools that a rule denies, on every route
// and to every kind of server. Nothing is written and nothing reaches the server.
func TestAToolHasOneName(t *testing.T) {
	const valid, none = tga.ValidationError, tga.NotFound
	b := setup(t, "")
	b.config = strings.ReplaceAll(b.config, "allow_all = true\n", "") + strings.ReplaceAll(namedServers, "%URL%", b.tool.URL)
	var reached atomic.Int32
	b.tool.respond(func(http.ResponseWriter, *http.Request, []byte) { reached.Add(1) })
	b.start()
	every := []string{"pay", "paths", "mcp", "remote"}
	for _, c := range []struct {
		servers []string
		tools   []string
		want    tga.Code
	}{
		{every, []string{
			"/refund_all", "//refund_all", "refund_all/", "refund_all//", "./refund_all", "refund_all/.", "x/../refund_all",
			"../refund_all", "x//refund_all", "/appr", "appr/", ".", "..", "/",
		}, valid},
		{[]string{"/pay", "pay/", "./pay", "x/../pay", "/paths", "/remote", "mcp/"}, []string{"refund_all", "pay"}, valid},
		{[]string{"paths"}, []string{"v2/pay", "v2/refund_all", "Pay", "REFUND_ALL", "charge"}, none},
	} {
		for _, server := range c.servers {
			for _, tool := range c.tools {
				for name, route := range entrances {
					before := b.everything()
					key := newID().String()
					err := route(b, runtime.Request{Server: server, Tool: tool, Key: key, Args: []byte("{}")})
					if got := tga.CodeOf(err); got != c.want {
						t.Errorf("%s of %q on %q: %v, want %s", name, tool, server, err, c.want)
					}
					if b.everything() != before {
						t.Errorf("%s of %q on %q changed the store", name, tool, server)
					}
				}
			}
		}
	}
	// The names as they are meet their rules.
	for _, server := range every {
		if res, err := b.client.Call(t.Context(), runtime.Request{Server: server, Tool: "refund_all", Key: newID().String()}); server != "remote" && (err != nil || res.State != tga.Denied) {
			t.Errorf("refund_all on %s: %v, %v", server, res.State, err)
		}
	}
	_, err := b.client.Call(t.Context(), runtime.Request{Server: "pay", Tool: "appr", Key: newID().String()})
	wantCode(t, err, tga.EscalationRequired)
	if n := reached.Load(); n != 0 {
		t.Errorf("%d requests reached a tool server", n)
	}
}

// TestARequestIsLookedAtAgainBeforeItIsSent appends a request, and lets a daemon recover
// it whose configuration has no such tool any more: refused, and the key is free.
func TestARequestIsLookedAtAgainBeforeItIsSent(t *testing.T) {
	b := start(t, "")
	a := b.rawRequest(runtime.Request{Server: "pay", Tool: "charge", Key: "k", Args: []byte("{}")})
	if _, err := b.client.Append(t.Context(), a.TraceID, appending(b.lease(a.TraceID), a)); err != nil {
		t.Fatal(err)
	}
	b.stop()
	b.config = strings.Replace(b.config, "concurrency = 64\n", "paths = { charge_opaque = \"opaque\", balance = \"balance\" }\n", 1)
	b.config = strings.Replace(b.config, "name = \"charge\"\n", "name = \"*\"\n", 1)
	b.start()
	res, err := b.client.Recover(t.Context(), a.TraceID)
	for errors.Is(err, tga.StateLockAcquireFailed) { // the daemon recovers by itself
		res, err = b.client.Recover(t.Context(), a.TraceID)
	}
	if !errors.Is(err, tga.NotFound) && res.ErrorCode != tga.NotFound {
		t.Errorf("%+v, %v", res, err)
	}
	if sent, reserved := b.scrape("tgad_calls_sent_total"), b.scrape("tgad_calls_reserved_total"); sent+reserved != 0 {
		t.Errorf("%v sends, %v keys reserved", sent, reserved)
	}
}

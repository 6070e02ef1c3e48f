package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

const peerGID = 2000

var peers = []struct {
	uid       uint32
	verbs     []config.Verb
	namespace string
}{
	{2001, []config.Verb{config.Read}, "default"},
	{2002, []config.Verb{config.Append}, "default"},
	{2003, []config.Verb{config.Decide}, "default"},
	{2004, []config.Verb{config.Admin}, "default"},
	{2005, nil, ""},
	{2006, []config.Verb{config.Admin}, "*"},
	{2007, []config.Verb{config.Read, config.Append, config.Decide, config.Admin}, "other"},
	{2008, []config.Verb{config.Append, config.Decide}, "default"},
	{2009, []config.Verb{config.Append, config.Decide}, "default"}, // a remote supervisor, as 2010 is
	{2010, []config.Verb{config.Decide}, "default"},
}

// peersConfig gives each peer its role; root has every verb everywhere.
func peersConfig() string {
	var b strings.Builder
	for _, p := range peers {
		if len(p.verbs) == 0 {
			continue
		}
		fmt.Fprintf(&b, "[[role]]\nuid = [%d]\nnamespace = %q\nverbs = [", p.uid, p.namespace)
		for _, v := range p.verbs {
			fmt.Fprintf(&b, "%q,", v)
		}
		b.WriteString("]\n")
	}
	fmt.Fprintf(&b, "[[role]]\nuid = [%d]\nnamespace = \"*\"\nverbs = [\"read\", \"append\", \"decide\", \"admin\"]\n", os.Geteuid())
	fmt.Fprintf(&b, "[[supervisor]]\nuid = [%d, 2009, 2010]\nissuer = \"tests\"\nkeys_file = %q\n", os.Geteuid(), signer.keys)
	fmt.Fprintf(&b, "[socket]\ngroup = \"%d\"\n", peerGID)
	return b.String()
}

// startForPeers runs a daemon whose socket other users can reach.
func startForPeers(t *testing.T, extra string) *bench {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can run peers under other uids")
	}
	b := setup(t, extra+peersConfig())
	if err := os.Chmod(b.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b.start()
	return b
}

// TestRolesMatrix asks for every route as every role. A route answers PERMISSION_DENIED to
// exactly those whose role lacks its verb, whatever else it then says.
func TestRolesMatrix(t *testing.T) {
	b := startForPeers(t, "")
	res, err := b.client.Call(t.Context(), charge("order-1"))
	if err != nil {
		t.Fatal(err)
	}
	var asks []ask
	for _, r := range routes {
		a := ask{Method: r.method, Path: strings.ReplaceAll(r.path, "{id}", res.TraceID.String())}
		switch r.path {
		case "/v1/traces/{id}/documents":
			a.Path += "?pointer=/result"
		case "/v1/backup":
			a.Body = `{"dir":"relative"}`
		case "/v1/traces/{id}/checkpoint":
			a.Body = `{"lease":"none"}` // without one it is written, by who may
		case "/v1/seal":
			a.Body = `{"before":"2020-01-01T00:00:00.000Z"}`
		case "/v1/erase":
			a.Body = `{"traces":["019bc307-6380-7728-b756-4d0ef3275b8f"],"reason":"to see who may"}`
		case "/v1/unfreeze":
			a.Body = `{"accept_loss":false}`
		}
		asks = append(asks, a)
	}
	d := openDocument(t)
	before := b.everything()
	for _, p := range peers {
		for i, got := range b.as(p.uid, peerGID, asks) {
			r := &routes[i]
			allowed := len(r.verbs) == 0 && len(p.verbs) > 0 // without a verb the peer is turned away
			for _, v := range r.verbs {
				allowed = allowed || slices.Contains(p.verbs, v)
			}
			if op := d.at("paths", documented(r.path), strings.ToLower(r.method)); op["x-whole-store"] == true && p.namespace != config.AnyNamespace {
				allowed = false
			}
			if r.path == "/v1/verify" && !(slices.Contains(p.verbs, config.Admin) && p.namespace == config.AnyNamespace) {
				allowed = false // without a trace it is the whole store
			}
			if denied := got.Code == string(tga.PermissionDenied); denied == allowed {
				t.Errorf("uid %d with %v in %q: %s %s answers %d %s", p.uid, p.verbs, p.namespace, r.method, r.path, got.Status, got.Answer)
			}
		}
	}
	if after := b.everything(); after != before {
		t.Errorf("the requests changed the store:\n%s\n%s", before, after)
	}
}

// TestDecisionCannotPassVotesBy: where votes are counted, a decision is not appended
// beside them.
func TestDecisionCannotPassVotesBy(t *testing.T) {
	b := start(t, "[[rule]]\ndecision = \"NEEDS_APPROVAL\"\nrequired = 2\n")
	res, err := b.client.Call(t.Context(), charge("order-1"))
	wantCode(t, err, tga.EscalationRequired)
	timeline, err := b.client.Trace(t.Context(), res.TraceID)
	if err != nil {
		t.Fatal(err)
	}
	request, err := tga.DecodeArtifact(timeline.Entries[0].Artifact, tga.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	decision := &tga.Artifact{
		Type: tga.DecisionType, ID: newID(), TraceID: res.TraceID, PlanID: request.PlanID, TS: request.TS,
		Decision: &tga.SupervisorDecision{
			RequestID: request.ID, RequestDigest: request.Digest, Decision: tga.Approve, Rationale: "one person says so",
		},
	}
	if err := decision.Seal(); err != nil {
		t.Fatal(err)
	}
	lease, err := b.client.Lease(t.Context(), res.TraceID, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.client.Append(t.Context(), res.TraceID, appending(lease.Lease, decision))
	wantCode(t, err, tga.StateInvalidTransition)
	if _, err := b.client.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	// One person cannot vote twice either.
	_, err = b.client.Decide(t.Context(), res.TraceID, wire.DecideRequest{Approve: true, Rationale: "the first of two votes"})
	wantCode(t, err, tga.EscalationRequired)
	_, err = b.client.Decide(t.Context(), res.TraceID, wire.DecideRequest{Approve: true, Rationale: "the first of two votes"})
	wantCode(t, err, tga.PermissionDenied)
	if b.tool.sends("order-1") != 0 {
		t.Error("the call was sent")
	}
}

// TestPagesNameNoTraceOfAnotherNamespace: the next page of a list begins behind a trace that the peer may
// see, also if the page ended among the traces of another namespace.
func TestPagesNameNoTraceOfAnotherNamespace(t *testing.T) {
	b := startForPeers(t, "[limits]\npage = 1\n")
	own := map[tga.ID]bool{}
	for i := range 3 * lookedPerPage {
		req := charge(fmt.Sprint("k", i))
		if i%(2*lookedPerPage) == lookedPerPage/2 {
			req.Namespace = "other"
		}
		res, err := b.client.Call(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if req.Namespace != "" {
			own[res.TraceID] = true
		}
	}
	for _, c := range []struct {
		filter string
		found  int
	}{{"", len(own)}, {"&tool=none", 0}} {
		path, found := "/v1/traces?all=1"+c.filter, 0
		for next := path; next != ""; {
			got := b.as(2007, peerGID, []ask{{Method: "GET", Path: next}})[0]
			var page wire.Traces
			must(t, got.Answer, &page)
			found += len(page.Traces)
			if next = ""; page.Next.IsZero() {
				continue
			}
			if next = path + "&after=" + page.Next.String(); !own[page.Next] {
				t.Errorf("a page names trace %s of another namespace", page.Next)
			}
		}
		if found != c.found {
			t.Errorf("%q finds %d traces, want %d", c.filter, found, c.found)
		}
	}
}

// TestNamespacesAreClosed: a peer of one namespace finds nothing of another, names no
// other, and what it does lands in its own.
func TestNamespacesAreClosed(t *testing.T) {
	b := startForPeers(t, "")
	ctx := t.Context()
	res, err := b.client.Call(ctx, charge("order-1"))
	if err != nil {
		t.Fatal(err)
	}
	begun, err := b.client.Begin(ctx, runtime.BeginRequest{Request: runtime.Request{Server: "remote", Tool: "charge", Key: "r1"}, BeginID: "b1"})
	if err != nil {
		t.Fatal(err)
	}
	open := begun.Result.TraceID
	// An append that is of no trace has no namespace, so it is shown to who sees all.
	if _, changed, err := b.client.Keep(ctx, runtime.KeepRequest{Server: "remote", Name: "token", Value: []byte("v")}); err != nil || !changed {
		t.Fatal(changed, err)
	}
	foreign := mintChain(t, "raw-1", nil)
	own := mintChain(t, "raw-2", tga.Meta{tga.MetaNamespace: "other"})
	lease := func(c callChain) string {
		l, err := b.client.Lease(ctx, c.trace, 0)
		if err != nil {
			t.Fatal(err)
		}
		return l.Lease
	}
	trace := "/v1/traces/" + res.TraceID.String()
	asks := []ask{
		{Method: "GET", Path: trace, Status: 404},
		{Method: "GET", Path: trace + "/state", Status: 404},
		{Method: "GET", Path: trace + "/entries", Status: 404},
		{Method: "GET", Path: trace + "/documents?pointer=/result", Status: 404},
		{Method: "GET", Path: trace + "/checkpoint", Status: 404},
		{Method: "POST", Path: trace + "/recover", Status: 404},
		{Method: "POST", Path: trace + "/lease", Status: 404},
		{Method: "POST", Path: trace + "/checkpoint", Status: 404},
		{Method: "POST", Path: trace + "/abandon", Status: 404},
		{Method: "POST", Path: "/v1/verify", Body: `{"trace_id":"` + res.TraceID.String() + `"}`, Status: 404},
		{Method: "POST", Path: "/v1/traces/" + open.String() + "/finish", Body: `{"permit":"` + begun.Permit.String() + `","status":"SUCCESS"}`, Status: 404},
		{Method: "POST", Path: "/v1/tool-calls", Body: `{"tool_server":"pay","tool_name":"charge","idempotency_key":"order-1","namespace":"default"}`, Status: 403},
		{Method: "POST", Path: "/v1/begin", Body: `{"tool_server":"pay","tool_name":"charge","idempotency_key":"x","namespace":"default","begin_id":"b"}`, Status: 403},
		{Method: "POST", Path: "/v1/traces/" + foreign.trace.String() + "/entries", Body: string(wire.Append(nil, appending(lease(foreign), foreign.request))), Status: 403},
		{Method: "POST", Path: "/v1/traces/" + own.trace.String() + "/entries", Body: string(wire.Append(nil, appending(lease(own), own.request))), Status: 200},
		// The same key is another call here: the effect of the other tenant is not served.
		{Method: "POST", Path: "/v1/tool-calls", Body: `{"tool_server":"pay","tool_name":"charge","idempotency_key":"order-1","args":{"amount":6}}`, Status: 200},
		{Method: "POST", Path: "/v1/export", Body: `{"trace_ids":["` + res.TraceID.String() + `"]}`, Status: 404},
		{Method: "GET", Path: "/v1/traces", Status: 200},
		{Method: "GET", Path: "/v1/traces?all=1", Status: 200},
		{Method: "GET", Path: "/v1/log", Status: 200},
		{Method: "POST", Path: "/v1/export", Status: 200},
	}
	got := b.as(2007, peerGID, asks)
	for i, a := range got {
		if a.Status != asks[i].Status {
			t.Errorf("%s %s: %d %s, want %d", a.Method, a.Path, a.Status, a.Answer, asks[i].Status)
		}
	}
	for _, a := range got[len(got)-4:] {
		if strings.Contains(a.Answer, res.TraceID.String()) || strings.Contains(a.Answer, open.String()) || !strings.Contains(a.Answer, own.trace.String()) {
			t.Errorf("%s shows %s", a.Path, a.Answer)
		}
		if strings.Contains(a.Answer, `"problem"`) {
			t.Errorf("%s ends early: %s", a.Path, a.Answer)
		}
	}
	// In the log are the appends of its own traces, each with its entries, and no other cursor.
	var mine, all []string
	for line := range strings.Lines(got[len(got)-2].Answer) {
		var l wire.LogLine
		if err := json.Unmarshal([]byte(line), &l); err != nil || len(l.Entries)+len(l.Notes) == 0 {
			t.Errorf("%v: %s", err, line)
		}
		mine = append(mine, l.Cursor)
	}
	others := 0
	for l, err := range b.client.Log(ctx, "", false) {
		if err != nil {
			t.Fatal(err)
		}
		if len(l.Entries)+len(l.Notes) == 0 {
			others++
			continue
		}
		if tr, err := b.client.Trace(ctx, l.TraceID); err != nil {
			t.Error(err)
		} else if tr.Namespace == "other" {
			all = append(all, l.Cursor)
		}
	}
	if len(mine) == 0 || !slices.Equal(mine, all) || others == 0 {
		t.Errorf("the log shows the cursors %v, want %v; %d are of no trace", mine, all, others)
	}
	if n := b.tool.sends("order-1"); n != 2 {
		t.Errorf("%d sends under one key in two namespaces, want 2", n)
	}
}

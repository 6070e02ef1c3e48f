package daemon

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestNobodyLearnsOfAForeignTrace calls every route that takes a trace id or a digest, as a peer of
// another namespace. The answer about a trace that exists is, except for the ids, byte for byte the
// answer about one that does not.
func TestNobodyLearnsOfAForeignTrace(t *testing.T) {
	s := newShop(t)
	b := startForPeers(t, s.config(`replay = "warn"`))
	ctx := t.Context()
	done, err := b.client.Call(ctx, book("k"))
	if err != nil {
		t.Fatal(err)
	}
	confirmed, err := b.client.Call(ctx, replay("k"))
	if err != nil {
		t.Fatal(err)
	}
	begun, err := b.client.Begin(ctx, runtime.BeginRequest{Request: runtime.Request{Server: "remote", Tool: "charge", Key: "r1"}, BeginID: "b1"})
	if err != nil {
		t.Fatal(err)
	}
	zeros := strings.Repeat("0", 32)
	digest := confirmed.Confirmation.EvidenceDigest.String()
	var asks []ask
	var names []string
	add := func(method, path, body string, ids ...string) {
		for _, id := range ids {
			asks = append(asks, ask{Method: method, Path: strings.ReplaceAll(path, "{id}", id), Body: strings.ReplaceAll(body, "{id}", id)})
			names = append(names, id)
		}
	}
	walked := map[string]bool{}
	for _, foreign := range []string{done.TraceID.String(), begun.Result.TraceID.String()} {
		absent := newID().String()
		for _, r := range routes {
			path, body := r.path, ""
			switch {
			case r.path == "/v1/rollback-plan":
				path += "?trace={id}"
			case r.path == "/v1/evidence/{digest}":
				path = "/v1/evidence/" + digest + "?trace={id}"
			case r.path == "/v1/verify":
				body = `{"trace_id":"{id}"}`
			case !strings.Contains(r.path, "{id}"):
				continue
			case r.method == "POST" && r.path == "/v1/traces/{id}/lease":
				continue // takes a new id: see below
			}
			walked[r.path] = true
			switch r.path {
			case "/v1/traces/{id}/documents":
				path += "?pointer=/result"
			case "/v1/traces/{id}/finish":
				body = `{"permit":"` + begun.Permit.String() + `","status":"SUCCESS"}`
			case "/v1/traces/{id}/not-sent", "/v1/traces/{id}/give-up":
				body = `{"permit":"` + begun.Permit.String() + `"}`
			case "/v1/traces/{id}/decide":
				body = `{"approve":true,"rationale":"it is another tenant's"}`
			case "/v1/traces/{id}/resolve":
				body = `{"status":"SUCCESS","evidence":"line 7"}`
			case "/v1/traces/{id}/lease:renew", "/v1/traces/{id}/lease:release":
				body = `{"lease":"` + zeros + `"}`
			case "/v1/traces/{id}/entries":
				if r.method == "POST" {
					continue // likewise
				}
			}
			add(r.method, path, body, foreign, absent)
		}
	}
	if len(walked) < 18 {
		t.Errorf("only %d routes were walked: %v", len(walked), walked)
	}
	// Another tenant's evidence, and evidence that nobody has.
	got := b.as(2007, peerGID, asks)
	for i := 0; i < len(got); i += 2 {
		is, not := got[i], got[i+1]
		one, other := strings.ReplaceAll(is.Answer, names[i], "ID"), strings.ReplaceAll(not.Answer, names[i+1], "ID")
		if is.Status != not.Status || one != other {
			t.Errorf("%s %s: a foreign trace is %d %s, an absent one %d %s", is.Method, is.Path, is.Status, one, not.Status, other)
		}
	}
	// Where a new id is welcome a foreign one cannot be, and is told like an absent trace.
	trace := done.TraceID.String()
	for _, a := range b.as(2007, peerGID, []ask{
		{Method: "GET", Path: "/v1/traces/" + trace},
		{Method: "POST", Path: "/v1/traces/" + trace + "/lease", Body: `{}`},
		{Method: "POST", Path: "/v1/traces/" + trace + "/entries", Body: fmt.Sprintf(`{"lease":%q,"artifacts":[{"artifact":%s}]}`, zeros, mintChain(t, "x", nil).request.Canonical)},
		{Method: "POST", Path: "/v1/tool-calls", Body: fmt.Sprintf(`{"tool_server":"pay","tool_name":"charge","idempotency_key":"x","trace_id":%q}`, trace)},
		{Method: "POST", Path: "/v1/begin", Body: fmt.Sprintf(`{"tool_server":"remote","tool_name":"charge","idempotency_key":"x","begin_id":"b","trace_id":%q}`, trace)},
	}) {
		if a.Status != 404 || a.Code != string(tga.NotFound) || !strings.Contains(a.Answer, `"detail":"trace `+trace+` has no entry"`) {
			t.Errorf("%s %s: %d %s", a.Method, a.Path, a.Status, a.Answer)
		}
	}
}

// TestNobodyConfirmsForItself: a record whose changes are gone can be confirmed neither by the submitter
// of the recorded call nor by the caller who wants to rely on it.
func TestNobodyConfirmsForItself(t *testing.T) {
	s := newShop(t)
	b := startForPeers(t, s.config(`replay = "human"`)+"[approval]\nself = false\n")
	call := func(uid uint32, replay bool) ask {
		return b.as(uid, peerGID, []ask{{
			Method: "POST", Path: "/v1/tool-calls", Body: fmt.Sprintf(`{"tool_server":%q,"tool_name":%q,"args":%s,"idempotency_key":"k","replay":%v}`, book("k").Server, book("k").Tool, book("k").Args, replay),
		}})[0]
	}
	if a := call(2008, false); a.Status != 200 {
		t.Fatal(a.Answer)
	}
	s.remove("item-1")
	if a := call(2009, true); a.Code != string(tga.ConfirmationRequired) {
		t.Fatalf("%d %s", a.Status, a.Answer)
	}
	list, err := b.client.Approvals(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v %v", list, err)
	}
	vote := ask{Method: "POST", Path: "/v1/traces/" + list[0].TraceID.String() + "/decide", Body: `{"approve":true,"rationale":"it was booked, I know it"}`}
	for uid, want := range map[uint32]int{2008: 403, 2009: 403} {
		if a := b.as(uid, peerGID, []ask{vote})[0]; a.Status != want {
			t.Errorf("uid %d: %d %s, want %d", uid, a.Status, a.Answer, want)
		}
	}
	if a := b.as(2003, peerGID, []ask{vote})[0]; a.Status != 200 {
		t.Errorf("another's word: %d %s", a.Status, a.Answer)
	}
	if a := call(2009, true); a.Status != 200 {
		t.Errorf("after another's word: %d %s", a.Status, a.Answer)
	}
}

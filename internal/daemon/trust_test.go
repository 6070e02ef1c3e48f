package daemon

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

func replay(key string) runtime.Request {
	r := book(key)
	r.Replay = true
	return r
}

// TestReplayLooksAtTheWorld books, takes the booking away behind the daemon's back, and
// replays, in each mode: what is served, what is told, and that nothing is sent again.
func TestReplayLooksAtTheWorld(t *testing.T) {
	for _, mode := range []string{"strict", "warn", "human"} {
		t.Run(mode, func(t *testing.T) {
			s := newShop(t)
			b := start(t, s.config(fmt.Sprintf("replay = %q", mode)))
			ctx := t.Context()
			first, err := b.client.Call(ctx, book("k"))
			if err != nil || len(first.Changes) != 1 || first.Changes[0].ResourceID != "item-1" {
				t.Fatalf("%+v %v", first, err)
			}
			res, err := b.client.Call(ctx, replay("k"))
			if c := res.Confirmation; err != nil || c == nil || c.Checked != 1 || len(c.Mismatches) != 0 || c.EvidenceDigest.IsZero() {
				t.Fatalf("while it stands: %+v %v", c, err)
			}
			s.remove("item-1")
			if plain, err := b.client.Call(ctx, book("k")); err != nil || plain.Confirmation != nil {
				t.Errorf("a plain repeat: %+v %v", plain, err)
			}
			res, err = b.client.Call(ctx, replay("k"))
			c := res.Confirmation
			if c == nil || len(c.Mismatches) != 1 || c.Mismatches[0].Finding != runtime.Gone || c.Mismatches[0].Change.ResourceID != "item-1" {
				t.Fatalf("told %+v, %v", c, err)
			}
			switch mode {
			case "strict":
				wantCode(t, err, tga.ConfirmationMismatch)
				if res.Value != nil {
					t.Errorf("served %s", res.Value)
				}
			case "warn":
				if err != nil || string(res.Value) != booked("item-1") {
					t.Errorf("%+v %v", res, err)
				}
			case "human":
				wantCode(t, err, tga.ConfirmationRequired)
				b.confirmByPerson(first.TraceID, res.TraceID)
			}
			if tried, _, _ := s.counts("k"); tried != 1 {
				t.Errorf("%d sends", tried)
			}
			want := map[string]float64{"tgad_confirmations_total": 2, "tgad_confirmation_mismatches_total": 1, "tgad_approvals_pending": 0}
			if mode == "human" { // what waited has looked again, and so did who asked for it
				want["tgad_confirmations_total"], want["tgad_confirmation_mismatches_total"] = 4, 3
			}
			for name, n := range want {
				if got := b.scrape(name); got != n {
					t.Errorf("%s is %v, want %v", name, got, n)
				}
			}
		})
	}
}

// confirmByPerson finds the question that a mismatch left, reads its evidence, and says
// that the record may be served.
func (b *bench) confirmByPerson(origin, waiting tga.ID) {
	b.t.Helper()
	ctx := b.t.Context()
	list, err := b.client.Approvals(ctx)
	if err != nil || len(list) != 1 {
		b.t.Fatalf("approvals %+v %v", list, err)
	}
	a := list[0]
	if a.TraceID != origin || a.Kind != wire.KindConfirmation || !slices.Equal(a.Waiting, []tga.ID{waiting}) || a.MismatchDigest.IsZero() {
		b.t.Errorf("approval %+v", a)
	}
	if n := b.scrape("tgad_approvals_pending"); n != 1 {
		b.t.Errorf("%v approvals pending", n)
	}
	raw, err := b.client.Evidence(ctx, a.EvidenceDigest, origin)
	if err != nil || !strings.Contains(string(raw), `"finding":"gone"`) {
		b.t.Errorf("evidence %s %v", raw, err)
	}
	vote := wire.DecideRequest{Approve: true, Rationale: "the booking was moved, not lost", About: tga.Sum([]byte("another question"))}
	_, err = b.client.Decide(ctx, origin, vote)
	wantCode(b.t, err, tga.ConfirmationRequired)
	vote.About = a.About
	if _, err := b.client.Decide(ctx, origin, vote); err != nil || a.About != a.MismatchDigest || a.Changed {
		b.t.Errorf("%+v %v", a, err)
	}
	res, err := b.client.Recover(ctx, waiting)
	if err != nil || res.State != tga.Completed || res.ServedFrom != origin {
		b.t.Errorf("what waited: %+v %v", res, err)
	}
	if n := b.scrape("tgad_settled_by_people_total"); n != 1 {
		b.t.Errorf("%v settled by people", n)
	}
}

// TestLostAcknowledgementIsAskedFor: the shop books and hangs up. It is asked, and what it
// says is the effect: one request, one booking.
func TestLostAcknowledgementIsAskedFor(t *testing.T) {
	s := newShop(t)
	s.lose()
	b := start(t, s.config(""))
	res, err := b.client.Call(t.Context(), book("k"))
	if err != nil || string(res.Value) != booked("item-1") || res.Attempts != 1 {
		t.Fatalf("%+v %v", res, err)
	}
	evidence, _, err := b.client.Document(t.Context(), res.TraceID, tga.PointerEvidence)
	if err != nil || !strings.Contains(string(evidence), "item-1") {
		t.Errorf("evidence %s %v", evidence, err)
	}
	if tried, standing, _ := s.counts("k"); tried != 1 || standing != 1 {
		t.Errorf("%d requests, %d bookings", tried, standing)
	}
	for name, want := range map[string]float64{"tgad_resolved_by_probe_total": 1, "tgad_probes_total": 1, "tgad_in_doubt": 0} {
		if got := b.scrape(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// TestDoubtTellsWhatWasAsked: while the shop cannot say, the list has the question, its
// evidence and the next one, and what would end the doubt.
func TestDoubtTellsWhatWasAsked(t *testing.T) {
	s := newShop(t)
	s.lose()
	s.blind = func(int) bool { return true }
	b := start(t, s.config("")+`
[[tool]]
server = "remote"
name = "put"
licence = "dedupe_args"
`)
	ctx := t.Context()
	_, err := b.client.Call(ctx, book("k"))
	wantCode(t, err, tga.EffectInDoubt)
	b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) { hangUp(w) })
	opaque := charge("o")
	opaque.Tool = "charge_opaque"
	_, err = b.client.Call(ctx, opaque)
	wantCode(t, err, tga.EffectInDoubt)
	begun, err := b.client.Begin(ctx, runtime.BeginRequest{Request: runtime.Request{Server: "remote", Tool: "put", Key: "r"}, BeginID: "one"})
	if err != nil || begun.Standing != runtime.BeginSend {
		t.Fatal(begun, err)
	}
	var list []wire.OpenTrace
	for len(list) != 3 { // the permit of put has to be stale first
		time.Sleep(20 * time.Millisecond)
		if list, err = b.client.InDoubt(ctx); err != nil {
			t.Fatal(err)
		}
		if len(list) < 2 {
			t.Fatalf("in doubt %+v: while the shop is asked, the call is in doubt as before", list)
		}
	}
	for b.scrape("tgad_in_doubt") != 3 {
		time.Sleep(5 * time.Millisecond)
	}
	for _, o := range list {
		d := o.Doubt
		if d == nil || d.Since == 0 {
			t.Fatalf("%+v", o)
		}
		want, licence := "resolve abandon", "park"
		switch o.ToolName {
		case "book":
			want, licence = "probe resolve abandon", "probe"
			if d.Probes == 0 || d.Answer != "unknown" || d.Next <= d.Asked || !strings.Contains(d.Source, "/keys/k") {
				t.Errorf("book: %+v", d)
			}
			raw, err := b.client.Evidence(ctx, d.EvidenceDigest, tga.ID{})
			if err != nil || !strings.Contains(string(raw), "418") {
				t.Errorf("evidence %s %v", raw, err)
			}
		case "put":
			want, licence = "finish begin resolve abandon", "dedupe_args"
		}
		if got := strings.Join(d.Settles, " "); got != want || d.Licence != licence || d.External != (o.ToolName == "put") {
			t.Errorf("%s: settled by %q under %s, want %q under %s", o.ToolName, got, d.Licence, want, licence)
		}
	}
	s.set(func() { s.blind = nil })
	for b.scrape("tgad_resolved_by_probe_total") != 1 {
		time.Sleep(5 * time.Millisecond)
	}
	if res, err := b.client.Call(ctx, book("k")); err != nil || string(res.Value) != booked("item-1") {
		t.Errorf("once the shop can say: %+v %v", res, err)
	}
}

// TestCompensationIsOneCall undoes a booking, twice, and serves the record afterwards.
func TestCompensationIsOneCall(t *testing.T) {
	s := newShop(t)
	b := start(t, s.config(""))
	ctx := t.Context()
	one, err := b.client.Call(ctx, book("one"))
	if err != nil {
		t.Fatal(err)
	}
	two, err := b.client.Call(ctx, book("two"))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := b.client.Call(ctx, charge("k"))
	if err != nil {
		t.Fatal(err)
	}
	undo, err := b.client.Compensate(ctx, one.TraceID)
	if err != nil || undo.State != tga.Completed || undo.TraceID == one.TraceID {
		t.Fatalf("%+v %v", undo, err)
	}
	again, err := b.client.Compensate(ctx, one.TraceID)
	if err != nil || again.TraceID != undo.TraceID || !again.Replayed {
		t.Errorf("again: %+v %v", again, err)
	}
	if _, standing, undone := s.counts("one"); standing != 1 || undone != 1 {
		t.Errorf("%d bookings stand, %d cancellations", standing, undone)
	}
	res, err := b.client.Call(ctx, book("one"))
	if err != nil || res.CompensatedBy != undo.TraceID || res.Class != ledger.ClassCompensated {
		t.Errorf("served: %+v %v", res, err)
	}
	_, err = b.client.Compensate(ctx, plain.TraceID)
	wantCode(t, err, tga.NotFound)
	steps, err := b.client.RollbackPlan(ctx, []tga.ID{one.TraceID, two.TraceID, plain.TraceID})
	if err != nil || len(steps) != 3 {
		t.Fatalf("%+v %v", steps, err)
	}
	for i, want := range []struct {
		trace tga.ID
		undo  bool
		by    tga.ID
	}{{plain.TraceID, false, tga.ID{}}, {two.TraceID, true, tga.ID{}}, {one.TraceID, false, undo.TraceID}} {
		got := steps[i]
		if got.TraceID != want.trace || got.CanUndo != want.undo || got.CompensatedBy != want.by || (got.Why == "") != want.undo {
			t.Errorf("step %d: %+v", i, got)
		}
		if want.undo && (got.Inverse.ToolName != "cancel" || string(got.Inverse.Args) != `{"id":"item-2"}`) {
			t.Errorf("inverse %+v %s", got.Inverse, got.Inverse.Args)
		}
	}
}

// TestRollbackPlanLimit: as many traces as a batch may have appends, and not one more.
func TestRollbackPlanLimit(t *testing.T) {
	b := start(t, "[limits]\nbatch_items = 2\n")
	res, err := b.client.Call(t.Context(), charge("k"))
	if err != nil {
		t.Fatal(err)
	}
	ids := []tga.ID{res.TraceID, res.TraceID}
	if steps, err := b.client.RollbackPlan(t.Context(), ids); err != nil || len(steps) != 2 {
		t.Errorf("at the limit: %+v %v", steps, err)
	}
	_, err = b.client.RollbackPlan(t.Context(), append(ids, res.TraceID))
	wantCode(t, err, tga.LimitExceeded)
	_, err = b.client.RollbackPlan(t.Context(), nil)
	wantCode(t, err, tga.ValidationError)
}

// TestChangesLimit: an executor reports as many changes as an effect may list, and not one
// more; the effect can still be recorded.
func TestChangesLimit(t *testing.T) {
	b := start(t, "")
	ctx := t.Context()
	begun, err := b.client.Begin(ctx, runtime.BeginRequest{Request: runtime.Request{Server: "remote", Tool: "put", Key: "r"}, BeginID: "one"})
	if err != nil {
		t.Fatal(err)
	}
	f := runtime.Finished{Reply: runtime.Reply{Status: tga.StatusSuccess}}
	for i := range tga.MaxStateChanges + 1 {
		f.Changes = append(f.Changes, tga.StateChange{ResourceType: "item", ResourceID: fmt.Sprint(i), Operation: "create"})
	}
	_, err = b.client.Finish(ctx, begun.Result.TraceID, begun.Permit, f)
	wantCode(t, err, tga.LimitExceeded)
	f.Changes = f.Changes[1:]
	res, err := b.client.Finish(ctx, begun.Result.TraceID, begun.Permit, f)
	if err != nil || len(res.Changes) != tga.MaxStateChanges || res.Changes[0] != f.Changes[0] {
		t.Errorf("at the limit: %d changes, %v", len(res.Changes), err)
	}
}

// TestCallWithoutAKey: the same call in one step is a repeat until its answer was
// delivered, and a new call afterwards.
func TestCallWithoutAKey(t *testing.T) {
	b := start(t, "")
	ctx := t.Context()
	req := charge("")
	req.Scope, req.Step = "turn-1", "pay"
	first, err := b.client.Call(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	repeat, err := b.client.Call(ctx, req)
	if err != nil || repeat.ServedFrom != first.TraceID {
		t.Errorf("before it was delivered: %+v %v", repeat, err)
	}
	if err := b.client.Delivered(ctx, first.TraceID); err != nil {
		t.Fatal(err)
	}
	second, err := b.client.Call(ctx, req)
	if err != nil || !second.ServedFrom.IsZero() || second.Key == first.Key {
		t.Errorf("afterwards: %+v %v", second, err)
	}
	if n := b.tool.sends(first.Key) + b.tool.sends(second.Key); n != 2 {
		t.Errorf("%d sends of two calls", n)
	}
	req.Scope = "turn\x001"
	_, err = b.client.Call(ctx, req)
	wantCode(t, err, tga.ValidationError)
}

// TestGivenUpAttemptIsLicensedAtOnce: another executor waits while the permit is fresh,
// unless the one who has it gives it up.
func TestGivenUpAttemptIsLicensedAtOnce(t *testing.T) {
	b := start(t, "[[tool]]\nserver = \"remote\"\nname = \"put\"\nlicence = \"dedupe_args\"\npermit_time = \"1h\"\n")
	ctx := t.Context()
	req := runtime.BeginRequest{Request: runtime.Request{Server: "remote", Tool: "put", Key: "r"}, BeginID: "one"}
	begun, err := b.client.Begin(ctx, req)
	if err != nil || begun.Standing != runtime.BeginSend {
		t.Fatal(begun, err)
	}
	req.BeginID = "two"
	if other, err := b.client.Begin(ctx, req); err != nil || other.Standing != runtime.BeginWait {
		t.Errorf("while it is fresh: %+v %v", other, err)
	}
	wrong := begun.Permit
	wrong[0]++
	wantCode(t, b.client.GiveUp(ctx, begun.Result.TraceID, wrong, "", 0), tga.PermissionDenied)
	if other, err := b.client.Begin(ctx, req); err != nil || other.Standing != runtime.BeginWait {
		t.Errorf("given up by a stranger: %+v %v", other, err)
	}
	if err := b.client.GiveUp(ctx, begun.Result.TraceID, begun.Permit, "", 0); err != nil {
		t.Fatal(err)
	}
	if other, err := b.client.Begin(ctx, req); err != nil || other.Standing != runtime.BeginSend || other.Attempt != 2 {
		t.Errorf("given up: %+v %v", other, err)
	}
}

// TestWhoSubmitsDoesNotApprove: the submitter is the peer, and the peer alone: nothing in a
// TestEvidenceStaysInItsNamespace: traces may have the same evidence, so a peer that is
// bound to a namespace has to name a trace of its own whose log names it.
func TestEvidenceStaysInItsNamespace(t *testing.T) {
	s := newShop(t)
	b := startForPeers(t, s.config(""))
	ctx := t.Context()
	foreign, err := b.client.Call(ctx, book("k"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := b.client.Call(ctx, replay("k"))
	if err != nil {
		t.Fatal(err)
	}
	digest := res.Confirmation.EvidenceDigest
	own := book("own")
	own.Namespace = "other"
	mine, err := b.client.Call(ctx, own)
	if err != nil {
		t.Fatal(err)
	}
	own.Replay = true
	confirmed, err := b.client.Call(ctx, own)
	if err != nil {
		t.Fatal(err)
	}
	path := func(d tga.Digest, trace string) string { return "/v1/evidence/" + d.String() + "?" + trace }
	asks := []ask{
		{Method: "GET", Path: path(digest, ""), Status: 422},
		{Method: "GET", Path: path(digest, "trace="+foreign.TraceID.String()), Status: 404},
		{Method: "GET", Path: path(digest, "trace="+mine.TraceID.String()), Status: 404},
		{Method: "GET", Path: path(confirmed.Confirmation.EvidenceDigest, "trace="+mine.TraceID.String()), Status: 200},
		{Method: "GET", Path: "/v1/rollback-plan?trace=" + foreign.TraceID.String(), Status: 404},
		{Method: "GET", Path: "/v1/rollback-plan?trace=" + mine.TraceID.String() + "&trace=" + foreign.TraceID.String(), Status: 404},
		{Method: "GET", Path: "/v1/rollback-plan?trace=" + mine.TraceID.String(), Status: 200},
		{Method: "POST", Path: "/v1/traces/" + foreign.TraceID.String() + "/compensate", Status: 404},
		{Method: "POST", Path: "/v1/traces/" + foreign.TraceID.String() + "/delivered", Status: 404},
		{Method: "POST", Path: "/v1/keep", Body: `{"tool_server":"s","name":"n","namespace":"default"}`, Status: 403},
		{Method: "GET", Path: "/v1/kept?tool_server=s&namespace=default", Status: 403},
		{Method: "POST", Path: "/v1/traces/" + foreign.TraceID.String() + "/give-up", Body: `{"permit":"` + strings.Repeat("0", 32) + `"}`, Status: 404},
	}
	for i, a := range b.as(2007, peerGID, asks) {
		if a.Status != asks[i].Status {
			t.Errorf("%s %s: %d %s, want %d", a.Method, a.Path, a.Status, a.Answer, asks[i].Status)
		}
	}
	if _, _, undone := s.counts("k"); undone != 0 {
		t.Error("a stranger undid it")
	}
	if raw, err := b.client.Evidence(ctx, digest, tga.ID{}); err != nil || tga.Sum(raw) != digest {
		t.Errorf("who sees every namespace: %s %v", raw, err)
	}
	if status, header, _ := b.raw("GET", path(digest, ""), "", "If-None-Match", `"`+digest.String()+`"`); status != http.StatusNotModified {
		t.Errorf("with its ETag: %d %v", status, header)
	}
	_, err = b.client.Evidence(ctx, tga.Sum([]byte("nothing")), tga.ID{})
	wantCode(t, err, tga.NotFound)
}

// TestAppendedApprovalNeedsACapability: where there are keys, a decision that comes over
// TestApprovalIsSentUnderACapability: what a person approves carries a token that an
// auditor can check against the public keys, and a key that was deleted permits nothing
// trustExchange makes the requests of the routes about trust, for the document.
func trustExchange(t *testing.T, c *client.Client, s *shop) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	res, err := c.Call(ctx, book("trust-1"))
	must(err)
	confirmed, err := c.Call(ctx, replay("trust-1"))
	must(err)
	_, err = c.Evidence(ctx, confirmed.Confirmation.EvidenceDigest, res.TraceID)
	must(err)
	s.remove("item-1")
	waiting, err := c.Call(ctx, replay("trust-1"))
	wantCode(t, err, tga.ConfirmationRequired)
	_, err = c.Approvals(ctx)
	must(err)
	_, err = c.Decide(ctx, res.TraceID, wire.DecideRequest{Rationale: "the booking is really gone"})
	must(err)
	_, err = c.Recover(ctx, waiting.TraceID)
	must(err)
	keyless := book("")
	keyless.Scope, keyless.Step = "turn-1", "book"
	derived, err := c.Call(ctx, keyless)
	must(err)
	must(c.Delivered(ctx, derived.TraceID))
	undone, err := c.Compensate(ctx, derived.TraceID)
	must(err)
	_, err = c.RollbackPlan(ctx, []tga.ID{res.TraceID, derived.TraceID, undone.TraceID})
	must(err)
	_, err = c.Call(ctx, book(derived.Key))
	must(err)
	s.lose()
	s.set(func() { s.blind = func(int) bool { return true } })
	_, err = c.Call(ctx, book("trust-2"))
	wantCode(t, err, tga.EffectInDoubt)
	_, err = c.InDoubt(ctx)
	must(err)
	begun, err := c.Begin(ctx, runtime.BeginRequest{Request: runtime.Request{Server: "remote", Tool: "charge", Key: "trust-3"}, BeginID: "one"})
	must(err)
	must(c.GiveUp(ctx, begun.Result.TraceID, begun.Permit, "", 0))
	_, _, err = c.Keep(ctx, runtime.KeepRequest{Server: "remote", Name: "task", Value: []byte("1")})
	must(err)
	for _, err := range c.Kept(ctx, "", "remote") {
		must(err)
	}
	_, err = c.Finish(ctx, begun.Result.TraceID, begun.Permit, runtime.Finished{Reply: runtime.Reply{
		Status: tga.StatusSuccess, Changes: []tga.StateChange{{ResourceType: "a", ResourceID: "b", Operation: "create", Version: "1"}},
	}})
	must(err)
}

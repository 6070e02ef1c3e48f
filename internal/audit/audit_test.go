package audit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/audit"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/daemon/embed"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

const secret = "4111-1111"

// calls makes calls on a real store, with a daemon in this process: one that a person approves and an
// executor sends, one that is in doubt and then resolved, and one that is denied.
func calls(t *testing.T) *client.Client {
	t.Helper()
	conf, err := assemble.Parse("", []byte(`
[approval]
self = true
[store]
low_water_bytes = 1
[[server]]
id = "pay"
type = "external"
[[rule]]
tool = "refund"
decision = "DENY"
rationale = "no refunds are made here"
[[rule]]
tool = "charge"
decision = "NEEDS_APPROVAL"
rationale = "people see every charge"
[[rule]]
decision = "APPROVE"
rationale = "all other calls are approved"
`))
	if err != nil {
		t.Fatal(err)
	}
	d, err := embed.Start(t.Context(), filepath.Join(t.TempDir(), "store"), conf, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := d.Client(client.Options{Name: "test"})
	t.Cleanup(func() { c.Close(); d.Close() })
	ctx := context.Background()
	begin := func(tool, id string, want runtime.Standing) runtime.Begun {
		b, err := c.Begin(ctx, runtime.BeginRequest{BeginID: id, Request: runtime.Request{
			Server: "pay", Tool: tool, Key: id, Args: []byte(`{"card":"` + secret + `"}`),
		}})
		if err != nil || b.Standing != want {
			t.Fatalf("%s: %s, %v", tool, b.Standing, err)
		}
		return b
	}
	reply := runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{"card":"` + secret + `"}`), Summary: secret}
	asked := begin("charge", "one", runtime.BeginNeedsApproval)
	if _, err := c.Decide(ctx, asked.Result.TraceID, wire.DecideRequest{Approve: true, Rationale: "the customer is known: " + secret}); err != nil {
		t.Fatal(err)
	}
	b := begin("charge", "one", runtime.BeginSend)
	if _, err := c.Finish(ctx, b.Result.TraceID, b.Permit, runtime.Finished{Reply: reply}); err != nil {
		t.Fatal(err)
	}
	b = begin("post", "two", runtime.BeginSend)
	if err := c.GiveUp(ctx, b.Result.TraceID, b.Permit, "it died over "+secret, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Resolve(ctx, b.Result.TraceID, runtime.Resolution{Reply: runtime.Reply{Status: tga.StatusFailure, ErrorMessage: secret}, Evidence: []byte(`{"card":"` + secret + `"}`)}); err != nil {
		t.Fatal(err)
	}
	begin("refund", "three", runtime.BeginDenied)
	return c
}

// read reads the log from behind a cursor.
func read(t *testing.T, c *client.Client, after string) (all []audit.Record) {
	t.Helper()
	r := audit.NewReader(c.Trace)
	for line, err := range c.Log(t.Context(), after, false) {
		if err != nil {
			t.Fatal(err)
		}
		records, err := r.Records(t.Context(), line)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, records...)
	}
	return all
}

// TestOneRecordForEachStep: the records are in order, and each says who made the step and what its result
// was. Reading again from any cursor gives the same records, with the words of the request.
func TestOneRecordForEachStep(t *testing.T) {
	c := calls(t)
	all := read(t, c, "")
	var got []string
	ids := map[string]bool{}
	for _, r := range all {
		got = append(got, strings.TrimSpace(r.Tool+" "+r.Action+" "+r.Outcome))
		if ids[r.ID] || r.Time == 0 || r.Digest.IsZero() || r.Cursor == "" || r.Namespace != "default" || r.Server != "pay" || r.Caller == "" {
			t.Errorf("record %+v", r)
		}
		ids[r.ID] = true
		if by := r.By == r.Caller; by != (r.Action == "request" || r.Action == "effect" || r.Action == "note.vote" || r.Action == "decision" && r.Tool == "charge") && !strings.HasPrefix(r.Action, "note.") {
			t.Errorf("%s of %s is by %q, of %q", r.Action, r.Tool, r.By, r.Caller)
		}
	}
	want := []string{
		"charge request", "charge decision APPROVE", "charge note.vote", // one append
		"charge call", "charge effect SUCCESS",
		"post request", "post decision APPROVE", "post call", "post note.doubt", "post effect FAILURE",
		"refund request", "refund decision DENY",
	}
	if !slices.Equal(without(got, "note.attempt"), want) {
		t.Errorf("records\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for i := range all[:len(all)-1] {
		if all[i].Cursor == all[i+1].Cursor {
			continue // of one append: all of its records are delivered together
		}
		if again := read(t, c, all[i].Cursor); fmt.Sprint(again) != fmt.Sprint(all[i+1:]) {
			t.Errorf("after %s: %+v\nwant %+v", all[i].Cursor, again, all[i+1:])
		}
	}
}

func without(list []string, what string) (out []string) {
	for _, s := range list {
		if !strings.Contains(s, what) {
			out = append(out, s)
		}
	}
	return out
}

// TestRecordsHaveNoContent: no form of a record has the content of a call.
func TestRecordsHaveNoContent(t *testing.T) {
	all := read(t, calls(t), "")
	for _, format := range audit.Formats {
		var b strings.Builder
		for i := range all {
			if err := audit.Write(&b, format, "v1", &all[i]); err != nil {
				t.Fatal(err)
			}
		}
		if strings.Contains(b.String(), secret) || strings.Count(b.String(), "\n") != len(all) {
			t.Errorf("%s:\n%s", format, b.String())
		}
	}
}

// TestForms: the fields of a record in each form.
func TestForms(t *testing.T) {
	r := &audit.Record{
		ID: "t:4", Cursor: "9", Time: 1700000000123, TraceID: tga.ID{6: 0x70, 8: 0x80, 15: 1}, Action: "effect", State: "FAILED",
		By: "uid:7", Caller: "uid:1000", Agent: "a", Namespace: "default", Server: "pay", Tool: "charge",
		Outcome: "ERROR", Class: "permanent_failure", Code: "EFFECT_IN_DOUBT", Traceparent: "00-01-02-01",
	}
	const id = "00000000-0000-7000-8000-000000000001"
	for format, want := range map[string]map[string]any{
		"cloudevents": {
			"specversion": "1.0", "id": "t:4", "source": "/tgad/default", "type": "dev.tgad.call.effect", "subject": id,
			"time": "2023-11-14T22:13:20.123Z", "datacontenttype": "application/json", "traceparent": "00-01-02-01",
		},
		"ocsf": {
			"class_uid": 6003.0, "category_uid": 6.0, "activity_id": 99.0, "type_uid": 600399.0, "severity_id": 3.0, "time": 1700000000123.0,
			"status_id": 2.0, "status_code": "EFFECT_IN_DOUBT",
		},
	} {
		var b strings.Builder
		if err := audit.Write(&b, format, "v1", r); err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
			t.Fatal(err)
		}
		for name, v := range want {
			if got[name] != v {
				t.Errorf("%s: %s is %v, want %v", format, name, got[name], v)
			}
		}
	}
	var b strings.Builder
	if err := audit.Write(&b, "cef", "v1", r); err != nil {
		t.Fatal(err)
	}
	if want := "CEF:0|tgad|tgad|v1|effect|tgad call effect|7|rt=1700000000123 externalId=t:4 act=effect outcome=ERROR reason=EFFECT_IN_DOUBT suser=uid:1000 suid=a duser=uid:7 " +
		"destinationServiceName=pay cs1Label=trace cs1=" + id + " cs2Label=tool cs2=charge cs3Label=namespace cs3=default cs4Label=state cs4=FAILED " +
		"cs5Label=digest cs5=" + strings.Repeat("0", 64) + "\n"; b.String() != want {
		t.Errorf("got  %swant %s", b.String(), want)
	}
	for _, format := range []string{"", "xml", "CEF"} {
		if err := audit.Write(&b, format, "v1", r); tga.CodeOf(err) != tga.ValidationError {
			t.Errorf("%q: %v", format, err)
		}
	}
}

// TestHostileNamesStayInTheirFields: the name that a caller or an agent gives itself can begin no line and
// no field.
func TestHostileNamesStayInTheirFields(t *testing.T) {
	r := &audit.Record{Action: "request", Agent: "a=b|c\\d\nCEF:0|x suser=root", Caller: "uid:1000 suser=root"}
	for _, format := range audit.Formats {
		var b strings.Builder
		if err := audit.Write(&b, format, "v1|\n", r); err != nil {
			t.Fatal(err)
		}
		if strings.Count(b.String(), "\n") != 1 {
			t.Errorf("%s: %q", format, b.String())
		}
		if format == "cef" && (strings.Contains(b.String(), " suser=root") || strings.Count(b.String(), "\nCEF") != 0) {
			t.Errorf("%s", b.String())
		}
	}
}

// TestOCSFEventsAreOfTheirClass: every event has all the members that its published class requires, and none
// that the class does not know. This holds for events with little data too: that of a note, and that of a
// call whose request is erased.
func TestOCSFEventsAreOfTheirClass(t *testing.T) {
	c := jsonschema.NewCompiler()
	class, err := c.Compile("testdata/ocsf-1.3-api-activity.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	events := read(t, calls(t), "")
	if len(events) < 12 {
		t.Errorf("%d events", len(events))
	}
	erased := audit.Record{ID: "t:1", Cursor: "1", Time: 1700000000123, TraceID: tga.ID{15: 1}, Action: "request"}
	for _, r := range append(events, erased) {
		var b strings.Builder
		if err := audit.Write(&b, "ocsf", "v1", &r); err != nil {
			t.Fatal(err)
		}
		event, err := jsonschema.UnmarshalJSON(strings.NewReader(b.String()))
		if err == nil {
			err = class.Validate(event)
		}
		if err != nil {
			t.Errorf("%s: %v\n%s", r.Action, err, b.String())
		}
		if e := event.(map[string]any); fmt.Sprint(e["type_uid"]) != fmt.Sprintf("%v%02v", e["class_uid"], e["activity_id"]) {
			t.Errorf("type %v of class %v and activity %v", e["type_uid"], e["class_uid"], e["activity_id"])
		}
	}
}

// TestErasedRequestNamesNoNamespace: the records of a call whose request is erased say of no namespace that it is the
// call's, whichever of its steps comes first.
func TestErasedRequestNamesNoNamespace(t *testing.T) {
	id := tga.ID{6: 0x70, 8: 0x80, 15: 1}
	entry := func(kind tga.ArtifactType) audit.Append {
		return audit.Append{Cursor: "1", Entries: []audit.Entry{{LogEntry: tga.LogEntry{TraceID: id, Seq: 1, Type: kind}}}}
	}
	note := audit.Append{Cursor: "2", Notes: []tga.Note{{TraceID: id, Number: 1, Kind: tga.NoteErased}}}
	for name, appends := range map[string][]audit.Append{
		"from the request on": {entry(tga.RequestType), note}, "from a later entry on": {entry(tga.CallType), note}, "from a note on": {note, entry(tga.EffectType)},
	} {
		r := audit.NewLogReader(func(context.Context, tga.ID) (audit.Call, error) { return audit.Call{}, nil })
		for _, x := range appends {
			all, err := r.Of(t.Context(), x)
			if err != nil || len(all) != 1 {
				t.Fatalf("%s: %+v, %v", name, all, err)
			}
			if all[0].Namespace != "" {
				t.Errorf("%s: %s is in namespace %q", name, all[0].Action, all[0].Namespace)
			}
		}
	}
	whole := &tga.Artifact{Type: tga.RequestType, Request: &tga.ActionRequest{}}
	all, err := audit.NewLogReader(nil).Of(t.Context(), audit.Append{Entries: []audit.Entry{{LogEntry: tga.LogEntry{TraceID: id, Seq: 1, Type: tga.RequestType}, Artifact: whole}}})
	if err != nil || len(all) != 1 || all[0].Namespace != tga.DefaultNamespace {
		t.Errorf("a request that names none: %+v, %v", all, err)
	}
}

// TestAppendedStepsSayWhoAppendedThem: of a request, a decision and an effect that a peer made itself, the log
// names the peer in a note, and the records name it too.
func TestAppendedStepsSayWhoAppendedThem(t *testing.T) {
	c := calls(t)
	whole := read(t, c, "")
	id := chaintest.ID(1, 0)
	lease, err := c.Lease(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range chaintest.Artifacts(chaintest.Options{Seed: 1, Verdict: tga.Deny})[:2] {
		if _, err := c.Append(t.Context(), id, wire.AppendRequest{Lease: lease.Lease, Artifacts: []wire.NewArtifact{{Artifact: a.Canonical}}}); err != nil {
			t.Fatal(err)
		}
	}
	who, after := whole[0].Caller, whole[len(whole)-1].Cursor
	all := read(t, c, after)
	if len(all) != 4 {
		t.Fatalf("%d records: %+v", len(all), all)
	}
	for i, r := range all {
		if r.TraceID != id || r.By != who || r.Caller != who {
			t.Errorf("record %+v, want it by %s", r, who)
		}
		if i == 1 { // the request came before the first line
			if again := read(t, c, r.Cursor); fmt.Sprint(again) != fmt.Sprint(all[2:]) {
				t.Errorf("after %s: %+v\nwant %+v", r.Cursor, again, all[2:])
			}
		}
	}
}

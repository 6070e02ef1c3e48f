package travel

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

func id(n byte) tga.ID { return tga.ID{6: 0x70, 8: 0x80, 15: n} }

// wantNoZero fails for a struct in which a field was forgotten.
func wantNoZero(t *testing.T, v any, but ...string) {
	t.Helper()
	known := map[string]bool{}
	for _, name := range but {
		known[name] = true
	}
	s := reflect.ValueOf(v)
	for i := range s.NumField() {
		if f := s.Type().Field(i); f.IsExported() && !known[f.Name] && s.Field(i).IsZero() {
			t.Errorf("%T.%s is zero: the test says nothing about it", v, f.Name)
		}
	}
}

// TestEveryFieldOfAResultTravels: every field of a daemon's result reaches the client's.
func TestEveryFieldOfAResultTravels(t *testing.T) {
	change := tga.StateChange{ResourceType: "a", ResourceID: "b", Operation: "c", Version: "d", ETag: "e", ExternalRef: "f"}
	want := runtime.Result{
		TraceID: id(1), State: tga.Failed, Seq: 4, Digest: tga.Sum([]byte("d")), ToolCallID: id(2), Key: "k", Attempts: 3, Sent: 2, ResultBytes: 5, ResultDigest: tga.Sum([]byte("r")),
		Status: tga.StatusFailure, Class: ledger.ClassCompensated, Value: []byte(" 1\n"), Summary: "s", ErrorCode: "E", ErrorMessage: "m", ToolErrorCode: "own", RetryAfter: 7 * time.Second, ResolvedBy: "person", ResolvedVia: "model",
		ServedFrom: id(3), Replayed: true, Redacted: true, Rationale: "r", CompensatedBy: id(4), Changes: []tga.StateChange{change},
		Confirmation: &runtime.Confirmation{
			Checked: 3, Unchecked: 1, Skipped: true, EvidenceDigest: tga.Sum([]byte("e")),
			Mismatches: []runtime.Mismatch{
				{Change: change, Finding: runtime.Gone, Reason: "r"}, {Change: change, Finding: runtime.Changed}, {Change: change, Finding: runtime.CannotTell},
			},
		},
		Receipt: &runtime.Receipt{
			TraceID: id(1), Key: "k", HandOvers: []string{"h"}, Checkpoint: "c", Pending: 1, Leaves: []runtime.ReceiptLeaf{{Index: 1, Leaf: []byte("l"), Proof: [][]byte{{2}}}},
		},
	}
	wantNoZero(t, want)
	wantNoZero(t, *want.Receipt)
	wantNoZero(t, want.Receipt.Leaves[0])
	wantNoZero(t, *want.Confirmation)
	c := CallOf(want)
	c.ResultBase64 = want.Value
	var back wire.Call
	if err := wire.Decode(wire.Append(nil, c), &back); err != nil {
		t.Fatal(err)
	}
	got, err := ResultOf(back)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-sent +received\n%s", diff)
	}
	back.Confirmation.Mismatches[0].Finding = "exists"
	if _, err := ResultOf(back); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("a finding that is no mismatch: %v", err)
	}
}

// TestEveryFieldOfARequestTravels, except for the submitter, who is the peer.
func TestEveryFieldOfARequestTravels(t *testing.T) {
	req := runtime.Request{
		TraceID: id(1), Server: "s", Tool: "t", Args: []byte("{}"), Key: "k", Scope: "scope", Step: "step", Namespace: "n",
		PlanID: id(2), AgentID: id(3), Risk: tga.RiskHigh, Intent: "i", Resources: []tga.Resource{{Kind: "db", ID: "x"}},
		Deadline: time.UnixMilli(1e12), Retry: true, Fresh: true, Replay: true, Submitter: "ann", Meta: tga.Meta{"a": "b"},
	}
	wantNoZero(t, req)
	wantNoZero(t, RequestOf(req))
	req.Deadline = time.Unix(0, 0)
	wantNoZero(t, RequestOf(req))
}

// TestEveryFieldOfAnOutcomeTravels, except for the fields that only a dispatcher has.
func TestEveryFieldOfAnOutcomeTravels(t *testing.T) {
	r := runtime.Reply{
		Status: tga.StatusSuccess, Class: ledger.ClassSuccess, Result: []byte("1"), Truncated: true, ResultBytes: 1, ResultDigest: tga.Sum(nil),
		Summary: "s", ErrorCode: "E", ErrorMessage: "m", RetryAfter: time.Millisecond, Changes: []tga.StateChange{{ResourceType: "a", ResourceID: "b", Operation: "c"}},
	}
	wantNoZero(t, r, "Attachments", "Received", "ReceivedBytes") // a digest under the store's key
	wantNoZero(t, OutcomeOf(r), "Result")                        // the bytes are sent as base64
}

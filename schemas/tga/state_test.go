package tga

import "testing"

// The edges as Talos 9.3 and docs/SEMANTICS.md list them, written a second time.
var wantEdges = map[[3]string]string{
	{"", "action_request", ""}:                    "PENDING",
	{"PENDING", "supervisor_decision", "APPROVE"}: "AUTHORIZED",
	{"PENDING", "supervisor_decision", "DENY"}:    "DENIED",
	{"AUTHORIZED", "tool_call", ""}:               "EXECUTING",
	{"EXECUTING", "tool_effect", "SUCCESS"}:       "COMPLETED",
	{"EXECUTING", "tool_effect", "FAILURE"}:       "FAILED",
	{"EXECUTING", "tool_effect", "ERROR"}:         "FAILED",
	{"EXECUTING", "tool_effect", "DENIED"}:        "FAILED",
}

func TestTransitionGrid(t *testing.T) {
	verdicts := []string{"", Approve, Deny, NeedsApproval, StatusSuccess, StatusFailure, StatusDenied, StatusError, "approve", "x"}
	legal := 0
	for from := range State(9) {
		for artifact := range ArtifactType(7) {
			for _, verdict := range verdicts {
				to, ok := Next(from, artifact, verdict)
				want, wantOK := wantEdges[[3]string{from.String(), artifact.String(), verdict}]
				if from > Denied || artifact < RequestType || artifact > EffectType {
					want, wantOK = "", false
				}
				if ok != wantOK || to.String() != want {
					t.Errorf("%q + %s %q: %q, %v; want %q, %v", from, artifact, verdict, to, ok, want, wantOK)
				}
				if ok {
					legal++
				}
				if ok && from.Terminal() {
					t.Errorf("an edge leaves the terminal state %s", from)
				}
			}
		}
	}
	if legal != len(wantEdges) {
		t.Errorf("%d edges, want %d", legal, len(wantEdges))
	}
}

func TestPairGrid(t *testing.T) {
	want := map[[3]string]bool{{"PENDING", "PENDING", "action_request"}: true}
	for edge, to := range wantEdges {
		if edge[0] != "" {
			want[[3]string{edge[0], to, edge[1]}] = true
		}
	}
	for from := range State(9) {
		for to := range State(9) {
			for artifact := range ArtifactType(7) {
				known := from <= Denied && to <= Denied && artifact <= EffectType
				legal := known && want[[3]string{from.String(), to.String(), artifact.String()}]
				if got := LegalPair(from, to, artifact); got != legal {
					t.Errorf("%q to %q with %s: %v, want %v", from, to, artifact, got, legal)
				}
			}
		}
	}
}

func TestNamesReadBack(t *testing.T) {
	for s := Pending; s <= Denied; s++ {
		if got, err := ParseState(s.String()); err != nil || got != s {
			t.Errorf("%s reads back as %v (%v)", s, got, err)
		}
	}
	for a := RequestType; a <= EffectType; a++ {
		if got, err := ParseArtifactType(a.String()); err != nil || got != a {
			t.Errorf("%s reads back as %v (%v)", a, got, err)
		}
	}
	for _, name := range []string{"", "pending", "Pending", "PENDING ", "None"} {
		if _, err := ParseState(name); err == nil {
			t.Errorf("state %q is accepted", name)
		}
		if _, err := ParseArtifactType(name); err == nil {
			t.Errorf("artifact type %q is accepted", name)
		}
	}
}

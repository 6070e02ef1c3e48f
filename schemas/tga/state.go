package tga

// State is a state of the trace machine (Talos 9.3). The zero State means "no
// entry yet": only a genesis entry leaves it.
type State uint8

// The six states of a trace.
const (
	None State = iota
	Pending
	Authorized
	Executing
	Completed
	Failed
	Denied
)

var stateNames = [...]string{"", "PENDING", "AUTHORIZED", "EXECUTING", "COMPLETED", "FAILED", "DENIED"}

// String returns the contract's name, or "" for None.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return ""
}

// Terminal reports whether no transition leaves s.
func (s State) Terminal() bool { return s == Completed || s == Failed || s == Denied }

// ParseState reads one of the six names.
func ParseState(name string) (State, error) {
	for i, n := range stateNames {
		if i > 0 && n == name {
			return State(i), nil
		}
	}
	return None, Errorf(ValidationError, "state %q is not one of the six", clip(name))
}

// ArtifactType is one of the four documents of a trace.
type ArtifactType uint8

// The four artifact types, in the order a trace meets them.
const (
	RequestType ArtifactType = 1 + iota
	DecisionType
	CallType
	EffectType
)

var artifactTypeNames = [...]string{"", "action_request", "supervisor_decision", "tool_call", "tool_effect"}

// String returns the contract's name of t.
func (t ArtifactType) String() string {
	if int(t) < len(artifactTypeNames) {
		return artifactTypeNames[t]
	}
	return ""
}

// ParseArtifactType reads one of the four names.
func ParseArtifactType(name string) (ArtifactType, error) {
	for i, n := range artifactTypeNames {
		if i > 0 && n == name {
			return ArtifactType(i), nil
		}
	}
	return 0, Errorf(ValidationError, "artifact type %q is not one of the four", clip(name))
}

// The verdicts that decide an edge: decision of a supervisor_decision,
// outcome.status of a tool_effect.
const (
	Approve       = "APPROVE"
	Deny          = "DENY"
	NeedsApproval = "NEEDS_APPROVAL"

	StatusSuccess = "SUCCESS"
	StatusFailure = "FAILURE"
	StatusDenied  = "DENIED"
	StatusError   = "ERROR"
)

type edge struct {
	from     State
	artifact ArtifactType
	verdict  string // "" where the artifact type alone decides
	to       State
}

// edges is the whole machine (Talos 9.3; docs/SEMANTICS.md). A transition that is not listed
// here is illegal.
var edges = [...]edge{
	{None, RequestType, "", Pending},
	{Pending, DecisionType, Approve, Authorized},
	{Pending, DecisionType, Deny, Denied},
	{Authorized, CallType, "", Executing},
	{Executing, EffectType, StatusSuccess, Completed},
	{Executing, EffectType, StatusFailure, Failed},
	{Executing, EffectType, StatusError, Failed},
	{Executing, EffectType, StatusDenied, Failed},
}

// Next returns the state that an artifact of type t with the given verdict leads
// to. ok is false where the machine has no such edge; NEEDS_APPROVAL is no edge.
func Next(from State, t ArtifactType, verdict string) (to State, ok bool) {
	for _, e := range edges {
		if e.from == from && e.artifact == t && e.verdict == verdict {
			return e.to, true
		}
	}
	return None, false
}

// LegalPair reports whether an entry may carry from_state, to_state and artifact type
// together. Genesis is written PENDING → PENDING. Package wal/chain checks whether an entry is
// at the right place in its trace.
func LegalPair(from, to State, t ArtifactType) bool {
	if t == RequestType {
		return from == Pending && to == Pending
	}
	for _, e := range edges {
		if e.from == from && e.to == to && e.artifact == t {
			return true
		}
	}
	return false
}

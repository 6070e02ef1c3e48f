package runtime

import (
	"context"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// Finding is what the world says of a recorded change.
type Finding uint8

// Findings. All but Exists are mismatches.
const (
	CannotTell Finding = iota
	Exists             // it stands as it was left
	Gone               // it is no longer there
	Changed            // it is there and different
)

// String returns the word that notes and logs use.
func (f Finding) String() string {
	return [...]string{"cannot_tell", "exists", "gone", "changed"}[f]
}

// Evidence is what a finding or a probe's answer rests on. It is kept, and its digest
// is in the chain.
type Evidence struct {
	Source string // what was asked: "GET https://…", "stat …"; no secrets
	Detail []byte // JSON: what it answered, as far as it matters; at most 64 KiB is kept
}

// Verifier looks whether a change still stands. It changes nothing in the world. It
// makes its own retries: an error is a mismatch.
type Verifier interface {
	Verify(ctx context.Context, change tga.StateChange) (Finding, Evidence, error)
}

// Prober asks a tool server whether a call ran, by the idempotency key in it.
type Prober interface {
	Probe(ctx context.Context, call Call) (Probed, error)
}

// Probed is a tool server's answer about a call in doubt. An error of Probe counts as
// [ledger.ProbeUnknown].
type Probed struct {
	Answer ledger.ProbeAnswer
	// Fenced says that from now on the server refuses the attempts made so far: asking
	// burnt or claimed the key. Without it "did not run" may be untrue a moment later.
	Fenced bool
	// Reply is the effect, with [ledger.ProbeRan].
	Reply    Reply
	Evidence Evidence
}

// ReplayMode says what becomes of a record whose changes no longer stand.
type ReplayMode uint8

// Replay modes.
const (
	ReplayStrict ReplayMode = iota // the replay fails for good; nothing is served or sent again
	ReplayWarn                     // served, and every mismatch reported
	ReplayHuman                    // waits until a person confirms or rejects the record
)

// String returns the configuration's word.
func (m ReplayMode) String() string { return [...]string{"strict", "warn", "human"}[m] }

// Grant is what an approval permits: this call and no other.
type Grant struct {
	TraceID, PlanID tga.ID
	Server, Tool    string
	ArgsDigest      tga.Digest // of the canonical arguments
	SchemaDigest    tga.Digest // of the tool's definition; zero where the server has none
	ReadOnly        bool
}

// Capabilities mints and checks the tokens that approvals are turned into. An error of
// Check carries CAPABILITY_INVALID.
type Capabilities interface {
	Mint(ctx context.Context, g Grant) (token string, err error)
	Check(ctx context.Context, token string, g Grant) error
}

// TokenChecker checks the tokens of one remote supervisor. An error carries
// CAPABILITY_INVALID.
type TokenChecker interface {
	Check(ctx context.Context, token string, g Grant) error
}

// Inverse is the call that undoes another.
type Inverse struct {
	Server, Tool string
	Args         []byte // JSON object
}

// Trust is what a Runtime asks beside the log. Every field may be nil.
type Trust struct {
	// Verifier returns the verifier for a resource type, nil where there is none: such
	// a change counts as not checked.
	Verifier func(resourceType string) Verifier
	// Prober returns what can ask the tool's server whether a key ran; it is used under
	// a probe licence.
	Prober func(server, tool string) Prober
	// Outcome reads a reply by the tool's rules: its class and what it changed. It may
	// set Class and Changes of the reply, and make a FAILURE of a SUCCESS; of what else it
	// sets nothing is taken.
	Outcome func(call Call, reply *Reply) error
	// SelfApproval lets the one who handed a request in approve it.
	SelfApproval bool
	// Capabilities mints and checks capabilities; RequireCapability refuses a call
	// whose decision carries none.
	Capabilities      Capabilities
	RequireCapability bool
	// Supervisor returns what checks the signatures of the remote supervisor that who is,
	// nil for everybody else. Only its approvals are taken from outside this process, and
	// a call that it approved is sent only while it is still configured.
	Supervisor func(who string) TokenChecker
	// Schema returns the digest of a tool's definition as its server has it now.
	Schema func(ctx context.Context, server, tool string) (tga.Digest, error)
	// Inverse returns the call that undoes a settled one; ok is false where there is
	// none: the effect cannot be undone.
	Inverse func(call *tga.ToolCall, effect *tga.ToolEffect, result []byte) (inverse Inverse, ok bool, err error)
}

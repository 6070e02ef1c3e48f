package runtime

import (
	"context"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// Finding says whether a recorded change still stands.
type Finding uint8

// Findings. All but Exists are mismatches.
const (
	CannotTell Finding = iota
	Exists             // it is there as it was recorded
	Gone               // it is no longer there
	Changed            // it is there and different
)

// String returns the word that notes and logs use.
func (f Finding) String() string {
	return [...]string{"cannot_tell", "exists", "gone", "changed"}[f]
}

// Evidence supports a finding or a probe's answer. It is kept, and its digest
// is in the chain.
type Evidence struct {
	Source string // what was asked: "GET https://…", "stat …"; no secrets
	Detail []byte // JSON: the relevant part of the answer; at most 64 KiB is kept
}

// Verifier checks whether a change still stands. It changes nothing in the world. It
// makes its own retries: an error counts as a mismatch.
type Verifier interface {
	Verify(ctx context.Context, change tga.StateChange) (Finding, Evidence, error)
}

// Prober asks a tool server whether a call ran. The call names it by its idempotency key.
type Prober interface {
	Probe(ctx context.Context, call Call) (Probed, error)
}

// Probed is a tool server's answer about a call in doubt. An error of Probe counts as
// [ledger.ProbeUnknown].
type Probed struct {
	Answer ledger.ProbeAnswer
	// Fenced says that from now on the server refuses the attempts made so far, because the
	// question used up or claimed the key. Without it "did not run" may become false a moment
	// later.
	Fenced bool
	// Reply is the tool's answer; set with [ledger.ProbeRan].
	Reply    Reply
	Evidence Evidence
}

// ReplayMode says what happens to a record whose changes no longer stand.
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

// Capabilities mints and checks the tokens that are made from approvals. An error of
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
	// Verifier returns the verifier for a resource type. Nil if there is none: such
	// a change counts as not checked.
	Verifier func(resourceType string) Verifier
	// Prober returns the prober that can ask the tool's server whether a key ran; it is
	// used under a probe licence.
	Prober func(server, tool string) Prober
	// Outcome applies the tool's rules to a reply: they give its class and its changes. It
	// may set Class and Changes of the reply, and turn a SUCCESS into a FAILURE with a code
	// and a message; everything else that it sets is ignored.
	Outcome func(call Call, reply *Reply) error
	// SelfApproval lets the submitter of a request approve it.
	SelfApproval bool
	// Capabilities mints and checks capabilities; RequireCapability refuses a call
	// whose decision carries none.
	Capabilities      Capabilities
	RequireCapability bool
	// Supervisor returns the checker for the signatures of the remote supervisor named who,
	// nil for every other name. From outside this process, only approvals of such a supervisor
	// are accepted. A call that it approved is sent only while it is still configured.
	Supervisor func(who string) TokenChecker
	// Schema returns the digest of a tool's definition as its server has it now.
	Schema func(ctx context.Context, server, tool string) (tga.Digest, error)
	// Inverse returns the call that undoes a settled call; ok is false if there is
	// none, so the effect cannot be undone.
	Inverse func(call *tga.ToolCall, effect *tga.ToolEffect, result []byte) (inverse Inverse, ok bool, err error)
}

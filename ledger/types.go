package ledger

import (
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// Key names one logical call. Namespace keeps tenants apart.
type Key struct {
	Namespace string
	Server    string // tool_server
	Tool      string // tool_name
	Key       string // idempotency_key
}

// Status is the state of a ledger record.
type Status uint8

// Statuses of a record. Expired is a settled record that shrank to its digest.
const (
	Reserved Status = 1 + iota
	Settled
	Expired
)

// Class is the outcome class of an effect.
type Class uint8

// Outcome classes (Aetheris 1.0 ②).
const (
	ClassNone          Class = iota
	ClassSuccess             // no side effect
	ClassCommitted           // the call changed the world
	ClassRetryable           // definitely not executed; an explicit new attempt may be made
	ClassPermanent           // failed for good; repeating the call needs a new key
	ClassCompensatable       // partly done, to be undone
	ClassCompensated         // undone
	ClassNotSent             // no attempt reached the transport: no effect, the key is free again
)

// Attempts counts the sends of a call that were made durable before they happened.
type Attempts struct {
	Count  uint32 // highest attempt number marked
	Unsent uint32 // attempts known not to have been sent; Count-Unsent of them may have been
	// UnsentMask says which attempts were not sent: bit i is attempt Count-i. It covers the
	// newest 64 attempts.
	UnsentMask uint64
	First      tga.Millis
	Newest     tga.Millis
	Epoch      uint64 // lease epoch of the newest attempt
	// External says that the newest attempt belongs to a remote executor; Permit is
	// the digest of its secret.
	External bool
	Permit   tga.Digest
}

// Record is the ledger's row for one key.
type Record struct {
	Status        Status
	RequestDigest tga.Digest // of the proposal: tga.RequestDigest, or the store's keyed form of it
	ToolCallID    tga.ID
	TraceID       tga.ID
	Seq           uint64 // of the reserving EXECUTING entry
	Attempts      Attempts

	// Set when settled.
	Class        Class
	Abandoned    bool // settled by abandon: what happened stays unknown
	EffectSeq    uint64
	EffectDigest tga.Digest // of the tool_effect

	ConfirmedAt    tga.Millis
	EvidenceDigest tga.Digest
}

// LicenceKind is what an operator states about repeating a call of a tool.
type LicenceKind uint8

// Licences (docs/SEMANTICS.md). The zero value attests nothing.
const (
	Park LicenceKind = iota
	Probe
	DedupeKey
	DedupeArgs
	ReadOnly
)

// Licence says whether a call in doubt may be sent again.
type Licence struct {
	Kind LicenceKind
	// Window is how long the server honours a key, across its own restarts, counted
	// from the first attempt. DedupeKey only.
	Window time.Duration
	// Margin is the least time between the latest possible arrival of a re-send and the end of
	// Window. Zero means [DefaultMargin].
	Margin time.Duration
	// MaxInFlight is how long a request can be under way after its sender died. Probe only. Zero
	// means that only the probe itself can fence.
	MaxInFlight time.Duration
}

// Liveness is what a store knows about the process that holds a reservation.
type Liveness uint8

// Liveness of a holder.
const (
	HolderUnknown Liveness = iota // cannot be known: wait
	HolderAlive                   // is executing the call now
	HolderGone                    // its process died, or it gave the call up
)

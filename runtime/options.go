package runtime

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// Options configure a Runtime. The zero value is the safest: profile strict, every
// tool a write tool whose calls wait when in doubt.
type Options struct {
	Profile ledger.Profile
	// Policy returns what the operator attests about a tool. Nil attests nothing.
	Policy func(server, tool string) Policy
	// AgentID is used for requests that name no agent. Zero means an id made by New.
	AgentID tga.ID
	// Trust holds what the runtime asks beside the log.
	Trust Trust
	// MaxAnswer is how many bytes of a tool's answer are kept. Of a longer answer only the
	// length and the digest are kept. 0 means [DefaultMaxAnswer].
	MaxAnswer int64
	// Repanic says what happens after a panic in something that was passed to [New], above all
	// in a Dispatcher. The runtime records the panic (of a Dispatch as doubt, with its stack),
	// logs its stack, and returns it as an error that wraps a [*PanicError]. With Repanic the
	// runtime then panics again, with that error as the value, out of the method that was
	// called; in a goroutine of [Runtime.RunTimers] or [Runtime.FireTimers] this ends the process. The panic is
	// only logged if the caller never sees the error of such a part (Policy, Lock, Observe,
	// Tracer; a Prober, Verifier or Outcome, whose failure is a finding).
	//
	// A panic may still end the process with "found pointer to free object", if it passes through a function
	// that defers and that takes the address of a large argument of its own: a fault of the Go runtime, seen with
	// Go 1.26.8. The engine and this package have no such function. What comes after is a crash like any other.
	Repanic bool
	// Logger receives panics, with their stacks. Nil means [slog.Default].
	Logger *slog.Logger
	// Redact removes from calls what must not be stored. Nil removes nothing.
	Redact Redactor
	// Limits bound the input of callers; zero fields mean the defaults.
	Limits tga.Limits
	// Lock reports whether the file at a path is locked: HolderAlive if it is, HolderGone if
	// not, HolderUnknown if that cannot be seen from here. Remote executors and their clients
	// hold such locks while they live. Nil sees no file.
	Lock func(path string) ledger.Liveness

	// Receipt makes the receipts of [Runtime.Receipt]. It is the method of an evidence.Keeper,
	// which signs checkpoints of the store. With nil there are no receipts.
	Receipt func(ctx context.Context, trace tga.ID) (Receipt, error)

	// Observe, if it is set, is called for refusals and doubts as they happen. It must not
	// block and is called from any goroutine.
	Observe func(Event)

	// Tracer, if it is set, makes spans of calls and their steps. The runtime then keeps the
	// traceparent of the run that makes a call with its request, so that later runs can link to it.
	Tracer Tracer

	// Clock, Monotonic, NewID and Rand are for tests. Nil means the real ones. Monotonic
	// counts the time that really passes; nil takes the monotonic reading of Clock's times.
	Clock     func() time.Time
	Monotonic func() time.Duration
	NewID     func() tga.ID
	Rand      io.Reader
}

// Policy is what the operator attests about one tool. The zero Policy is a write tool
// about which nothing is attested.
type Policy struct {
	// Class is tga.ClassRead only for a tool without effects; "" means write.
	Class string
	// Licence says whether a call in doubt may be sent again. LicenceSet distinguishes an
	// explicit park from no licence; profile spec-9.3 treats the two differently.
	Licence    ledger.Licence
	LicenceSet bool
	// ClientLicence lets [BeginRequest].Licence count, within the times of Licence, which may
	// then be set for every kind of licence. Without it a program can only claim a stricter licence.
	ClientLicence bool
	// SendTimeout bounds one dispatch; zero means [DefaultSendTimeout].
	SendTimeout time.Duration
	// Resends is how many licensed re-sends one run makes before it leaves the call in
	// doubt for a later one; zero means [DefaultResends], negative none.
	Resends int
	// PermitTime is how long a remote executor is assumed to execute its attempt. After that
	// time the licence decides the answer of every Begin, and no Begin gets that permit again.
	// Zero means SendTimeout. It may be shorter: then an executor that hangs is replaced sooner,
	// and its send must begin within PermitTime.
	PermitTime time.Duration
	// RepeatWindow is how long an undelivered answer is served to an identical call of another
	// connection. After that the answer is BeginStale: the caller only learns of it. Zero means
	// an hour.
	RepeatWindow time.Duration

	// Replay says what happens to a settled record whose changes no longer stand. The changes
	// are verified before the record is served to a recovery, or to a request that asks for
	// that; with ConfirmAll, before every repeat. ConfirmEvery is how long a confirmation
	// holds; zero means that every such use verifies again.
	Replay       ReplayMode
	ConfirmAll   bool
	ConfirmEvery time.Duration
	// Probe is the back-off between questions about a call in doubt under a probe licence.
	// Retry is the back-off between new attempts after a retryable_failure; there are at most
	// Retry.Attempts (0 = none). Both are timers in the store, which [Runtime.RunTimers] serves.
	Probe Backoff
	Retry Backoff
	// AutoCompensate undoes a compensatable_failure automatically.
	AutoCompensate bool
}

// Backoff sets the waits between repetitions: First, then twice as long each time up to Max.
// Up to half of each wait is taken off at random.
type Backoff struct {
	First    time.Duration // 0 = 1 s
	Max      time.Duration // 0 = 1 h
	Attempts int           // 0 = none for Retry, without end for Probe
}

// wait returns how long to wait before repetition n, counted from 1. r is random.
func (b Backoff) wait(n uint32, r uint64) time.Duration {
	first, most := b.First, b.Max
	if first <= 0 {
		first = time.Second
	}
	if most <= 0 {
		most = time.Hour
	}
	d := min(first, most)
	for i := uint32(1); i < n && d < most; i++ {
		d = min(2*d, most)
	}
	return d/2 + time.Duration(r%uint64(d/2+1))
}

// Defaults of a Policy.
const (
	DefaultSendTimeout = 30 * time.Second
	DefaultResends     = 2
	DefaultMaxAnswer   = 64 << 20
)

func (p Policy) withDefaults() Policy {
	if p.Class == "" {
		p.Class = tga.ClassWrite
	}
	if p.SendTimeout <= 0 {
		p.SendTimeout = DefaultSendTimeout
	}
	if p.Resends == 0 {
		p.Resends = DefaultResends
	}
	if p.PermitTime <= 0 {
		p.PermitTime = p.SendTimeout
	}
	return p
}

func (o Options) withDefaults() Options {
	if o.Policy == nil {
		o.Policy = func(string, string) Policy { return Policy{} }
	}
	if o.Lock == nil {
		o.Lock = func(string) ledger.Liveness { return ledger.HolderUnknown }
	}
	if o.MaxAnswer <= 0 {
		o.MaxAnswer = DefaultMaxAnswer
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.NewID == nil {
		// NewV7 fails only if the system has no randomness. Nothing here can go on
		// then, so Must panics.
		o.NewID = func() tga.ID { return tga.ID(uuid.Must(uuid.NewV7())) }
	}
	if o.AgentID.IsZero() {
		o.AgentID = o.NewID()
	}
	return o
}

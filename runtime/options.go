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
	// AgentID stands in requests that name no agent. Zero means an id made by New.
	AgentID tga.ID
	// Trust is whom the runtime asks beside the log.
	Trust Trust
	// MaxAnswer is how many bytes of a tool's answer are kept; of a longer one its length
	// and digest are. 0 means [DefaultMaxAnswer].
	MaxAnswer int64
	// Repanic says what becomes of a panic in something that was handed to [New], a
	// Dispatcher above all. It is recorded as what it is (of a Dispatch as doubt, with its
	// stack), its stack is logged, and it is returned as an error that wraps a
	// [*PanicError]. With Repanic the panic then goes on, with that error as its value, out
	// of the method that was called; in a goroutine of [Runtime.RunTimers] it ends the
	// process. Where the error of such a part never reaches the caller (Policy, Lock,
	// Observe, Tracer; a Prober, Verifier or Outcome, whose failure is a finding) its panic is
	// logged alone.
	Repanic bool
	// Logger is told of panics, with their stacks. Nil means [slog.Default].
	Logger *slog.Logger
	// Redact takes out of calls what must not be stored. Nil takes out nothing.
	Redact Redactor
	// Limits bound what a caller hands in; zero fields mean the defaults.
	Limits tga.Limits
	// Lock says whether the file of a path is locked: HolderAlive, HolderGone where it is
	// not, HolderUnknown where it cannot be seen from here. Remote executors and their
	// clients are known by such files. Nil sees none.
	Lock func(path string) ledger.Liveness

	// Receipt gives the receipts of [Runtime.Receipt]: the method of an evidence.Keeper, which
	// signs checkpoints of the store. Nil gives none.
	Receipt func(ctx context.Context, trace tga.ID) (Receipt, error)

	// Observe, where it is set, is told of refusals and doubts as they happen. It must not
	// block and is called from any goroutine.
	Observe func(Event)

	// Tracer, where it is set, makes spans of calls and their steps. The traceparent of the run that
	// makes a call is then kept with its request, for later ones to link to.
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
	// Licence says what doubt permits. LicenceSet tells an explicit park from none,
	// which profile spec-9.3 tells apart.
	Licence    ledger.Licence
	LicenceSet bool
	// ClientLicence lets [BeginRequest].Licence count, within the times of Licence, which may
	// then be set whatever its kind. Without it a program can only tighten.
	ClientLicence bool
	// SendTimeout bounds one dispatch; zero means [DefaultSendTimeout].
	SendTimeout time.Duration
	// Resends is how many licensed re-sends one run makes before it leaves the call in
	// doubt for a later one; zero means [DefaultResends], negative none.
	Resends int
	// PermitTime is how long a remote executor is taken to be at work; after it every
	// Begin answers by licence, and none is handed that permit. Zero means SendTimeout. It may be
	// shorter: then an executor that hangs is replaced sooner, and its send must begin within
	// PermitTime.
	PermitTime time.Duration
	// RepeatWindow is how long an answer that was not delivered is served to an identical
	// call of another connection; later it is only told. Zero means an hour.
	RepeatWindow time.Duration

	// Replay says what becomes of a settled record whose changes no longer stand. Such a
	// record is looked at before it is served to a recovery or to a request that asks
	// for it; with ConfirmAll before every repeat. ConfirmEvery is how long a
	// confirmation holds; zero means that each asks anew.
	Replay       ReplayMode
	ConfirmAll   bool
	ConfirmEvery time.Duration
	// Probe spaces the questions about a call in doubt under a probe licence, Retry the
	// new attempts after a retryable_failure, of which it makes Retry.Attempts (0 = none).
	// Both are timers in the store: [Runtime.RunTimers] keeps them.
	Probe Backoff
	Retry Backoff
	// AutoCompensate undoes a compensatable_failure without being asked.
	AutoCompensate bool
}

// Backoff spaces repetitions: First, then twice as long each time up to Max, of which
// a random half is taken off.
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
		// NewV7 fails only where the system has no randomness, and then nothing here
		// can go on: Must panics.
		o.NewID = func() tga.ID { return tga.ID(uuid.Must(uuid.NewV7())) }
	}
	if o.AgentID.IsZero() {
		o.AgentID = o.NewID()
	}
	return o
}

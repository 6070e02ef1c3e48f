package ledger

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// DefaultMargin is the margin of a dedupe_key licence that names none: no send is made that
// late in the window. It covers the difference between this clock and the server's.
const DefaultMargin = time.Minute

// Spec93Window is the dedupe_key window that profile spec-9.3 assumes of a server
// whose operator named none.
const Spec93Window = 24 * time.Hour

// Profile says how a call in doubt is treated if the operator states nothing about the tool.
type Profile uint8

// Profiles. The zero value is the safest.
const (
	Strict Profile = iota // a second send needs a licence
	Spec93                // Talos 9.3 I3 to the letter: a keyed write is dispatched again
	Talos                 // as Strict; and what is written passes the public Talos schemas
)

// NeedsLicence reports whether a second send needs the operator's licence. If it does, a
// retryable failure may be followed by an explicit new attempt.
func (p Profile) NeedsLicence() bool { return p != Spec93 }

// Effective returns the licence that applies to a call of the given tool class. l is the
// configured licence; explicit says that the operator named it. A class other than read
// counts as write.
//
// A read_only licence does not cover a call that counts as write: the risk level of a request
// can raise a call's class above the class that the operator gave the tool.
//
// Effective keeps the times of l even if it changes the kind: they bound those of a claim, see
// [Claimed].
func Effective(l Licence, explicit bool, class string, profile Profile) Licence {
	read := class == tga.ClassRead
	if l.Kind == ReadOnly && !read {
		l.Kind, explicit = Park, false
	}
	given := explicit || l.Kind != Park
	switch {
	case !given && read:
		l.Kind = ReadOnly
	case !given && profile == Spec93:
		l.Kind = DedupeKey
	}
	if l.Kind == DedupeKey && l.Window == 0 && profile == Spec93 {
		l.Window = Spec93Window
	}
	return l
}

// Validate returns VALIDATION_ERROR if tools of a class cannot have the licence.
func (l Licence) Validate(class string) error {
	bad := func(format string, args ...any) error {
		return tga.Errorf(tga.ValidationError, "licence "+l.Kind.String()+": "+format, args...)
	}
	switch {
	case l.Kind.String() == "":
		return bad("kind %d is none", l.Kind)
	case class != tga.ClassRead && class != tga.ClassWrite && class != "":
		return bad("class %.80q is neither read nor write", class)
	case l.Kind == ReadOnly && class != tga.ClassRead:
		return bad("the tool's class is %q: only a read tool has no effect", class)
	case l.Window < 0 || l.Margin < 0 || l.MaxInFlight < 0:
		return bad("a duration is negative")
	case l.Kind == DedupeKey && l.Window == 0:
		return bad("needs the window for which the server honours a key")
	case l.Kind == DedupeKey && l.Window <= l.margin():
		return bad("window %v is not over its margin %v: it would license nothing", l.Window, l.margin())
	case l.Kind != DedupeKey && (l.Window != 0 || l.Margin != 0):
		return bad("window and margin belong to %v", DedupeKey)
	case l.Kind != Probe && l.MaxInFlight != 0:
		return bad("max_in_flight belongs to %v", Probe)
	}
	return nil
}

// Attested returns l in the form in which it is stored with an attempt: its kind, followed by its
// window and margin or its time in flight, in milliseconds. Rounding never makes the licence wider.
func (l Licence) Attested() string {
	b := []byte(l.Kind.String())
	switch {
	case l.Kind == DedupeKey:
		b = strconv.AppendInt(append(b, ' '), l.Window.Milliseconds(), 10)
		b = strconv.AppendInt(append(b, ' '), ceilMillis(l.margin()), 10)
	case l.Kind == Probe && l.MaxInFlight > 0:
		b = strconv.AppendInt(append(b, ' '), ceilMillis(l.MaxInFlight), 10)
	}
	return string(b)
}

// ParseAttested reads what [Licence.Attested] writes and nothing else.
func ParseAttested(s string) (l Licence, err error) {
	words := strings.Split(s, " ")
	if l.Kind, err = ParseLicence(words[0]); err != nil {
		return Licence{}, err
	}
	var times [2]time.Duration
	for i, w := range words[1:min(len(words), 3)] {
		ms, err := strconv.ParseInt(w, 10, 64)
		if err != nil || ms < 0 || ms > math.MaxInt64/int64(time.Millisecond) {
			return Licence{}, tga.Errorf(tga.ValidationError, "licence of an attempt %.80q: %.30q is no number of milliseconds", s, w)
		}
		times[i] = time.Duration(ms) * time.Millisecond
	}
	switch l.Kind {
	case DedupeKey:
		l.Window, l.Margin = times[0], times[1]
	case Probe:
		l.MaxInFlight = times[0]
	}
	if l.Attested() != s {
		return Licence{}, tga.Errorf(tga.ValidationError, "licence of an attempt %.80q: want a kind and its times", s)
	}
	return l, nil
}

// ValidateOutcome checks a configured rule that gives an answer the class c. doubtful says
// that the answer does not prove that the tool did nothing (5xx, timeout, reset). Under park
// and probe a rule cannot turn such an answer into retryable_failure: the new attempt would
// be a second send without a licence.
func (l Licence) ValidateOutcome(c Class, doubtful bool) error {
	if c == ClassNotSent {
		return tga.Errorf(tga.ValidationError, "%v is what this program saw, and no class of an answer", c)
	}
	if c == ClassRetryable && doubtful && (l.Kind == Park || l.Kind == Probe) {
		return tga.Errorf(tga.ValidationError, "licence %v: an answer that leaves the effect in doubt cannot be %v", l.Kind, c)
	}
	return nil
}

func (l Licence) margin() time.Duration {
	if l.Margin == 0 {
		return DefaultMargin
	}
	return l.Margin
}

// windowLeft returns how long after now a re-send may begin at the latest. It takes at most
// send, and has to arrive before the server may have forgotten the key. 0 means that it may not
// begin at all. Rounding never makes the result longer.
func (l Licence) windowLeft(first, now tga.Millis, send time.Duration) time.Duration {
	elapsed := int64(now - first)
	left := l.Window.Milliseconds() - ceilMillis(l.margin()) - ceilMillis(send) - elapsed
	if elapsed < 0 || left <= 0 {
		return 0
	}
	return time.Duration(left) * time.Millisecond
}

// FencedByTime reports whether the newest attempt can no longer arrive, so that a probe's
// "did not run" stays true. dead is the time at which its sender was known to be dead, 0 = not
// known; asked is the time at which the probe was sent. A remote executor's attempt is never
// fenced by time, because this process cannot see the executor die.
func (l Licence) FencedByTime(r *Record, dead, asked tga.Millis) bool {
	return l.Kind == Probe && l.MaxInFlight > 0 && !r.Attempts.External &&
		dead >= r.Attempts.Newest && dead > 0 &&
		int64(asked-dead) > ceilMillis(l.MaxInFlight)
}

func ceilMillis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if time.Duration(ms)*time.Millisecond < d {
		ms++
	}
	return ms
}

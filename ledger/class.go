package ledger

import (
	"slices"

	"github.com/tgad/tgad/schemas/tga"
)

// classesOf says which classes an outcome status may carry. The first is what the
// status means where the effect names no class: a success is taken to have changed
// the world, a failure to be final, for both close the key for good.
//
// A status and a class that contradict each other are refused rather than repaired:
// a SUCCESS that called itself retryable_failure would open its key for a second
// execution. ERROR may carry any class: it speaks of the record (an answer too long to
// keep), the class of the world. Only ERROR may be not_sent: the other statuses are
// what a tool server said, and who was not reached said nothing.
var classesOf = map[string][]Class{
	tga.StatusSuccess: {ClassCommitted, ClassSuccess},
	tga.StatusFailure: {ClassPermanent, ClassRetryable, ClassCompensatable, ClassCompensated},
	tga.StatusError:   {ClassPermanent, ClassRetryable, ClassCompensatable, ClassCompensated, ClassCommitted, ClassSuccess, ClassNotSent},
	tga.StatusDenied:  {ClassPermanent, ClassRetryable},
}

// ClassOf returns the outcome class of an effect: what meta.outcome_class says,
// otherwise what outcome.status implies. It returns [ClassNone] where meta names no
// class, or one that contradicts the status.
func ClassOf(effect *tga.Artifact) Class {
	allowed := classesOf[effect.Effect.Outcome.Status]
	if len(allowed) == 0 {
		return ClassNone
	}
	said, ok := effect.Meta[tga.MetaOutcomeClass]
	if !ok || said == nil {
		return allowed[0]
	}
	for _, c := range allowed {
		if said == c.String() {
			return c
		}
	}
	return ClassNone
}

// Agree reports whether an effect of this status may carry the class.
func (c Class) Agree(status string) bool { return slices.Contains(classesOf[status], c) }

// Done reports whether replay takes the call as done (Aetheris 1.0 ②).
func (c Class) Done() bool {
	return c == ClassSuccess || c == ClassCommitted || c == ClassCompensated
}

// Retryable reports whether a scheduler may make a new attempt, under a new trace.
func (c Class) Retryable() bool { return c == ClassRetryable }

// Releases reports whether a later trace may reserve the key again. After not_sent any
// repeat of the request may; after retryable_failure only an explicit new attempt.
func (c Class) Releases() bool { return c == ClassNotSent || c == ClassRetryable }

// abandoned reports whether the effect closes a call whose fate stays unknown
// (docs/FORMAT.md, outcome of an abandoned call).
func abandoned(effect *tga.Artifact) bool {
	o := effect.Effect.Outcome
	return o.Status == tga.StatusError && o.Error != nil && o.Error.Code == string(tga.EffectInDoubt)
}

package ledger

import (
	"slices"

	"github.com/tgad/tgad/schemas/tga"
)

// classesOf says which classes an outcome status may carry. The first is the class of an
// effect that names none: a success counts as a change of the world, and a failure as
// final, because both close the key for good.
//
// A status and a class that contradict each other are refused and not repaired: a SUCCESS
// with class retryable_failure would open its key for a second execution. ERROR may carry
// any class: the status describes the record (an answer too long to keep), the class
// describes the world. Only ERROR may be not_sent: the other statuses are answers of a tool
// server, and a server that was not reached gave none.
var classesOf = map[string][]Class{
	tga.StatusSuccess: {ClassCommitted, ClassSuccess},
	tga.StatusFailure: {ClassPermanent, ClassRetryable, ClassCompensatable, ClassCompensated},
	tga.StatusError:   {ClassPermanent, ClassRetryable, ClassCompensatable, ClassCompensated, ClassCommitted, ClassSuccess, ClassNotSent},
	tga.StatusDenied:  {ClassPermanent, ClassRetryable},
}

// ClassOf returns the outcome class of an effect: meta.outcome_class if that is set,
// otherwise the class that outcome.status implies. It returns [ClassNone] if
// meta.outcome_class is no class, or contradicts the status.
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

// Done reports whether replay treats the call as done (Aetheris 1.0 ②).
func (c Class) Done() bool {
	return c == ClassSuccess || c == ClassCommitted || c == ClassCompensated
}

// Retryable reports whether a scheduler may make a new attempt, under a new trace.
func (c Class) Retryable() bool { return c == ClassRetryable }

// Releases reports whether a later trace may reserve the key again. After not_sent any
// repeat of the request may. After retryable_failure only an explicit new attempt may.
func (c Class) Releases() bool { return c == ClassNotSent || c == ClassRetryable }

// abandoned reports whether the effect closes a call although it is unknown whether the
// call ran (docs/FORMAT.md, outcome of an abandoned call).
func abandoned(effect *tga.Artifact) bool {
	o := effect.Effect.Outcome
	return o.Status == tga.StatusError && o.Error != nil && o.Error.Code == string(tga.EffectInDoubt)
}

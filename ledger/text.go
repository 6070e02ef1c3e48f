package ledger

import "github.com/tgad/tgad/schemas/tga"

// The text forms of configuration files, vectors and output. If a type has no name for its
// zero value, index 0 of its table is "", which is refused as input.
var (
	statusNames   = [...]string{Reserved: "reserved", Settled: "settled", Expired: "expired"}
	classNames    = [...]string{ClassSuccess: "success", ClassCommitted: "side_effect_committed", ClassRetryable: "retryable_failure", ClassPermanent: "permanent_failure", ClassCompensatable: "compensatable_failure", ClassCompensated: "compensated", ClassNotSent: "not_sent"}
	licenceNames  = [...]string{Park: "park", Probe: "probe", DedupeKey: "dedupe_key", DedupeArgs: "dedupe_args", ReadOnly: "read_only"}
	livenessNames = [...]string{HolderUnknown: "unknown", HolderAlive: "alive", HolderGone: "gone"}
	profileNames  = [...]string{Strict: "strict", Spec93: "spec-9.3", Talos: "talos"}
	actionNames   = [...]string{Send: "send", Resend: "resend", ProbeFirst: "probe", RecordEffect: "record", Wait: "wait", Serve: "serve", Doubt: "doubt", Abandoned: "abandoned", Conflict: "conflict", KeyExpired: "expired"}
	answerNames   = [...]string{ProbeUnknown: "unknown", ProbeRan: "ran", ProbeNotRan: "not_ran"}
)

// String returns the text form of s, "" for an unknown value. The other String methods do the
// same.
func (s Status) String() string      { return name(statusNames[:], s) }
func (c Class) String() string       { return name(classNames[:], c) }
func (k LicenceKind) String() string { return name(licenceNames[:], k) }
func (l Liveness) String() string    { return name(livenessNames[:], l) }
func (p Profile) String() string     { return name(profileNames[:], p) }
func (a Action) String() string      { return name(actionNames[:], a) }
func (a ProbeAnswer) String() string { return name(answerNames[:], a) }

// ParseStatus reads a text form in its exact spelling. The error is VALIDATION_ERROR. The
// other Parse functions do the same.
func ParseStatus(s string) (Status, error) { return parse[Status](statusNames[:], "status", s) }
func ParseClass(s string) (Class, error)   { return parse[Class](classNames[:], "outcome class", s) }
func ParseLicence(s string) (LicenceKind, error) {
	return parse[LicenceKind](licenceNames[:], "licence", s)
}
func ParseLiveness(s string) (Liveness, error) { return parse[Liveness](livenessNames[:], "holder", s) }
func ParseProfile(s string) (Profile, error)   { return parse[Profile](profileNames[:], "profile", s) }
func ParseAction(s string) (Action, error)     { return parse[Action](actionNames[:], "action", s) }
func ParseProbeAnswer(s string) (ProbeAnswer, error) {
	return parse[ProbeAnswer](answerNames[:], "probe answer", s)
}

func name[T ~uint8](names []string, v T) string {
	if int(v) < len(names) {
		return names[v]
	}
	return ""
}

func parse[T ~uint8](names []string, what, s string) (T, error) {
	for i, n := range names {
		if n != "" && n == s {
			return T(i), nil
		}
	}
	return 0, tga.Errorf(tga.ValidationError, "%s %.80q: want one of %q", what, s, known(names))
}

func known(names []string) []string {
	var out []string
	for _, n := range names {
		if n != "" {
			out = append(out, n)
		}
	}
	return out
}

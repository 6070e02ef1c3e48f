package ledger

import "github.com/tgad/tgad/schemas/tga"

// Claimed returns the licence of a call whose program claims one. Such a program runs the tool itself,
// and states what running it again would do. own is the operator's licence, from [Effective]; its times
// bound those of the claim, whatever kind own is. counts says that the operator accepts claims for the
// tool. Without counts, a claim can only make the licence stricter.
//
// The margin of a claim is ignored, and a time that it does not name is the operator's. For a claim that
// [CheckClaim] refuses, Claimed returns as much of it as is allowed, and park if the tool cannot have
// such a licence.
func Claimed(own Licence, claim *Licence, counts bool, class string) Licence {
	if claim == nil {
		return own
	}
	switch c := own.completes(*claim); {
	case c.Validate(class) != nil:
		return Licence{}
	case counts:
		return own.bound(c)
	default:
		return stricterLicence(own, c)
	}
}

// CheckClaim returns nil if a claim is granted in full. VALIDATION_ERROR: the tool cannot have such a
// licence. PERMISSION_DENIED: the operator does not let the program claim that much.
func CheckClaim(own Licence, claim *Licence, counts bool, class string) error {
	if claim == nil {
		return nil
	}
	c := own.completes(*claim)
	if err := c.Validate(class); err != nil {
		return err.(*tga.Error).At("/licence")
	}
	held := Claimed(own, claim, counts, class)
	switch {
	case held.Attested() == c.Attested():
		return nil
	case counts:
		return tga.Errorf(tga.PermissionDenied, "the program's licence %q is over the operator's bounds, which allow %q", c.Attested(), held.Attested()).At("/licence")
	}
	return tga.Errorf(tga.PermissionDenied, "the program's licence %q allows more than the operator's, %q, and counts only where the tool's row says client_licence = true", c.Attested(), own.Attested()).At("/licence")
}

// completes returns the claim with the times of l for those that it does not name.
func (l Licence) completes(claim Licence) Licence {
	claim.Margin = 0
	switch claim.Kind {
	case DedupeKey:
		if claim.Margin = l.margin(); claim.Window == 0 {
			claim.Window = l.Window
		}
	case Probe:
		if claim.MaxInFlight == 0 {
			claim.MaxInFlight = l.MaxInFlight
		}
	}
	return claim
}

// bound limits the times of c by those of l: c's window is at most l's, and its time in flight at
// least l's.
func (l Licence) bound(c Licence) Licence {
	if c.Kind == DedupeKey && l.Window > 0 {
		c.Window = min(c.Window, l.Window)
	}
	if c.Kind == Probe {
		c.MaxInFlight = max(c.MaxInFlight, l.MaxInFlight)
	}
	return c
}

// stricterLicence returns a licence that never allows what either of two licences of the same tool
// forbids. That is the stricter of the two; of two of one kind, that kind with the stricter times; and
// park for a probe and a dedupe_key, because each of these allows something that the other forbids.
func stricterLicence(a, b Licence) Licence {
	always := func(l Licence) bool { return l.Kind == DedupeArgs || l.Kind == ReadOnly }
	switch {
	case always(a):
		return b
	case always(b):
		return a
	case a.Kind != b.Kind:
		return Licence{}
	case a.Kind == Probe && (a.MaxInFlight == 0 || b.MaxInFlight == 0):
		return Licence{Kind: Probe} // one of them does not accept fencing by time
	}
	b = a.bound(b)
	b.Margin = max(a.Margin, b.Margin)
	return b
}

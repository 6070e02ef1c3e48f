package ledger

import "github.com/tgad/tgad/schemas/tga"

// Claimed returns the licence of a call whose program claims one: it runs the tool itself, and says
// what running it again would do. own is the operator's licence, from [Effective]; its times bound
// those of the claim, whatever kind it is. counts is the operator's word that claims count for the
// tool. Without it a claim can only make the licence stricter.
//
// A claim's margin is not looked at, and a time that it does not name is the operator's. A claim that
// [CheckClaim] refuses gets the most that it may, and park where it is none for the tool.
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

// CheckClaim reports whether a claim gets all that it asks for: VALIDATION_ERROR where the tool cannot
// have such a licence, PERMISSION_DENIED where the operator does not let the program claim as much.
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

// completes gives a claim the times that it does not name.
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

// bound cuts the times of c down to l's: a window is no longer, a time in flight no shorter.
func (l Licence) bound(c Licence) Licence {
	if c.Kind == DedupeKey && l.Window > 0 {
		c.Window = min(c.Window, l.Window)
	}
	if c.Kind == Probe {
		c.MaxInFlight = max(c.MaxInFlight, l.MaxInFlight)
	}
	return c
}

// stricterLicence is one that allows a call in doubt nothing that either of two licences of the same
// tool forbids, at any time: the stricter one; of one kind the stricter times; and park for a probe
// beside a window, for each of these two allows something that the other forbids.
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
		return Licence{Kind: Probe} // one of them never takes time for an answer
	}
	b = a.bound(b)
	b.Margin = max(a.Margin, b.Margin)
	return b
}

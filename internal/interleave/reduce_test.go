package interleave

import "github.com/tgad/tgad/ledger"

// The reductions: what is told apart no more, and which orders are not followed. The package's
// comment has the arguments, and TestReductionsSpareNoOutcome compares what comes of them with an
// exploration without.

// forget is for the end of a call: what the actor keeps of it is in its memory. Ids and random
// numbers that nothing holds are made again.
func (a *actor) forget() {
	a.seen, a.now.found = uint64(a.lives), 0
	if !a.w.whole {
		a.minted = a.kept
	}
}

// keeps notes that what the actor has made so far is on the disk or in its memory.
func (a *actor) keeps() { a.kept = a.minted }

// unseen reports whether nobody can tell when a message arrives, and whether: nobody waits for
// its answer or will, nobody looks at the tool, and no time passes that the tool could tell from
// another. Its fate is decided when no actor can do anything.
func (n *network) unseen(m *message) bool {
	w := n.w
	if w.whole || m.waiting || w.Ticks+w.Steps > 0 || w.Policy.Licence.Kind == ledger.Probe {
		return false
	}
	for _, a := range w.actors {
		if a.script.looks || a.memory["message"] == m.name() {
			return false
		}
	}
	return true
}

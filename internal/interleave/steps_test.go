package interleave

import "hash/maphash"

// A way is found by executing it from the start, so most of the time goes into orders that end
// in a state seen before: the same moves of others in another order. Those are foretold here.
//
// What one actor does between two gates depends on two things: on what all share (the disk, the
// leases, what the runtime remembers, the network, the tool server, the clock) and on where the
// actor is and what it has learnt. It changes nothing but these two. So once a move was made
// from a pair of them, the pair that it leads to is known wherever the same pair stands beside
// other actors, and so is the whole state: each actor's part of its hash stands for itself. An
// alternative that leads to a state seen before is not executed.
//
// That holds where the move wakes nobody: each other actor stands at a gate, has come to an
// end, or waits for the network alone. And it holds where no time passes after the move: some
// actor stands at a gate then. Elsewhere the move is made.
//
// A crash is foretold by what it leaves.
//
// [steps.learn] panics when a move changes what is another actor's, and TestForecastsSpareNoState
// compares the states that are reached with those of an exploration that makes every move.
type steps struct {
	to map[uint64]pair
	// on are states that an alternative on the list leads to, and crashes that are on it.
	on map[uint64]bool
}

// pair is what a move of one actor leads to.
type pair struct {
	shared, own uint64
	gate        bool // the actor stands at a gate
}

func newSteps() steps { return steps{to: map[uint64]pair{}, on: map[uint64]bool{}} }

// forecast is what is known of a move before it is made.
type forecast struct {
	kind kind
	who  int    // the actor that runs, 0 where none does
	from uint64 // the hash of the move and of what it depends on
	rest uint64 // the parts of all other actors
	free bool   // it wakes nobody
	gate bool   // another actor stands at a gate
	on   bool   // it is the one of its state, or of its crash, that is on the list
}

func (w *world) forecast(m move, s state) forecast {
	f := forecast{kind: m.kind, free: true}
	if m.who != nil {
		f.who = m.who.id
	}
	for _, a := range w.actors {
		if a.id == f.who {
			continue
		}
		f.rest += s.actors[a.id]
		at := !a.over && a.now.at != ""
		f.gate = f.gate || at
		f.free = f.free && (at || a.over || a.now.calls)
	}
	name := maphash.String(seed, m.name())
	switch m.kind {
	case single:
		f.from = mix(name, s.shared, s.actors[f.who])
	case crash:
		f.from = mix(name, s.rests)
	case crashAppended:
		f.from = mix(name, s.rests, s.shared, s.actors[f.who])
	}
	return f
}

// learn notes what a move led to.
func (k *steps) learn(f forecast, w *world, after state) {
	if f.kind != single || !f.free {
		return
	}
	var rest uint64
	p := pair{shared: after.shared, own: after.actors[f.who]}
	for _, a := range w.actors {
		if a.id == f.who {
			p.gate = a.now.at != ""
		} else {
			rest += after.actors[a.id]
		}
	}
	if rest != f.rest {
		panic("a move of one actor changed another one")
	}
	k.to[f.from] = p
}

// known reports whether the state that a move leads to was seen, or is led to by another
// alternative on the list. Where neither is so, the move is the one that leads there.
func (k *steps) known(f *forecast, seen map[uint64]bool) bool {
	to := f.from
	switch {
	case f.kind == others:
		return false
	case f.kind == single:
		p, ok := k.to[f.from]
		if !ok || !f.free || !f.gate && !p.gate {
			return false
		}
		if to = p.shared + p.own + f.rest; seen[to] {
			return true
		}
	}
	if !f.on && k.on[to] {
		return true
	}
	f.on, k.on[to] = true, true
	return false
}

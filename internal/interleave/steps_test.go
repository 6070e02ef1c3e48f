package interleave

import "hash/maphash"

// steps predicts the outcome of moves. An order of moves is explored by executing it from the
// start, so most of the time would go into orders that end in a state seen before.
//
// What one actor does between two gates depends on two things: on what all actors share (the
// disk, the leases, what the runtime remembers, the network, the tool server, the clock), and on
// the actor's own place and knowledge. It changes only these two. So once a move was made from
// such a pair, the pair that it leads to is known, whatever the other actors are doing. Each
// actor has its own part in the hash of the state, so the whole new state is known too. An
// alternative that leads to a state seen before is not executed.
//
// This is valid if the move wakes nobody: each other actor waits at a gate, has ended, or waits
// for the network alone. And it is valid if no time passes after the move: then some actor waits
// at a gate. In other cases the move is made.
//
// A crash is predicted from what it leaves.
//
// [steps.learn] panics if a move changes another actor's part, and TestForecastsSpareNoState
// compares the states that are reached with those of an exploration that makes every move.
type steps struct {
	to map[uint64]pair
	// on are the states that alternatives on the list lead to, and the crashes on the list.
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

// known reports whether the state that a move leads to was seen before, or is the target of
// another alternative on the list. If neither is so, it notes this move as the one to that state.
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

package interleave

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

var seed = maphash.MakeSeed()

// mix adds numbers to a hash, in their order.
func mix(h uint64, more ...uint64) uint64 {
	for _, v := range more {
		h = (h ^ v) * 0xff51afd7ed558ccd
		h ^= h >> 32
	}
	return h
}

// state is the hash of everything on which the rest of an execution depends, by parts.
type state struct {
	shared uint64         // all but where each actor is and what it has learnt
	actors map[int]uint64 // each actor's own part, by its number
	rests  uint64         // what a crash of the process leaves
}

// whole is the hash of all of it. Nothing depends on the order of its parts, so one of them
// can be exchanged.
func (s state) whole() uint64 {
	sum := s.shared
	for _, own := range s.actors {
		sum += own
	}
	return sum
}

// hasher writes a part of the state.
type hasher struct{ maphash.Hash }

func newHasher() *hasher {
	h := new(hasher)
	h.SetSeed(seed)
	return h
}

func (h *hasher) num(n ...uint64) {
	var b [8]byte
	for _, v := range n {
		binary.LittleEndian.PutUint64(b[:], v)
		h.Write(b[:])
	}
}

func (h *hasher) text(list ...string) {
	for _, s := range list {
		h.num(uint64(len(s)))
		h.WriteString(s)
	}
}

// state hashes the disk and the process, the place and the knowledge of each actor, the
// network, what the tool server did, what was said and shown, and the faults that may still
// happen.
func (w *world) state() state {
	disk, process := newHasher(), newHasher()
	if err := w.disk.Fingerprint(disk); err != nil {
		panic(err)
	}
	b := w.left
	disk.num(uint64(b.Crashes), uint64(b.Resets), uint64(b.Refusals), uint64(b.Ticks), uint64(b.Steps), uint64(b.Deaths), uint64(b.Rules), uint64(b.Changes), uint64(b.Losses), uint64(w.ruleAt), uint64(w.definition), uint64(w.lost), uint64(w.wall), uint64(time.Since(w.start)))
	w.net.hash(disk)
	w.hashChecks(disk)
	if err := w.disk.Leases(process); err != nil {
		panic(err)
	}
	for _, m := range w.net.messages {
		process.num(flag(m.waiting))
	}
	w.hashProcess(process)

	s := state{shared: mix(disk.Sum64(), process.Sum64()), actors: make(map[int]uint64, len(w.actors)), rests: disk.Sum64()}
	for _, a := range w.actors {
		own := newHasher()
		own.num(uint64(a.id), flag(a.over))
		for _, k := range slices.Sorted(maps.Keys(a.memory)) {
			own.text(k, a.memory[k])
		}
		if !a.over {
			own.num(uint64(a.lives), uint64(a.kept.ids), uint64(a.kept.random))
		}
		if !a.process {
			s.rests += own.Sum64()
		}
		if !a.over {
			own.num(a.seen, uint64(a.minted.ids), uint64(a.minted.random), flag(a.now.mayDie != nil))
			own.text(a.now.at, a.now.waits)
		}
		s.actors[a.id] = own.Sum64()
	}
	return s
}

// hash writes the state of the network and the tool server.
func (n *network) hash(h *hasher) {
	for _, m := range n.messages {
		h.num(uint64(m.Attempt), flag(m.flying), flag(m.acted), uint64(len(m.result)))
		h.text(m.name(), m.answer)
		h.num(uint64(min(time.Since(m.sent), tick)))
	}
	for _, k := range slices.Sorted(maps.Keys(n.effects)) {
		h.text(k, n.args[k])
		h.num(uint64(n.effects[k]), uint64(n.first[k].Sub(n.w.start)))
	}
}

// hashChecks writes what the properties remember of the past. The order in which two actors
// added to it does not count.
func (w *world) hashChecks(h *hasher) {
	for _, m := range w.net.messages {
		h.num(uint64(w.looked[m.TraceID]), uint64(w.ended[m.TraceID]), flag(w.abandoned[m.TraceID]))
	}
	var told, shown, given, noted uint64
	for _, a := range w.answers {
		told += maphash.Comparable(seed, a)
	}
	for trace, what := range w.shown {
		shown += mix(maphash.Comparable(seed, trace), maphash.String(seed, what))
	}
	for trace := range w.given {
		given += maphash.Comparable(seed, trace)
	}
	for trace, what := range w.isNoted {
		noted += mix(maphash.Comparable(seed, trace), maphash.String(seed, what))
	}
	h.num(told, shown, given, noted, uint64(len(w.sent)))
	w.votes.hash(h)
	for _, k := range slices.Sorted(maps.Keys(w.alive)) {
		h.text(k)
	}
	for _, k := range slices.Sorted(maps.Keys(w.meant)) {
		h.text(k)
		h.num(uint64(w.meant[k]))
	}
}

// hashProcess writes what the runtime remembers and no log holds: which senders it knows to be
// gone, which names are locked, and which jumps of the clock it has noticed. It reads private
// fields of the runtime, because no other code needs them.
func (w *world) hashProcess(h *hasher) {
	for _, rt := range w.rts {
		w.hashDaemon(h, reflect.ValueOf(rt).Elem())
	}
}

func (w *world) hashDaemon(h *hasher, rt reflect.Value) {
	var sum uint64
	m := (*sync.Map)(rt.FieldByName("departures").Elem().FieldByName("marks").Addr().UnsafePointer())
	m.Range(func(trace, what any) bool {
		sum += maphash.String(seed, fmt.Sprint(trace, what))
		return true
	})
	h.num(sum)
	names := rt.FieldByName("names").Elem().FieldByName("held")
	h.num(uint64(names.Len()))
	for _, name := range slices.SortedFunc(slices.Values(names.MapKeys()), func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) }) {
		lock := names.MapIndex(name).Elem()
		h.text(name.String())
		h.num(uint64(lock.FieldByName("wants").Int()), uint64(lock.FieldByName("free").Len()))
	}
	if len(w.rts) > 1 { // which of them gave a permit, no log says
		ages := rt.FieldByName("executors").Elem().FieldByName("ages")
		sum = 0
		for _, trace := range ages.MapKeys() {
			age := ages.MapIndex(trace)
			sum += maphash.String(seed, fmt.Sprint(trace, age.FieldByName("attempt"), age.FieldByName("read"), age.FieldByName("age"), age.FieldByName("told")))
		}
		h.num(sum)
	}
	if w.Steps > 0 {
		fmt.Fprint(h, rt.FieldByName("clock").Field(0).Elem().FieldByName("spans"))
	}
}

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

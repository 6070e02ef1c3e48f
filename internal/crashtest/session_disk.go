package crashtest

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Corrupt damages one file of a copy of the store (D1).
func (s *Session) Corrupt() []Violation {
	want := s.p.Observe()
	if want.Err != nil || s.image != nil {
		return nil // out of order, or another image is due: Check judges it
	}
	img := s.w.Crash(0)
	names := filesOf(img.FS)
	if len(names) == 0 {
		return nil // no directory yet
	}
	name := names[s.rng.IntN(len(names))]
	b, err := readFile(img.FS, img.FS.PathJoin(Dir, name))
	if err != nil || len(b) == 0 {
		return nil
	}
	d := damage{file: name, at: s.rng.IntN(len(b)), cut: s.rng.IntN(2) == 0, flip: byte(1 + s.rng.IntN(255))}
	if err := writeFile(img.FS, img.FS.PathJoin(Dir, name), d.apply(b)); err != nil {
		return []Violation{{Property: "D1", Detail: err.Error()}}
	}
	s.run.Counts.add(&s.run.Counts.Corruptions, 1)
	bad := corrupted(img, s.Scenario, want, extends)
	for i := range bad {
		bad[i].Detail = d.String() + ": " + bad[i].Detail
	}
	if len(bad) > 0 && bad[0].Property != "L1" {
		s.run.Counts.add(&s.run.Counts.CorruptionsSilent, 1)
	}
	return bad
}

// extends says where a log is not the continuation of what it was: recovery may have
// gone on with traces that were open.
func extends(was, is *Observed) (bad []Violation) {
	for id, s := range was.Traces {
		t := is.Traces[id]
		if t == nil || len(t.Entries) < len(s.Entries) {
			bad = append(bad, Violation{Property: "L3", Trace: id, Detail: "entries are gone"})
			continue
		}
		for i := range s.Entries {
			if s.Entries[i].Digest != t.Entries[i].Digest {
				bad = append(bad, Violation{Property: "L3", Trace: id, Detail: fmt.Sprintf("entry %d is another", i+1)})
			}
		}
	}
	return bad
}

// backup is a world in which a backup of its store lies.
type backup struct {
	img  Image
	name string
}

// Backup makes a backup. What is done after it is lost in a restore from it.
func (s *Session) Backup() {
	s.w.OnOp(nil) // an armed error is for another command: a failed backup is the engine's to test
	s.backups++
	name := fmt.Sprintf("backup%d", s.backups)
	if s.p.DB.Backup(context.Background(), name) == nil {
		s.backup = &backup{s.w.Crash(0), name}
	} // else it is poisoned: Check judges what is left
}

// Restore restores the newest backup in a separate world, whose journal has everything that
// was done since. While it is frozen, the restored store must send nothing. After it was
// unfrozen it must send nothing that may have been sent before, and no write call unless its
// caller says that the key is fresh.
func (s *Session) Restore() []Violation {
	if s.backup == nil {
		s.Backup()
	}
	if s.backup == nil {
		return nil
	}
	w := s.backup.img.World()
	w.events, w.now = s.w.Journal(), tga.MillisOf(s.w.Clock())
	w.log(Event{Kind: Opened})
	o := w.Options(s.Scenario.Conf)
	if err := engine.Restore(context.Background(), s.backup.name, "restored", o); err != nil {
		return []Violation{{Property: "L1", Detail: "restore: " + err.Error()}}
	}
	db, err := engine.Open("restored", o)
	if err != nil {
		return []Violation{{Property: "L1", Detail: "open what was restored: " + err.Error()}}
	}
	rt, err := w.runtime(db, s.Scenario.Conf, runtime.DispatcherFunc(w.Dispatch))
	var bad []Violation
	if err != nil {
		bad = append(bad, Violation{Property: "L1", Detail: err.Error()})
	} else {
		bad = s.inQuarantine(&Process{World: w, DB: db, RT: rt, Conf: s.Scenario.Conf}, 3)
	}
	if err := db.Close(); err != nil {
		bad = append(bad, Violation{Property: "L1", Detail: "close what was restored: " + err.Error()})
	}
	return bad
}

// inQuarantine judges what a store does that was just made from a backup or an export. repeats is how
// many of the calls that were sent are made again.
func (s *Session) inQuarantine(p *Process, repeats int) (bad []Violation) {
	ctx := context.Background()
	fail := func(format string, args ...any) {
		bad = append(bad, Violation{Property: "S3", Detail: fmt.Sprintf(format, args...)})
	}
	sends := func(what string, allowed func(Event) bool, do func()) (n int) {
		before := len(p.World.Journal())
		do()
		for _, e := range p.World.Journal()[before:] {
			if e.Kind == Sent && !allowed(e) {
				fail("%s sends %s of key %q", what, e.Tool, e.Key)
			} else if e.Kind == Sent {
				n++
			}
		}
		return n
	}
	none := func(Event) bool { return false }
	reads := func(e Event) bool { name, _ := licenceOf(e.Tool); return name == "read_only" }
	if p.DB.Stats().Frozen == "" {
		fail("a restored store is not frozen")
	}
	sends("a frozen store", none, func() { ignore(p.RT.RecoverAll(ctx, 4)) })
	if err := p.DB.Unfreeze(ctx, true, "operator"); err != nil {
		return append(bad, Violation{Property: "L1", Detail: "unfreeze: " + err.Error()})
	}
	sends("recovery in quarantine", reads, func() { ignore(p.RT.RecoverAll(ctx, 4)) })
	// Keys that were used before the loss, or in the interval that is lost.
	for _, e := range some(s.rng, repeats, p.World.Journal(), func(e Event) bool { return e.Kind == Sent && !e.Remote && e.Call.Server == Allowed }) {
		sends("a repeated call in quarantine", reads, func() {
			ignore(p.Call(0, runtime.Request{Server: e.Call.Server, Tool: e.Call.Tool, Key: e.Call.Key, Args: e.Call.Args}))
		})
	}
	req := Request(Allowed, "park."+Answers, "in-quarantine", 5)
	sends("a call in quarantine with a key that nobody vouches for", none, func() { ignore(p.Call(0, req)) })
	req.Key, req.Fresh = "vouched-for", true
	if n := sends("", func(Event) bool { return true }, func() { ignore(p.Call(0, req)) }); n != 1 {
		fail("a call in quarantine with a key that its caller vouches for is sent %d times", n)
	}
	if err := p.DB.EndQuarantine(ctx, "operator"); err != nil {
		return append(bad, Violation{Property: "L1", Detail: "end the quarantine: " + err.Error()})
	}
	if n := sends("", func(Event) bool { return true }, func() { ignore(p.Call(0, Request(Allowed, "park."+Answers, "after", 5))) }); n != 1 {
		fail("a call after the quarantine is sent %d times", n)
	}
	return bad
}

// some picks at most n of what is wanted in a list.
func some[T any](rng *rand.Rand, n int, list []T, want func(T) bool) (picked []T) {
	for _, i := range rng.Perm(len(list)) {
		if len(picked) < n && want(list[i]) {
			picked = append(picked, list[i])
		}
	}
	return picked
}

// quarantine restores a few backups.
func (r *Run) quarantine(seed uint64) {
	for i := range uint64(4) {
		s, err := r.NewSession(seed<<8+i, Config{})
		if err != nil {
			return // Explore reports it
		}
		s.Create(Allowed, "dedupe_args", LosesCall, 0, 5, false)
		s.Backup()
		s.Create(Allowed, "park", Answers, 1, 5, false)
		r.report(s.last, "quarantine", s.Restore())
		if err := s.Close(); err != nil {
			r.report(s.last, "quarantine", []Violation{{Property: "L1", Detail: err.Error()}})
		}
	}
}

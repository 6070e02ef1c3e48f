package crashtest

import (
	"slices"
	"testing"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// lie is Observed with one trace changed: one that reserved its key and ended.
func lie(t *testing.T, o *Observed, change func(s *Seen)) *Observed {
	t.Helper()
	c := *o
	c.Traces = map[tga.ID]*Seen{}
	told := false
	for id, s := range o.Traces {
		if !told && s.Record != nil && s.Record.TraceID == id && s.Record.Status == ledger.Settled {
			told = true
			changed := *s
			changed.Entries = slices.Clone(s.Entries)
			change(&changed)
			s = &changed
		}
		c.Traces[id] = s
	}
	if !told {
		t.Fatal("no trace to lie about")
	}
	return &c
}

// lies are the ways in which a second recovery, or a damaged store, can give other results.
var lies = map[string]func(*Seen){
	"an entry is gone":    func(s *Seen) { s.Entries = s.Entries[:len(s.Entries)-1] },
	"an entry is another": func(s *Seen) { s.Entries[1].Digest[0] ^= 1 },
	"an entry is more":    func(s *Seen) { s.Entries = append(s.Entries, chain.Entry{}) },
	"the record is another": func(s *Seen) {
		r := *s.Record
		r.EffectDigest[0] ^= 1
		s.Record = &r
	},
	"the record is gone": func(s *Seen) { s.Record = nil },
}

// TestSecondRecoveryIsCompared: L3 finds each of the lies, and finds nothing if nothing was changed.
func TestSecondRecoveryIsCompared(t *testing.T) {
	_, o := lived(t, "park")
	if bad := sameLog(o, o); len(bad) > 0 {
		t.Errorf("the same is not the same: %v", bad)
	}
	for name, change := range lies {
		if len(sameLog(o, lie(t, o, change))) == 0 {
			t.Errorf("%s: L3 does not find it", name)
		}
	}
}

// TestDamageIsCompared: D1 finds each lie about what a store showed before it was damaged, and finds nothing
// if nothing was changed.
func TestDamageIsCompared(t *testing.T) {
	w := NewWorld(4)
	p, err := w.Start(Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := Scenario{Name: "damage", Licences: []string{"park"}, Steps: Core}
	s.play(p)
	if err := p.DB.Close(); err != nil {
		t.Fatal(err)
	}
	img := w.Crash(0)
	q, bad := (&Run{}).reopen(img.World(), s)
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	want := q.Observe()
	if err := q.DB.Close(); err != nil {
		t.Fatal(err)
	}
	if bad := corrupted(img, s, want, sameLog); len(bad) > 0 {
		t.Errorf("a sound store is damaged: %v", bad)
	}
	for name, change := range lies {
		bad := corrupted(img, s, lie(t, want, change), sameLog)
		if !slices.ContainsFunc(bad, func(v Violation) bool { return v.Property == "D1" }) {
			t.Errorf("%s: D1 does not find it: %v", name, bad)
		}
	}
	// A machine that goes on from a store may find more entries, but never fewer or different ones.
	if bad := corrupted(img, s, lie(t, want, lies["an entry is gone"]), extends); len(bad) > 0 {
		t.Errorf("a log that went on is damaged: %v", bad)
	}
	if bad := corrupted(img, s, lie(t, want, lies["an entry is more"]), extends); len(bad) == 0 {
		t.Error("a log that lost an entry is not damaged")
	}
}

// TestBrokenChainIsSeen: S8 does not depend on the replay of the code under test.
func TestBrokenChainIsSeen(t *testing.T) {
	for name, change := range map[string]func(s *Seen){
		"another trace":    func(s *Seen) { s.Entries[1].TraceID[0] ^= 1 },
		"another entry":    func(s *Seen) { s.Entries[1].Prev[0] ^= 1 },
		"another digest":   func(s *Seen) { s.Entries[1].Digest[0] ^= 1 },
		"an entry is lost": func(s *Seen) { s.Entries = s.Entries[1:] },
	} {
		events, o := lived(t, "park")
		bad := Judge(events, lie(t, o, change))
		if !slices.ContainsFunc(bad, func(v Violation) bool { return v.Property == "S8" }) {
			t.Errorf("%s: S8 does not find it: %v", name, bad)
		}
	}
}

package ledger

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// TestTimesOfARecordAtTheirLimits: each time, at the limits and one past them.
func TestTimesOfARecordAtTheirLimits(t *testing.T) {
	for ms, ok := range map[tga.Millis]bool{-1: false, 0: true, tga.LastMillis: true, tga.LastMillis + 1: false} {
		r := reserved(t, nil)
		r.Attempts.First, r.Attempts.Newest = min(ms, r.Attempts.Newest), max(ms, r.Attempts.First)
		if got := r.flaw() == ""; got != ok {
			t.Errorf("attempts from %d to %d: %q", r.Attempts.First, r.Attempts.Newest, r.flaw())
		}
		if ms == 0 {
			continue // not confirmed
		}
		r = settled(t, ClassSuccess)
		r.ConfirmedAt, r.EvidenceDigest = ms, tga.Digest{9}
		if got := r.flaw() == ""; got != ok {
			t.Errorf("confirmed at %d: %q", ms, r.flaw())
		}
	}
}

// TestToldAttemptsBeforeTheWindow: the unsent attempts that are older than the mask are at most
// all attempts that are older than the mask.
func TestToldAttemptsBeforeTheWindow(t *testing.T) {
	for _, c := range []struct {
		count, unsent uint32
		mask          uint64
		ok            bool
	}{
		{65, 0, 0, true}, {65, 1, 0, true}, {65, 2, 0, false}, {65, 2, 1, true}, {65, 3, 1, false},
		{70, 6, 0, true}, {70, 7, 0, false}, {64, 1, 0, false}, {64, 1, 1 << 63, true}, {63, 1, 1 << 63, false},
	} {
		a := Attempts{Count: c.count, Unsent: c.unsent, UnsentMask: c.mask, First: t0, Newest: t0}
		if a.consistent() != c.ok {
			t.Errorf("%+v: consistent %v", c, !c.ok)
		}
	}
}

// TestZeroByteInArguments: arguments with a zero byte, also as the first byte, have no derived key.
func TestZeroByteInArguments(t *testing.T) {
	for _, args := range []string{"\x00", "\x00{}", "{}\x00"} {
		if _, err := DeriveKey("s", "1", "t", []byte(args), 0); tga.CodeOf(err) != tga.ValidationError {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// TestWindowAtItsLimits: a re-send is licensed from the moment of the first attempt to the
// last millisecond in which it certainly arrives in time.
func TestWindowAtItsLimits(t *testing.T) {
	l := Licence{Kind: DedupeKey, Window: 10 * time.Second, Margin: time.Second}
	for now, open := range map[tga.Millis]bool{t0 - 1: false, t0: true, t0 + 6_999: true, t0 + 7_000: false} {
		if got := l.windowLeft(t0, now, 2*time.Second) > 0; got != open {
			t.Errorf("%d ms after the first attempt: open %v", now-t0, got)
		}
	}
}

// TestSendWithinAtItsLimits: the send of a remote executor has a limit from the second attempt that
// may have run. While the clock is behind the newest stored time, nothing is left of the window.
func TestSendWithinAtItsLimits(t *testing.T) {
	dedupe := Licence{Kind: DedupeKey, Window: 10 * time.Second, Margin: time.Second}
	for name, c := range map[string]struct {
		licence        Licence
		count, unsent  uint32
		newest, stored tga.Millis // of the attempts, and of the trace
		left           time.Duration
		bounded        bool
		before         time.Duration // what is left a millisecond earlier
	}{
		"another licence":         {Licence{Kind: DedupeArgs}, 2, 0, t0, t0, 0, false, 0},
		"one attempt":             {dedupe, 1, 0, t0, t0, 0, false, 0},
		"two, one of them unsent": {dedupe, 2, 1, t0, t0, 0, false, 0},
		"two":                     {dedupe, 2, 0, t0, t0, 6 * time.Second, true, 6001 * time.Millisecond},
		"three, one unsent":       {dedupe, 3, 1, t0, t0, 6 * time.Second, true, 6001 * time.Millisecond},
		"an attempt of now":       {dedupe, 2, 0, t0 + 1000, t0, 6 * time.Second, true, 0},
		"an entry of now":         {dedupe, 2, 0, t0, t0 + 1000, 6 * time.Second, true, 0},
	} {
		a := Attempts{Count: c.count, Unsent: c.unsent, First: t0, Newest: c.newest}
		q := Query{Record: &Record{Attempts: a}, Licence: c.licence, NewestTS: c.stored, Now: t0 + 1000, SendTimeout: 2 * time.Second}
		if left, bounded := q.SendWithin(); left != c.left || bounded != c.bounded {
			t.Errorf("%s: %v, bounded %v", name, left, bounded)
		}
		q.Now--
		if left, bounded := q.SendWithin(); left != c.before || bounded != c.bounded {
			t.Errorf("%s, a millisecond before: %v, bounded %v", name, left, bounded)
		}
	}
}

// TestSendWithinTakesTheShorterTime: of the licence of the attempt and the present one, the one that leaves less time
// counts. A licence with a limit counts before one without.
func TestSendWithinTakesTheShorterTime(t *testing.T) {
	short := Licence{Kind: DedupeKey, Window: 10 * time.Second, Margin: time.Second}
	long := Licence{Kind: DedupeKey, Window: 20 * time.Second, Margin: time.Second}
	for _, c := range []struct {
		now, then Licence
		left      time.Duration
		bounded   bool
	}{
		{short, short, 6 * time.Second, true}, {short, long, 6 * time.Second, true}, {long, short, 6 * time.Second, true}, {long, long, 16 * time.Second, true},
		{Licence{Kind: DedupeArgs}, long, 16 * time.Second, true}, {long, Licence{Kind: DedupeArgs}, 16 * time.Second, true},
		{Licence{Kind: DedupeArgs}, Licence{Kind: ReadOnly}, 0, false},
	} {
		q := Query{Record: &Record{Attempts: Attempts{Count: 2, First: t0, Newest: t0}}, Licence: c.now, Attempted: &c.then, NewestTS: t0, Now: t0 + 1000, SendTimeout: 2 * time.Second}
		if left, bounded := q.SendWithin(); left != c.left || bounded != c.bounded {
			t.Errorf("%+v now and %+v at the attempt: %v, bounded %v", c.now, c.then, left, bounded)
		}
	}
}

// TestFenceAtItsLimits: the sender must be known dead at the time of the newest attempt or later,
// and the probe must be sent at least a millisecond after the longest time in flight.
func TestFenceAtItsLimits(t *testing.T) {
	l := Licence{Kind: Probe, MaxInFlight: time.Second}
	for _, c := range []struct {
		newest, dead, asked tga.Millis
		want                bool
	}{
		{t0, t0, t0 + 1_001, true}, {t0, t0, t0 + 1_000, false}, {t0, t0 - 1, t0 + 5_000, false},
		{0, 0, 5_000, false}, {0, 1, 5_000, true},
	} {
		r := &Record{Attempts: Attempts{Count: 1, First: c.newest, Newest: c.newest}}
		if got := l.FencedByTime(r, c.dead, c.asked); got != c.want {
			t.Errorf("%+v: fenced %v", c, got)
		}
	}
}

// TestStringsOfNotesAreCanonical: a note's body has its one form for every character that JSON
// treats specially, and for the neighbours of these characters.
func TestStringsOfNotesAreCanonical(t *testing.T) {
	for c := range rune(0x100) {
		b := NotSent{Attempt: 1, Reason: "a" + string(c) + "b"}.Body()
		want, err := tga.Canonicalize(b, tga.Limits{})
		if err != nil || !bytes.Equal(b, want) {
			t.Errorf("%U: %s, canonical %s (%v)", c, b, want, err)
		}
	}
}

// TestUnknownNameSaysWhichThereAre: the error lists all names, and no empty one.
func TestUnknownNameSaysWhichThereAre(t *testing.T) {
	_, err := ParseLicence("maybe")
	if err == nil {
		t.Fatal("no error")
	}
	for _, name := range licenceNames {
		if name != "" && !strings.Contains(err.Error(), `"`+name+`"`) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
	if strings.Contains(err.Error(), `""`) {
		t.Error(err)
	}
}

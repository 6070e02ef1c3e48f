//go:build linux

package proc

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/crashtest"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/ledger"
)

func TestMain(m *testing.M) {
	RunChild()
	os.Exit(m.Run())
}

func named(t *testing.T, name string) tier {
	t.Helper()
	i := slices.IndexFunc(tiers, func(t tier) bool { return t.name == name })
	if i < 0 {
		t.Fatalf("no tier %q", name)
	}
	return tiers[i]
}

// slice runs a part of one pass, until a property fails.
func slice(t *testing.T, name, bug string, sample int, until string) *bench {
	t.Helper()
	b := &bench{sample: sample, bug: bug, out: testLog{t}}
	b.over = func() bool {
		return slices.ContainsFunc(b.total.bad, func(v crashtest.Violation) bool { return slices.Contains(strings.Fields(until), v.Property) })
	}
	if err := b.runTier(named(t, name), 1, false); err != nil {
		t.Fatal(err)
	}
	return b
}

type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// A part of every tier finds nothing in the code under test, and makes its kills at the places it names. The
// tiers that need no root are in make crash, which CI runs too: here they wait for make accept.
func TestNothingIsSentAgainAfterAKill(t *testing.T) {
	part := 3 // a third of the places
	if serial.Whole() {
		part = 1
	}
	for _, c := range []struct {
		tier   string
		sample int
		least  func(c counts) int64 // of its subject
		want   int64
	}{
		{"proc", 20, func(c counts) int64 { return c.sigkills }, 40},
		{"ptrace", 20, func(c counts) int64 { return c.sigkills }, 40},
		{"double", 8, func(c counts) int64 { return c.doubleCrashes }, 60},
		{"servers", 8, func(c counts) int64 { return c.sigkills }, 16},
		{"stop", 6, func(c counts) int64 { return c.stops }, 12},
		{"powercut", 24, func(c counts) int64 { return c.powerCuts }, 30},
		{"blocklog", 16, func(c counts) int64 { return c.blockLogImages }, 30},
		{"soak", 1, func(c counts) int64 { return c.sigkills }, 4},
	} {
		t.Run(c.tier, func(t *testing.T) {
			if slices.Contains([]string{"proc", "ptrace", "double", "servers", "stop", "soak"}, c.tier) {
				serial.Long(t)
			}
			b := slice(t, c.tier, "", (c.sample+part-1)/part, "")
			for _, bad := range b.total.bad {
				t.Error(bad)
			}
			if len(b.skipped) == len(diskTypes) {
				t.Skip(strings.Join(b.skipped, "; "))
			}
			got, want := c.least(b.total.counts), c.want/int64(part)
			if got < want {
				t.Errorf("%d of what the tier is for: %+v; want at least %d", got, b.total.counts, want)
			}
			if b.total.counts.recoveries == 0 {
				t.Errorf("nothing was recovered: %+v", b.total.counts)
			}
		})
	}
}

// Each bug is found by the tiers that can show it. A tier that finds no bug would find nothing whatever the
// code did. Pairs that show a bug again, and pairs that take a minute, wait for make accept.
func TestTiersFindPlantedBugs(t *testing.T) {
	for _, c := range []struct {
		bug, tier string
		sample    int
		property  string
		long      bool
	}{
		{bugEarlyAck, "proc", 0, "S6", false},
		{bugEarlySend, "proc", 0, "S4", true},
		{bugEarlyAck, "ptrace", 0, "S6", true},
		{bugEarlySend, "ptrace", 0, "S4", false},
		{bugEarlySend, "double", 0, "S1 S4", true}, // a call that is sent early is sent again too, and that may be found first
		{bugBlindResend, "double", 0, "S1", false},
		{bugBlindResend, "servers", 0, "S1", false},
		{bugNoLock, "stop", 0, "S9", false},
		{bugEarlyAck, "powercut", 0, "S6", true},
		{bugNoLogSync, "powercut", 48, "S6", false},
		{bugNoLogSync, "blocklog", 16, "S6", true},
		{bugBlindResend, "soak", 2, "S1", true},
	} {
		t.Run(c.tier+" "+c.bug, func(t *testing.T) {
			if c.long {
				serial.Long(t)
			}
			b := slice(t, c.tier, c.bug, c.sample, c.property)
			if len(b.skipped) == len(diskTypes) {
				t.Skip(strings.Join(b.skipped, "; "))
			}
			if !b.over() {
				t.Errorf("found %+v, want %s", b.total.bad, c.property)
			}
		})
	}
}

// The n-th system call must be the same one in each life, or a sweep over n would miss some.
func TestSystemCallsAreCountedTheSame(t *testing.T) {
	l, err := newLab(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	})
	l.stores = l.dir
	b := &bench{lab: l}
	var count []int
	var longest time.Duration
	for range 5 {
		began := time.Now()
		life, err := b.measure(ledger.Strict, 1, true)
		if err != nil {
			t.Fatal(err)
		}
		count, longest = append(count, life.count), max(longest, time.Since(began))
	}
	// Each second the watermark may be synced once more. The next segment is made beside the calls, so at
	// the end it may or may not have been begun.
	if slices.Max(count)-slices.Min(count) > 1+int(longest/time.Second) {
		t.Errorf("a life makes %d system calls", count)
	}
	t.Log(count)
}

package crashtest

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	RunShard(
		Tier{Name: "hangs", Run: hangsForTheTest},
		Tier{Name: "waits", Run: func(*Run) { select {} }},
		Tier{Name: "dies", Run: func(*Run) { os.Exit(7) }},
		Tier{Name: "ends", Run: func(r *Run) { r.Counts.Recoveries = int64(r.Seed) }},
	)
	m.Run()
}

// hangsForTheTest is told to quit in the middle of a recovery.
func hangsForTheTest(r *Run) {
	w := NewWorld(r.Seed)
	if _, err := w.Start(Config{}); err != nil {
		panic(err)
	}
	defer r.at(w.Crash(0), "for the test")()
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Signal(syscall.SIGQUIT)
	}
	if err != nil {
		panic(err)
	}
	select {}
}

// TestHungShardSaysWhere: a process of a tier that is told to quit leaves its image and its goroutines, and
// counts as a failure with its seed.
func TestHungShardSaysWhere(t *testing.T) {
	r := &Run{SaveDir: t.TempDir()}
	r.shard(shard{Tier: "hangs", Seed: 70, SaveDir: r.SaveDir, Budget: time.Minute})
	bad := r.Violations()
	if len(bad) != 1 || bad[0].Property != hangs || !strings.Contains(bad[0].Where, "seed 70") {
		t.Fatalf("found %v, want one hang with its seed", bad)
	}
	dir := filepath.Join(r.SaveDir, "hangs-70")
	for name, want := range map[string]string{goroutinesFile: "hangsForTheTest", "hung-1/failure.json": "for the test", "hung-1/WATERMARK": ""} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %v; want it to have %q: %.300s", name, err, want, b)
		}
	}
}

// TestSilentShardIsToldToQuit: a shard without progress does not block the run.
func TestSilentShardIsToldToQuit(t *testing.T) {
	r := &Run{}
	r.shard(shard{Tier: "waits", Seed: 71, Silence: 50 * time.Millisecond})
	if bad := r.Violations(); len(bad) != 1 || bad[0].Property != hangs || !strings.Contains(bad[0].Where, "seed 71") {
		t.Fatalf("found %v, want one hang with its seed", bad)
	}
}

// TestShardThatDiesIsAFailure: a shard that dies is a failure, and one that ends is counted.
func TestShardThatDiesIsAFailure(t *testing.T) {
	r := &Run{}
	r.shard(shard{Tier: "ends", Seed: 3, Budget: time.Second})
	r.shard(shard{Tier: "ends", Seed: 4, Budget: time.Second})
	if bad := r.Violations(); len(bad) > 0 || r.Counts.Recoveries != 7 {
		t.Errorf("counted %d, found %v; want 7, nothing", r.Counts.Recoveries, bad)
	}
	r.shard(shard{Tier: "dies", Seed: 5, Budget: time.Second})
	if bad := r.Violations(); len(bad) != 1 || bad[0].Property != "setup" {
		t.Errorf("found %v, want that a process ended by itself", bad)
	}
}

package daemon

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tgad/tgad/engine"
)

// until waits for a metric to be as it should be.
func (b *bench) until(name string, want func(float64) bool) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); !want(b.scrape(name)); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("%s is %g", name, b.scrape(name))
		}
	}
}

// TestDaemonKeepsABackupCurrent: the backup soon has what is appended, and at the end of the daemon it has
// everything. A backup that fails is reported and stops nothing. After a reload it goes to another place.
func TestDaemonKeepsABackupCurrent(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b := setup(t, "[backup]\nto = \""+at("file")+"\"\nevery = \"100ms\"\nshare = 100\n")
	b.start()
	b.until("tgad_backup_failures_total", func(n float64) bool { return n > 1 })
	if n := b.scrape(`tgad_backup_failed{code="STORE_UNAVAILABLE"}`); n != 1 {
		t.Errorf("failed: %g", n)
	}
	if err := b.client.Ready(t.Context()); err != nil {
		t.Errorf("not ready: %v", err)
	}
	if _, err := b.client.Call(t.Context(), charge("k1")); err != nil {
		t.Fatal(err)
	}
	b.mustReload("backup.to", at("file"), at("copy"))
	b.until("tgad_backup_made_total", func(n float64) bool { return n > 0 })
	b.until("tgad_backup_age_seconds", func(n float64) bool { return n < 1 })
	if n := b.scrape("tgad_backup_every_seconds"); n != 0.1 {
		t.Errorf("every %g", n)
	}
	if _, err := b.client.Call(t.Context(), charge("k2")); err != nil {
		t.Fatal(err)
	}
	b.stop()
	if err := engine.Restore(t.Context(), at("copy"), at("restored"), engine.Options{}); err != nil {
		t.Fatal(err)
	}
	db, err := engine.OpenReadOnly(at("restored"), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if rep, err := db.Check(t.Context()); err != nil || len(rep.Problems) > 0 || rep.Traces != 2 {
		t.Errorf("%+v %v", rep, err)
	}
}

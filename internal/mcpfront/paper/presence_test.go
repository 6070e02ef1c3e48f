package paper

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLocksOfKilledShimsAreTidied: Tidy removes lock files of dead shims, and keeps a lock that is held.
func TestLocksOfKilledShimsAreTidied(t *testing.T) {
	dir := t.TempDir()
	live, err := Appear(dir)
	if err != nil {
		t.Fatal(err)
	}
	dead, err := Appear(dir)
	if err != nil {
		t.Fatal(err)
	}
	dead.Leave()
	if err := Tidy(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(live.Path); err != nil {
		t.Error("the lock of who lives was removed")
	}
	if _, err := os.Stat(dead.Path); !os.IsNotExist(err) {
		t.Error("the lock of who died stays")
	}
	live.Remove()
	if all, err := os.ReadDir(filepath.Join(dir, liveDir)); err != nil || len(all) != 0 {
		t.Errorf("%v %v", all, err)
	}
}

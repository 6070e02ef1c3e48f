package keyring

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// TestRingThatCannotBeAskedOnce: a shared ring whose file cannot be asked for its size once gives keys again afterwards.
func TestRingThatCannotBeAskedOnce(t *testing.T) {
	dir := t.TempDir()
	kek := filepath.Join(dir, "kek")
	if err := os.WriteFile(kek, []byte(strings.Repeat("07", 32)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, path := Options{KEK: KEK{File: kek}, Shared: true}, filepath.Join(dir, "ring")
	if err := Create(path, tga.ID{1, 6: 0x70, 8: 0x80}, o); err != nil {
		t.Fatal(err)
	}
	r, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	gone, err := os.Open(path)
	if err == nil {
		err = gone.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	last, file := r.Last(), r.file
	r.file = gone
	if got := r.Last(); got != last {
		t.Errorf("the last key is %d, was %d", got, last)
	}
	r.file = file
	if _, err := r.Key("default", ""); err != nil {
		t.Errorf("no key: %v", err)
	}
}

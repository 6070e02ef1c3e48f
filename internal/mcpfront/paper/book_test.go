package paper

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestBookSharesAndSurvives(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book")
	a, err := OpenBook(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := OpenBook(path)
	if err != nil {
		t.Fatal(err)
	}
	set := func(b *Book, name, value string) {
		t.Helper()
		if err := b.Change(name, func(string) string { return value }); err != nil {
			t.Fatal(err)
		}
	}
	is := func(b *Book, name, want string) {
		t.Helper()
		if got, err := b.get(name); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", name, got, err, want)
		}
	}
	set(a, "x y\n", "1")
	is(b, "x y\n", "1")
	set(b, "x y\n", "2")
	is(a, "x y\n", "2")
	// A line that a crash cut short does not count, and does not affect other lines.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("eHl6 MTI"); err != nil {
		t.Fatal(err)
	}
	is(a, "x y\n", "2")
	set(b, "z", "3")
	is(a, "z", "3")
	set(a, "z", "")
	c, err := OpenBook(path)
	if err != nil {
		t.Fatal(err)
	}
	is(c, "x y\n", "2")
	is(c, "z", "")
	is(c, "xyz", "")
}

// get returns the value of a name, "" if there is none.
func (b *Book) get(name string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.locked(unix.LOCK_SH, b.catchUp); err != nil {
		return "", err
	}
	return b.names[name], nil
}

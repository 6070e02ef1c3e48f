package deliver

import (
	"errors"
	"github.com/tgad/tgad/internal/serial"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// files returns the content of a file and of those that were renamed from it, newest first. A gap is "-".
func files(t *testing.T, path string, n int) (all []string) {
	t.Helper()
	for i := range n {
		name := path
		if i > 0 {
			name += "." + string(rune('0'+i))
		}
		raw, err := os.ReadFile(name)
		switch {
		case errors.Is(err, os.ErrNotExist):
			all = append(all, "-")
		case err != nil:
			t.Fatal(err)
		default:
			all = append(all, strings.ReplaceAll(string(raw), "\n", ";"))
		}
	}
	return all
}

// put delivers lines, each of which is one word.
func put(t *testing.T, s Sink, words ...string) {
	t.Helper()
	if err := s.Put(t.Context(), batch(words...)); err != nil {
		t.Fatal(err)
	}
}

func batch(words ...string) *Batch {
	b := &Batch{}
	for _, w := range words {
		b.Lines = append(b.Lines, []byte(w+"\n"))
	}
	return b
}

func wantFiles(t *testing.T, path string, want ...string) {
	t.Helper()
	if got := files(t, path, len(want)); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("files %q, want %q", got, want)
	}
}

func newFile(t *testing.T, most int64, keep int) (*File, *time.Time) {
	now := time.Date(2026, 1, 2, 23, 0, 0, 0, time.UTC)
	f := &File{Path: filepath.Join(t.TempDir(), "audit"), MaxBytes: most, Keep: keep, Clock: func() time.Time { return now }}
	t.Cleanup(func() { f.Close() })
	return f, &now
}

// TestFileRotatesAtItsLimit: a file that is exactly full stays. One byte more begins the next file. A line
// that is longer than a file has a file for itself. No more files are kept than configured.
func TestFileRotatesAtItsLimit(t *testing.T) {
	f, _ := newFile(t, 8, 2)
	put(t, f, "aaa", "bbb")
	wantFiles(t, f.Path, "aaa;bbb;", "-", "-")
	put(t, f, "c")
	wantFiles(t, f.Path, "c;", "aaa;bbb;", "-")
	put(t, f, "ddddd", "e", "a long line", "f")
	wantFiles(t, f.Path, "f;", "a long line;", "e;", "-")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	put(t, f, "ggggg") // the length of the file is known after a restart
	wantFiles(t, f.Path, "f;ggggg;", "a long line;", "e;", "-")
	put(t, f, "h")
	wantFiles(t, f.Path, "h;", "f;ggggg;", "a long line;", "-")
}

// TestFileRotatesWithTheDay: the file rotates when the day ends, also if nothing was written meanwhile, and
// also over a restart.
func TestFileRotatesWithTheDay(t *testing.T) {
	f, now := newFile(t, 1000, 5)
	f.Period = 24 * time.Hour
	put(t, f, "friday")
	*now = now.Add(time.Hour - 1)
	put(t, f, "late")
	wantFiles(t, f.Path, "friday;late;", "-")
	*now = now.Add(1)
	put(t, f, "saturday")
	wantFiles(t, f.Path, "saturday;", "friday;late;", "-")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(f.Path, *now, *now); err != nil {
		t.Fatal(err)
	}
	put(t, f, "on")
	*now = now.Add(48 * time.Hour)
	put(t, f, "monday")
	wantFiles(t, f.Path, "monday;", "saturday;on;", "friday;late;", "-")
}

// TestFileAfterACrash: a line that was cut off is removed. A number that a rotation left out is filled. A
// file that somebody moved away is begun anew with its former mode.
func TestFileAfterACrash(t *testing.T) {
	f, _ := newFile(t, 6, 3)
	for name, text := range map[string]string{"": "whole\ncut of", ".2": "two\n", ".3": "three\n"} {
		if err := os.WriteFile(f.Path+name, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	put(t, f, "cut off")
	wantFiles(t, f.Path, "cut off;", "whole;", "two;", "three;")
	if info, err := os.Stat(f.Path); err != nil || info.Mode() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := os.Rename(f.Path, f.Path+".moved"); err != nil {
		t.Fatal(err)
	}
	put(t, f, "more")
	wantFiles(t, f.Path, "more;", "whole;", "two;", "three;")
	if err := os.WriteFile(f.Path, []byte("no line end at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	put(t, f, "x")
	wantFiles(t, f.Path, "x;", "whole;")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(f.Path), syscall.Mkfifo(f.Path, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := f.Put(t.Context(), batch("y")); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a pipe: %v", err)
	}
}

// TestFileThatIsCutShort: logrotate's copytruncate empties a file that is open. The next line is the first
// one of the file; before, it came after a hole of zeros.
func TestFileThatIsCutShort(t *testing.T) {
	f, _ := newFile(t, 1000, 3)
	put(t, f, "one", "two")
	if err := os.Truncate(f.Path, 0); err != nil {
		t.Fatal(err)
	}
	put(t, f, "three")
	wantFiles(t, f.Path, "three;", "-")
	if err := os.Truncate(f.Path, 2); err != nil { // in the middle of a line
		t.Fatal(err)
	}
	put(t, f, "four")
	wantFiles(t, f.Path, "four;", "-")
}

// TestFullDiskLeavesWholeLines: a line that does not fit is an error and leaves no part of it in the file.
// When there is room again, it is written.
func TestFullDiskLeavesWholeLines(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tgad", dir, "tmpfs", 0, "size=64k"); err != nil {
		serial.Missing(t, "a small disk, which root can mount", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 40<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &File{Path: filepath.Join(dir, "audit"), MaxBytes: 1 << 20, Keep: 1, Clock: time.Now}
	defer f.Close()
	put(t, f, "first")
	long := batch(strings.Repeat("x", 7000), strings.Repeat("y", 7000), strings.Repeat("z", 7000), strings.Repeat("w", 7000))
	for range 2 {
		if err := f.Put(t.Context(), long); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("a full disk: %v", err)
		}
		wantFiles(t, f.Path, "first;", "-")
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := f.Put(t.Context(), long); err != nil {
		t.Fatal(err)
	}
	if got := files(t, f.Path, 1)[0]; len(got) != 6+4*7001 || strings.Count(got, ";") != 5 {
		t.Errorf("%d bytes, %d lines", len(got), strings.Count(got, ";"))
	}
}

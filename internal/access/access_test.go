//go:build unix

package access

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestWhoMayWriteAndRead walks every permission × owner × group × kind, and compares the verdict with the
// rule in another form.
func TestWhoMayWriteAndRead(t *testing.T) {
	for _, p := range []Process{{UID: 1000, Groups: []int{1000, 27}}, {UID: 0, Groups: []int{0}}} {
		for _, kind := range []fs.FileMode{0, fs.ModeDir, fs.ModeDir | fs.ModeSticky} {
			for perm := fs.FileMode(0); perm <= 0o777; perm++ {
				for _, uid := range []int{p.UID, 0, 1001} {
					for _, gid := range []int{p.Groups[0], p.Groups[len(p.Groups)-1], 1001} {
						own := gid == p.Groups[0] || gid == p.Groups[len(p.Groups)-1]
						group, others := perm>>3&7, perm&7
						refuse := uid == 1001 || others&2 != 0 || group&2 != 0 && !own
						reads := fs.FileMode(4)
						if kind.IsDir() {
							reads = 5
						}
						warn := (group|others)&reads != 0 || group&2 != 0 && own
						got := p.Judge(kind|perm, uid, gid)
						if (got.Refuse != "") != refuse || (got.Warn != "") != warn {
							t.Fatalf("%v %v of %d:%d for %+v: %+v, want refused %v, warned %v", kind, perm, uid, gid, p, got, refuse, warn)
						}
					}
				}
			}
		}
	}
}

// TestMadeWhateverTheUmask sets the umask of this process, so it must run alone.
func TestMadeWhateverTheUmask(t *testing.T) {
	for _, umask := range []int{0, 0o002, 0o022, 0o077, 0o277, 0o777} {
		t.Run(fmt.Sprintf("%#o", umask), func(t *testing.T) {
			top := t.TempDir()
			old := syscall.Umask(umask)
			defer syscall.Umask(old)
			dir := filepath.Join(top, "a", "b")
			if err := MkdirAll(dir); err != nil {
				t.Fatal(err)
			}
			f, err := Create(filepath.Join(dir, "f"))
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			for path, want := range map[string]fs.FileMode{filepath.Dir(dir): DirMode, dir: DirMode, f.Name(): FileMode} {
				if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
					t.Errorf("%s: %v %v", path, info.Mode(), err)
				}
			}
			if _, err := Create(f.Name()); err == nil {
				t.Error("a file was made twice")
			}
		})
	}
}

func TestDirectoryThatIsThereIsLeftAlone(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "dir")
	if err := os.Mkdir(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := MkdirAll(dir); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	for name, make := range map[string]func(string) error{
		"file":     func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"dangling": func(p string) error { return os.Symlink(filepath.Join(top, "nowhere"), p) },
	} {
		path := filepath.Join(top, name)
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		if err := MkdirAll(path); err == nil {
			t.Errorf("a %s passes for a directory", name)
		}
	}
}

func TestTreeNamesWhatIsWrong(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	if err := MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		f, err := Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	chmod := func(name string, mode fs.FileMode) {
		t.Helper()
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	is := func(refuse, warn string) {
		t.Helper()
		f, err := CheckTree(dir)
		if err != nil || (f.Refuse == "") != (refuse == "") || !strings.Contains(f.Refuse, refuse) ||
			(f.Warn == "") != (warn == "") || !strings.Contains(f.Warn, warn) {
			t.Errorf("%+v %v, want refused %q, warned %q", f, err, refuse, warn)
		}
	}
	is("", "")
	chmod("b", 0o640)
	chmod("c", 0o644)
	is("", "2 files, the first "+filepath.Join(dir, "b"))
	chmod("c", 0o602)
	is(filepath.Join(dir, "c")+": mode 0602", "1 files")
	chmod(".", 0o702)
	is(dir+": mode 0702", "1 files")
}

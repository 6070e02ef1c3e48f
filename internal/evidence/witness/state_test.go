package witness

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/schemas/tga"
)

var errDisk = errors.New("the disk fails")

// shaky is a disk that is inspected before and after each operation. The fail-th operation fails, without or
// after being done.
type shaky struct {
	*crashmem.FS
	look func()
	done int
	fail int  // 0 = never
	late bool // it fails after it was done
}

func (s *shaky) do(f func() error) error {
	s.done++
	failing := s.done == s.fail
	if failing && !s.late {
		return errDisk
	}
	s.look()
	err := f()
	s.look()
	if failing && err == nil {
		return errDisk
	}
	return err
}

func (s *shaky) Create(name string, c vfs.DiskWriteCategory) (f vfs.File, err error) {
	err = s.do(func() error { f, err = s.FS.Create(name, c); return err })
	return &shakyFile{f, s}, err
}

func (s *shaky) Rename(from, to string) error {
	return s.do(func() error { return s.FS.Rename(from, to) })
}

func (s *shaky) OpenDir(name string) (f vfs.File, err error) {
	err = s.do(func() error { f, err = s.FS.OpenDir(name); return err })
	return &shakyFile{f, s}, err
}

type shakyFile struct {
	vfs.File
	s *shaky
}

func (f *shakyFile) Write(b []byte) (n int, err error) {
	err = f.s.do(func() error { n, err = f.File.Write(b); return err })
	return n, err
}

func (f *shakyFile) Sync() error { return f.s.do(f.File.Sync) }

// remembers returns the state of a witness that starts on a disk.
func remembers(t *testing.T, disk vfs.FS) checkpoint.Checkpoint {
	t.Helper()
	s, err := open(disk, "/state", false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return s.seen[origin].c
}

// TestCrashNeverForgetsWhatWasSigned: a crash while a checkpoint is processed leaves the one that was signed
// before or the new one. Once the new one is signed, only the new one is left.
func TestCrashNeverForgetsWhatWasSigned(t *testing.T) {
	key := storeKey(t, origin)
	l := &log{key: key}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 20 {
		disk := &shaky{FS: crashmem.New(), look: func() {}}
		w := start(t, disk, key)
		var signed int64
		for range 6 {
			clone := func() *crashmem.FS {
				return disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: r.IntN(101), RNG: r})
			}
			var during []*crashmem.FS
			disk.look = func() { during = append(during, clone()) }
			next := signed + 1 + r.Int64N(5)
			if a := ask(w, l.step(signed, next)); a.Code != 200 {
				t.Fatalf("%d %s", a.Code, a.Body)
			}
			disk.look = func() {}
			if len(during) < 10 {
				t.Fatalf("the disk was looked at %d times", len(during))
			}
			for i, d := range during {
				if got := remembers(t, d).Size; got != signed && got != next {
					t.Errorf("crash %d: %d leaves, %d were signed and %d are asked for", i, got, signed, next)
				}
			}
			after := clone()
			if got := remembers(t, after); got != l.head(next) {
				t.Fatalf("a crash after %d leaves were signed leaves %d", next, got.Size)
			}
			if signed = next; r.IntN(3) == 0 { // continue from what the crash left
				disk = &shaky{FS: after, look: func() {}}
				w = start(t, disk, key)
			}
		}
	}
}

// TestFailedWriteSignsNothing: whichever operation the disk refuses, this process does not sign the
// checkpoint then or later, and the next process has the old state or the new one.
func TestFailedWriteSignsNothing(t *testing.T) {
	key := storeKey(t, origin)
	l := &log{key: key}
	for _, late := range []bool{false, true} {
		failures := 0
		for fail := 1; ; fail++ {
			disk := &shaky{FS: crashmem.New(), look: func() {}}
			w := start(t, disk, key)
			if a := ask(w, l.step(0, 3)); a.Code != 200 {
				t.Fatal(a.Body)
			}
			disk.done, disk.fail, disk.late = 0, fail, late
			a := ask(w, l.step(3, 5))
			if a.Code == 200 {
				break // nothing failed
			}
			failures++
			if a.Code != 503 {
				t.Errorf("failure %d, late %v: %d %q", fail, late, a.Code, a.Body)
			}
			for _, again := range [][]byte{l.step(3, 5), l.step(3, 3), l.step(5, 6)} {
				if a := ask(w, again); a.Code != 503 {
					t.Errorf("after failure %d, late %v: %d %q", fail, late, a.Code, a.Body)
				}
			}
			for _, d := range []*crashmem.FS{disk.FS, disk.CrashClone(vfs.CrashCloneCfg{})} {
				size := remembers(t, d).Size
				if size != 3 && size != 5 {
					t.Errorf("failure %d, late %v: the next process has %d leaves", fail, late, size)
				}
				if a := ask(start(t, d, key), l.step(size, 6)); a.Code != 200 {
					t.Errorf("failure %d, late %v: the next process answers %d %q", fail, late, a.Code, a.Body)
				}
			}
		}
		if failures != 6 { // create, write, sync, rename, open and sync the directory
			t.Errorf("%d things can fail", failures)
		}
	}
}

// sample is a state of two origins.
func sample(t *testing.T) map[string]entry {
	key, err := checkpoint.ParseSigner(fixedStore)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]entry{}
	for i, origin := range []string{"b.example/tgad", "a.example/tgad"} {
		c := checkpoint.Checkpoint{Origin: origin, Size: int64(i) + 7}
		raw, err := c.Sign(key)
		if err != nil {
			t.Fatal(err)
		}
		seen[origin] = entry{raw, c}
	}
	return seen
}

func TestFormatIsNumbered(t *testing.T) {
	golden.HoldFormat(t, "WitnessStateVersion", tga.WitnessStateVersion, encode(sample(t)), encode(nil))
}

// TestDamagedStateIsRefused: a witness that cannot read its state does not start without it.
func TestDamagedStateIsRefused(t *testing.T) {
	whole := encode(sample(t))
	reads := func(b []byte, create bool) error {
		disk := vfs.NewMem()
		f, err := disk.Create("/state", vfs.WriteCategoryUnspecified)
		if err == nil {
			_, err = f.Write(bytes.Clone(b))
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		_, err = open(disk, "/state", create)
		if got, readErr := disk.Open("/state"); readErr != nil {
			t.Fatal(readErr)
		} else if info, statErr := got.Stat(); statErr != nil || info.Size() != int64(len(b)) {
			t.Error("the file that is refused is changed")
		}
		return err
	}
	if err := reads(whole, false); err != nil {
		t.Fatal(err)
	}
	refused := func(name string, b []byte) {
		if err := reads(b, false); tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Errorf("%s: %v", name, err)
		}
	}
	version := bytes.IndexByte(whole, '1')
	for i := range whole {
		for _, bit := range []byte{0x01, 0x20} {
			b := bytes.Clone(whole)
			if b[i] ^= bit; i == version {
				continue
			}
			refused("byte changed", b)
		}
		refused("cut off", whole[:i])
	}
	refused("more behind it", append(bytes.Clone(whole), '\n'))
	refused("nothing", nil)
	one := sample(t)
	delete(one, "a.example/tgad")
	refused("an origin twice", append(bytes.Clone(whole), encode(one)[bytes.IndexByte(encode(one), '\n')+1:]...))
	later := bytes.Clone(whole)
	later[version]++
	if err := reads(later, false); tga.CodeOf(err) != tga.FormatTooNew {
		t.Errorf("of a later version: %v", err)
	}
	if err := reads(whole, true); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("made where there is one: %v", err)
	}
	if _, err := open(vfs.NewMem(), "/state", false); tga.CodeOf(err) != tga.NotFound {
		t.Errorf("no file: %v", err)
	}
}

// TestStateIsOfOneProcess: only one process has the state, in a file that nobody else can write.
func TestStateIsOfOneProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	if _, err := Open(path, false); tga.CodeOf(err) != tga.NotFound {
		t.Errorf("no file: %v", err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "absent", "state"), true); tga.CodeOf(err) != tga.NotFound {
		t.Errorf("no directory: %v", err)
	}
	s, err := Open(path, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, false); tga.CodeOf(err) != tga.StateLockAcquireFailed {
		t.Errorf("a second process: %v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(link, false); tga.CodeOf(err) != tga.StateLockAcquireFailed {
		t.Errorf("a second process, by a link: %v", err)
	}
	key := storeKey(t, origin)
	l := &log{key: key}
	trust := Trust{}
	if err := trust.Add(origin + " " + key.Public); err != nil {
		t.Fatal(err)
	}
	w := start(t, vfs.NewMem(), key)
	w.state = s
	if a := ask(w, l.step(0, 3)); a.Code != 200 {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(path, false); err != nil || s.seen[origin].c != l.head(3) || !bytes.Equal(s.seen[origin].raw, l.at(3)) {
		t.Fatalf("%v, %v", s, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, true); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("made again: %v", err)
	}
	if err := os.Chmod(path, 0o606); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, false); tga.CodeOf(err) != tga.PermissionDenied {
		t.Errorf("everybody can write it: %v", err)
	}
}

// TestCheckpointsAreJudgedOneAfterTheOther: between reading the state and signing, no other checkpoint can
// change the state.
func TestCheckpointsAreJudgedOneAfterTheOther(t *testing.T) {
	disk := &shaky{FS: crashmem.New(), look: func() {}}
	s := start(t, disk, storeKey(t, origin)).state
	looks := 0
	disk.look = func() {
		if looks++; s.mu.TryLock() {
			s.mu.Unlock()
			t.Errorf("look %d: another checkpoint can be remembered", looks)
		}
	}
	l := &log{key: storeKey(t, origin)}
	for _, size := range []int64{3, 3, 5} {
		allowed := func(checkpoint.Checkpoint) error { disk.look(); return nil }
		done := func() error { disk.look(); return nil }
		if err := s.Raise(l.head(size), l.at(size), allowed, done); err != nil {
			t.Fatal(err)
		}
	}
	if looks < 2*10+3*2 {
		t.Errorf("%d looks", looks)
	}
}

package checkpoint

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/schemas/tga"
)

func TestKeptCheckpointsSurviveACrash(t *testing.T) {
	key := newSigner(t, origin)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 60 {
		fs := crashmem.New()
		var want [][]byte
		for range 4 {
			f, err := OpenFile(fs, "/")
			if err != nil {
				t.Fatal(err)
			}
			var got [][]byte
			for raw, err := range f.All() {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, raw)
			}
			if len(got) != len(want) {
				t.Fatalf("%d notes, want %d", len(got), len(want))
			}
			for i := range want {
				if !bytes.Equal(got[i], want[i]) {
					t.Fatalf("note %d is another", i)
				}
			}
			if len(want) > 0 && !bytes.Equal(f.Newest(), want[len(want)-1]) {
				t.Fatal("the newest is another")
			}
			for range r.IntN(4) {
				raw := signed(t, at(int64(r.IntN(1<<30))), key)
				if err := f.Append(raw); err != nil {
					t.Fatal(err)
				}
				want = append(want, raw)
			}
			if r.IntN(2) == 0 { // a write that a crash cut off
				raw := signed(t, at(int64(r.IntN(1<<30))), key)
				if _, err := f.f.WriteAt(frame(raw)[:1+r.IntN(len(raw))], f.end); err != nil {
					t.Fatal(err)
				}
			}
			next := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: r.IntN(101), RNG: r})
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if err := f.Append([]byte("x\n")); err == nil {
				t.Fatal("a closed file takes a note")
			}
			fs = next
		}
	}
}

// TestDamagedFileIsRefused changes each byte of a file of three notes. Damage of the last note is what a
// crash may leave. If a complete note follows the damage, nothing is overwritten.
func TestDamagedFileIsRefused(t *testing.T) {
	key := newSigner(t, origin)
	var whole []byte
	last := 0
	for size := range int64(3) {
		last = len(whole)
		whole = append(whole, frame(signed(t, at(size), key))...)
	}
	open := func(b []byte) (notes int, err error) {
		fs := vfs.NewMem()
		f, err := fs.Create(FileName, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(bytes.Clone(b)); err != nil { // under the race detector the file system overwrites the buffer that it was given
			t.Fatal(err)
		}
		k, err := OpenFile(fs, "")
		if err != nil {
			return 0, err
		}
		for range k.All() {
			notes++
		}
		return notes, k.Close()
	}
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 0x01
		n, err := open(b)
		if i < last && tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Errorf("byte %d changed: %d notes, %v", i, n, err)
		}
		if i >= last && (err != nil || n != 2) {
			t.Errorf("byte %d of the last note changed: %d notes, %v", i, n, err)
		}
	}
	// A crash cuts off one note: if the last two are damaged, or all, the cause was something else.
	for from := range 2 {
		b, at := bytes.Clone(whole), 0
		for i := range 3 {
			start, n, _ := parseStart(whole[at:])
			if i >= from {
				b[at+start] ^= 0x01
			}
			at += start + n + 1
		}
		if n, err := open(b); tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Errorf("every note from %d on changed: %d notes, %v", from, n, err)
		}
	}
	for n := range whole {
		if got, err := open(whole[:n]); err != nil || n < last && got > 1 || n >= last && got != 2 {
			t.Errorf("cut to %d bytes: %d notes, %v", n, got, err)
		}
	}
	if _, err := open(append(bytes.Clone(whole), make([]byte, MaxBytes+65)...)); tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("more behind the end than an append leaves: %v", err)
	}
}

func TestFormatIsNumbered(t *testing.T) {
	golden.HoldFormat(t, "EvidenceNotesVersion", tga.EvidenceNotesVersion, frame([]byte("text\n")))
}

// snapping is a disk that keeps a clone of itself for a crash at any moment of a replacement.
type snapping struct {
	*crashmem.FS
	r      *rand.Rand
	clones []*crashmem.FS
}

func (s *snapping) snap() {
	s.clones = append(s.clones, s.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: s.r.IntN(101), RNG: s.r}))
}

func (s *snapping) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	s.snap()
	return s.FS.Create(name, c)
}

func (s *snapping) Rename(from, to string) error {
	s.snap()
	err := s.FS.Rename(from, to)
	s.snap()
	return err
}

func (s *snapping) OpenDir(name string) (vfs.File, error) {
	s.snap()
	return s.FS.OpenDir(name)
}

// TestLongFileIsReplaced: the newest checkpoints stay, and so do all notes that are not checkpoints,
// whenever the process ends.
func TestLongFileIsReplaced(t *testing.T) {
	key, second := newSigner(t, origin), newSigner(t, origin)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	fs := &snapping{FS: crashmem.New(), r: rand.New(rand.NewPCG(seed, 2))}
	f, err := OpenFile(fs, "/")
	if err != nil {
		t.Fatal(err)
	}
	f.most, f.keep = 3000, 4
	over, err := HandOver(at(1), key, second)
	if err == nil {
		err = f.Append(over)
	}
	accepted := Acceptance{Origin: origin, Who: "me"}
	var raw []byte
	if err == nil {
		if raw, err = accepted.Sign(key); err == nil {
			err = f.Append(raw)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	replaced, longest := 0, int64(0)
	for n := range int64(50) {
		fs.clones = nil
		before := f.Newest()
		c := signed(t, at(n+2), second)
		end := f.end
		if err := f.Append(c); err != nil {
			t.Fatal(err)
		}
		longest = max(longest, f.end)
		if f.end < end {
			replaced++
		}
		fs.snap()
		for i, clone := range fs.clones {
			g, err := OpenFile(clone, "/")
			if err != nil {
				t.Fatal(err)
			}
			// The note that is being kept was synced before the file is replaced.
			if !bytes.Equal(g.Newest(), c) {
				t.Fatalf("crash %d of %d: the newest is another", i, n)
			}
			others, checkpoints := 0, 0
			for raw, err := range g.All() {
				if err != nil {
					t.Fatal(err)
				}
				if IsCheckpoint(raw) {
					checkpoints++
				} else {
					others++
				}
			}
			if others != 2 || before != nil && checkpoints < 2 {
				t.Fatalf("crash %d of %d: %d checkpoints and %d other notes", i, n, checkpoints, others)
			}
			if err := g.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if replaced < 3 || longest > 5000 {
		t.Errorf("%d replacements, and up to %d bytes", replaced, longest)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

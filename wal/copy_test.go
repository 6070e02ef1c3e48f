package wal

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	iofs "io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tgad/tgad/schemas/tga"
)

// copied makes a log of four segments, the first one packed, and a body in a file.
func copied(t *testing.T, fs vfs.FS) *bench {
	t.Helper()
	b := newBenchOf(t, fs, MinSegment)
	for range 15 {
		b.append(1, 14<<10)
	}
	if _, err := b.log.Rewrite(t.Context(), 1, even, nil); err != nil {
		t.Fatal(err)
	}
	b.file("large")
	b.append(2, 100)
	if n := b.last.Segment; n != 4 {
		t.Fatalf("the log has %d segments", n)
	}
	if err := fs.MkdirAll("copy", 0o700); err != nil {
		t.Fatal(err)
	}
	return b
}

// file appends an operation whose body has a file.
func (b *bench) file(key string) {
	b.t.Helper()
	f, err := b.log.WriteFile([]byte(key), []byte(strings.Repeat("body of "+key, 100)))
	if err != nil {
		b.t.Fatal(err)
	}
	var g Group
	var o Ops
	o.PutFile([]byte(key), nil, f)
	g.Add(&o, MaxRecord)
	if b.last, err = b.log.Append(&g); err != nil {
		b.t.Fatal(err)
	}
	b.want = append(b.want, kept{Kind: Put, Key: key, File: f})
}

// copyOn copies the log into copy, where have is already.
func (b *bench) copyOn(have map[string]CopiedFile) (Position, []CopiedFile, error) {
	return b.log.CopyTo(b.t.Context(), b.fs, "copy", have)
}

func byName(list []CopiedFile) map[string]CopiedFile {
	m := map[string]CopiedFile{}
	for _, f := range list {
		m[f.Name] = f
	}
	return m
}

// anew names the files of a copy that were copied now.
func anew(list []CopiedFile) (names []string) {
	for _, f := range list {
		if f.New {
			names = append(names, f.Name)
		}
	}
	return names
}

func (b *bench) verify(from, end Position, list []CopiedFile) error {
	o := b.options()
	o.Dir = "copy"
	return VerifyCopy(b.t.Context(), o, from, end, list)
}

// bytes reads a file, nil where it is not there.
func (b *bench) bytes(path string) []byte {
	b.t.Helper()
	f, err := b.fs.Open(path)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	if err != nil {
		b.t.Fatal(err)
	}
	data, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		b.t.Fatal(err)
	}
	return data
}

// TestCopyEndsWhereTheLogDid: a copy is the whole log as it was at the call, and each of its files
// has the length and the digest that CopyTo returned.
func TestCopyEndsWhereTheLogDid(t *testing.T) {
	b := copied(t, vfs.NewMem())
	end, list, err := b.copyOn(nil)
	if err != nil || end != b.last {
		t.Fatalf("%+v %v", end, err)
	}
	there, err := b.fs.List("copy")
	slices.Sort(there)
	if names := slices.Sorted(maps.Keys(byName(list))); err != nil || !slices.Equal(names, there) || len(list) != 5 {
		t.Errorf("%v are there, %v are told: %v", there, names, err)
	}
	for _, f := range list {
		data := b.bytes("copy/" + f.Name)
		if !f.New || int64(len(data)) != f.Length || sha256.Sum256(data) != f.Digest {
			t.Errorf("%+v is a file of %d bytes", f, len(data))
		}
		if from := b.bytes("log/" + f.Name); !bytes.HasPrefix(from, data) || f.Name != segmentName(4) && len(from) != len(data) {
			t.Errorf("%s is not the log's", f.Name)
		}
	}
	was := len(b.want)
	b.append(1, 10)
	b.want = b.want[:was]
	if err := b.verify(Position{}, end, list); err != nil {
		t.Error(err)
	}
	o := b.options()
	o.Dir = "copy"
	c := &bench{t: t, fs: b.fs, rng: b.rng, want: b.forget(2, b.places())}
	r, err := readAs(o)
	if err != nil || !gonly(r.errs) || !slices.Equal(r.ops, c.want) || r.tail.Doubt != nil || r.tail.At != end {
		t.Errorf("%+v %v %v: %d operations of %d", r.tail, r.errs, err, len(r.ops), len(c.want))
	}
	body, err := r.log.ReadFile(c.want[len(c.want)-11].File, []byte("large"))
	if err != nil || !bytes.HasPrefix(body, []byte("body of large")) {
		t.Errorf("the file of a body: %.20q %v", body, err)
	}
}

// TestNextCopyTakesWhatIsNew: a file of the earlier copy that has the same bytes is not copied
// again. A file that grew, is gone, or has other content under its name is copied.
func TestNextCopyTakesWhatIsNew(t *testing.T) {
	b := copied(t, vfs.NewMem())
	_, list, err := b.copyOn(nil)
	if err != nil {
		t.Fatal(err)
	}
	next := func(what string, have map[string]CopiedFile, want ...string) {
		t.Helper()
		end, again, err := b.copyOn(have)
		slices.Sort(want)
		names := anew(again)
		slices.Sort(names)
		if err != nil || end != b.last || !slices.Equal(names, want) || len(again) < len(list) {
			t.Errorf("%s: %v are copied, want %v: %v", what, names, want, err)
		}
		for _, f := range again {
			if data := b.bytes("copy/" + f.Name); sha256.Sum256(data) != f.Digest || int64(len(data)) != f.Length {
				t.Errorf("%s: %+v is a file of %d bytes", what, f, len(data))
			}
		}
		if err := b.verify(Position{}, end, again); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		list = again
	}
	next("the same log", byName(list))
	b.append(1, 10)
	next("the newest segment grew", byName(list), segmentName(4))
	b.file("another")
	other := b.want[len(b.want)-1].File
	next("a body and its record", byName(list), segmentName(4), bodyName(other.ID))
	large := byName(list)
	for _, name := range slices.Sorted(maps.Keys(large)) {
		if err := b.fs.Remove("copy/" + name); err != nil {
			t.Fatal(err)
		}
		next(name+" is gone", byName(list), name)
		good := b.bytes("copy/" + name)
		for what, at := range map[string]int{"its first byte": 0, "the last of its head": min(identityLen, len(good)) - 1, "the first of its tail": len(good) - headerLen, "its last byte": len(good) - 1} {
			bad := bytes.Clone(good)
			bad[at] ^= 1
			b.replace("copy/"+name, bad)
			next(name+" differs in "+what, byName(list), name)
		}
	}
	have := byName(list)
	delete(have, segmentName(2))
	next("a file that nobody told of", have, segmentName(2))
	one := have[segmentName(3)]
	one.Length--
	have[segmentName(3)] = one
	have[segmentName(2)] = byName(list)[segmentName(2)]
	next("a file that was shorter", have, segmentName(3))
	// A rewrite gives a segment another name.
	if _, err := b.log.Rewrite(t.Context(), 2, even, nil); err != nil {
		t.Fatal(err)
	}
	next("a segment was packed", byName(list), version{2, 1}.name())
}

// replace puts another file under a name. The file that had the name may have other names too.
func (b *bench) replace(path string, data []byte) {
	b.t.Helper()
	if err := b.fs.Remove(path); err != nil {
		b.t.Fatal(err)
	}
	b.write(path, data)
}

// TestTrimKeepsWhatItIsTold: TrimCopy removes all other files, including those of an interrupted
// copy.
func TestTrimKeepsWhatItIsTold(t *testing.T) {
	b := copied(t, vfs.NewMem())
	end, list, err := b.copyOn(nil)
	if err != nil {
		t.Fatal(err)
	}
	b.write("copy/"+segmentName(9)+copying, []byte("half"))
	b.write("copy/"+segmentName(9), []byte("older"))
	for range 2 { // the second time there is nothing to do
		if err := TrimCopy(b.fs, "copy", byName(list)); err != nil {
			t.Fatal(err)
		}
		names, err := b.fs.List("copy")
		slices.Sort(names)
		if err != nil || !slices.Equal(names, slices.Sorted(maps.Keys(byName(list)))) {
			t.Errorf("%v are left: %v", names, err)
		}
	}
	if err := b.verify(Position{}, end, list); err != nil {
		t.Error(err)
	}
}

// TestDamageOfACopyIsFound changes a byte of each part of each file, and cuts files short: the
// check of a copy finds it in a file that is new, and in what follows the copy before.
func TestDamageOfACopyIsFound(t *testing.T) {
	b := copied(t, vfs.NewMem())
	end, list, err := b.copyOn(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		good := b.bytes("copy/" + f.Name)
		try := func(what string, data []byte) {
			t.Helper()
			b.replace("copy/"+f.Name, data)
			if err := b.verify(Position{}, end, list); tga.CodeOf(err) != tga.StateChecksumMismatch {
				t.Errorf("%s, %s: %v", f.Name, what, err)
			}
			b.replace("copy/"+f.Name, good)
		}
		for at := 0; at < len(good); at += 1 + len(good)/23 {
			bad := bytes.Clone(good)
			bad[at] ^= 0x10
			if parsed, _, segment := parseName(f.Name); segment && parsed < 4 && bytes.Equal(good[at:min(len(good), at+64)], make([]byte, min(64, len(good)-at))) {
				continue // zeros behind the end of a segment are nobody's
			}
			try("a bit", bad)
		}
		try("cut short", good[:len(good)/2])
	}
	wrong := end
	wrong.Sum++
	if err := b.verify(Position{}, wrong, list); tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("another end: %v", err)
	}
	gone := append(slices.Clone(list), CopiedFile{Name: segmentName(9), New: true})
	if err := b.verify(Position{}, end, gone); tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("a segment that is not there: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := b.options()
	o.Dir = "copy"
	for _, from := range []Position{{}, end} { // in the scan and in the files
		if err := VerifyCopy(ctx, o, from, end, list); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	}
	if err := b.verify(Position{}, end, list); err != nil {
		t.Error(err)
	}
}

// TestFileOfAnEarlierCopyIsNotReadAgain: files from the earlier copy were verified at that time.
func TestFileOfAnEarlierCopyIsNotReadAgain(t *testing.T) {
	b := copied(t, vfs.NewMem())
	before, list, err := b.copyOn(nil)
	if err != nil {
		t.Fatal(err)
	}
	b.append(1, 10)
	end, list, err := b.copyOn(byName(list))
	if err != nil {
		t.Fatal(err)
	}
	body := slices.IndexFunc(list, func(f CopiedFile) bool { _, is := parseBodyName(f.Name); return is })
	data := b.bytes("copy/" + list[body].Name)
	data[len(data)-1] ^= 1
	b.replace("copy/"+list[body].Name, data)
	if err := b.verify(before, end, list); err != nil {
		t.Errorf("a file that is not new was read: %v", err)
	}
	list[body].New = true
	if err := b.verify(before, end, list); tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("a new file that is damaged: %v", err)
	}
}

// TestCopyOrAnError fails each operation of a copy in turn: the copy ends with an error and leaves
// no file under its name that is not whole, or it is the log's. The next one is the log's.
func TestCopyOrAnError(t *testing.T) {
	full := errors.New("full")
	for _, earlier := range []bool{false, true} {
		failed := 0
		for at := 1; ; at++ {
			left := 0
			b := copied(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
				if left > 0 {
					if left--; left == 0 {
						return full
					}
				}
				return nil
			})))
			var have map[string]CopiedFile
			if earlier {
				_, list, err := b.copyOn(nil)
				if err != nil {
					t.Fatal(err)
				}
				have = byName(list)
				b.append(1, 10)
			}
			waitSpare(b.log)
			left = at
			end, list, err := b.copyOn(have)
			over := left > 0
			left = 0
			if err == nil {
				err = b.verify(Position{}, end, list)
			} else {
				failed++
				if !errors.Is(err, full) || tga.CodeOf(err) != tga.StoreUnavailable {
					t.Errorf("operation %d: %v", at, err)
				}
				names, lerr := b.fs.List("copy")
				for _, name := range names {
					data := b.bytes("copy/" + name)
					if from := b.bytes("log/" + name); !strings.HasSuffix(name, copying) && !bytes.HasPrefix(from, data) {
						t.Errorf("operation %d left %s, which is not the log's (%v)", at, name, lerr)
					}
				}
				if end, list, err = b.copyOn(have); err == nil {
					err = b.verify(Position{}, end, list)
				}
			}
			if err != nil {
				t.Errorf("operation %d: %v", at, err)
			}
			if err := b.log.Close(); err != nil {
				t.Error(err)
			}
			if over {
				break
			}
		}
		if failed < 20 {
			t.Errorf("%d operations failed", failed)
		}
	}
}

// waitSpare waits for the segment that is made beside the log.
func waitSpare(l *Log) {
	if s := l.spare; s != nil {
		s.allow(1 << 40)
		s.wait()
	}
}

// TestWholeFilesOfACopyAreLinked: a file that is no longer written to is linked, if the disk can.
// Otherwise, and for the newest segment, the bytes are copied.
func TestWholeFilesOfACopyAreLinked(t *testing.T) {
	for _, links := range []bool{true, false} {
		var made []string
		b := copied(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpCreate && strings.HasPrefix(op.Path, "copy/") {
				made = append(made, strings.TrimSuffix(op.Path[len("copy/"):], copying))
			}
			if op.Kind == errorfs.OpLink && !links {
				return errors.ErrUnsupported
			}
			return nil
		})))
		end, list, err := b.copyOn(nil)
		if err == nil {
			err = b.verify(Position{}, end, list)
		}
		want := []string{segmentName(4)}
		if !links {
			want = slices.Collect(maps.Keys(byName(list)))
		}
		slices.Sort(made)
		slices.Sort(want)
		if err != nil || !slices.Equal(made, want) {
			t.Errorf("with links %v: %v are files of their own, want %v (%v)", links, made, want, err)
		}
	}
}

// vanishing lists a file that is gone when it is opened.
type vanishing struct {
	vfs.FS
	name string
}

func (d *vanishing) Stat(path string) (vfs.FileInfo, error) {
	if strings.HasSuffix(path, d.name) && d.name != "" {
		return nil, iofs.ErrNotExist
	}
	return d.FS.Stat(path)
}

// TestFileThatVanishesWhileItIsCopied: the file of a body that no record names may be dropped
// while a log is copied; a segment may not.
func TestFileThatVanishesWhileItIsCopied(t *testing.T) {
	disk := &vanishing{FS: vfs.NewMem()}
	b := copied(t, disk)
	f, err := b.log.WriteFile([]byte("nobody's"), []byte("body"))
	if err != nil {
		t.Fatal(err)
	}
	disk.name = bodyName(f.ID)
	end, list, err := b.copyOn(nil)
	if _, has := byName(list)[disk.name]; err != nil || has || len(list) != 5 {
		t.Errorf("%v: %v", list, err)
	}
	if err := b.verify(Position{}, end, list); err != nil {
		t.Error(err)
	}
	disk.name = segmentName(2)
	if _, _, err := b.copyOn(nil); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("a segment that is gone: %v", err)
	}
}

// TestPiecesAreCopiedExactly: as many bytes as asked for, at the limits of a piece.
func TestPiecesAreCopiedExactly(t *testing.T) {
	data := make([]byte, 2*piece+9)
	for i := range data {
		data[i] = byte(i * 7)
	}
	for _, n := range []int{0, 1, piece - 1, piece, piece + 1, 2 * piece, 2*piece + 1} {
		var out bytes.Buffer
		if err := copyPieces(t.Context(), &out, bytes.NewReader(data), int64(n)); err != nil || !bytes.Equal(out.Bytes(), data[:n]) {
			t.Errorf("%d bytes: %d, %v", n, out.Len(), err)
		}
		if err := copyPieces(t.Context(), io.Discard, bytes.NewReader(data[:n]), int64(n)+1); !errors.Is(err, io.EOF) {
			t.Errorf("%d bytes of %d: %v", n+1, n, err)
		}
	}
}

// TestFileOfACopyThatWasCutIsCopiedAgain: a file of the copy that is shorter than its list says, as in a directory that was put
// back to an earlier state, is another file. It must not keep every later copy from being made.
func TestFileOfACopyThatWasCutIsCopiedAgain(t *testing.T) {
	for _, cut := range []int{0, 100, identityLen, identityLen + 100} {
		b := copied(t, vfs.NewMem())
		end, list, err := b.copyOn(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			path := "copy/" + f.Name
			b.write(path, b.content(path)[:min(cut, int(f.Length)-1)])
		}
		_, again, err := b.copyOn(byName(list))
		if err != nil {
			t.Fatalf("cut to %d bytes: %v", cut, err)
		}
		if names := anew(again); len(names) != len(list) {
			t.Errorf("cut to %d bytes: %v were copied again", cut, names)
		}
		if err := b.verify(Position{}, end, again); err != nil {
			t.Errorf("cut to %d bytes: %v", cut, err)
		}
	}
}

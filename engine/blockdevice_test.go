//go:build linux

package engine_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/keyring"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
)

// TestErasedIsOnNoBlock searches every block of a disk for what was erased: for the value, and
// in a store that seals for the bytes that it was sealed as. The ring is on another disk. The
// store is written to before and after, archived and rewritten, and a crash tore its log.
func TestErasedIsOnNoBlock(t *testing.T) {
	serial.Test(t)
	for _, seal := range []bool{true, false} {
		t.Run(map[bool]string{true: "sealed", false: "not sealed"}[seal], func(t *testing.T) { erasedOnDisk(t, seal) })
	}
}

func erasedOnDisk(t *testing.T, seal bool) {
	image, dir, unmount := disk(t)
	o := engine.Options{MemTableBytes: 1 << 20, LowWaterBytes: 1, FirstSegmentBytes: 1 << 20, SegmentBytes: 1 << 20, RewriteShare: -1}
	if seal {
		o.Keyring = realRing(t)
	}
	db := open(t, dir+"/store", o)
	gone := []spec{secretive(1, 10), secretive(2, 40<<10), secretive(3, 2<<20)}
	run(t, db, spec{trace: id(10), documents: noisy(1, 10000)}, spec{trace: id(11), documents: noisy(2, 10000)})
	run(t, db, gone...)
	archived := secretive(4, 300)
	run(t, db, archived)
	agent := engine.AgentState{Agent: "helper", Session: "s"}
	states := []*someState{layScope(t, db, agent, secret), layFamily(t, db, id(70), secret)}
	var sealed []string
	for _, s := range append(gone, archived) {
		row := db.Dump()[string(entryKey(s.trace, 4))]
		sealed = append(sealed, row[len(row)-48:])
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	// A torn group behind the records of a segment, as a crash leaves it: it was never acknowledged.
	tear(t, filepath.Join(dir, "store", "log", "0000000000000001"), sealed[0], seal)
	db = open(t, dir+"/store", o)
	for _, s := range states {
		for _, b := range s.values {
			a := b.Attachments[0]
			row := db.Dump()[string(append([]byte{byte(a.Kind)}, a.Key...))]
			sealed = append(sealed, row[max(0, len(row)-40):])
		}
	}
	what := engine.Erasure{Traces: []tga.ID{archived.trace}, Agents: []engine.AgentState{agent}, States: []tga.ID{id(70)}}
	for _, s := range gone {
		what.Traces = append(what.Traces, s.trace)
	}
	if found := blocksWith(t, image, append(sealed, secret)); (len(found) > 0) == seal && len(found) < 2 {
		t.Fatalf("before: %v", found)
	}
	erase(t, db, what)
	run(t, db, spec{trace: id(12), documents: noisy(3, 20000)})
	check(t, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	unmount()
	if found := blocksWith(t, image, append(sealed, secret)); len(found) > 0 {
		t.Errorf("it is still on the disk: %v", found)
	}
}

// tear writes bytes that look like the beginning of a group behind the end of a segment.
func tear(t *testing.T, name, sealed string, seal bool) {
	t.Helper()
	text := secret
	if seal {
		text = sealed
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte(strings.Repeat(text, 3)), info.Size()-4096); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// blocksWith looks for texts in a file, and says where they are.
func blocksWith(t *testing.T, image string, texts []string) (found []int64) {
	t.Helper()
	unix.Sync()
	f, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const step, lap = 1 << 20, 256
	b := make([]byte, step+lap)
	for at := int64(0); ; at += step {
		n, err := f.ReadAt(b, at)
		for _, text := range texts {
			if i := bytes.Index(b[:n], []byte(text)); i >= 0 {
				found = append(found, at+int64(i))
			}
		}
		if err == io.EOF {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// disk makes a file system on a file and mounts it.
func disk(t *testing.T) (image, dir string, unmount func()) {
	t.Helper()
	image, dir = filepath.Join(t.TempDir(), "image"), filepath.Join(t.TempDir(), "disk")
	for _, line := range []string{"truncate -s 96M " + image, "mkfs.ext4 -q " + image, "mkdir " + dir, "mount -o loop " + image + " " + dir} {
		if out, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
			t.Skipf("no disk can be made here, %s: %v %s", line, err, out)
		}
	}
	mounted := true
	unmount = func() {
		if mounted {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
			mounted = false
		}
	}
	t.Cleanup(unmount)
	return image, dir, unmount
}

// realRing is a key ring on the disk that the tests run on.
func realRing(t *testing.T) *keyring.Ring {
	t.Helper()
	dir := t.TempDir()
	o := keyring.Options{KEK: keyring.KEK{File: dir + "/kek"}}
	if err := os.WriteFile(o.KEK.File, bytes.Repeat([]byte("k"), 32), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := keyring.Create(dir+"/ring", id(1), o); err != nil {
		t.Fatal(err)
	}
	r, err := keyring.Open(dir+"/ring", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

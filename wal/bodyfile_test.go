package wal

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
)

// TestBodyFileProvesWhoseItIs reads a body back, and then with each byte of its file changed:
// no other bytes are ever taken for it.
func TestBodyFileProvesWhoseItIs(t *testing.T) {
	b := newBench(t, vfs.NewMem())
	key, body := []byte("e1"), bytes.Repeat([]byte("body "), 40)
	f, err := b.log.WriteFile(key, body)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := b.log.ReadFile(f, key); err != nil || !bytes.Equal(got, body) {
		t.Fatalf("%q %v", got, err)
	}
	other, wrong := f, f
	other.ID[0] ^= 1
	wrong.Length++
	for name, read := range map[string]func() ([]byte, error){
		"another key":    func() ([]byte, error) { return b.log.ReadFile(f, []byte("e2")) },
		"another id":     func() ([]byte, error) { return b.log.ReadFile(other, key) },
		"another length": func() ([]byte, error) { return b.log.ReadFile(wrong, key) },
	} {
		if _, err := read(); tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Errorf("%s: %v", name, err)
		}
	}
	path := "log/" + bodyName(f.ID)
	whole := b.content(path)
	for at := range whole {
		bad := bytes.Clone(whole)
		bad[at] ^= 0x10
		b.write(path, bad)
		if _, err := b.log.ReadFile(f, key); err == nil {
			t.Errorf("byte %d of %d changed: read", at, len(whole))
		}
		b.write(path, whole[:at])
		if _, err := b.log.ReadFile(f, key); err == nil {
			t.Errorf("cut to %d bytes: read", at)
		}
	}
	b.write(path, append(bytes.Clone(whole), 0))
	if _, err := b.log.ReadFile(f, key); err == nil {
		t.Error("one byte longer: read")
	}
}

// TestSweepRemovesWhatIsNobodys walks what may lie in the directory: what is live, fresh or
// evidence stays.
func TestSweepRemovesWhatIsNobodys(t *testing.T) {
	b := newBench(t, vfs.NewMem())
	write := func(key string) File {
		f, err := b.log.WriteFile([]byte(key), []byte("body of "+key))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	live, dead, damaged, fresh := write("live"), write("dead"), write("damaged"), write("fresh")
	var g Group
	var o Ops
	for key, f := range map[string]File{"live": live, "dead": dead, "damaged": damaged} {
		o.PutFile([]byte(key), nil, f)
	}
	g.Add(&o, MaxRecord)
	if _, err := b.log.Append(&g); err != nil {
		t.Fatal(err)
	}
	b.write("log/"+bodyName(damaged.ID), []byte("nothing that says whose it is"))
	b.write("log/"+bodyName(tga.ID{9})+unfinished, []byte("half"))
	b.write("log/notes.txt", []byte("somebody's"))
	before := b.image()
	n, _, err := b.log.Sweep(context.Background(), func(key []byte, f File) (bool, error) {
		if string(key) == "fresh" || string(key) == "damaged" {
			t.Errorf("asked about %s", key)
		}
		return string(key) == "live" && f == live, nil
	})
	if err != nil || n != 2 {
		t.Errorf("%d removed, %v", n, err)
	}
	after := b.image()
	for name := range before {
		_, is := after[name]
		gone := name == bodyName(dead.ID) || strings.HasSuffix(name, unfinished)
		if is == gone {
			t.Errorf("%s: there is %v", name, is)
		}
	}
	if err := b.log.DropFile(fresh); err != nil {
		t.Error(err)
	}
	if _, err := b.log.ReadFile(fresh, []byte("fresh")); tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("dropped, and read: %v", err)
	}
	if err := b.log.DropFile(fresh); err != nil {
		t.Errorf("dropped twice: %v", err)
	}
	stop := errors.New("stop")
	if _, _, err := b.log.Sweep(context.Background(), func([]byte, File) (bool, error) { return false, stop }); !errors.Is(err, stop) {
		t.Errorf("the error of the question: %v", err)
	}
}

func (b *bench) content(path string) []byte {
	b.t.Helper()
	f, err := b.fs.Open(path)
	if err != nil {
		b.t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		b.t.Fatal(err)
	}
	out := make([]byte, info.Size())
	if err := errors.Join(readFull(f, out, 0), f.Close()); err != nil {
		b.t.Fatal(err)
	}
	return out
}

func (b *bench) write(path string, data []byte) {
	b.t.Helper()
	f, err := b.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		b.t.Fatal(err)
	}
	_, err = f.Write(bytes.Clone(data))
	if err := errors.Join(err, f.Close()); err != nil {
		b.t.Fatal(err)
	}
}

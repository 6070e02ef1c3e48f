package wal

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/schemas/tga"
)

// TestBodyFileIsAsItsVectors: written as the first of them, and each read to its verdict.
func TestBodyFileIsAsItsVectors(t *testing.T) {
	raw, err := golden.Vectors.ReadFile("tga/body_file.json")
	var v struct {
		ID, Key, Body string
		Cases         []struct{ Name, Hex, Verdict string }
	}
	if err == nil {
		err = json.Unmarshal(raw, &v)
	}
	if err != nil || len(v.Cases) == 0 {
		t.Fatalf("%d vectors, %v", len(v.Cases), err)
	}
	unhex := func(s string) []byte {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	key, body := unhex(v.Key), unhex(v.Body)
	f := File{ID: tga.ID(unhex(v.ID)), Digest: sha256.Sum256(body), Length: uint64(len(body))}
	l := &Log{files: files{fs: vfs.NewMem()}}
	if err := l.files.writeBody(f, key, body); err != nil {
		t.Fatal(err)
	}
	if got := l.onDisk(t, f, int(f.Length)+bodyHeader+len(key)); hex.EncodeToString(got) != v.Cases[0].Hex {
		t.Errorf("written %x, want %s", got, v.Cases[0].Hex)
	}
	for _, c := range v.Cases {
		out, err := l.files.fs.Create(bodyName(f.ID), vfs.WriteCategoryUnspecified)
		if err == nil {
			_, err = out.Write(unhex(c.Hex))
		}
		if err != nil || out.Close() != nil {
			t.Fatal(err)
		}
		got, err := l.ReadFile(f, key)
		if verdict := string(tga.CodeOf(err)); err != nil && verdict != c.Verdict || err == nil && (c.Verdict != "ok" || string(got) != string(body)) {
			t.Errorf("%s: %q, %v; want %s", c.Name, got, err, c.Verdict)
		}
	}
}

// onDisk are the first n bytes of a body's file.
func (l *Log) onDisk(t *testing.T, f File, n int) []byte {
	t.Helper()
	in, err := l.files.fs.Open(bodyName(f.ID))
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, n)
	if err := readFull(in, b, 0); err != nil || in.Close() != nil {
		t.Fatal(err)
	}
	return b
}

package checkpoint

import (
	"bytes"
	"crypto/ed25519"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/schemas/tga"
)

const origin = "tgad/test"

func newSigner(t *testing.T, name string) Signer {
	t.Helper()
	s, err := NewSigner(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func trust(t *testing.T, s Signer) *Keys {
	t.Helper()
	k, err := TrustKeys(origin, s.Public)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func at(size int64) Checkpoint {
	return Checkpoint{Origin: origin, Size: size, Head: tlog.Hash{byte(size), 1, 2}}
}

func signed(t *testing.T, c Checkpoint, s Signer) []byte {
	t.Helper()
	raw, err := c.Sign(s)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestCheckpointIsBelievedOnlyWhole(t *testing.T) {
	key := newSigner(t, origin)
	raw := signed(t, at(12345), key)
	got, by, err := trust(t, key).Open(raw)
	if err != nil || got != at(12345) || len(by) != 0 {
		t.Fatalf("%+v, %v, %v", got, by, err)
	}
	for i := range raw {
		b := bytes.Clone(raw)
		b[i] ^= 0x01
		if got, _, err := trust(t, key).Open(b); err == nil {
			t.Errorf("byte %d (%q) changed: believed as %+v", i, raw[i], got)
		}
	}
	for n := range raw {
		if _, _, err := trust(t, key).Open(raw[:n]); err == nil {
			t.Errorf("believed when cut to %d bytes", n)
		}
	}
	for name, raw := range map[string][]byte{
		"another key of the same name": signed(t, at(12345), newSigner(t, origin)),
		"another origin":               signed(t, Checkpoint{Origin: "tgad/other", Size: 1}, key),
		"a size with zeros before it":  sign(t, origin+"\n007\n"+tlog.Hash{}.String()+"\n", key),
		"a short head":                 sign(t, origin+"\n7\nAAAA\n", key),
		"no head":                      sign(t, origin+"\n7\n", key),
		"a negative size":              sign(t, origin+"\n-7\n"+tlog.Hash{}.String()+"\n", key),
		"too long a note":              sign(t, at(7).Text()+strings.Repeat("x", MaxBytes)+"\n", key),
		"nothing":                      nil,
	} {
		if got, _, err := trust(t, key).Open(raw); err == nil {
			t.Errorf("%s: believed as %+v", name, got)
		}
	}
	if got, _, err := trust(t, key).Open(sign(t, at(7).Text()+"an extension\n", key)); err != nil || got != at(7) {
		t.Errorf("with an extension line: %+v, %v", got, err)
	}
}

func sign(t *testing.T, text string, s Signer) []byte {
	t.Helper()
	raw, err := note.Sign(&note.Note{Text: text}, s)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestHandOver(t *testing.T) {
	first, second, third, thief := newSigner(t, origin), newSigner(t, origin), newSigner(t, origin), newSigner(t, origin)
	over := func(from, to Signer) []byte {
		raw, err := HandOver(at(5), from, to)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	k := trust(t, first)
	if _, _, err := k.Open(signed(t, at(6), second)); err == nil {
		t.Fatal("the second key is believed before its hand-over")
	}
	if _, err := k.Follow(over(second, third)); tga.CodeOf(err) != tga.PermissionDenied {
		t.Fatalf("a hand-over by a key that is not trusted: %v", err)
	}
	half := func(by Signer) []byte { // signed by one key alone
		text, _, _ := strings.Cut(string(over(first, thief)), "\n\n")
		return sign(t, text+"\n", by)
	}
	for _, by := range []Signer{first, thief} {
		if _, err := k.Follow(half(by)); err == nil {
			t.Fatal("a hand-over that one key alone signed is followed")
		}
	}
	for _, raw := range [][]byte{over(first, second), over(second, third)} {
		if got, err := k.Follow(raw); err != nil || got != at(5) {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if _, _, err := k.Open(signed(t, at(6), third)); err != nil {
		t.Errorf("the third key: %v", err)
	}
	if _, _, err := k.Open(signed(t, at(6), thief)); err == nil {
		t.Error("a key that nothing was handed to is believed")
	}
	// A key that was handed over makes no statement about a tree that is larger than at that time: it
	// neither signs it...
	if _, _, err := k.Open(signed(t, at(5), first)); err != nil {
		t.Errorf("the first key, of the tree that it handed over: %v", err)
	}
	if _, _, err := k.Open(signed(t, at(6), first)); tga.CodeOf(err) != tga.PermissionDenied {
		t.Errorf("the first key, of a larger tree: %v", err)
	}
	// ...nor hands it to another key, and no former key comes back.
	for _, size := range []int64{0, 4, 5, 6} {
		late, err := HandOver(at(size), first, thief)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Follow(late); tga.CodeOf(err) != tga.PermissionDenied {
			t.Errorf("a hand-over at %d by a key that was given up at 5: %v", size, err)
		}
	}
	if _, err := k.Follow(over(third, first)); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("a hand-over back to the first key: %v", err)
	}
	raw := over(first, second)
	for i := range raw {
		b := bytes.Clone(raw)
		b[i] ^= 0x01
		if _, err := trust(t, first).Follow(b); err == nil {
			t.Errorf("hand-over with byte %d (%q) changed is followed", i, raw[i])
		}
	}
	if _, _, err := trust(t, first).Open(raw); err == nil {
		t.Error("a hand-over is believed as a checkpoint")
	}
}

// TestHandOverHasOneForm: the lines that both keys signed and the lines that are read back are the same.
func TestHandOverHasOneForm(t *testing.T) {
	first, second := newSigner(t, origin), newSigner(t, origin)
	raw, err := HandOver(at(5), first, second)
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(raw), "\n\n")
	// The last character of a head in base64 has four bits that count, and two that are not used.
	loose := text[:len(text)-2] + string(text[len(text)-2]+1) + "="
	for name, text := range map[string]string{
		"more behind an empty line": text + "\n\nand another thing\n",
		"another spelling of head":  loose + "\n",
	} {
		raw, err := note.Sign(&note.Note{Text: text}, first, second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := trust(t, first).Follow(raw); tga.CodeOf(err) != tga.SchemaViolation {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeyFile(t *testing.T) {
	secret, public, err := NewKey(origin)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := ReadSigner(path)
	if err != nil || s.Public != public || s.Name() != origin {
		t.Fatalf("%q, %v, want %q", s.Public, err, public)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSigner(path); err == nil || strings.Contains(err.Error(), secret[20:40]) {
		t.Errorf("a key that everybody can read: %v", err)
	}
	for _, bad := range []string{"", "x", public, secret + "A", "PRIVATE+KEY+a+b+c", secret[:len(secret)-8]} {
		if _, err := ParseSigner(bad); err == nil {
			t.Errorf("%q is a key", bad)
		} else if bad != "" && len(bad) > 40 && strings.Contains(err.Error(), bad[len(bad)-20:]) {
			t.Errorf("the error has a part of the key: %v", err)
		}
	}
	for _, bad := range []string{"", "a b", "a+b", "a\nb"} {
		if _, _, err := NewKey(bad); err == nil {
			t.Errorf("%q names a key", bad)
		}
	}
}

func TestRemoteSigner(t *testing.T) {
	key := newSigner(t, origin)
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	answer := func(msg []byte) ([]byte, int) { sig, _ := key.Sign(msg); return sig, 200 }
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		msg, _ := io.ReadAll(r.Body)
		sig, status := answer(msg)
		w.WriteHeader(status)
		w.Write(sig)
	})}
	go srv.Serve(l)
	defer srv.Close()
	s, err := Remote(socket, key.Public)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := trust(t, key).Open(signed(t, at(3), s)); err != nil {
		t.Fatal(err)
	}
	other := newSigner(t, origin)
	for name, a := range map[string]func([]byte) ([]byte, int){
		"another key's":  func(msg []byte) ([]byte, int) { sig, _ := other.Sign(msg); return sig, 200 },
		"of other bytes": func(msg []byte) ([]byte, int) { sig, _ := key.Sign(append(msg, 'x')); return sig, 200 },
		"refused":        func(msg []byte) ([]byte, int) { sig, _ := key.Sign(msg); return sig, 403 },
		"none":           func([]byte) ([]byte, int) { return nil, 200 },
		"too long":       func([]byte) ([]byte, int) { return make([]byte, ed25519.SignatureSize+1), 200 },
	} {
		answer = a
		if _, err := at(3).Sign(s); tga.CodeOf(err) != tga.StoreUnavailable {
			t.Errorf("a signature that is %s: %v", name, err)
		}
	}
	srv.Close()
	if _, err := at(3).Sign(s); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("nobody listens: %v", err)
	}
}

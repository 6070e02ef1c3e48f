package checkpoint

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	fnote "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/schemas/tga"
	vectors "github.com/tgad/tgad/test_vectors"
)

const origin = "tgad/test"

func newSigner(t *testing.T, name string) Signer {
	t.Helper()
	secret, _, err := NewKey(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseSigner(secret)
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
	half := func(by Signer) []byte { // signed by one alone
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
	// Who was given up speaks of no tree that is larger than when it was: neither signs it...
	if _, _, err := k.Open(signed(t, at(5), first)); err != nil {
		t.Errorf("the first key, of the tree that it handed over: %v", err)
	}
	if _, _, err := k.Open(signed(t, at(6), first)); tga.CodeOf(err) != tga.PermissionDenied {
		t.Errorf("the first key, of a larger tree: %v", err)
	}
	// ...nor gives it to another, and no key comes back.
	late, err := HandOver(at(6), first, thief)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Follow(late); tga.CodeOf(err) != tga.PermissionDenied {
		t.Errorf("a hand-over by a key that was given up: %v", err)
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
			if r.IntN(2) == 0 { // a write that a crash tears
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

// TestDamagedFileIsRefused changes each byte of a file of three notes. Damage of the last one is
// what a crash could leave; where a whole one stands behind it, nothing is written over.
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
		if _, err := f.Write(bytes.Clone(b)); err != nil { // under the race detector the file system spoils what it was given
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
	vectors.HoldFormat(t, "EvidenceNotesVersion", tga.EvidenceNotesVersion, frame([]byte("text\n")))
}

// TestTargets: each place returns what it was given last, and says why where it cannot.
func TestTargets(t *testing.T) {
	key := newSigner(t, origin)
	var mu sync.Mutex
	var kept []byte
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.Header.Get("Authorization") != "Bearer x":
			w.WriteHeader(http.StatusForbidden)
		case r.Method == http.MethodPut:
			kept, _ = io.ReadAll(r.Body)
		case kept == nil:
			w.WriteHeader(http.StatusNotFound)
		default:
			w.Write(kept)
		}
	}))
	defer web.Close()
	repo := t.TempDir()
	if out, err := exec.Command("git", "-C", repo, "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	remote := t.TempDir()
	if out, err := exec.Command("git", "-C", remote, "init", "-q", "--bare").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dir := t.TempDir()
	auth := http.Header{"Authorization": {"Bearer x"}}
	for _, target := range []Target{
		Directory{filepath.Join(dir, "checkpoint")},
		Web{URL: web.URL + "/c", Header: auth},
		Git{Dir: repo, File: "checkpoint", Remote: remote},
	} {
		if raw, err := target.Newest(t.Context(), nil); raw != nil || err != nil {
			t.Errorf("%s: before anything was put: %q, %v", target.Name(), raw, err)
		}
		for _, size := range []int64{1, 2, 2, 9} {
			want := signed(t, at(size), key)
			if _, err := target.Put(t.Context(), want, nil); err != nil {
				t.Fatalf("%s: %v", target.Name(), err)
			}
			if got, err := target.Newest(t.Context(), nil); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %q, %v, want %q", target.Name(), got, err, want)
			}
		}
	}
	log, err := exec.Command("git", "--git-dir", remote, "log", "--all", "--format=%s").Output()
	if want := origin + ": 9 leaves\n" + origin + ": 2 leaves\n" + origin + ": 1 leaves\n"; err != nil || string(log) != want {
		t.Errorf("the remote has %q, %v, want %q", log, err, want)
	}
	raw := signed(t, at(1), key)
	for _, target := range []Target{
		Directory{filepath.Join(dir, "absent", "checkpoint")},
		Web{URL: web.URL + "/c"},
		Web{URL: "http://127.0.0.1:1/"},
		Git{Dir: filepath.Join(dir, "absent"), File: "checkpoint"},
	} {
		if _, err := target.Put(t.Context(), raw, nil); err == nil {
			t.Errorf("%s took a checkpoint", target.Name())
		}
		if got, err := target.Newest(t.Context(), nil); err == nil {
			t.Errorf("%s has %q", target.Name(), got)
		}
	}
	// A repository that cannot be read is not one without checkpoints, and GIT_DIR names no other.
	t.Setenv("GIT_DIR", remote)
	if got, err := (Git{Dir: repo, File: "checkpoint"}).Newest(t.Context(), nil); err != nil || got == nil {
		t.Errorf("with GIT_DIR set: %q, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(repo, ".git", "HEAD"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := (Git{Dir: repo, File: "checkpoint"}).Newest(t.Context(), nil); err == nil {
		t.Errorf("a repository that is damaged has %q", got)
	}
	long := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, MaxBytes+1)) }))
	defer long.Close()
	if _, err := (Web{URL: long.URL}).Newest(t.Context(), nil); err == nil {
		t.Error("an answer without end is read")
	}
	away := httptest.NewServer(http.RedirectHandler(web.URL, http.StatusTemporaryRedirect))
	defer away.Close()
	if _, err := (Web{URL: away.URL, Header: auth}).Put(t.Context(), raw, nil); err == nil {
		t.Error("a redirect is followed, with its headers")
	}
}

// witness is one of C2SP tlog-witness: it signs what grew from what it saw before.
type witness struct {
	t    *testing.T
	log  *Keys
	key  *fnote.Signer
	seen Checkpoint
	lie  bool // it signs another text
	asks int
}

func (w *witness) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.asks++
	body, _ := io.ReadAll(r.Body)
	head, raw, ok := strings.Cut(string(body), "\n\n")
	lines := strings.Split(head, "\n")
	var old int64
	if _, err := fmt.Sscanf(lines[0], "old %d", &old); err != nil || !ok || r.URL.Path != "/w/add-checkpoint" {
		rw.WriteHeader(http.StatusBadRequest)
		return
	}
	c, _, err := w.log.Open([]byte(raw))
	if err != nil {
		rw.WriteHeader(http.StatusForbidden)
		return
	}
	if old != w.seen.Size || c.Size < old {
		rw.WriteHeader(http.StatusConflict)
		fmt.Fprintln(rw, w.seen.Size)
		return
	}
	var proof tlog.TreeProof
	for _, l := range lines[1:] {
		h, err := tlog.ParseHash(l)
		if err != nil {
			rw.WriteHeader(http.StatusBadRequest)
			return
		}
		proof = append(proof, h)
	}
	grew := old == 0 && len(proof) == 0 || old == c.Size && c.Head == w.seen.Head && len(proof) == 0 ||
		old > 0 && old < c.Size && tlog.CheckTree(proof, c.Size, c.Head, old, w.seen.Head) == nil
	if !grew {
		rw.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	w.seen = c
	text := c.Text()
	if w.lie {
		text = at(1).Text()
	}
	cosigned, err := note.Sign(&note.Note{Text: text}, w.key)
	if err != nil {
		w.t.Error(err)
	}
	_, sigs, _ := strings.Cut(string(cosigned), "\n\n")
	io.WriteString(rw, sigs)
}

func TestWitness(t *testing.T) {
	key := newSigner(t, origin)
	secret, _, err := NewKey("witness.test")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := fnote.NewSignerForCosignatureV1(secret)
	if err != nil {
		t.Fatal(err)
	}
	w := &witness{t: t, log: trust(t, key), key: signer}
	srv := httptest.NewServer(w)
	defer srv.Close()
	grown, err := tree.Open(vfs.NewMem(), "/", tga.ID{1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	of := func(size int64) []byte {
		for grown.Size() < size {
			if err := grown.Append(&tree.Leaf{Index: uint64(grown.Size()) + 1, Entries: 1}); err != nil {
				t.Fatal(err)
			}
		}
		h, err := grown.Head(size)
		if err != nil {
			t.Fatal(err)
		}
		return signed(t, Checkpoint{Origin: origin, Size: size, Head: h}, key)
	}
	fresh := func() *Witness { return &Witness{URL: srv.URL + "/w/", Key: signer.Verifier()} }
	put := func(to *Witness, raw []byte) error {
		t.Helper()
		cosigned, err := to.Put(t.Context(), raw, grown.ProvePrefix)
		if err != nil {
			return err
		}
		all, err := TrustKeys(origin, key.Public, signer.Verifier())
		if err != nil {
			t.Fatal(err)
		}
		if _, by, err := all.Open(append(bytes.Clone(raw), cosigned...)); err != nil || len(by) != 1 || by[0].Name != "witness.test" {
			t.Errorf("cosigned by %v, %v", by, err)
		}
		return nil
	}
	to := fresh()
	for _, size := range []int64{3, 4, 4, 77} {
		if err := put(to, of(size)); err != nil || w.seen.Size != size {
			t.Fatalf("%d leaves: %v, it has seen %d", size, err, w.seen.Size)
		}
	}
	// Another process does not know what the witness has seen, and is told.
	if to, w.asks = fresh(), 0; put(to, of(100)) != nil || w.asks != 2 {
		t.Errorf("a new process needed %d questions", w.asks)
	}
	// A store that was rolled back is told by its own newest checkpoint, and by its next one.
	var newer *NewerError
	if _, err := fresh().Newest(t.Context(), of(50)); !errors.As(err, &newer) || newer.Size != 100 {
		t.Errorf("shown an older checkpoint: %v", err)
	}
	if err := put(fresh(), of(51)); !errors.As(err, &newer) {
		t.Errorf("given an older checkpoint: %v", err)
	}
	for _, own := range [][]byte{of(100), of(120), nil} { // as new as it has seen, newer, and none
		if raw, err := fresh().Newest(t.Context(), own); raw != nil || err != nil {
			t.Errorf("%q, %v", raw, err)
		}
	}
	// A fork is refused by the witness.
	forked := signed(t, Checkpoint{Origin: origin, Size: 130, Head: tlog.Hash{7}}, key)
	of(130)
	if err := put(fresh(), forked); err == nil || errors.As(err, new(*NewerError)) || !strings.Contains(err.Error(), "422") {
		t.Errorf("a fork: %v", err)
	}
	// What it signs is verified.
	w.lie = true
	if err := put(fresh(), of(140)); tga.CodeOf(err) != tga.PermissionDenied {
		t.Errorf("a signature of another text: %v", err)
	}
}

package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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

	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/schemas/tga"
)

// TestTargets: each place returns the newest checkpoint that it was given, or an error that says why it
// cannot.
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
		if raw, err := target.Newest(t.Context(), nil, nil); raw != nil || err != nil {
			t.Errorf("%s: before anything was put: %q, %v", target.Name(), raw, err)
		}
		for _, size := range []int64{1, 2, 2, 9} {
			want := signed(t, at(size), key)
			if _, err := target.Put(t.Context(), want, nil); err != nil {
				t.Fatalf("%s: %v", target.Name(), err)
			}
			if got, err := target.Newest(t.Context(), nil, nil); err != nil || !bytes.Equal(got, want) {
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
		if got, err := target.Newest(t.Context(), nil, nil); err == nil {
			t.Errorf("%s has %q", target.Name(), got)
		}
	}
	// A repository that cannot be read is not one without checkpoints, and GIT_DIR does not select another
	// one.
	t.Setenv("GIT_DIR", remote)
	if got, err := (Git{Dir: repo, File: "checkpoint"}).Newest(t.Context(), nil, nil); err != nil || got == nil {
		t.Errorf("with GIT_DIR set: %q, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(repo, ".git", "HEAD"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := (Git{Dir: repo, File: "checkpoint"}).Newest(t.Context(), nil, nil); err == nil {
		t.Errorf("a repository that is damaged has %q", got)
	}
	long := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, MaxBytes+1)) }))
	defer long.Close()
	if _, err := (Web{URL: long.URL}).Newest(t.Context(), nil, nil); err == nil {
		t.Error("an answer without end is read")
	}
	away := httptest.NewServer(http.RedirectHandler(web.URL, http.StatusTemporaryRedirect))
	defer away.Close()
	if _, err := (Web{URL: away.URL, Header: auth}).Put(t.Context(), raw, nil); err == nil {
		t.Error("a redirect is followed, with its headers")
	}
}

// witness is a witness of C2SP tlog-witness: it signs a checkpoint that extends the one that it saw before.
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
		whole := append(bytes.Clone(raw), cosigned...)
		if _, by, err := all.Open(whole); err != nil || len(by) != 1 || by[0].Name != "witness.test" {
			t.Errorf("cosigned by %v, %v", by, err)
		}
		if to.Signed(raw) || !to.Signed(whole) {
			t.Errorf("it is said to have signed this: %v, and this: %v:\n%s", to.Signed(raw), to.Signed(whole), whole)
		}
		return nil
	}
	to := fresh()
	for _, size := range []int64{3, 4, 4, 77} {
		if err := put(to, of(size)); err != nil || w.seen.Size != size {
			t.Fatalf("%d leaves: %v, it has seen %d", size, err, w.seen.Size)
		}
	}
	// Another process does not know what the witness has seen, and learns it from the answer.
	if to, w.asks = fresh(), 0; put(to, of(100)) != nil || w.asks != 2 {
		t.Errorf("a new process needed %d questions", w.asks)
	}
	// A store that was rolled back is found by its own newest checkpoint, and by its next one.
	var newer *NewerError
	if _, err := fresh().Newest(t.Context(), of(50), grown.ProvePrefix); !errors.As(err, &newer) || newer.Size != 100 {
		t.Errorf("shown an older checkpoint: %v", err)
	}
	if err := put(fresh(), of(51)); !errors.As(err, &newer) {
		t.Errorf("given an older checkpoint: %v", err)
	}
	for _, own := range [][]byte{of(100), of(120)} { // as new as the witness has seen, and newer
		if raw, err := fresh().Newest(t.Context(), own, grown.ProvePrefix); raw != nil || err != nil {
			t.Errorf("%q, %v", raw, err)
		}
	}
	// The witness refuses a fork.
	forked := signed(t, Checkpoint{Origin: origin, Size: 130, Head: tlog.Hash{7}}, key)
	of(130)
	var other *OtherError
	if err := put(fresh(), forked); !errors.As(err, &other) || other.Size != 120 {
		t.Errorf("a fork: %v", err)
	}
	if err := put(fresh(), signed(t, Checkpoint{Origin: origin, Size: 120, Head: tlog.Hash{7}}, key)); !errors.As(err, &other) || other.Size != 120 {
		t.Errorf("a fork as long as it has seen: %v", err)
	}
	// Its signature is verified.
	w.lie = true
	if err := put(fresh(), of(140)); tga.CodeOf(err) != tga.PermissionDenied {
		t.Errorf("a signature of another text: %v", err)
	}
}

// TestPlaceBehindALink: the checkpoint is written where the link leads, and the link stays. The directory there is
// not made: its disk may not be mounted.
func TestPlaceBehindALink(t *testing.T) {
	top := t.TempDir()
	file, link := filepath.Join(top, "disk", "file"), filepath.Join(top, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if err := Replace(Disk, link, []byte("1")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a link to nothing: %v", err)
	}
	if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o700), Replace(Disk, link, []byte("1")), Replace(Disk, link, []byte("2"))); err != nil {
		t.Fatal(err)
	}
	if raw, err := os.ReadFile(file); err != nil || string(raw) != "2" {
		t.Errorf("%q, %v", raw, err)
	}
	if _, err := os.Readlink(link); err != nil {
		t.Errorf("the link is gone: %v", err)
	}
}

package evidence_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/evidence"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// stand is a store on a disk with its evidence.
type stand struct {
	*testing.T
	dir     string
	options evidence.Options
	db      *engine.DB
	k       *evidence.Keeper
	end     context.CancelFunc
	ended   chan struct{}
}

func newKey(t *testing.T) checkpoint.Signer {
	t.Helper()
	s, err := checkpoint.NewSigner("payments.example/tgad")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newStand makes a store whose checkpoints go to a file outside of it.
func newStand(t *testing.T) *stand {
	t.Helper()
	outside := filepath.Join(t.TempDir(), "checkpoint")
	s := &stand{T: t, dir: filepath.Join(t.TempDir(), "store")}
	s.options = evidence.Options{Signer: newKey(t), Places: []checkpoint.Target{checkpoint.Directory{Path: outside}}, Every: 10 * time.Millisecond}
	return s
}

// open opens the store and the keeper of its evidence.
func (s *stand) open() {
	s.Helper()
	if err := s.tryOpen(); err != nil {
		s.Fatal(err)
	}
}

func (s *stand) tryOpen() (err error) {
	s.Helper()
	if s.db, err = engine.Open(s.dir, engine.Options{FirstSegmentBytes: 1 << 20, SegmentBytes: 1 << 20}); err != nil {
		s.Fatal(err)
	}
	if s.k, err = evidence.Open(s.Context(), s.db, s.dir, s.options); err != nil {
		return errors.Join(err, s.db.Close())
	}
	ctx, end := context.WithCancel(s.Context())
	s.end, s.ended = end, make(chan struct{})
	go func() {
		defer close(s.ended)
		s.k.Run(ctx)
	}()
	return nil
}

func (s *stand) close() {
	s.Helper()
	s.end()
	<-s.ended
	if err := errors.Join(s.k.Close(), s.db.Close()); err != nil {
		s.Fatal(err)
	}
}

// append appends a trace: three entries at once, then the fourth entry and two notes one by one, and then
// something that belongs to no trace.
func (s *stand) append(seed uint64) tga.ID {
	s.Helper()
	return s.appendMade(chaintest.Options{Seed: seed}, 4)
}

// appendMade appends the first of the four appends of a trace.
func (s *stand) appendMade(made chaintest.Options, appends int) tga.ID {
	s.Helper()
	id := chaintest.ID(made.Seed, 0)
	made.Key = id.String()
	lease, err := s.db.Acquire(s.Context(), id)
	if err != nil {
		s.Fatal(err)
	}
	defer s.db.Release(lease)
	digest := tga.Sum(id[:])
	var b chain.Batch
	for i, a := range chaintest.Artifacts(made) {
		b.Artifacts = append(b.Artifacts, chain.NewArtifact{Artifact: a})
		if i < 2 {
			continue
		}
		b.Notes = []chain.NewNote{{Kind: tga.NoteLateReply, Who: "tgad", Body: []byte(`{"attempt":1}`)}}
		if i == 3 {
			b.Notes = nil
			b.Attachments = []chain.Attachment{{Kind: chain.AttachBlob, Key: digest[:], Value: []byte("x")}}
		}
		if _, err := s.db.Append(s.Context(), lease, b); err != nil {
			s.Fatal(err)
		}
		b = chain.Batch{}
	}
	for _, b := range []chain.Batch{
		{Attachments: []chain.Attachment{{Kind: chain.AttachBlob, Key: digest[:], Value: []byte("y")}}},
		{Notes: []chain.NewNote{{Kind: tga.NoteLateReply, Who: "me", Body: []byte(`{"attempt":1}`)}}},
	}[:appends-2] {
		if _, err := s.db.Append(s.Context(), lease, b); err != nil {
			s.Fatal(err)
		}
	}
	return id
}

// covered waits until a checkpoint covers every append, and returns it.
func (s *stand) covered() (checkpoint.Checkpoint, []byte) {
	s.Helper()
	for end := time.After(time.Minute); ; {
		raw, grown := s.k.Newest()
		if raw != nil {
			c, err := checkpoint.Unverified(raw)
			if err != nil {
				s.Fatal(err)
			}
			if uint64(c.Size) == s.db.Cursor() {
				return c, raw
			}
		}
		select {
		case <-grown:
		case <-end:
			s.Fatalf("no checkpoint of %d appends", s.db.Cursor())
		}
	}
}

func (s *stand) outside() string { return s.options.Places[0].(checkpoint.Directory).Path }

func TestCheckpointsCoverDurableAppends(t *testing.T) {
	s := newStand(t)
	s.open()
	keys, err := checkpoint.TrustKeys("", s.options.Signer.Public)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(20) {
		s.append(seed + 1)
	}
	c, raw := s.covered()
	if got, _, err := keys.Open(raw); err != nil || got != c || c.Origin != "payments.example/tgad" {
		t.Fatalf("%+v, %v", got, err)
	}
	s.append(99)
	s.close() // a close makes a last checkpoint
	last, err := os.ReadFile(s.outside())
	if err != nil {
		t.Fatal(err)
	}
	c, _, err = keys.Open(last)
	if err != nil || c.Size != 21*4 {
		t.Fatalf("%+v, %v", c, err)
	}
	// The same tree follows from the log alone.
	if err := os.RemoveAll(filepath.Join(s.dir, "evidence")); err != nil {
		t.Fatal(err)
	}
	s.open()
	defer s.close()
	if why := s.db.Stats().Frozen; why != "" {
		t.Fatal(why)
	}
	if err := s.k.Check(t.Context(), evidence.Seen{Size: c.Size, Head: c.Head}); err != nil {
		t.Fatal(err)
	}
}

// copyDir copies a closed store to another place.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from))); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(to, func(path string, d os.DirEntry, err error) error {
		mode := os.FileMode(0o600)
		if err == nil && d.IsDir() {
			mode = 0o700
		}
		return errors.Join(err, os.Chmod(path, mode))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestRolledBackStoreIsFrozen: an older copy of the whole directory is a valid store, and only what is kept
// outside shows the rollback.
func TestRolledBackStoreIsFrozen(t *testing.T) {
	for name, rewrite := range map[string]bool{"rolled back": false, "rolled back and gone on": true} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			s.open()
			s.append(1)
			s.close()
			old := filepath.Join(t.TempDir(), "old")
			copyDir(t, s.dir, old)
			s.open()
			s.append(2)
			s.close()
			want := "8 were signed"
			copyDir(t, old, s.dir)
			if rewrite { // by somebody without the key, until it is longer
				want = "what happened was rewritten"
				db, err := engine.Open(s.dir, engine.Options{FirstSegmentBytes: 1 << 20, SegmentBytes: 1 << 20})
				if err != nil {
					t.Fatal(err)
				}
				s.db = db
				s.append(3)
				s.append(4)
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				s.open()
				if why := s.db.Stats().Frozen; !strings.Contains(why, want) || !strings.Contains(why, "file "+s.outside()) || !strings.Contains(why, "payments.example/tgad") {
					t.Fatalf("frozen for %q", why)
				}
				if raw, _ := s.k.Newest(); raw != nil {
					if c, err := checkpoint.Unverified(raw); err != nil || c.Size != 4 {
						t.Fatalf("a store that is frozen signed for %+v, %v", c, err)
					}
				}
				s.close()
			}
			// A person accepts it, and the store continues, also after the next open.
			s.open()
			if err := s.db.Unfreeze(t.Context(), true, "me\nwith a line"); err != nil {
				t.Fatal(err)
			}
			if err := s.k.Accept("me\nwith a line"); err != nil {
				t.Fatal(err)
			}
			s.close()
			for n := range uint64(2) {
				s.open()
				if why := s.db.Stats().Frozen; why != "" {
					t.Fatal(why)
				}
				s.append(20 + n)
				s.covered()
				s.close()
			}
		})
	}
}

// TestOwnCheckpointFreezes: the log was replaced, and the directory of the evidence was not.
func TestOwnCheckpointFreezes(t *testing.T) {
	s := newStand(t)
	s.options.Places = nil
	s.open()
	s.append(1)
	s.close()
	old := filepath.Join(t.TempDir(), "old")
	copyDir(t, s.dir, old)
	s.open()
	s.append(2)
	s.close()
	kept := filepath.Join(t.TempDir(), "kept")
	copyDir(t, filepath.Join(s.dir, "evidence"), kept)
	copyDir(t, old, s.dir)
	copyDir(t, kept, filepath.Join(s.dir, "evidence"))
	s.open()
	defer s.close()
	if why := s.db.Stats().Frozen; !strings.Contains(why, "the newest checkpoint that the store kept") {
		t.Fatalf("frozen for %q", why)
	}
}

// late is a place that cannot be reached at first.
type late struct {
	checkpoint.Directory
	there bool
}

func (l *late) Newest(ctx context.Context, own []byte, prove checkpoint.Prove) ([]byte, error) {
	if !l.there {
		l.there = true
		return nil, errors.New("not now")
	}
	return l.Directory.Newest(ctx, own, prove)
}

// TestPlaceIsAskedBeforeItIsWritten: a place that comes back with more than the store has freezes the store
// then, whether anything is appended or not, and keeps what it has. This also holds if somebody rolled the
// store back and removed the store's own checkpoints.
func TestPlaceIsAskedBeforeItIsWritten(t *testing.T) {
	for name, taken := range map[string]string{"the store is whole": "", "the store has no checkpoints": "evidence", "the store is new": "."} {
		t.Run(name, func(t *testing.T) { wantAskedFirst(t, taken) })
	}
}

func wantAskedFirst(t *testing.T, taken string) {
	s := newStand(t)
	s.open()
	s.append(1)
	s.close()
	old := filepath.Join(t.TempDir(), "old")
	copyDir(t, s.dir, old)
	s.open()
	s.append(2)
	s.close()
	before, err := os.ReadFile(s.outside())
	if err != nil {
		t.Fatal(err)
	}
	copyDir(t, old, s.dir)
	if taken != "" {
		if err := os.RemoveAll(filepath.Join(s.dir, taken)); err != nil {
			t.Fatal(err)
		}
	}
	s.options.Places = []checkpoint.Target{&late{Directory: checkpoint.Directory{Path: s.outside()}}}
	path := s.outsideOf(s.options.Places[0])
	s.open()
	for end := time.Now().Add(time.Minute); s.db.Stats().Frozen == "" && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	s.close()
	if why := s.db.Stats().Frozen; !strings.Contains(why, "were signed") {
		t.Fatalf("frozen for %q", why)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Fatalf("the place has\n%s\nnow, %v", after, err)
	}
}

func (s *stand) outsideOf(p checkpoint.Target) string { return p.(*late).Path }

func TestForeignPlaceIsLeftAlone(t *testing.T) {
	s := newStand(t)
	other := newKey(t)
	foreign, err := (checkpoint.Checkpoint{Origin: "payments.example/tgad", Size: 70, Head: tlog.Hash{1}}).Sign(other)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.outside(), foreign, 0o600); err != nil {
		t.Fatal(err)
	}
	s.open()
	s.append(1)
	s.covered()
	s.close()
	if s.db.Stats().Frozen != "" {
		t.Fatal("a checkpoint of nobody froze the store")
	}
	if raw, err := os.ReadFile(s.outside()); err != nil || !bytes.Equal(raw, foreign) {
		t.Fatalf("%s, %v", raw, err)
	}
}

// TestNewOriginOfAStore: what was kept under another origin is refused, in words that say so. Without it the store signs under the new one.
func TestNewOriginOfAStore(t *testing.T) {
	s := newStand(t)
	former := s.options.Signer
	s.open()
	s.append(1)
	s.covered()
	s.close()
	if err := os.Remove(s.outside()); err != nil {
		t.Fatal(err)
	}
	renamed, err := checkpoint.NewSigner("other.example/tgad")
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]evidence.Options{
		"another origin":           {Origin: "other.example/tgad", Signer: former},
		"a key of another name":    {Signer: renamed, Former: &former},
		"a key of a third, former": {Origin: "third.example/tgad", Signer: renamed, Former: &former},
	} {
		o.Places, o.Every = s.options.Places, s.options.Every
		s.options = o
		if err := s.tryOpen(); tga.CodeOf(err) != tga.PermissionDenied || !strings.Contains(err.Error(), `of the origin "payments.example/tgad"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.options.Origin, s.options.Signer, s.options.Former = "payments.example/tgad", renamed, &former
	s.open() // the origin is the old one, so the key may have another name
	s.append(2)
	s.covered()
	s.close()
	if err := errors.Join(os.Remove(s.outside()), os.RemoveAll(filepath.Join(s.dir, "evidence"))); err != nil {
		t.Fatal(err)
	}
	s.options.Origin, s.options.Former = "other.example/tgad", nil
	s.open()
	s.append(3)
	s.covered()
	s.close()
	if raw, err := os.ReadFile(s.outside()); err != nil || !strings.HasPrefix(string(raw), "other.example/tgad\n") {
		t.Errorf("the place has %s, %v", raw, err)
	}
}

func TestKeysAreHandedOver(t *testing.T) {
	s := newStand(t)
	first := s.options.Signer
	s.open()
	s.append(1)
	s.close()
	second, third := newKey(t), newKey(t)
	s.options.Signer = second
	if err := s.tryOpen(); tga.CodeOf(err) != tga.PermissionDenied {
		t.Fatalf("another key signs: %v", err)
	}
	s.options.Former = &third
	if err := s.tryOpen(); tga.CodeOf(err) != tga.PermissionDenied {
		t.Fatalf("a key that never signed hands over: %v", err)
	}
	for n, key := range []checkpoint.Signer{second, third} {
		former := []checkpoint.Signer{first, second}[n]
		s.options.Signer, s.options.Former = key, &former
		for range 2 { // the former key may be in the configuration or not
			s.open()
			s.append(uint64(10*n) + s.db.Cursor() + 2)
			s.covered()
			s.close()
			s.options.Former = nil
		}
	}
	s.open()
	defer s.close()
	_, raw := s.covered()
	key, over := s.k.Keys()
	keys, err := checkpoint.TrustKeys("", key)
	if err != nil || key != first.Public || len(over) != 2 {
		t.Fatalf("%q, %d hand-overs, %v", key, len(over), err)
	}
	for _, raw := range over {
		if _, err := keys.Follow(raw); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := keys.Open(raw); err != nil {
		t.Fatal(err)
	}
}

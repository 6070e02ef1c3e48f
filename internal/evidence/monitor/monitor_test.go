package monitor_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/evidence"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/monitor"
	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// stand is a store that signs checkpoints, as a monitor sees it.
type stand struct {
	*testing.T
	fs       *vfs.MemFS
	signer   checkpoint.Signer
	db       *engine.DB
	k        *evidence.Keeper
	end      context.CancelFunc
	ended    chan struct{}
	follower *monitor.Monitor
	most     int64        // it dies if it is asked for more; 0 = never
	breaks   func() error // what happens to the next evidence instead
	skip     int64        // number of appends that evidence leaves out
	forge    [2]string    // a text of the evidence, and its replacement
	spoil    bool         // tiles have a wrong byte
}

func newStand(t *testing.T) *stand {
	t.Helper()
	return &stand{T: t, fs: vfs.NewCrashableMem(), signer: newKey(t)}
}

func newKey(t *testing.T) checkpoint.Signer {
	t.Helper()
	s, err := checkpoint.NewSigner("payments.example/tgad")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stand) open() {
	s.Helper()
	var err error
	if s.db, err = engine.Open("store", engine.Options{FS: s.fs, FirstSegmentBytes: 1 << 16, SegmentBytes: 1 << 16}); err != nil {
		s.Fatal(err)
	}
	if s.k, err = evidence.Open(s.Context(), s.db, "store", evidence.Options{FS: s.fs, Signer: s.signer, Every: time.Millisecond}); err != nil {
		s.Fatal(err)
	}
	ctx, end := context.WithCancel(s.Context())
	s.end, s.ended = end, make(chan struct{})
	go func() {
		defer close(s.ended)
		s.k.Run(ctx)
	}()
}

func (s *stand) close() {
	s.Helper()
	s.end()
	<-s.ended
	if err := errors.Join(s.k.Close(), s.db.Close()); err != nil {
		s.Fatal(err)
	}
}

// crash ends the store without a close, and returns what was durable.
func (s *stand) crash(rng *rand.Rand) {
	s.Helper()
	next := s.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
	s.end()
	<-s.ended
	_, _ = s.k.Close(), s.db.Close()
	s.fs = next
}

// append appends a trace up to its call, in one append.
func (s *stand) append(seed uint64, args string) {
	s.Helper()
	id := chaintest.ID(seed, 0)
	lease, err := s.db.Acquire(s.Context(), id)
	if err != nil {
		s.Fatal(err)
	}
	defer s.db.Release(lease)
	var b chain.Batch
	for _, a := range chaintest.Artifacts(chaintest.Options{Seed: seed, Key: id.String(), Args: args})[:3] {
		b.Artifacts = append(b.Artifacts, chain.NewArtifact{Artifact: a})
	}
	if _, err := s.db.Append(s.Context(), lease, b); err != nil {
		s.Fatal(err)
	}
}

// covered waits until every append is signed.
func (s *stand) covered() {
	s.Helper()
	for end := time.Now().Add(time.Minute); s.k.Signed() < int64(s.db.Cursor()); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("%d of %d appends are signed", s.k.Signed(), s.db.Cursor())
		}
	}
}

// Checkpoint implements [monitor.Source].
func (s *stand) Checkpoint(context.Context) ([]byte, [][]byte, error) {
	raw, _ := s.k.Newest()
	if raw == nil {
		return nil, nil, tga.Errorf(tga.NotFound, "none")
	}
	_, over := s.k.Keys()
	return raw, over, nil
}

// Evidence implements [monitor.Source].
func (s *stand) Evidence(ctx context.Context, w io.Writer, after, most int64, old []byte) error {
	if s.breaks != nil {
		return s.breaks()
	}
	if s.most != 0 && most > s.most {
		return tga.Errorf(tga.StoreUnavailable, "killed")
	}
	if s.forge[0] != "" {
		w = &forger{w, s.forge}
	}
	return s.k.Export(ctx, w, evidence.Wanted{After: uint64(after + s.skip), Most: uint64(most), Old: old}, func(w io.Writer, ids []tga.ID) error {
		for _, id := range ids {
			if err := ndjson.Write(w, id, s.db.Entries(ctx, id, 0), s.db.Notes(ctx, id, 0)); err != nil {
				return err
			}
		}
		return nil
	})
}

// forger replaces one text by another; each write has complete lines.
type forger struct {
	w    io.Writer
	text [2]string
}

func (f *forger) Write(b []byte) (int, error) {
	_, err := io.WriteString(f.w, strings.ReplaceAll(string(b), f.text[0], f.text[1]))
	return len(b), err
}

// monitor starts a monitor; the earlier one ends.
func (s *stand) monitor(o monitor.Options) *monitor.Monitor {
	s.Helper()
	s.endMonitor()
	o.Key = s.signer.Public
	m, err := monitor.Open(s, o)
	if err != nil {
		s.Fatal(err)
	}
	s.follower = m
	return m
}

func (s *stand) endMonitor() {
	s.Helper()
	if s.follower == nil {
		return
	}
	if err := s.follower.Close(); err != nil {
		s.Fatal(err)
	}
	s.follower = nil
}

// signing is an open store with one append that is signed.
func signing(t *testing.T) *stand {
	t.Helper()
	s := newStand(t)
	s.open()
	t.Cleanup(s.close)
	s.append(1, "")
	s.covered()
	return s
}

// follow steps until everything is checked, and returns the number of steps.
func follow(t *testing.T, m *monitor.Monitor) (steps int) {
	t.Helper()
	for more := true; more; steps++ {
		var err error
		if more, err = m.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return steps
}

func TestEveryAppendIsChecked(t *testing.T) {
	s := newStand(t)
	s.open()
	defer s.close()
	state := filepath.Join(t.TempDir(), "state")
	m := s.monitor(monitor.Options{State: state, Page: 3})
	if more, err := m.Step(t.Context()); more || err != nil {
		t.Fatalf("a store that has signed nothing: %v, %v", more, err)
	}
	for seed := range uint64(7) {
		s.append(seed+1, "")
	}
	s.covered()
	if steps := follow(t, m); steps != 3 {
		t.Errorf("7 appends in pages of 3: %d steps", steps)
	}
	if size, checked := m.Seen(); size != 7 || checked != 7 {
		t.Errorf("%d appends, %d checked", size, checked)
	}
	// The monitor never forgets what it has seen.
	s.append(8, "")
	s.covered()
	m = s.monitor(monitor.Options{State: state, Page: 3})
	if size, checked := m.Seen(); size != 7 || checked != 7 {
		t.Fatalf("started again: %d appends, %d checked", size, checked)
	}
	if steps := follow(t, m); steps != 1 {
		t.Errorf("1 append more: %d steps", steps)
	}
}

// TestMonitorSeesEachAttack: attacks of somebody who owns the disk, or even the keys, on a store that a
// monitor follows.
func TestMonitorSeesEachAttack(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	// other returns a checkpoint that the same key signs over another store.
	other := func(s *stand, seeds ...uint64) []byte {
		twin := &stand{T: s.T, fs: vfs.NewCrashableMem(), signer: s.signer}
		twin.open()
		defer twin.close()
		for _, seed := range seeds {
			twin.append(seed, `{"amount":13}`)
		}
		twin.covered()
		raw, _ := twin.k.Newest()
		return raw
	}
	for name, c := range map[string]struct {
		attack func(*stand)
		kind   string
	}{
		"nothing": {func(*stand) {}, ""},
		"it grows": {func(s *stand) {
			s.open()
			s.append(9, "")
			s.covered()
			s.close()
		}, ""},
		"everything is put back": {func(s *stand) {
			s.fs = vfs.NewCrashableMem()
			s.open()
			s.append(1, "")
			s.covered()
			s.close()
		}, monitor.Rollback},
		"it is put back to what the monitor saw, and a place has seen more": {func(s *stand) {
			seen := s.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
			s.open()
			s.append(9, "")
			s.covered()
			raw, _ := s.k.Newest()
			s.close()
			s.fs = seen
			if err := os.WriteFile(elsewhere, raw, 0o600); err != nil {
				s.Fatal(err)
			}
		}, monitor.Rollback},
		"everything is gone": {func(s *stand) { s.fs = vfs.NewCrashableMem() }, monitor.Rollback},
		"everything is made anew with the key, as long": {func(s *stand) {
			s.fs = vfs.NewCrashableMem()
			s.open()
			for _, seed := range []uint64{1, 2, 4} {
				s.append(seed, "")
			}
			s.covered()
			s.close()
		}, monitor.Fork},
		"everything is made anew with the key, and longer": {func(s *stand) {
			s.fs = vfs.NewCrashableMem()
			s.open()
			for seed := range uint64(5) {
				s.append(seed+1, `{"amount":13}`)
			}
			s.covered()
			s.close()
		}, monitor.Fork},
		"another key signs": {func(s *stand) {
			s.fs, s.signer = vfs.NewCrashableMem(), newKey(s.T)
			s.open()
			for seed := range uint64(5) {
				s.append(seed+1, "")
			}
			s.covered()
			s.close()
		}, monitor.Key},
		"an append is not what was signed": {func(s *stand) {
			s.open()
			s.append(9, `{"amount":14}`)
			s.covered()
			s.close()
			s.forge = [2]string{`"amount":14`, `"amount":15`}
		}, monitor.Evidence},
		"an append is passed over": {func(s *stand) {
			s.open()
			s.append(9, `{"amount":14}`)
			s.append(10, "")
			s.covered()
			s.close()
			s.skip = 1
		}, monitor.Evidence},
		"appends are shown again": {func(s *stand) {
			s.open()
			s.append(9, "")
			s.covered()
			s.close()
			s.skip = -1
		}, monitor.Evidence},
		"a proof is of something else": {func(s *stand) {
			s.open()
			s.append(9, "")
			s.covered()
			s.close()
			s.forge = [2]string{`"kind":"leaf","index":4`, `"kind":"leaf","index":5`}
		}, monitor.Evidence},
		"somebody else is shown another tree as long": {func(s *stand) {
			if err := os.WriteFile(elsewhere, other(s, 1, 2, 3), 0o600); err != nil {
				s.Fatal(err)
			}
		}, monitor.Fork},
		"somebody else was shown another tree before": {func(s *stand) {
			if err := os.WriteFile(elsewhere, other(s, 1, 2), 0o600); err != nil {
				s.Fatal(err)
			}
		}, monitor.Fork},
		"tiles are of something else": {spoilTiles(elsewhere), monitor.Evidence},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.RemoveAll(elsewhere); err != nil {
				t.Fatal(err)
			}
			s := newStand(t)
			s.open()
			for seed := range uint64(3) {
				s.append(seed+1, "")
			}
			s.covered()
			o := monitor.Options{State: filepath.Join(t.TempDir(), "state"), Others: []checkpoint.Target{checkpoint.Directory{Path: elsewhere}}}
			m := s.monitor(o)
			follow(t, m)
			s.close()
			c.attack(s)
			key := o
			s.open()
			defer s.close()
			if s.db.Cursor() > 0 {
				s.covered()
			}
			_, err := m.Step(t.Context())
			var a *monitor.Alarm
			errors.As(err, &a)
			switch {
			case c.kind == "" && err != nil, c.kind != "" && a == nil:
				t.Fatalf("%v, want %q", err, c.kind)
			case c.kind == "":
				return
			case a.Kind != c.kind || a.Had == nil:
				t.Fatalf("%+v, want %q", a, c.kind)
			}
			key.Key = s.signer.Public
			s.endMonitor()
			if _, again := monitor.Open(s, key); again == nil || again.Error() != a.Error() {
				t.Errorf("started again it says %v, it said %v", again, a)
			}
		})
	}
}

// TestAlarmIsRepeated: an alarm lasts until its file is removed. A store that cannot be asked is not an
// alarm.
func TestAlarmIsRepeated(t *testing.T) {
	s := signing(t)
	state := filepath.Join(t.TempDir(), "state")
	m := s.monitor(monitor.Options{State: state})
	var a *monitor.Alarm
	for _, gone := range []error{io.ErrUnexpectedEOF, tga.Errorf(tga.StoreUnavailable, "it is being restarted"), context.DeadlineExceeded} {
		s.breaks = func() error { return gone }
		if _, err := m.Step(t.Context()); !errors.Is(err, gone) || errors.As(err, &a) {
			t.Errorf("%v became %v", gone, err)
		}
	}
	s.breaks = func() error { return tga.Errorf(tga.StateSequenceGap, "leaf 1 is missing") }
	if _, err := m.Step(t.Context()); !errors.As(err, &a) || !strings.Contains(err.Error(), "the store says so itself") {
		t.Fatal(err)
	}
	s.breaks = nil
	s.endMonitor()
	o := monitor.Options{Key: s.signer.Public, State: state}
	if _, err := monitor.Open(s, o); !errors.As(err, &a) || a.Code != tga.StateSequenceGap {
		t.Errorf("with the alarm: %v", err)
	}
	if err := os.Remove(state + ".alarm"); err != nil {
		t.Fatal(err)
	}
	follow(t, s.monitor(o))
}

// TestStateIsNotMadeAnew: one file has what a monitor saw. If the file cannot be read, the monitor does not
// start without it.
func TestStateIsNotMadeAnew(t *testing.T) {
	s := signing(t)
	state := filepath.Join(t.TempDir(), "state")
	o := monitor.Options{Key: s.signer.Public, State: state}
	follow(t, s.monitor(o))
	s.endMonitor()
	good, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		was, now string
		code     tga.Code
	}{
		{`"checked": 1`, `"checked": 2`, tga.StateChecksumMismatch},
		{`"checked": 1`, `"checked": -1`, tga.StateChecksumMismatch},
		{`"checked": 1`, `"checkt": 1`, tga.StateChecksumMismatch},
		{`}`, ``, tga.StateChecksumMismatch},
		{`tgad\n1\n`, `tgad\nx\n`, tga.StateChecksumMismatch},
		{`"version": "1"`, `"version": "2"`, tga.FormatTooNew},
		{`"origin": "payments`, `"origin": "refunds`, tga.ValidationError},
	} {
		bad := strings.Replace(string(good), c.was, c.now, 1)
		if bad == string(good) {
			t.Fatalf("%q is not in %s", c.was, good)
		}
		if err := os.WriteFile(state, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := monitor.Open(s, o); tga.CodeOf(err) != c.code {
			t.Errorf("%q: %v, want %s", c.now, err, c.code)
		}
	}
}

// TestStateIsOfOneMonitor: of two monitors, one could overwrite what the other has seen.
func TestStateIsOfOneMonitor(t *testing.T) {
	s := signing(t)
	o := monitor.Options{Key: s.signer.Public, State: filepath.Join(t.TempDir(), "state")}
	s.monitor(o)
	if _, err := monitor.Open(s, o); tga.CodeOf(err) != tga.StateLockAcquireFailed {
		t.Errorf("a second one: %v", err)
	}
	byLink := o
	byLink.State = filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(o.State, byLink.State); err != nil {
		t.Fatal(err)
	}
	if _, err := monitor.Open(s, byLink); tga.CodeOf(err) != tga.StateLockAcquireFailed {
		t.Errorf("a second one, by a link: %v", err)
	}
	s.endMonitor()
	follow(t, s.monitor(o))
}

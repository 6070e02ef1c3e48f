package serving_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/internal/evidence"
	"github.com/tgad/tgad/internal/evidence/bundle"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/monitor"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// newSigning prepares daemons that have the key of a store, which lies in the directory of the fleet; so does the place
// outside.
func newSigning(t *testing.T, storeURL, extra string) (f *fleet, public string) {
	t.Helper()
	dir := t.TempDir()
	secret, public, err := checkpoint.NewKey("payments.example/tgad")
	if err == nil {
		err = checkpoint.CreateKeyFile(filepath.Join(dir, "key"), secret)
	}
	if err != nil {
		t.Fatal(err)
	}
	f = newFleet(t, storeURL, extra+fmt.Sprintf("\n[evidence]\nkey_file = %q\nevery = \"100ms\"\n[[evidence.place]]\nfile = %q\n", filepath.Join(dir, "key"), filepath.Join(dir, "outside")))
	f.outside = filepath.Join(dir, "outside")
	return f, public
}

// shown asks one daemon after the other, as somebody does who is sent to any of them, for what a monitor checks.
type shown struct {
	daemons func() []*client.Client
	next    atomic.Uint64
}

func (s *shown) one() client.Proofs {
	all := s.daemons()
	return all[s.next.Add(1)%uint64(len(all))].Proofs()
}

func (s *shown) Checkpoint(ctx context.Context) (raw []byte, handOvers [][]byte, err error) {
	c, err := s.one().Checkpoint(ctx)
	return []byte(c.Checkpoint), nil, err
}

func (s *shown) Evidence(ctx context.Context, w io.Writer, after, most int64, old []byte) error {
	for line, err := range s.one().Export(ctx, wire.EvidenceRequest{After: after, Most: most, Old: string(old)}) {
		if err != nil {
			return err
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return nil
}

func (s *shown) Tile(ctx context.Context, path string) ([]byte, error) {
	return s.one().Tile(ctx, path)
}

// follow opens a monitor of a store.
func follow(t *testing.T, key string, daemons func() []*client.Client) *monitor.Monitor {
	t.Helper()
	m, err := monitor.Open(&shown{daemons: daemons}, monitor.Options{Key: key, State: filepath.Join(t.TempDir(), "monitor"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// TestEvidenceOverTheSocket: receipts, evidence files, tiles and what a client remembers, of daemons that share a store, each
// asked for what another one did and signed. An evidence file verifies in the programs that share no code with tgad.
func TestEvidenceOverTheSocket(t *testing.T) {
	f, key := newSigning(t, "", "")
	a, b := f.start("a"), f.start("b")
	all := []*client.Client{a.Client, b.Client}
	both := client.New(b.socket, client.Options{Name: "test", Remember: true, Receipts: true})
	defer both.Close()
	var ids []tga.ID
	for i := range 6 {
		res, err := []*client.Client{a.Client, both}[i%2].Call(t.Context(), call("opaque", fmt.Sprint("k", i)))
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 1 && (res.Receipt == nil || res.Receipt.TraceID != res.TraceID || len(res.Receipt.Leaves) == 0) {
			t.Errorf("the answer has the receipt %+v", res.Receipt)
		}
		ids = append(ids, res.TraceID)
	}
	m := follow(t, key, func() []*client.Client { return all })
	for _, id := range ids {
		for i, c := range all {
			until(t, "the receipt is whole", func() bool {
				r, err := c.Proofs().Receipt(t.Context(), id)
				if err != nil {
					t.Fatalf("daemon %d: %v", i, err)
				}
				if r.Pending > 0 {
					return false
				}
				got, err := bundle.VerifyReceipt(wire.Append(nil, r), bundle.Trust{Key: key})
				if err != nil || got.Verdict() != "proved" {
					t.Fatalf("daemon %d: %v, %v", i, got, err)
				}
				return true
			})
		}
	}
	for more := true; more; {
		var err error
		if more, err = m.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if size, checked := m.Seen(); checked != size || size < 12 {
		t.Errorf("the monitor has seen %d appends, and checked %d", size, checked)
	}
	var files [2][]byte
	for i, c := range all {
		var file bytes.Buffer
		if err := (&shown{daemons: func() []*client.Client { return []*client.Client{c} }}).Evidence(t.Context(), &file, 0, 0, nil); err != nil {
			t.Fatal(err)
		}
		files[i] = file.Bytes()
		name := filepath.Join(f.dir, "evidence")
		if err := os.WriteFile(name, files[i], 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(serial.Program(t, "python3"), "../../../../internal/evidence/verifiers/verify.py", name, "--key", key).CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("proved")) {
			t.Errorf("verify.py: %v, %s", err, out)
		}
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Error("two daemons export different evidence")
	}
	// A client that has seen another tree is refused by each.
	seen := checkpoint.Checkpoint{Origin: "payments.example/tgad", Size: 1 << 20}
	raw, err := os.ReadFile(f.outside)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := checkpoint.Unverified(raw); err != nil || c.Size > seen.Size {
		t.Errorf("outside: %+v, %v", c, err)
	}
	// Who signs ends, and the other one goes on; the client that remembers finds nothing wrong.
	a.end(syscall.SIGTERM)
	if _, err := both.Call(t.Context(), call("opaque", "afterwards")); err != nil {
		t.Error(err)
	}
	before, _ := m.Seen()
	all = []*client.Client{b.Client}
	until(t, "the monitor sees more", func() bool {
		if _, err := m.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		size, _ := m.Seen()
		return size > before
	})
	sound(t, b)
}

// TestSignersAreKilled: daemons that have the key are killed and stopped at random under load. There is one line of
// checkpoints, a monitor that asks any of them sees nothing taken back, and each receipt verifies.
func TestSignersAreKilled(t *testing.T) {
	serial.Long(t)
	const rounds = 60
	f, key := newSigning(t, "", "")
	var mu sync.Mutex
	daemons := []*daemon{f.start("a"), f.start("b"), f.start("c")}
	clients := func() (list []*client.Client) {
		mu.Lock()
		defer mu.Unlock()
		for _, d := range daemons {
			list = append(list, d.Client)
		}
		return list
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var work sync.WaitGroup
	var calls atomic.Int64
	traces := make(chan tga.ID, 1<<16)
	for w := range 3 {
		work.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				all := clients()
				short, cancel := context.WithTimeout(ctx, 5*time.Second)
				res, err := all[rand.N(len(all))].Call(short, call("charge", fmt.Sprint("w", w, " ", i)))
				cancel()
				if err == nil && res.State == tga.Completed {
					calls.Add(1)
					traces <- res.TraceID
				}
			}
		})
	}
	m := follow(t, key, clients)
	work.Go(func() {
		for ctx.Err() == nil {
			short, cancel := context.WithTimeout(ctx, 5*time.Second)
			_, err := m.Step(short)
			cancel()
			var alarm *monitor.Alarm
			if errors.As(err, &alarm) { // a daemon that is away is none
				t.Errorf("the monitor: %v", alarm)
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	for round := range rounds {
		time.Sleep(time.Duration(rand.N(1500)) * time.Millisecond)
		victim := round % len(daemons)
		if d := daemons[victim]; round%2 == 0 {
			d.end(syscall.SIGKILL)
			fresh := f.start(fmt.Sprintf("r%d", round))
			mu.Lock()
			daemons[victim] = fresh
			mu.Unlock()
		} else {
			d.signal(syscall.SIGSTOP)
			time.Sleep(lease + time.Duration(rand.N(1500))*time.Millisecond)
			d.signal(syscall.SIGCONT)
		}
	}
	until(t, "calls were made", func() bool { return calls.Load() > int64(rounds) })
	stop()
	work.Wait()
	close(traces)
	s := &stand{T: t, dsn: f.url, shard: f.shard, lease: lease}
	s.options.Signer = signerOf(t, filepath.Join(filepath.Dir(f.outside), "key"))
	last := daemons[0]
	for id := range traces {
		until(t, "the receipt is whole", func() bool {
			r, err := last.Proofs().Receipt(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if r.Pending > 0 {
				return false
			}
			if got, err := bundle.VerifyReceipt(wire.Append(nil, r), bundle.Trust{Key: key}); err != nil || got.Verdict() != "proved" {
				t.Fatalf("receipt of %s: %v, %v", id, got, err)
			}
			return true
		})
	}
	sizes := s.oneLine()
	var epochs int64
	if err := s.owner().QueryRow(t.Context(), "SELECT count(DISTINCT epoch) FROM tgad.signed_notes WHERE shard = $1", f.shard).Scan(&epochs); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d calls, %d checkpoints by %d signers, the last of %d appends", calls.Load(), len(sizes), epochs, sizes[len(sizes)-1])
	if epochs < 2 {
		t.Error("nobody took over")
	}
	sound(t, last)
}

func signerOf(t *testing.T, path string) checkpoint.Signer {
	t.Helper()
	s, err := checkpoint.ReadSigner(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestCopyGoesOnWithTheEvidence: a store that signed in a directory is copied into a database, and goes on there with the same
// tree: what was signed before is there, and the checkpoint outside is that of the copy too.
func TestCopyGoesOnWithTheEvidence(t *testing.T) {
	f, _ := newSigning(t, "", "")
	s := &stand{T: t, dsn: f.url, shard: f.shard, lease: lease, outside: f.outside}
	s.options = evidence.Options{Signer: signerOf(t, filepath.Join(filepath.Dir(f.outside), "key")), Every: 10 * time.Millisecond, Places: []checkpoint.Target{checkpoint.Directory{Path: f.outside}}}
	dir := filepath.Join(f.dir, "store")
	id, before := signedDirectory(t, dir, s.options)
	if out, err := program("copy", "--from", dir, "--to", f.url, "--config", f.config).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if faults := s.faults(); len(faults) > 0 {
		t.Errorf("faults: %q", faults)
	}
	k := s.open()
	if why := k.served.Stats().Frozen; why != "" {
		t.Fatal(why)
	}
	raw, _ := k.Newest()
	if !bytes.Equal(raw, before) {
		t.Errorf("the copy has the checkpoint %s, the directory %s", raw, before)
	}
	k.proved(id, s.options.Signer.Public)
	next := k.append()
	k.covered(4)
	k.proved(next, s.options.Signer.Public)
	k.close()
	if faults := s.faults(); len(faults) > 0 {
		t.Errorf("faults: %q", faults)
	}
	// A directory whose notes somebody changed is not copied.
	other := filepath.Join(f.dir, "other")
	signedDirectory(t, other, evidence.Options{Signer: s.options.Signer})
	name := filepath.Join(other, "evidence", "key")
	public, err := checkpoint.NewSigner("payments.example/tgad")
	if err == nil {
		err = os.WriteFile(name, []byte(public.Public+"\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	g := newFleet(t, "", "")
	if out, err := program("copy", "--from", other, "--to", g.url, "--config", g.config).CombinedOutput(); err == nil || !bytes.Contains(out, []byte("PERMISSION_DENIED")) {
		t.Errorf("a foreign key: %v, %s", err, out)
	}
}

// signedDirectory makes a store in a directory that has signed one call.
func signedDirectory(t *testing.T, dir string, o evidence.Options) (tga.ID, []byte) {
	t.Helper()
	db, err := engine.Open(dir, engine.Options{FirstSegmentBytes: 1 << 20, SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	k, err := evidence.Open(t.Context(), db, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	b := storetest.New(t)
	lease, err := db.Acquire(t.Context(), b.TraceID)
	if err == nil {
		_, err = db.Append(t.Context(), lease, b.Begin(""))
	}
	if err == nil {
		_, err = db.Append(t.Context(), lease, b.End(tga.StatusSuccess))
	}
	db.Release(lease)
	if err = errors.Join(err, k.Close()); err != nil { // which signs
		t.Fatal(err)
	}
	raw, _ := k.Newest()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return b.TraceID, raw
}

// TestEvidenceMovesWithItsStore: a store moves to another shard while a process signs for it. The process goes on there with the
// same tree, and nothing that was signed is contradicted.
func TestEvidenceMovesWithItsStore(t *testing.T) {
	serial.Long(t)
	one, two := twoShards(t)
	s := newStandAt(t, pgserver.DSN(one), 1)
	s.lease = time.Second
	shards, err := postgres.OpenShards(t.Context(), s.dsn, postgres.Options{Lease: s.lease})
	if err != nil {
		t.Fatal(err)
	}
	store, err := shards.Store(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	k, err := s.keep(store, s.options)
	if err != nil {
		t.Fatal(err)
	}
	k.namespace = "a"
	id := k.append()
	k.covered(2)
	pg(t, "two", "move", "a", "--from", pgserver.DSN(one), "--to", pgserver.DSN(two))
	next := k.append()
	k.covered(4)
	for _, id := range []tga.ID{id, next} {
		k.proved(id, s.options.Signer.Public)
	}
	pg(t, "one", "move", "a", "--from", pgserver.DSN(two), "--to", pgserver.DSN(one))
	next = k.append()
	k.covered(6)
	k.proved(next, s.options.Signer.Public)
	k.close()
}

package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/evidence"
	"github.com/tgad/tgad/internal/evidence/bundle"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/internal/promtext"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// signing prepares a daemon that signs checkpoints, and returns its public key and where its
// checkpoints go.
func signing(t *testing.T) (b *bench, public, outside string) {
	t.Helper()
	config, public, outside := signs(t)
	b = setup(t, "")
	b.config += config
	return b, public, outside
}

// signs is the part of a configuration that signs checkpoints.
func signs(t *testing.T) (config, public, outside string) {
	t.Helper()
	dir := t.TempDir()
	secret, public, err := checkpoint.NewKey("shop.example/tgad")
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	outside = filepath.Join(dir, "checkpoint")
	return fmt.Sprintf("\n[evidence]\nkey_file = %q\nevery = \"20ms\"\n[[evidence.place]]\nfile = %q\n", key, outside), public, outside
}

// receipt waits until checkpoints cover all of a trace.
func (b *bench) receipt(id tga.ID) client.Receipt {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		r, err := b.client.Proofs().Receipt(b.t.Context(), id)
		if err != nil {
			b.t.Fatal(err)
		}
		if r.Pending == 0 {
			return r
		}
		if time.Now().After(end) {
			b.t.Fatalf("%d leaves stay pending", r.Pending)
		}
	}
}

// metric is a number that the daemon counts.
func (b *bench) metric(name string) float64 {
	b.t.Helper()
	_, _, text := b.raw("GET", "/metrics", "")
	m, err := promtext.Parse(text)
	if err != nil {
		b.t.Fatal(err)
	}
	n, err := m.Value(name)
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// TestAnswersCarryReceipts: each answer about a call, also a refusal, for a client that asks, and for no other.
func TestAnswersCarryReceipts(t *testing.T) {
	b, _, _ := signing(t)
	b.start()
	wants := client.New(b.socket, client.Options{Name: "receipts", Receipts: true})
	defer wants.Close()
	res, err := wants.Call(t.Context(), charge("r1"))
	if err != nil || res.Receipt == nil || res.Receipt.TraceID != res.TraceID {
		t.Fatalf("%+v %v", res.Receipt, err)
	}
	entries := 0
	for _, l := range res.Receipt.Leaves {
		leaf, err := tree.ParseLeaf(l.Leaf)
		if err != nil || leaf.TraceID != res.TraceID || int64(leaf.Index) != l.Index {
			t.Errorf("leaf %d: %+v %v", l.Index, leaf, err)
		}
		entries += int(leaf.Entries)
	}
	if entries != 4 { // also the last one, which was appended right before the answer
		t.Errorf("the receipt has %d entries", entries)
	}
	if again, err := wants.Call(t.Context(), charge("r1")); err != nil || !again.Replayed || again.Receipt == nil {
		t.Errorf("the same call again: %+v %v", again.Receipt, err)
	}
	other := charge("r1")
	other.Args = []byte(`{"amount":2}`)
	if refused, err := wants.Call(t.Context(), other); tga.CodeOf(err) != tga.IdempotencyKeyConflict || refused.TraceID.IsZero() != (refused.Receipt == nil) {
		t.Errorf("another call under its key: %+v %v", refused, err)
	}
	if plain, err := b.client.Call(t.Context(), charge("r2")); err != nil || plain.Receipt != nil {
		t.Errorf("a client that does not ask: %+v %v", plain.Receipt, err)
	}
}

func TestReceiptsOverTheSocket(t *testing.T) {
	b, public, _ := signing(t)
	b.start()
	if at := b.metric("tgad_signed_timestamp_seconds"); !math.IsNaN(at) {
		t.Errorf("nothing was signed, and that was at %v", at)
	}
	res, err := b.client.Call(t.Context(), charge("r1"))
	if err != nil {
		t.Fatal(err)
	}
	r := b.receipt(res.TraceID)
	if age := float64(time.Now().UnixMilli())/1000 - b.metric("tgad_signed_timestamp_seconds"); age < 0 || age > 60 || math.IsNaN(age) {
		t.Errorf("the newest checkpoint was signed %v s ago", age)
	}
	keys, err := checkpoint.TrustKeys("", public)
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := keys.Open([]byte(r.Checkpoint))
	if err != nil || r.Key != public || len(r.Leaves) == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	entries := 0
	for _, l := range r.Leaves {
		leaf, err := tree.ParseLeaf(l.Leaf)
		if err != nil {
			t.Fatal(err)
		}
		var proof tlog.RecordProof
		for _, h := range l.Proof {
			proof = append(proof, tlog.Hash(h))
		}
		if leaf.TraceID != res.TraceID || tlog.CheckRecord(proof, c.Size, c.Head, l.Index-1, leaf.Hash()) != nil {
			t.Errorf("leaf %d is not proved", l.Index)
		}
		entries += int(leaf.Entries)
	}
	if entries != 4 {
		t.Errorf("the leaves have %d entries", entries)
	}
	signed, err := b.client.Proofs().Checkpoint(t.Context())
	if err != nil || signed.Key != public {
		t.Fatalf("%+v, %v", signed, err)
	}
	for name, m := range map[string]wire.EvidenceRequest{
		"a trace":   {TraceIDs: []tga.ID{res.TraceID}},
		"all":       {},
		"from then": {Old: r.Checkpoint, Since: 1},
		"the first": {Most: 1},
		"behind it": {After: 1},
		"many":      {Most: 1<<53 - 1},
	} {
		var file bytes.Buffer
		for line, err := range b.client.Proofs().Export(t.Context(), m) {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			file.Write(line)
		}
		trust := bundle.Trust{Key: public}
		if m.Old != "" {
			trust.Old = []byte(m.Old)
		}
		report, err := bundle.Verify(&file, trust)
		if err != nil || len(report.Traces) != 1 || m.Old != "" && report.GrewFrom == 0 {
			t.Errorf("%s: %+v, %v", name, report, err)
		}
	}
	for name, m := range map[string]struct {
		wire.EvidenceRequest
		code tga.Code
	}{
		"no trace":       {wire.EvidenceRequest{TraceIDs: []tga.ID{{6: 0x70, 8: 0x80, 15: 1}}}, tga.NotFound},
		"both":           {wire.EvidenceRequest{TraceIDs: []tga.ID{res.TraceID}, Since: 1}, tga.ValidationError},
		"what is to be":  {wire.EvidenceRequest{Since: tga.MillisOf(time.Now().Add(time.Hour))}, tga.ValidationError},
		"traces, after":  {wire.EvidenceRequest{TraceIDs: []tga.ID{res.TraceID}, After: 1}, tga.ValidationError},
		"since, most":    {wire.EvidenceRequest{Since: 1, Most: 1}, tga.ValidationError},
		"before all":     {wire.EvidenceRequest{After: -1}, tga.ValidationError},
		"less than none": {wire.EvidenceRequest{Most: -1}, tga.ValidationError},
		"behind the end": {wire.EvidenceRequest{After: 1<<53 - 1}, tga.ValidationError},
		"no checkpoint":  {wire.EvidenceRequest{Old: "x"}, tga.PermissionDenied},
		"another's note": {wire.EvidenceRequest{Old: strings.Replace(r.Checkpoint, "\n", "1\n", 1)}, tga.PermissionDenied},
	} {
		var err error
		for _, err = range b.client.Proofs().Export(t.Context(), m.EvidenceRequest) {
		}
		if tga.CodeOf(err) != m.code {
			t.Errorf("%s: %v, want %s", name, err, m.code)
		}
	}
}

// TestClientsRememberTheTree: a client that names what it has seen is refused by a store that does
// not have that any more.
func TestClientsRememberTheTree(t *testing.T) {
	b, _, _ := signing(t)
	b.start()
	remembers := client.New(b.socket, client.Options{Name: "test", Remember: true})
	defer remembers.Close()
	res, err := remembers.Call(t.Context(), charge("r1"))
	if err != nil {
		t.Fatal(err)
	}
	b.receipt(res.TraceID)
	_, header, _ := b.raw("GET", "/v1/traces", "")
	now, err := evidence.ParseSeen(header.Get(wire.HeaderCheckpoint))
	if err != nil || now.Size == 0 {
		t.Fatalf("%q, %v", header, err)
	}
	for name, m := range map[string]struct {
		seen evidence.Seen
		raw  string
		want int
	}{
		"what is":       {seen: now, want: http.StatusOK},
		"another":       {seen: evidence.Seen{Size: now.Size, Head: tlog.Hash{1}}, want: http.StatusConflict},
		"more":          {seen: evidence.Seen{Size: 1 << 30, Head: now.Head}, want: http.StatusConflict},
		"nonsense":      {raw: "1", want: http.StatusUnprocessableEntity},
		"another shape": {raw: now.String() + " ", want: http.StatusOK}, // HTTP takes blanks away
		"negative":      {raw: "-1 " + now.Head.String(), want: http.StatusUnprocessableEntity},
	} {
		if m.raw == "" {
			m.raw = m.seen.String()
		}
		status, _, answer := b.raw("GET", "/v1/traces", "", wire.HeaderCheckpoint, m.raw)
		if status != m.want {
			t.Errorf("%s: %d %s", name, status, answer)
		}
	}
	if _, err := remembers.Trace(t.Context(), res.TraceID); err != nil {
		t.Fatal(err)
	}
	if res, err := b.client.Call(t.Context(), charge("r2")); err != nil {
		t.Fatal(err)
	} else {
		b.receipt(res.TraceID)
	}
}

// TestRolledBackDaemonSendsNothing: an older copy of the store's directory is put in its place, and
// what a client sent since then must not be sent again.
func TestRolledBackDaemonSendsNothing(t *testing.T) {
	b, _, outside := signing(t)
	b.start()
	if _, err := b.client.Call(t.Context(), charge("k1")); err != nil {
		t.Fatal(err)
	}
	b.stop()
	old := filepath.Join(b.dir, "old")
	if err := os.CopyFS(old, os.DirFS(b.data)); err != nil {
		t.Fatal(err)
	}
	b.start()
	if _, err := b.client.Call(t.Context(), charge("k2")); err != nil {
		t.Fatal(err)
	}
	b.stop()
	err := errors.Join(os.RemoveAll(b.data), os.Rename(old, b.data))
	if err == nil {
		err = filepath.WalkDir(b.data, func(path string, d os.DirEntry, err error) error {
			mode := os.FileMode(0o600)
			if err == nil && d.IsDir() {
				mode = 0o700
			}
			return errors.Join(err, os.Chmod(path, mode))
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	received := b.tool.sends("k2")
	b.start()
	if err := b.client.Healthy(t.Context()); err == nil || !strings.Contains(err.Error(), outside) || !strings.Contains(err.Error(), "rolled back") {
		t.Errorf("it is healthy: %v", err)
	}
	if err := b.client.Ready(t.Context()); err == nil {
		t.Error("it is ready")
	}
	_, err = b.client.Call(t.Context(), charge("k2"))
	wantCode(t, err, tga.StoreUnavailable)
	if n := b.tool.sends("k2"); n != received {
		t.Fatalf("%d sends by a store that was rolled back", n-received)
	}
	if err := b.client.Unfreeze(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	b.stop()
	b.start() // what was accepted freezes it no more
	if err := b.client.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestKeyInTheStoreIsRefused: who copies the store would have its key.
func TestKeyInTheStoreIsRefused(t *testing.T) {
	b, _, _ := signing(t)
	b.start()
	b.stop()
	secret, _, err := checkpoint.NewKey("x")
	if err != nil {
		t.Fatal(err)
	}
	inside := filepath.Join(b.data, "key")
	if err := os.WriteFile(inside, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	good := b.config
	for name, config := range map[string]string{
		"key":   "\n[evidence]\nkey_file = \"" + inside + "\"\n",
		"place": good[strings.Index(good, "\n[evidence]"):strings.Index(good, "[[evidence.place]]")] + "[[evidence.place]]\nfile = \"" + filepath.Join(b.data, "log", "c") + "\"\n",
	} {
		b.config = good[:strings.Index(good, "\n[evidence]")] + config
		if err := Run(t.Context(), b.options()); tga.CodeOf(err) != tga.ValidationError || !strings.Contains(err.Error(), "lies in the store") {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.config = good
}

package serving_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/evidence/bundle"
	"github.com/tgad/tgad/internal/keyring"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
	"github.com/tgad/tgad/wal/chain"
)

// secret is in the arguments of every call of these tests; the tool says the key of the call in its answer.
const secret = "nobody-reads-this-anywhere"

func secretCall(key string) runtime.Request {
	req := call("opaque", key+" "+secret)
	req.Key, req.Args = key, []byte(fmt.Sprintf(`{"secret":%q}`, secret))
	return req
}

// newRing makes a key ring, and returns its path, what opens it, and the part of a configuration that names it.
func newRing(t *testing.T) (path string, o keyring.Options, config string) {
	t.Helper()
	dir := t.TempDir()
	o = keyring.Options{KEK: keyring.KEK{File: filepath.Join(dir, "kek")}, Shared: true}
	if err := os.WriteFile(o.KEK.File, bytes.Repeat([]byte{7}, 32), 0o600); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "ring")
	if err := keyring.Create(path, storetest.NewID(), o); err != nil {
		t.Fatal(err)
	}
	return path, o, fmt.Sprintf("\n[keyring]\npath = %q\nkek_file = %q\n", path, o.KEK.File)
}

// reconfigured writes a configuration of the fleet in which one part is another one.
func (f *fleet) reconfigured(old, with string) {
	f.t.Helper()
	text, err := os.ReadFile(f.config)
	if err == nil && !bytes.Contains(text, []byte(old)) {
		err = errors.New("there is no such part")
	}
	if err == nil {
		err = os.WriteFile(f.config, bytes.Replace(text, []byte(old), []byte(with), 1), 0o600)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// valuesWith counts the values of a store in the common server in which a text stands.
func valuesWith(t *testing.T, shard int32, text string) string {
	t.Helper()
	s, err := common.Server()
	if err != nil {
		t.Fatal(err)
	}
	n, err := s.Query(fmt.Sprintf(`SELECT ((SELECT count(*) FROM tgad.entries WHERE shard = %[1]d AND (strpos(encode(parts, 'hex'), '%[2]s') > 0 OR strpos(encode(spill, 'hex'), '%[2]s') > 0))
		+ (SELECT count(*) FROM tgad.attachments WHERE shard = %[1]d AND strpos(encode(value, 'hex'), '%[2]s') > 0))::text`, shard, hex.EncodeToString([]byte(text))))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestDaemonsSealUnderOneRing: daemons with one ring read what each other sealed; one of them erases, and the other gives nothing
// out any more; what was signed holds. A daemon without the ring, or with another one, sends nothing.
func TestDaemonsSealUnderOneRing(t *testing.T) {
	_, _, ring := newRing(t)
	f, key := newSigning(t, "", ring)
	a, b := f.start("a"), f.start("b")
	all := []*daemon{a, b}
	var ids []tga.ID
	for i := range 6 {
		req := secretCall(fmt.Sprint("k", i))
		res, err := all[i%2].Call(t.Context(), req)
		if err != nil || res.State != tga.Completed {
			t.Fatalf("%+v, %v", res, err)
		}
		again, err := all[(i+1)%2].Call(t.Context(), req)
		if err != nil || !again.Replayed || !bytes.Equal(again.Value, res.Value) || f.tool.sends(req.Key) != 1 {
			t.Errorf("of the other daemon: %+v, %v, sent %d times", again, err, f.tool.sends(req.Key))
		}
		ids = append(ids, res.TraceID)
	}
	if n := valuesWith(t, f.shard, secret); n != "0" {
		t.Errorf("it stands in %s values", n)
	}
	var done wire.Erased
	until(t, "it was let go of", func() bool {
		var err error
		done, err = a.Erase(t.Context(), wire.EraseRequest{Traces: ids[:2], Reason: "the customer asked for it"})
		if err != nil && !errors.Is(err, tga.StateLockAcquireFailed) {
			t.Fatal(err)
		}
		return err == nil
	})
	if done.Traces != 2 || done.Keys != 2 {
		t.Errorf("erased %+v", done)
	}
	for i, id := range ids {
		for _, d := range all {
			tl, err := d.Trace(t.Context(), id)
			raw := wire.Append(nil, tl)
			if err != nil || bytes.Contains(raw, []byte(secret)) == (i < 2) || bytes.Contains(raw, []byte(tga.NoteErased)) != (i < 2) {
				t.Errorf("trace %d: %.2000s, %v", i, raw, err)
			}
			until(t, "the receipt is whole", func() bool {
				r, err := d.Proofs().Receipt(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				if r.Pending > 0 {
					return false
				}
				got, err := bundle.VerifyReceipt(wire.Append(nil, r), bundle.Trust{Key: key})
				if err != nil || got.Verdict() != "proved" {
					t.Fatalf("trace %d: %v, %v", i, got, err)
				}
				return true
			})
		}
	}
	_, err := b.Call(t.Context(), secretCall("k0"))
	if err == nil || f.tool.sends("k0") != 1 {
		t.Errorf("the key of an erased call: %v, sent %d times", err, f.tool.sends("k0"))
	}
	if v, err := b.Verify(t.Context(), tga.ID{}); err != nil || !v.OK {
		t.Errorf("verify: %+v, %v", v, err)
	}
	if out, err := program("verify", "--store", f.url, "--config", f.config).CombinedOutput(); err != nil {
		t.Errorf("verify: %v, %s", err, out)
	}
	f.refusesOtherRings(ring)
}

// refusesOtherRings starts daemons of a sealed store without its ring, and with another one.
func (f *fleet) refusesOtherRings(ring string) {
	t := f.t
	_, _, other := newRing(t)
	f.reconfigured(ring, other)
	out, err := program("serve", "--store", f.url, "--config", f.config, "--socket", filepath.Join(f.dir, "other", "s")).CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("STORE_UNAVAILABLE")) || !bytes.Contains(out, []byte("is sealed under key ring")) {
		t.Errorf("with another ring: %v, %s", err, out)
	}
	f.reconfigured(other, "")
	if out, err := program("verify", "--store", f.url, "--config", f.config).CombinedOutput(); err != nil {
		t.Errorf("verify without the ring: %v, %s", err, out)
	}
	none := &daemon{f: f, socket: filepath.Join(f.dir, "none", "s"), ended: make(chan struct{})}
	none.cmd = program("serve", "--store", f.url, "--config", f.config, "--socket", none.socket)
	none.begin()
	until(t, "it answers", func() bool { return none.Live(t.Context()) == nil })
	wantCode(t, none.Ready(t.Context()), tga.StoreUnavailable)
	for _, key := range []string{"k3", "new"} {
		_, err := none.Call(t.Context(), secretCall(key))
		wantCode(t, err, tga.StoreUnavailable)
	}
	if f.tool.sends("k3") != 1 || f.tool.sends("new") != 0 {
		t.Error("a daemon without the ring sends")
	}
}

// TestSealedStoreIsCopied: a sealed directory is copied with its ring, and what it sealed is read from the database, and erased there.
// Without the ring, or with another one, nothing is written.
func TestSealedStoreIsCopied(t *testing.T) {
	path, o, ring := newRing(t)
	_, _, other := newRing(t)
	dir := filepath.Join(t.TempDir(), "data")
	r, err := keyring.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	db, err := engine.Open(dir, engine.Options{LowWaterBytes: 1, Keyring: r})
	if err != nil {
		t.Fatal(err)
	}
	rt, err := runtime.New(db, runtime.DispatcherFunc(func(_ context.Context, c runtime.Call) (runtime.Reply, error) {
		return runtime.Reply{Status: tga.StatusSuccess, Result: []byte(fmt.Sprintf(`{"paid":%q,"long":%q}`, c.Key, strings.Repeat(secret, 3000)))}, nil
	}), runtime.Rules{Rules: []runtime.Rule{{Decision: tga.Approve}}}, runtime.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var ids []tga.ID
	for i := range 5 {
		res, err := rt.Call(t.Context(), secretCall(fmt.Sprint("k", i)))
		if err != nil {
			t.Fatal(err)
		}
		if ids = append(ids, res.TraceID); i == 1 {
			if _, err := db.SealTraces(t.Context(), tga.MillisOf(time.Now())+1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := db.Erase(t.Context(), engine.Erasure{Traces: ids[4:], Who: "operator", Reason: "before the copy"}); err != nil {
		t.Fatal(err)
	}
	family, value := storetest.NewID(), []byte("state "+secret)
	lease, err := db.Acquire(t.Context(), family)
	if err == nil {
		_, err = db.Append(t.Context(), lease, chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachStream, Key: keyspace.StateKey(family, 0, 1), Value: value, Owner: family}}})
	}
	if err = errors.Join(err, db.Close(), r.Close()); err != nil {
		t.Fatal(err)
	}

	f := newFleet(t, "", ring)
	s, err := common.Server()
	if err != nil {
		t.Fatal(err)
	}
	copies := func(want string) {
		t.Helper()
		out, err := program("copy", "--from", dir, "--to", f.url, "--config", f.config).CombinedOutput()
		if refused := want != ""; refused != (err != nil) || !bytes.Contains(out, []byte(want)) {
			t.Errorf("copy: %v, %s; want %q", err, out, want)
		}
		if n, qerr := s.Query(fmt.Sprintf("SELECT ((SELECT count(*) FROM tgad.meta WHERE shard = %[1]d) + (SELECT count(*) FROM tgad.order_state WHERE shard = %[1]d))::text", f.shard)); qerr != nil || want != "" && n != "0" {
			t.Errorf("%s rows were written, %v", n, qerr)
		}
	}
	f.reconfigured(ring, "")
	copies("is sealed under key ring")
	f.reconfigured("[approval]", other+"\n[approval]")
	copies("is sealed under key ring")
	f.reconfigured(other, ring)
	copies("")
	if n := valuesWith(t, f.shard, secret); n != "0" {
		t.Errorf("it stands in %s values", n)
	}
	if n, err := s.Query(fmt.Sprintf("SELECT ((SELECT count(*) >= 5 FROM tgad.data_keys WHERE shard = %[1]d) AND (SELECT count(*) > 0 FROM tgad.owner_keys WHERE shard = %[1]d))::text", f.shard)); err != nil || n != "true" {
		t.Errorf("the database does not know the keys of what was copied: %s, %v", n, err)
	}
	d := f.start("a")
	for i := range 4 {
		res, err := d.Call(t.Context(), secretCall(fmt.Sprint("k", i)))
		if err != nil || !res.Replayed || !bytes.Contains(res.Value, []byte(secret)) {
			t.Errorf("k%d: %.100s, %v", i, res.Value, err)
		}
	}
	for _, id := range ids[:1] {
		if done, err := d.Erase(t.Context(), wire.EraseRequest{Traces: []tga.ID{id}, States: []tga.ID{family}, Reason: "after the copy"}); err != nil || done.Traces != 1 || done.States != 1 || done.Keys != 2 {
			t.Errorf("erased %+v, %v", done, err)
		}
	}
	if res, err := d.Call(t.Context(), secretCall("new")); err != nil || res.State != tga.Completed {
		t.Errorf("a new call: %+v, %v", res, err)
	}
	if v, err := d.Verify(t.Context(), tga.ID{}); err != nil || !v.OK {
		t.Errorf("verify: %+v, %v", v, err)
	}
	// One that is not sealed does not become so by a copy.
	g := newFleet(t, "", ring)
	plain := directory(t, 2).dir
	if out, err := program("copy", "--from", plain, "--to", g.url, "--config", g.config).CombinedOutput(); err == nil || !bytes.Contains(out, []byte("is not sealed")) {
		t.Errorf("of a directory that is not sealed: %v, %s", err, out)
	}
}

package postgres_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/keyring"
	"github.com/tgad/tgad/internal/sealrules"
	"github.com/tgad/tgad/internal/sealrules/sealtest"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// ringFile makes a ring in a file, and returns what opens it as one of several processes does.
func ringFile(t testing.TB, bySubject bool) (path string, open func(path string) *keyring.Ring) {
	t.Helper()
	dir := t.TempDir()
	o := keyring.Options{KEK: keyring.KEK{File: filepath.Join(dir, "kek")}, BySubject: bySubject, Shared: true, Batch: 8}
	if err := os.WriteFile(o.KEK.File, bytes.Repeat([]byte{7}, 32), 0o600); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "ring")
	if err := keyring.Create(path, storetest.NewID(), o); err != nil {
		t.Fatal(err)
	}
	return path, func(path string) *keyring.Ring {
		t.Helper()
		r, err := keyring.Open(path, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		return r
	}
}

// secretive is a call whose arguments and answer have the secret.
func secretive(t testing.TB, subject string, namespace ...string) (b *storetest.Builder, begin, end chain.Batch) {
	b = storetest.New(t)
	b.Proposal.Args = []byte(`{"secret":"` + sealtest.Secret + `"}`)
	meta := tga.Meta{}
	if subject != "" {
		meta[tga.MetaSubject] = subject
	}
	for _, n := range namespace {
		b.Namespace, meta[tga.MetaNamespace] = n, n
	}
	b.Request = b.Mint(&tga.Artifact{Type: tga.RequestType, Meta: meta, Request: &tga.ActionRequest{
		AgentID: storetest.NewID(), RiskLevel: tga.RiskWrite, Intent: "charge the customer once",
		Resources: []tga.Resource{{Kind: "service", ID: "payments"}}, Proposal: b.Proposal, IdempotencyKey: b.Key,
	}})
	begin = storetest.Batch(b.Request, b.MintDecision(tga.Approve), b.MintCall(""))
	return b, begin, chain.Batch{Artifacts: []chain.NewArtifact{b.MintEffect(tga.StatusSuccess, "", []byte("answer "+sealtest.Secret), tga.Meta{})}}
}

// made makes a call in a store from its begin to its end.
func made(t testing.TB, s *postgres.Store, subject string, namespace ...string) *storetest.Builder {
	t.Helper()
	b, begin, end := secretive(t, subject, namespace...)
	lease, err := s.Acquire(bg, b.TraceID)
	for _, x := range []chain.Batch{begin, end} {
		if err == nil {
			_, err = s.Append(bg, lease, x)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Release(lease)
	return b
}

// isWhole and isErased say how a trace stands.
func isWhole(t testing.TB, s *postgres.Store, id tga.ID) bool {
	t.Helper()
	tr, err := s.Load(bg, id)
	if err != nil {
		t.Errorf("trace %s: %v", id, err)
		return false
	}
	return tr.Request != nil && bytes.Contains(tr.Request.Canonical, []byte(sealtest.Secret)) && tr.Effect != nil && len(tr.Documents) == 1
}

func isErased(t testing.TB, s *postgres.Store, id tga.ID) bool {
	t.Helper()
	tr, err := s.Load(bg, id)
	if err != nil {
		t.Errorf("trace %s: %v", id, err)
		return false
	}
	notes := 0
	for _, n := range tr.Notes {
		if n.Kind == tga.NoteErased {
			notes++
		}
	}
	return tr.Request == nil && tr.Effect == nil && len(tr.Documents) == 0 && len(tr.Entries) == 4 && notes == 1
}

func byOperator(what chain.Erasure) chain.Erasure {
	what.Who, what.Reason = "operator", "the customer asked for it"
	return what
}

// TestReplicasSealUnderOneKey: two processes that write of one owner at the same moment, when it has no key yet, seal under one; a
// subject's calls have one key whichever process makes them; and each reads what the other sealed.
func TestReplicasSealUnderOneKey(t *testing.T) {
	dsn, shard := database(t)
	path, ring := ringFile(t, true)
	var stores []*postgres.Store
	for range 2 {
		stores = append(stores, open(t, dsn, postgres.Options{Shard: shard, Keyring: ring(path)}))
	}
	const streams = 20
	var ids []tga.ID
	for range streams {
		ids = append(ids, storetest.NewID())
	}
	var mu sync.Mutex
	var calls []tga.ID
	var over sync.WaitGroup
	for n, s := range stores {
		over.Go(func() {
			for i, stream := range ids {
				b, begin, end := secretive(t, fmt.Sprint("subject ", i/4))
				lease, err := s.Acquire(bg, b.TraceID)
				begin.Attachments = []chain.Attachment{{Kind: chain.AttachStream, Key: keyspace.StreamKey(stream, uint64(n+1)), Value: []byte(sealtest.Secret)}}
				for _, x := range []chain.Batch{begin, end} {
					if err == nil {
						_, err = s.Append(bg, lease, x)
					}
				}
				if err != nil {
					t.Error(err)
				}
				s.Release(lease)
				mu.Lock()
				calls = append(calls, b.TraceID)
				mu.Unlock()
			}
		})
	}
	over.Wait()
	subjects := map[chain.KeyID]bool{}
	for _, id := range calls {
		for _, s := range stores {
			if !isWhole(t, s, id) {
				t.Errorf("trace %s is not whole for both", id)
			}
		}
		tr, err := stores[0].Load(bg, id)
		if err != nil {
			t.Fatal(err)
		}
		subjects[tr.Key] = true
	}
	if len(subjects) != streams/4 {
		t.Errorf("%d subjects have the keys %v", streams/4, subjects)
	}
	for _, stream := range ids {
		keys := map[chain.KeyID]int{}
		for item := range uint64(2) {
			var stored []byte
			if err := connect(t, dsn).QueryRow(bg, "SELECT value FROM tgad.attachments WHERE shard = $1 AND key = $2", shard, keyspace.StreamKey(stream, item+1)).Scan(&stored); err != nil {
				t.Fatal(err)
			}
			keys[sealrules.KeyOf(stored)]++
		}
		if len(keys) != 1 || keys[0] > 0 {
			t.Errorf("stream %s is sealed under the keys %v", stream, keys)
		}
		for _, s := range stores {
			for a, err := range s.Attachments(bg, chain.AttachStream, keyspace.StreamPrefix(stream)) {
				if err != nil || string(a.Value) != sealtest.Secret {
					t.Errorf("%q, %v", a.Value, err)
				}
			}
		}
	}
	if found := rowsWith(t, dsn, shard, sealtest.Secret); found != nil {
		t.Errorf("it stands in %v", found)
	}
	checked(t, stores[1])
}

// TestErasureOfAnotherReplicaIsSeen: a process that knows a trace gives nothing of it out any more, and seals nothing under a key
// that another process has destroyed.
func TestErasureOfAnotherReplicaIsSeen(t *testing.T) {
	dsn, shard := database(t)
	path, ring := ringFile(t, true)
	a, b := open(t, dsn, postgres.Options{Shard: shard, Keyring: ring(path)}), open(t, dsn, postgres.Options{Shard: shard, Keyring: ring(path)})
	call := made(t, b, "alice")
	stream := storetest.NewID()
	write := func(item uint64) {
		t.Helper()
		lease, err := b.Acquire(bg, stream)
		if err == nil {
			_, err = b.Append(bg, lease, chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachStream, Key: keyspace.StreamKey(stream, item), Value: []byte(sealtest.Secret)}}})
		}
		if err != nil {
			t.Fatal(err)
		}
		b.Release(lease)
	}
	write(1)
	if !isWhole(t, a, call.TraceID) || !isWhole(t, b, call.TraceID) {
		t.Fatal("it is not there")
	}
	var done chain.Erased
	until(t, "it was let go of", func() (ok bool) { // the database hears of a release a little later
		var err error
		done, err = a.Fleet().Erase(bg, byOperator(chain.Erasure{Subject: "alice"}))
		return err == nil
	})
	if done.Traces != 1 || done.Keys != 1 {
		t.Errorf("erased %+v", done)
	}
	until(t, "it was let go of", func() bool {
		_, err := a.Fleet().Erase(bg, byOperator(chain.Erasure{Turns: []tga.ID{stream}}))
		return err == nil
	})
	for _, s := range []*postgres.Store{a, b} {
		if !isErased(t, s, call.TraceID) {
			t.Error("it is not erased for both")
		}
	}
	value := []byte("late")
	lease, err := b.Acquire(bg, call.TraceID)
	if err == nil {
		_, err = b.Append(bg, lease, chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachBlob, Key: keyspace.EvidenceKey(tga.Sum(value), call.TraceID), Value: value}}})
	}
	if tga.CodeOf(err) != tga.StateInvalidTransition {
		t.Errorf("evidence of an erased trace: %v", err)
	}
	b.Release(lease)
	next := made(t, b, "alice")
	if !isWhole(t, a, next.TraceID) {
		t.Error("the subject's next call cannot be read")
	}
	write(2)
	if v, err := a.Attachment(bg, chain.AttachStream, keyspace.StreamKey(stream, 2)); err != nil || string(v) != sealtest.Secret {
		t.Errorf("what came after the erasure: %q, %v", v, err)
	}
	checked(t, a)
}

// TestNoCallOfAnotherReplicaIsLost: while one process erases a subject the calls of another go on. Each is erased whole, with
// its note, or can be read by both.
func TestNoCallOfAnotherReplicaIsLost(t *testing.T) {
	dsn, shard := database(t)
	path, ring := ringFile(t, true)
	a, b := open(t, dsn, postgres.Options{Shard: shard, Keyring: ring(path)}), open(t, dsn, postgres.Options{Shard: shard, Keyring: ring(path)})
	const calls = 60
	var all []tga.ID
	var over sync.WaitGroup
	over.Go(func() {
		for range calls {
			x, begin, end := secretive(t, "alice")
			lease, err := b.Acquire(bg, x.TraceID)
			for _, x := range []chain.Batch{begin, end} {
				if err == nil {
					_, err = b.Append(bg, lease, x)
				}
			}
			if err != nil {
				t.Errorf("a call: %v", err)
			}
			b.Release(lease)
			all = append(all, x.TraceID)
		}
	})
	erasures := 0
	ended := make(chan struct{})
	go func() {
		over.Wait()
		close(ended)
	}()
	for going := true; going; {
		select {
		case <-ended:
			going = false
		default:
		}
		switch _, err := a.Fleet().Erase(bg, byOperator(chain.Erasure{Subject: "alice"})); tga.CodeOf(err) {
		case "":
			erasures++
		case tga.StateInvalidTransition, tga.StateLockAcquireFailed:
		default:
			t.Errorf("erase: %v", err)
		}
	}
	gone := 0
	for _, id := range all {
		for _, s := range []*postgres.Store{a, b} {
			tr, err := s.Load(bg, id)
			switch {
			case err != nil:
				t.Errorf("trace %s: %v", id, err)
			case tr.Effect == nil:
				gone++
				if !isErased(t, s, id) {
					t.Errorf("trace %s is lost: %+v", id, tr)
				}
			case !isWhole(t, s, id):
				t.Errorf("trace %s is not whole", id)
			}
		}
	}
	t.Logf("%d erasures, %d of %d calls erased", erasures, gone/2, calls)
	checked(t, b)
}

// TestCopyOfTheRingIsRefused: a process whose ring is a copy would seal under keys that the others do not have.
func TestCopyOfTheRingIsRefused(t *testing.T) {
	dsn, shard := database(t)
	path, ring := ringFile(t, false)
	a := open(t, dsn, postgres.Options{Shard: shard, Keyring: ring(path)})
	made(t, a, "")
	copied := func(name string) string {
		t.Helper()
		raw, err := os.ReadFile(path)
		to := filepath.Join(filepath.Dir(path), name)
		if err == nil {
			err = os.WriteFile(to, raw, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return to
	}
	twin := copied("twin")
	b := open(t, dsn, postgres.Options{Shard: shard, Keyring: ring(twin)}) // it has all keys that are used
	for range 9 {
		made(t, a, "") // a batch that the twin does not have
	}
	x, begin, _ := secretive(t, "")
	lease, err := b.Acquire(bg, x.TraceID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Append(bg, lease, begin); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("it seals under a key of its own: %v", err)
	}
	b.Release(lease)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	older := copied("older")
	for range 9 {
		made(t, a, "")
	}
	if s, err := postgres.Open(bg, dsn, postgres.Options{Shard: shard, Keyring: ring(older)}); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("an older copy is taken beside a newer one: %v", err)
		if err == nil {
			s.Close()
		}
	}
	if s, err := postgres.Open(bg, dsn, postgres.Options{Shard: shard, Keyring: ring(twin)}); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("a ring with other keys is taken: %v", err)
		if err == nil {
			s.Close()
		}
	}
	made(t, a, "")
}

// TestOlderRingAloneGivesNoNumberTwice: put back where no other process has the store, an older copy leaves the numbers out.
func TestOlderRingAloneGivesNoNumberTwice(t *testing.T) {
	dsn, shard := database(t)
	path, ring := ringFile(t, false)
	a := open(t, dsn, postgres.Options{Shard: shard, Keyring: ring(path)})
	made(t, a, "")
	raw, err := os.ReadFile(path)
	older := filepath.Join(filepath.Dir(path), "older")
	if err == nil {
		err = os.WriteFile(older, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	var calls []*storetest.Builder
	for range 9 {
		calls = append(calls, made(t, a, ""))
	}
	last, err := a.Load(bg, calls[8].TraceID)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	b := open(t, dsn, postgres.Options{Shard: shard, Keyring: ring(older)})
	if _, lacks := b.Fleet().UnderRing(); lacks == 0 {
		t.Error("it lacks no key")
	}
	next := made(t, b, "")
	tr, err := b.Load(bg, next.TraceID)
	if err != nil || tr.Key <= last.Key {
		t.Errorf("key %d after %d, %v", tr.Key, last.Key, err)
	}
	if _, err := b.Load(bg, calls[8].TraceID); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("what has no key here: %v", err)
	}
	rep, err := b.Fleet().Check(bg)
	if err != nil || rep.Unread == 0 || len(rep.Problems) != 1 || tga.CodeOf(rep.Problems[0].Err) != tga.StoreUnavailable {
		t.Errorf("check: %+v, %v", rep, err)
	}
}

// TestStoreIsSealedWhereNobodyHasIt: a process without the ring would go on to write what everybody can read. One that the database
// takes for gone cannot.
func TestStoreIsSealedWhereNobodyHasIt(t *testing.T) {
	dsn, shard := database(t)
	a := open(t, dsn, postgres.Options{Shard: shard})
	x, begin, _ := secretive(t, "")
	lease, err := a.Acquire(bg, x.TraceID)
	if err != nil {
		t.Fatal(err)
	}
	ring := new(chaintest.Ring)
	if s, err := postgres.Open(bg, dsn, postgres.Options{Shard: shard, Keyring: ring}); tga.CodeOf(err) != tga.StateLockAcquireFailed {
		t.Errorf("it is sealed beside a process without the ring: %v", err)
		if err == nil {
			s.Close()
		}
	}
	var b *postgres.Store
	until(t, "it is sealed", func() bool {
		if _, err := connect(t, dsn).Exec(bg, "UPDATE tgad.sessions SET expires = clock_timestamp() - interval '1 hour' WHERE shard = $1", shard); err != nil {
			t.Fatal(err)
		}
		b, err = postgres.Open(bg, dsn, postgres.Options{Shard: shard, Keyring: ring})
		return err == nil
	})
	t.Cleanup(func() { b.Close() })
	if _, err := a.Append(bg, lease, begin); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("a process without the ring appends: %v", err)
	}
	if found := rowsWith(t, dsn, shard, sealtest.Secret); found != nil {
		t.Errorf("it stands in %v", found)
	}
	made(t, b, "")
}

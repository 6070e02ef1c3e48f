package engine_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// writeStore is how a release keeps a store of its own: docs/INSTALL.md promises that later versions
// open it.
var writeStore = flag.String("write-store", "", "write testdata/stores/NAME.tar.gz, a store of this version, and what is in it")

const earlierStores = "testdata/stores"

// TestStoresOfEarlierVersions: each store that a version wrote opens with this one, to be read and to be
// appended to, and holds what it held: every entry, note, ledger record, attachment and leaf. So does
// the index that is made anew from its log.
func TestStoresOfEarlierVersions(t *testing.T) {
	serial.Test(t)
	if *writeStore != "" {
		dir := filepath.Join(t.TempDir(), "store")
		fillStore(t, dir)
		keep(t, dir, *writeStore)
	}
	files, err := filepath.Glob(filepath.Join(earlierStores, "*.tar.gz"))
	if err != nil || len(files) == 0 {
		t.Fatal("no store is kept", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".tar.gz"), func(t *testing.T) {
			want, err := os.ReadFile(strings.TrimSuffix(file, ".tar.gz") + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			dir := unpack(t, file)
			holds := func(what string, db *engine.DB) {
				t.Helper()
				check(t, db)
				if got := described(t, db); got != string(want) {
					t.Errorf("%s it holds\n%s\nwant\n%s", what, got, want)
				}
			}
			o := diskOptions()
			db, err := engine.OpenReadOnly(dir, o)
			if err != nil {
				t.Fatal(err)
			}
			holds("at rest", db)
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			if db, err = engine.Open(dir, o); err != nil {
				t.Fatal(err)
			}
			holds("open", db)
			if got := db.Dump()[string(keyspace.AppendMeta(nil, "format"))]; got != string(binary.BigEndian.AppendUint64(nil, tga.StoreVersion)) {
				t.Errorf("an older program would write to it: its format is %x", got)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := engine.RebuildIndex(t.Context(), dir, o, nil); err != nil {
				t.Fatal(err)
			}
			db = open(t, dir, o)
			holds("with a new index", db)

			// Its keys are taken, and it goes on.
			used, err := db.Record(t.Context(), spec{trace: id(1)}.ledgerKey())
			if err != nil || used == nil || used.Status != ledger.Settled {
				t.Errorf("the record of a key that was used: %+v, %v", used, err)
			}
			run(t, db, spec{trace: id(1000)})
			if _, err := db.SealTraces(t.Context(), start+1); err != nil {
				t.Error(err)
			}
			if _, err := db.Rewrite(t.Context()); err != nil {
				t.Error(err)
			}
			if all := described(t, db); !strings.Contains(all, id(1000).String()) {
				t.Errorf("a new trace is not in it:\n%s", all)
			}
		})
	}
}

// diskOptions are those of a small store on a disk.
func diskOptions() engine.Options {
	o := readable(nil)
	o.LowWaterBytes = 1
	return o
}

// fillStore makes a store with something of each kind: calls at each of their states, in archives, in
// rewritten segments, erased, with answers in the log and in files of their own, and the newest ones in the
// segment that is written to.
func fillStore(t *testing.T, dir string) {
	o := diskOptions()
	o.Create = true
	now := start
	o.Clock = func() time.Time { return now.Time() }
	db, err := engine.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	long := []chain.Document{{Pointer: tga.PointerResult, Data: bytes.Repeat([]byte("a long answer "), 1<<17)}}
	run(t, db,
		spec{trace: id(1)}, spec{trace: id(2), status: "FAILURE"}, spec{trace: id(3), namespace: "tenant", subject: "s", documents: noisy(3, 20)},
		spec{trace: id(4), documents: long}, spec{trace: id(5), attempt: "apart"})
	denied := spec{trace: id(6), verdict: "DENY"}.make(t)
	lease := acquire(t, db, id(6))
	append_(t, db, lease, denied.batch(denied.request, denied.decision))
	db.Release(lease)
	if done, err := db.SealTraces(t.Context(), start+1); err != nil || done.Traces == 0 {
		t.Fatal(done, err)
	}
	if _, err := db.Erase(t.Context(), engine.Erasure{Traces: []tga.ID{id(3)}, Who: "somebody", Reason: "a store of this version"}); err != nil {
		t.Fatal(err)
	}
	now += 1000
	for n := range uint64(3) {
		m := spec{trace: id(10 + n)}.make(t)
		lease := acquire(t, db, id(10+n))
		append_(t, db, lease, m.batch([]*tga.Artifact{m.request, m.decision, m.call}[:n+1]...))
		append_(t, db, lease, chain.Batch{Notes: []chain.NewNote{{Kind: tga.NoteLateReply, Who: "tgad", Body: []byte(`{"attempt":1}`)}}})
		db.Release(lease)
	}
	lease = acquire(t, db, id(10))
	digest := tga.Sum([]byte("evidence"))
	append_(t, db, lease, chain.Batch{Attachments: []chain.Attachment{
		{Kind: chain.AttachApproval, Key: keyspace.ApprovalKey(id(10)), Value: []byte(`{"votes":[]}`)},
		{Kind: chain.AttachTimer, Key: keyspace.TimerKey(start+5000, id(10)), Value: []byte(`{}`)},
		{Kind: chain.AttachBlob, Key: keyspace.DigestKey(digest), Value: []byte("evidence")},
	}})
	if _, err := db.WriteCheckpoint(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	db.Release(lease)
	for n := range uint64(25) { // more than a segment of the log
		run(t, db, spec{trace: id(20 + n), documents: noisy(n, 60)})
	}
	if n, err := db.Rewrite(t.Context()); err != nil || n == 0 {
		t.Fatal(n, err)
	}
	run(t, db, spec{trace: id(100), documents: long})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// described says all that a store holds.
func described(t *testing.T, db *engine.DB) string {
	t.Helper()
	ctx := context.Background()
	var b strings.Builder
	for l, err := range db.Traces(ctx, tga.ID{}) {
		if err != nil || l.Err != nil {
			t.Fatal(err, l.Err)
		}
		fmt.Fprintf(&b, "trace %s %s %s\n", l.TraceID, l.State, l.Namespace)
		for e, err := range db.Entries(ctx, l.TraceID, 0) {
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "  entry %d %s erased %v", e.Seq, e.Digest, e.Artifact == nil)
			for _, d := range e.Documents {
				fmt.Fprintf(&b, " %s %d %s", d.Pointer, len(d.Data), tga.Sum(d.Data))
			}
			b.WriteByte('\n')
		}
		for n, err := range db.Notes(ctx, l.TraceID, 0) {
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "  note %d %s %s\n", n.Number, n.Kind, n.Digest)
		}
		if cp, ok, err := db.LatestCheckpoint(ctx, l.TraceID); err != nil {
			t.Fatal(err)
		} else if ok {
			fmt.Fprintf(&b, "  checkpoint %s\n", cp.Digest)
		}
	}
	if err := db.Records(ctx, func(hash [32]byte, record []byte) error {
		fmt.Fprintf(&b, "record %x %x\n", hash[:8], record)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, kind := range chain.AttachmentKinds {
		for a, err := range db.Attachments(ctx, kind, nil) {
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "attachment %c %x %s\n", kind, a.Key, a.Value)
		}
	}
	for leaf, err := range db.Follow(ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "leaf %d %s %d+%d %d+%d\n", leaf.Index, leaf.TraceID, leaf.FirstSeq, leaf.Entries, leaf.FirstNote, leaf.Notes)
		if leaf.Index == db.Cursor() {
			break
		}
	}
	return b.String()
}

// keep packs a store, and writes beside it what is in it.
func keep(t *testing.T, dir, name string) {
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	err = errors.Join(w.AddFS(os.DirFS(dir)), w.Close(), z.Close())
	if err != nil {
		t.Fatal(err)
	}
	db, err := engine.OpenReadOnly(dir, diskOptions())
	if err != nil {
		t.Fatal(err)
	}
	text := described(t, db)
	err = errors.Join(db.Close(), os.MkdirAll(earlierStores, 0o755), os.WriteFile(filepath.Join(earlierStores, name+".tar.gz"), packed.Bytes(), 0o644),
		os.WriteFile(filepath.Join(earlierStores, name+".txt"), []byte(text), 0o644))
	if err != nil {
		t.Fatal(err)
	}
}

func unpack(t *testing.T, file string) (dir string) {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "store")
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.FileInfo().IsDir() {
			err = os.MkdirAll(name, 0o700)
		} else {
			var raw []byte
			raw, err = io.ReadAll(r)
			err = errors.Join(err, os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, raw, fs.FileMode(0o600)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

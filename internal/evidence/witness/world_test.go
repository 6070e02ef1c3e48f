package witness

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/evidence/checkpoint"
)

const origin = "shop.example/tgad"

// fixed keys belong to nobody: each process of a fuzzing run makes its seeds anew, and must make the same
// ones.
const (
	fixedStore   = "PRIVATE+KEY+tgad/test+b3ce5031+AVJxvmyQLUXK+g0f7p8kcdmU9o75Vv4XxVtC8lNp+sws"
	fixedWitness = "PRIVATE+KEY+witness.example+1c9ef8c2+BFJxvmyQLUXK+g0f7p8kcdmU9o75Vv4XxVtC8lNp+sws"
)

// log is a log in memory, whose leaves are numbers. From leaf fork on they differ from those of a log
// without a fork.
type log struct {
	hashes []tlog.Hash
	size   int64
	fork   int64
	key    checkpoint.Signer
}

func (l *log) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	found := make([]tlog.Hash, len(indexes))
	for i, at := range indexes {
		found[i] = l.hashes[at]
	}
	return found, nil
}

func (l *log) grow(size int64) {
	for ; l.size < size; l.size++ {
		data := fmt.Appendf(nil, "leaf %d", l.size)
		if l.fork > 0 && l.size >= l.fork {
			data = append(data, " of a fork"...)
		}
		more, err := tlog.StoredHashes(l.size, data, l)
		if err != nil {
			panic(err)
		}
		l.hashes = append(l.hashes, more...)
	}
}

func (l *log) head(size int64) checkpoint.Checkpoint {
	l.grow(size)
	head, err := tlog.TreeHash(size, l)
	if err != nil {
		panic(err)
	}
	return checkpoint.Checkpoint{Origin: origin, Size: size, Head: head}
}

func (l *log) at(size int64) []byte {
	raw, err := l.head(size).Sign(l.key)
	if err != nil {
		panic(err)
	}
	return raw
}

func (l *log) prove(old, size int64) (tlog.TreeProof, error) {
	l.grow(size)
	return tlog.ProveTree(size, old, l)
}

// body makes a request.
func body(old any, proof tlog.TreeProof, raw []byte) []byte {
	b := fmt.Appendf(nil, "old %v\n", old)
	for _, h := range proof {
		b = append(append(b, h.String()...), '\n')
	}
	return append(append(b, '\n'), raw...)
}

// step is the request that takes a witness from one size to another.
func (l *log) step(old, size int64) []byte {
	var proof tlog.TreeProof
	if old > 0 && old < size {
		proof, _ = l.prove(old, size)
	}
	return body(old, proof, l.at(size))
}

func storeKey(t testing.TB, name string) checkpoint.Signer {
	t.Helper()
	s, err := checkpoint.NewSigner(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// clock advances by one second each time that it is read.
func clock() func() time.Time {
	at := time.Unix(1_700_000_000, 0)
	return func() time.Time {
		at = at.Add(time.Second)
		return at
	}
}

func witnessKey(t testing.TB) *Key {
	t.Helper()
	k, err := ParseKey(fixedWitness, clock())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// start returns a witness on a disk that trusts keys for origin. If there is no state yet, it makes one.
func start(t testing.TB, disk vfs.FS, keys ...checkpoint.Signer) *Witness {
	t.Helper()
	_, err := disk.Stat("/state")
	s, err := open(disk, "/state", err != nil)
	if err != nil {
		t.Fatal(err)
	}
	trust := Trust{}
	for _, k := range keys {
		if err := trust.Add(origin + " " + k.Public); err != nil {
			t.Fatal(err)
		}
	}
	return New(witnessKey(t), trust, s, slog.New(slog.DiscardHandler))
}

func ask(w http.Handler, body []byte) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	w.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/add-checkpoint", bytes.NewReader(body)))
	return answer
}

// cosigned checks that an answer is the witness's signature of a checkpoint, and returns it.
func cosigned(t *testing.T, w *Witness, raw, line []byte) note.Signature {
	t.Helper()
	n, err := note.Open(append(bytes.Clone(raw), line...), note.VerifierList(w.key))
	if err != nil || len(n.Sigs) != 1 {
		t.Fatalf("%q is no cosignature: %v", line, err)
	}
	return n.Sigs[0]
}

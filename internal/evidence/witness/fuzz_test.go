package witness

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/evidence/checkpoint"
)

// FuzzRequest: a body that is read has its only form. For any bytes the witness signs only a checkpoint that
// a trusted key signed and that extends what it signed before.
func FuzzRequest(f *testing.F) {
	key, err := checkpoint.ParseSigner(fixedStore)
	if err != nil {
		f.Fatal(err)
	}
	l, fork := &log{key: key}, &log{key: key, fork: 5}
	for _, b := range [][]byte{
		l.step(0, 7), l.step(10, 10), l.step(10, 12), l.step(9, 12), l.step(0, 0), fork.step(10, 12), fork.step(10, 10),
		body(10, nil, l.at(12)), body("010", nil, l.at(12)), []byte("old 0\n\n"), nil,
	} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parse(b); err == nil && !bytes.Equal(body(r.old, r.proof, r.raw), b) {
			t.Errorf("%q is read as %+v", b, r)
		}
		w := start(t, vfs.NewMem(), key)
		if a := ask(w, l.step(0, 10)); a.Code != 200 {
			t.Fatal(a.Body)
		}
		a := ask(w, b)
		switch seen := w.state.seen[origin].c; a.Code {
		case 200:
			if seen != l.head(10) && seen != l.head(12) {
				t.Errorf("%q is signed", b)
			}
		case 400, 403, 404, 409, 413, 422:
			if seen != l.head(10) {
				t.Errorf("%q is refused with %d, and remembered", b, a.Code)
			}
		default:
			t.Errorf("%q is answered %d", b, a.Code)
		}
	})
}

package sends_test

import (
	"testing"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/evidence/sends"
	"github.com/tgad/tgad/ledger"
)

// FuzzRestore: the content of a file of keys is an error or is restored, and the restored keys are counted
// as they were written.
func FuzzRestore(f *testing.F) {
	l := newLife(new(testing.T), licence(ledger.Licence{Kind: ledger.Park}))
	for seed := range uint64(3) {
		if _, err := l.begin(chaintest.Options{Seed: seed, Key: "order-1"}); err == nil {
			b, err := l.book.Changed(nil)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		book := sends.New(sends.Attested{})
		if book.Restore(b) != nil {
			return
		}
		again, err := book.Changed(nil)
		if err != nil || len(again) != 0 {
			t.Errorf("%d bytes that were restored count as changed: %v", len(again), err)
		}
	})
}

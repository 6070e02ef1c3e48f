package evidence_test

import (
	"context"
	"testing"

	fnote "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/tgad/tgad/internal/evidence/checkpoint"
)

// cosigner is a place that adds a signature.
type cosigner struct {
	checkpoint.Directory
	key note.Signer
}

func (c cosigner) Put(_ context.Context, raw []byte, _ checkpoint.Prove) ([]byte, error) {
	text := raw[:len(raw)-len(lastLines(raw))]
	n, err := note.Sign(&note.Note{Text: string(text)}, c.key)
	if err != nil {
		return nil, err
	}
	return lastLines(n)[1:], nil
}

// lastLines are the signatures of a note with one.
func lastLines(raw []byte) []byte {
	for i := len(raw) - 1; i > 0; i-- {
		if raw[i] == '\n' && raw[i-1] == '\n' {
			return raw[i:]
		}
	}
	return nil
}

// TestWitnessAtTwoAddresses: two places may be the same witness. Its signature counts once.
func TestWitnessAtTwoAddresses(t *testing.T) {
	secret, public, err := checkpoint.NewKey("witness.example")
	if err != nil {
		t.Fatal(err)
	}
	signs, err := fnote.NewSignerForCosignatureV1(secret)
	if err != nil {
		t.Fatal(err)
	}
	key, err := fnote.NewVerifierForCosignatureV1(public)
	if err != nil {
		t.Fatal(err)
	}
	s := newStand(t)
	place := cosigner{s.options.Places[0].(checkpoint.Directory), signs}
	s.options.Places, s.options.Witnesses = []checkpoint.Target{place, place}, []note.Verifier{key, key}
	s.open()
	s.append(1)
	s.covered()
	s.close()
	s.open()
	defer s.close()
	raw, _ := s.k.Newest()
	trust, err := checkpoint.TrustKeys("", s.options.Signer.Public, key, key)
	if err != nil {
		t.Fatal(err)
	}
	if _, by, err := trust.Open(raw); err != nil || len(by) != 1 {
		t.Errorf("%d signatures of the witness, %v, on\n%s", len(by), err, raw)
	}
}

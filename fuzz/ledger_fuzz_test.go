package fuzz

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// FuzzDecodeRecord: each ledger record has one byte form. A record that the decoder accepts is encoded to
// the same bytes, and no input makes the decoder panic.
func FuzzDecodeRecord(f *testing.F) { fuzzDecodeRecord(f) }

func fuzzDecodeRecord(f fuzzer) {
	raw, err := os.ReadFile("../test_vectors/tga/ledger_decisions.json")
	if err != nil {
		f.Fatal(err)
	}
	var v struct {
		Records []struct{ Hex string }
		Refused []struct{ Hex string } `json:"refused_records"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		f.Fatal(err)
	}
	for _, row := range append(v.Records, v.Refused...) {
		b, err := hex.DecodeString(row.Hex)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(bounded(func(t *testing.T, b []byte) {
		r, err := ledger.DecodeRecord(b)
		if err != nil {
			if tga.CodeOf(err) == "" {
				t.Fatalf("refused without a code: %v", err)
			}
			return
		}
		again, err := r.AppendBinary(nil)
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("accepted %x, writes %x, %v", b, again, err)
		}
		// Whatever is stored, a settled call or another's call is not sent because no rule covers it.
		d := ledger.Decide(ledger.Query{Record: r, Trace: r.TraceID, Request: r.RequestDigest, Holder: ledger.HolderGone})
		if sends := d.Action == ledger.Send || d.Action == ledger.Resend; sends && (r.Status != ledger.Reserved || r.InDoubt()) {
			t.Fatalf("%+v: %+v", r, d)
		}
	}))
}

// FuzzNoteBodies: each body of an attempt or not_sent note has one byte form, which is canonical JSON.
func FuzzNoteBodies(f *testing.F) { fuzzNoteBodies(f) }

func fuzzNoteBodies(f fuzzer) {
	f.Add(ledger.Mark{Attempt: 1, Epoch: 1 << 40}.Body())
	f.Add(ledger.Mark{Attempt: 2, Epoch: 1, Permit: tga.Sum(nil), BeginID: "b\"\\\n\x01é"}.Body())
	f.Add(ledger.NotSent{Attempt: 3, Reason: "dial refused"}.Body())
	f.Fuzz(bounded(func(t *testing.T, b []byte) {
		var again []byte
		if m, err := ledger.ParseMark(b); err == nil {
			again = m.Body()
		} else if n, err := ledger.ParseNotSent(b); err == nil {
			again = n.Body()
		} else {
			return
		}
		if !bytes.Equal(again, b) {
			t.Fatalf("accepted %q, writes %q", b, again)
		}
		if canonical, err := tga.Canonicalize(b, tga.Limits{}); err != nil || !bytes.Equal(canonical, b) {
			t.Fatalf("accepted %q, canonical is %q, %v", b, canonical, err)
		}
	}))
}

package tga

import (
	"bytes"
	"encoding/json"
	"testing"
)

// benchCall is a tool_call of about 1 KiB, as an agent's call is.
func benchCall(b *testing.B) *Artifact {
	a := sample(CallType)
	a.Meta = Meta{MetaNonce: "00112233445566778899aabbccddeeff"}
	a.Call.ExpectedDocumentHashes = nil
	a.Call.Call.Args = []byte(`{"amount":1250,"currency":"EUR","customer":"cus_7yH2","description":"Order 7 of 2026-01-15, three items","items":[{"price":500,"sku":"A-1"},{"price":500,"sku":"A-2"},{"price":250,"sku":"B-7"}]}`)
	if err := a.Seal(); err != nil {
		b.Fatal(err)
	}
	return a
}

func bench(b *testing.B, size int, f func() error) {
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		if err := f(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGate(b *testing.B) {
	raw := benchCall(b).Canonical
	bench(b, len(raw), func() error { return Gate(raw, Limits{}) })
}

func BenchmarkCanonicalize(b *testing.B) {
	canonical := benchCall(b).Canonical
	var indented bytes.Buffer
	if err := json.Indent(&indented, canonical, "", " "); err != nil {
		b.Fatal(err)
	}
	reversed := []byte(`{"z":1,`)
	reversed = append(reversed, canonical[1:]...)
	for name, raw := range map[string][]byte{"canonical": canonical, "indented": indented.Bytes(), "unsorted": reversed} {
		b.Run(name, func(b *testing.B) {
			bench(b, len(raw), func() error { _, err := Canonicalize(raw, Limits{}); return err })
		})
	}
}

func BenchmarkDecodeArtifact(b *testing.B) {
	raw := benchCall(b).Canonical
	b.Run("given", func(b *testing.B) {
		bench(b, len(raw), func() error { _, err := DecodeArtifact(raw, Limits{}); return err })
	})
	b.Run("stored", func(b *testing.B) {
		bench(b, len(raw), func() error { _, err := DecodeStoredArtifact(raw); return err })
	})
}

func BenchmarkSealArtifact(b *testing.B) {
	a := benchCall(b)
	bench(b, len(a.Canonical), a.Seal)
}

func BenchmarkEntry(b *testing.B) {
	e := sampleEntry()
	preimage := e.AppendPreimage(nil)
	b.Run("seal", func(b *testing.B) {
		bench(b, len(preimage), func() error { e.Seal(); return nil })
	})
	b.Run("decode", func(b *testing.B) {
		bench(b, len(preimage), func() error { _, err := DecodeEntryPreimage(preimage); return err })
	})
}

func BenchmarkSum(b *testing.B) {
	raw := benchCall(b).Canonical
	bench(b, len(raw), func() error { _ = Sum(raw); return nil })
}

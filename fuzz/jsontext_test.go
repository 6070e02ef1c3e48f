//go:build goexperiment.jsonv2

package fuzz

import (
	"encoding/json/jsontext"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// FuzzCanonicalAgreesWithJSONText: the canonical form equals that of the standard library's own RFC 8785,
// where the standard library has it (GOEXPERIMENT=jsonv2).
func FuzzCanonicalAgreesWithJSONText(f *testing.F) {
	addTexts(f)
	f.Fuzz(bounded(func(t *testing.T, raw []byte) {
		got, err := tga.Canonicalize(raw, tga.Limits{})
		if err != nil {
			return
		}
		want := jsontext.Value(append([]byte(nil), raw...))
		if err := want.Canonicalize(); err != nil {
			t.Fatalf("%q: we accept it, jsontext says %v", raw, err)
		}
		if string(got) != string(want) {
			t.Fatalf("%q: canonical %q, jsontext has %q", raw, got, want)
		}
	}))
}

package fuzz

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"testing"

	"github.com/gowebpki/jcs"

	"github.com/tgad/tgad/schemas/tga"
)

// texts are the seeds of all targets that take JSON.
var texts = []string{
	`{}`, `[]`, `null`, `true`, `"x"`, `-0`, `-0.0`, ` [ 1 , 2 ] `,
	`{"b":1,"a":2}`, `{"a":1,"a":2}`, `{"\u0061":1,"a":2}`, `{"":0}`,
	`{"\ud83d\ude00":1,"\ufb33":2}`, "{\"\U0001f600\":1,\"\ufb33\":2}", "[\"\u007f\u2028\"]",
	`["\u0000\u001f\u0008\/\"\\\b"]`, `["\ud800"]`, `["\udc00\ud800"]`, "[\"\xff\"]", "[\"\xed\xa0\x80\"]",
	`[1e21,1e-7,1e20,9007199254740991,9007199254740992,9007199254740993,5e-324,1.7976931348623157e308,1e400,1e-400]`,
	`[1.0,1e2,0.1,0.10,100E-2,18446744073709551616,1e23,4.9406564584124654e-324]`,
	`[01]`, `[+1]`, `[1.]`, `[.5]`, `[1_0]`, `[0x1]`, `[1e]`, `[-]`, `[1,]`, `{"a":1,}`, `{"a"}`, `[`, "\ufeff{}", `{}{}`, `tru`, ``,
	`{"a":{"z":[{},[],{"q":null}]},"A":false}`,
}

func addTexts(f fuzzer) {
	for _, s := range texts {
		f.Add([]byte(s))
	}
}

// FuzzCanonicalAgreesWithJCS: for each document that the gate accepts, its canonical form equals that of the
// normative implementation, and canonicalizing it again changes nothing.
func FuzzCanonicalAgreesWithJCS(f *testing.F) { fuzzCanonicalAgreesWithJCS(f) }

func fuzzCanonicalAgreesWithJCS(f fuzzer) {
	addTexts(f)
	f.Fuzz(bounded(func(t *testing.T, raw []byte) {
		before := bytes.Clone(raw)
		got, err := tga.Canonicalize(raw, tga.Limits{})
		if !bytes.Equal(raw, before) {
			t.Fatalf("the input was changed: %q became %q", before, raw)
		}
		if gate := tga.Gate(raw, tga.Limits{}); (gate == nil) != (err == nil) {
			t.Fatalf("%q: Gate says %v, Canonicalize %v", raw, gate, err)
		}
		want, jerr := jcs.Transform(raw)
		if err != nil {
			mustBeRefusal(t, raw, err)
			if jerr == nil && !mayRefuse(raw) {
				t.Fatalf("%q: jcs accepts it and nothing in it is unsafe, we say %v", raw, err)
			}
			return
		}
		if jerr != nil {
			t.Fatalf("%q: we accept it, jcs says %v", raw, jerr)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%q: ours %q, jcs %q", raw, got, want)
		}
		again, err := tga.Canonicalize(got, tga.Limits{})
		if err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%q: canonical form %q becomes %q (%v)", raw, got, again, err)
		}
	}))
}

// mustBeRefusal checks that an error is a refusal of the gate.
func mustBeRefusal(t *testing.T, raw []byte, err error) {
	t.Helper()
	var e *tga.Error
	if !errors.As(err, &e) || (e.Code != tga.ValidationError && e.Code != tga.LimitExceeded) {
		t.Fatalf("%q: refused with %v", raw, err)
	}
	if e.Pointer != "" && e.Pointer[0] != '/' {
		t.Fatalf("%q: pointer %q", raw, e.Pointer)
	}
}

// mayRefuse reports whether the gate may refuse raw although jcs accepts it: raw has a number that would
// change its value, or is nested too deeply.
func mayRefuse(raw []byte) bool {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	for depth := 0; ; {
		token, err := d.Token()
		if err != nil {
			return false
		}
		switch x := token.(type) {
		case json.Delim:
			if x == '{' || x == '[' {
				depth++
			} else {
				depth--
			}
			if depth > tga.DefaultMaxDepth {
				return true
			}
		case json.Number:
			if !survives(string(x)) {
				return true
			}
		}
	}
}

// survives is the gate's rule about numbers, computed with exact rationals.
func survives(written string) bool {
	f, err := json.Number(written).Float64()
	if err != nil || math.IsInf(f, 0) {
		return false
	}
	printed, err := jcs.NumberToJSON(f)
	if err != nil {
		return false
	}
	x, ok := exact(written)
	y, _ := exact(printed)
	return ok && x.Cmp(y) == 0
}

// exact reads a decimal as a rational. ok is false if the exponent is so large that the computation would
// take most of the fuzzer's time; such a number is zero or not a double.
func exact(s string) (*big.Rat, bool) {
	if i := bytes.IndexAny([]byte(s), "eE"); i >= 0 && len(s)-i > 6 {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}

// FuzzGateAgainstEncodingJSON: encoding/json accepts every document that the gate accepts, and the canonical
// form decodes to the same value.
func FuzzGateAgainstEncodingJSON(f *testing.F) { fuzzGateAgainstEncodingJSON(f) }

func fuzzGateAgainstEncodingJSON(f fuzzer) {
	addTexts(f)
	f.Fuzz(bounded(func(t *testing.T, raw []byte) {
		canonical, err := tga.Canonicalize(raw, tga.Limits{})
		if err != nil {
			return
		}
		var before, after any
		if err := json.Unmarshal(raw, &before); err != nil {
			t.Fatalf("%q: we accept it, encoding/json says %v", raw, err)
		}
		if err := json.Unmarshal(canonical, &after); err != nil {
			t.Fatalf("%q: canonical %q: %v", raw, canonical, err)
		}
		if !sameValue(before, after) {
			t.Fatalf("%q: canonical %q is another value", raw, canonical)
		}
	}))
}

func sameValue(a, b any) bool {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for name, v := range x {
			w, ok := y[name]
			if !ok || !sameValue(v, w) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !sameValue(x[i], y[i]) {
				return false
			}
		}
		return true
	}
	return a == b // -0 == 0
}

// FuzzNumber: each double is printed as jcs prints it, and the gate accepts that form.
func FuzzNumber(f *testing.F) { fuzzNumber(f) }

func fuzzNumber(f fuzzer) {
	for _, bits := range []uint64{0, 1, 1 << 63, 0x7fefffffffffffff, 0x4340000000000000, 0x4340000000000001, 0x444b1ae4d6e2ef50, 0x444b1ae4d6e2ef4f, 0x3eb0c6f7a0b5ed8d, 0x3eb0c6f7a0b5ed8c, 0x3ff0000000000000, 0x000fffffffffffff} {
		f.Add(bits)
	}
	f.Fuzz(func(t *testing.T, bits uint64) {
		want, err := jcs.NumberToJSON(math.Float64frombits(bits))
		if err != nil {
			return // NaN or infinite
		}
		got, err := tga.Canonicalize([]byte(want), tga.Limits{})
		if err != nil || string(got) != want {
			t.Fatalf("%#x prints as %s: canonical %q (%v)", bits, want, got, err)
		}
	})
}

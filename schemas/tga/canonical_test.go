package tga

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"
)

// refused checks that err is an *Error with this code and pointer.
func refused(t *testing.T, what string, err error, code Code, pointer string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Errorf("%.120s: error %v, want %s", what, err, code)
		return
	}
	if e.Code != code || e.Pointer != pointer {
		t.Errorf("%.120s: %v\n at %q, want %s at %q", what, err, e.Pointer, code, pointer)
	}
}

func TestUnsafeNumbersAreRefused(t *testing.T) {
	for _, number := range []string{
		"9007199254740993", "-9007199254740993", "18446744073709551615", "18446744073709551616", "1152921504606846976",
		"123456789012345678", "0.1000000000000000055", "0.30000000000000001", "1e400", "-1e400", "1e-400", "1e99999999999999999999", "1e-99999999999999999999",
		"4.9406564584124654e-324", "2e-324", "1.7976931348623158e308", "1.7976931348623159e308", "333333333.33333329",
	} {
		refused(t, number, Gate([]byte(`{"a":[`+number+`]}`), Limits{}), ValidationError, "/a/0")
	}
	for number, want := range map[string]string{
		"9007199254740992": "9007199254740992", "9007199254740994": "9007199254740994", "1.0": "1", "1e2": "100", "0.1": "0.1", "0.10": "0.1",
		"-0": "0", "-0.0e5": "0", "0e99999999999999999999": "0", "1E+2": "100", "1000000000000000000000": "1e+21", "1e23": "1e+23", "5e-324": "5e-324", "0.05e-322": "5e-324",
		"1.7976931348623157e308": "1.7976931348623157e+308", "0.000001": "0.000001", "0.0000001": "1e-7", "100000000000000000000": "100000000000000000000",
		"0." + strings.Repeat("0", 400) + "1e400": "0.1", "1" + strings.Repeat("0", 400) + "e-400": "1",
	} {
		got, err := Canonicalize([]byte(number), Limits{})
		if err != nil || string(got) != want {
			t.Errorf("%.60s: %s (%v), want %s", number, got, err, want)
		}
	}
}

// TestDoublesPrintAsES6 holds appendDouble to the samples of RFC 8785, appendix B.
func TestDoublesPrintAsES6(t *testing.T) {
	for bits, want := range map[uint64]string{
		0x0000000000000000: "0", 0x8000000000000000: "0", 0x0000000000000001: "5e-324", 0x8000000000000001: "-5e-324",
		0x7fefffffffffffff: "1.7976931348623157e+308", 0xffefffffffffffff: "-1.7976931348623157e+308",
		0x4340000000000000: "9007199254740992", 0xc340000000000000: "-9007199254740992", 0x4430000000000000: "295147905179352830000",
		0x44b52d02c7e14af5: "9.999999999999997e+22", 0x44b52d02c7e14af6: "1e+23", 0x44b52d02c7e14af7: "1.0000000000000001e+23",
		0x444b1ae4d6e2ef4e: "999999999999999700000", 0x444b1ae4d6e2ef4f: "999999999999999900000", 0x444b1ae4d6e2ef50: "1e+21",
		0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7", 0x3eb0c6f7a0b5ed8d: "0.000001",
		0x41b3de4355555553: "333333333.3333332", 0x41b3de4355555554: "333333333.33333325", 0x41b3de4355555555: "333333333.3333333",
		0x41b3de4355555556: "333333333.3333334", 0x41b3de4355555557: "333333333.33333343",
		0xbecbf647612f3696: "-0.0000033333333333333333", 0x43143ff3c1cb0959: "1424953923781206.2",
	} {
		if got := string(appendDouble(nil, math.Float64frombits(bits))); got != want {
			t.Errorf("%#x: %s, want %s", bits, got, want)
		}
	}
}

func TestRefusalsPointAtThePlace(t *testing.T) {
	for _, c := range []struct{ text, pointer string }{
		{``, ""}, {`  `, ""}, {`{`, ""}, {`}`, ""}, {"\ufeff{}", ""}, {`{} {}`, ""}, {`{},`, ""}, {`nul`, ""}, {`nulll`, ""}, {"\x00", ""}, {"1\x00", ""},
		{`[1,2,x]`, "/2"}, {`[1,,2]`, "/1"}, {`[1,]`, "/1"}, {`[1 2]`, ""}, {`["a" "b"]`, ""}, {`{"a":[true,{"b":tru}]}`, "/a/1/b"},
		{`{"a":1,}`, ""}, {`{"a" 1}`, ""}, {`{"a":}`, "/a"}, {`{1:2}`, ""}, {`{'a':1}`, ""}, {`{"a":1 "b":2}`, ""},
		{`{"a":1,"a":1}`, "/a"}, {`{"o":{"x":1,"y":2,"x":3}}`, "/o/x"}, {`{"\u0061":1,"a":2}`, "/a"}, {`{"":1,"":2}`, "/"},
		{`{"a/b~":1,"b":0,"a/b~":2}`, "/a~1b~0"}, {`{"é":1,"a":0,"\u00e9":2}`, "/é"}, {`[{"a":1},{"a":[{"b":1,"b":2}]}]`, "/1/a/0/b"},
		{"{\"a\":\"\xff\"}", "/a"}, {"{\"\xff\":1}", ""}, {"[\"\xc3\"]", "/0"}, {"[\"\xed\xa0\x80\"]", "/0"}, {"[\"\xf4\x90\x80\x80\"]", "/0"},
		{`["\ud800"]`, "/0"}, {`["\ud800x"]`, "/0"}, {`["\ud800\u0041"]`, "/0"}, {`["\ud800\ud800"]`, "/0"}, {`["\udc00"]`, "/0"}, {`{"\udc00":1}`, ""},
		{"[\"a\tb\"]", "/0"}, {`["\x41"]`, "/0"}, {`["\u12g4"]`, "/0"}, {`["\u123"]`, "/0"}, {`["\`, "/0"}, {`["\u`, "/0"}, {`["abc`, "/0"},
		{`{"n":-}`, "/n"}, {`{"n":-x}`, "/n"}, {`{"n":1e+}`, "/n"}, {`{"n":1.e1}`, "/n"}, {`{"n":00}`, "/n"}, {`{"n":-01}`, "/n"}, {`{"n":Infinity}`, "/n"}, {`{"n":-Infinity}`, "/n"},
		{`{"` + strings.Repeat("é", 100) + `":x}`, "/" + strings.Repeat("é", 64) + "…"},
	} {
		refused(t, c.text, Gate([]byte(c.text), Limits{}), ValidationError, c.pointer)
		_, err := Canonicalize([]byte(c.text), Limits{})
		refused(t, c.text, err, ValidationError, c.pointer)
	}
}

// jcs v1.0.1 accepted these texts, or ended the process.
func TestWhatJCS101LetThroughIsRefused(t *testing.T) {
	for _, text := range []string{`01`, `+1`, `1.`, `.5`, `1_0`, "\"\xff\"", "[\"\xc0\xaf\"]", `"\ud800"`, `"\udead\ud800"`} {
		if err := Gate([]byte(text), Limits{}); !errors.Is(err, ValidationError) {
			t.Errorf("%q: the gate says %v", text, err)
		}
		if out, err := jcs.Transform([]byte(text)); err == nil {
			t.Errorf("%q: jcs makes %q of it: the pinned version is too old", text, out)
		}
	}
	deep := bytes.Repeat([]byte("["), 30<<20)
	for _, lim := range []Limits{{}, {MaxBytes: 64 << 20}, {MaxBytes: 64 << 20, MaxDepth: 1 << 30}} {
		if err := Gate(deep, lim); !errors.Is(err, LimitExceeded) {
			t.Errorf("30 MiB of [: %.80v", err)
		}
	}
	if _, err := jcs.Transform(deep); err == nil {
		t.Error("jcs accepts 30 MiB of [")
	}
}

func nested(depth int) []byte {
	return []byte(strings.Repeat(`[`, depth-1) + "{}" + strings.Repeat(`]`, depth-1))
}

func TestLimitsHoldAtTheLimitAndRefuseOnePast(t *testing.T) {
	if err := Gate(nested(DefaultMaxDepth), Limits{}); err != nil {
		t.Errorf("depth %d: %v", DefaultMaxDepth, err)
	}
	refused(t, "depth 129", Gate(nested(DefaultMaxDepth+1), Limits{}), LimitExceeded, strings.Repeat("/0", DefaultMaxDepth))
	if err := Gate(nested(3), Limits{MaxDepth: 3}); err != nil {
		t.Errorf("depth 3: %v", err)
	}
	refused(t, "depth 4", Gate(nested(4), Limits{MaxDepth: 3}), LimitExceeded, "/0/0/0")
	if err := Gate(nested(MostDepth), noLimits); err != nil {
		t.Errorf("depth %d: %v", MostDepth, err)
	}
	if err := Gate(nested(MostDepth+1), noLimits); !errors.Is(err, LimitExceeded) {
		t.Errorf("depth %d: %.80v", MostDepth+1, err)
	}

	text := []byte(`"` + strings.Repeat("x", DefaultMaxBytes-2) + `"`)
	if _, err := Canonicalize(text, Limits{}); err != nil {
		t.Errorf("%d bytes: %v", len(text), err)
	}
	refused(t, "8 MiB and a byte", Gate(append(text, ' '), Limits{}), LimitExceeded, "")
	if _, err := Canonicalize([]byte("[1e20]"), Limits{MaxBytes: 23}); err != nil {
		t.Errorf("23 canonical bytes: %v", err)
	}
	_, err := Canonicalize([]byte("[1e20]"), Limits{MaxBytes: 22})
	refused(t, "23 canonical bytes", err, LimitExceeded, "")
}

func TestNamesAreInUTF16Order(t *testing.T) {
	// RFC 8785 §3.2.3.
	const text = `{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`
	want := []string{"Carriage Return", "One", "Control", "Latin Small Letter O With Diaeresis", "Euro Sign", "Emoji: Grinning Face", "Hebrew Letter Dalet With Dagesh"}
	canonical, err := Canonicalize([]byte(text), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	d := json.NewDecoder(bytes.NewReader(canonical))
	for i := 0; ; i++ {
		token, err := d.Token()
		if err != nil {
			break
		}
		if s, ok := token.(string); ok && i%2 == 0 {
			got = append(got, s)
		}
	}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("order %q, want %q", got, want)
	}
}

func TestCanonicalFormSharesNothingWithTheInput(t *testing.T) {
	for _, text := range []string{`{"a":"x"}`, `{ "a":"x"}`} {
		raw := []byte(text)
		out, err := Canonicalize(raw, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		clear(raw)
		if string(out) != `{"a":"x"}` {
			t.Errorf("%s: result %q changed with the input", text, out)
		}
	}
}

// A large document's buffer leaves the pool; a small document must not see bytes of an earlier one.
func TestPooledDocumentsDoNotLeakIntoEachOther(t *testing.T) {
	big := []byte(`{"\u0062":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `,"a":"` + strings.Repeat("z", 5000) + `"}`)
	for range 100 {
		if _, err := Canonicalize(big, Limits{}); err != nil {
			t.Fatal(err)
		}
		if err := Gate([]byte(`{"b":1,"a":2,"b":3}`), Limits{}); !errors.Is(err, ValidationError) {
			t.Fatal(err)
		}
		got, err := Canonicalize([]byte(`{"\u0062":{},"a":[]}`), Limits{})
		if err != nil || string(got) != `{"a":[],"b":{}}` {
			t.Fatalf("%s (%v)", got, err)
		}
	}
}

package tga

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
)

// edgesOf returns values of one member at the edges of its rule, by the member's type.
func edgesOf(v reflect.Value) (out []any) {
	switch v.Interface().(type) {
	case ID:
		return []any{ID{}, ID{6: 0x40, 8: 0x80}, ID{6: 0x70, 8: 0x40}, ID{6: 0x70, 8: 0x80}}
	case Digest:
		return []any{Digest{}, Digest{31: 1}}
	case Millis:
		return []any{firstMillis - 1, firstMillis, Millis(0), LastMillis, LastMillis + 1}
	}
	switch v.Kind() {
	case reflect.String:
		for _, n := range []int{0, 1, minProse - 1, minProse, maxToolName, maxToolName + 1, maxErrorText, maxErrorText + 1, maxKey, maxKey + 1, maxSummary, maxSummary + 1, maxProse, maxProse + 1} {
			out = append(out, strings.Repeat("a", n), strings.Repeat("é", n), strings.Repeat("A", n))
		}
		for _, s := range []string{"a\xffbcdefghijk", "\xed\xa0\x80", "a\x00bcdefghijk", "/x", "/a//b", "x y", "a.b.c", "..", "\u2028\ufeff", `"\`, "repo", RiskHigh, Deny, ClassRead, StatusDenied, digestAlg, "github_pr", "sha512", "e_1", "E_1"} {
			out = append(out, s)
		}
	case reflect.Int64:
		out = []any{int64(-2), int64(-1), int64(0), int64(MaxSafeInteger), int64(MaxSafeInteger + 1)}
	case reflect.Bool:
		out = []any{true, false}
	case reflect.Slice:
		out = []any{reflect.Zero(v.Type()).Interface(), reflect.MakeSlice(v.Type(), 0, 0).Interface(), reflect.MakeSlice(v.Type(), 1, 1).Interface()}
	case reflect.Pointer:
		out = []any{reflect.Zero(v.Type()).Interface(), reflect.New(v.Type().Elem()).Interface()}
	}
	return out
}

// leaves calls f with each member that a caller sets, also in elements of lists.
func leaves(v reflect.Value, at string, f func(at string, v reflect.Value)) {
	switch v.Interface().(type) {
	case ID, Digest, Millis:
		f(at, v)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			leaves(v.Field(i), at+"."+v.Type().Field(i).Name, f)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			f(at, v)
			leaves(v.Elem(), at, f)
		}
	case reflect.Slice:
		f(at, v)
		for i := range v.Len() {
			leaves(v.Index(i), fmt.Sprintf("%s[%d]", at, i), f)
		}
	default:
		f(at, v)
	}
}

// TestNothingIsSealedThatCannotBeRead walks all members of all artifacts with all values at the edges of
// their rules. Seal accepts what a reader of the written bytes accepts. It refuses the rest with the
// reader's code, at the reader's place.
func TestNothingIsSealedThatCannotBeRead(t *testing.T) {
	tried, taken := 0, 0
	try := func(what string, make func() *Artifact) {
		t.Helper()
		var want *Error
		a := make()
		written, _, err := a.encode()
		if err != nil {
			want = err
		} else if _, err := decodeCanonicalArtifact(written); err != nil {
			want = err
		}
		a = make()
		failed := a.Seal()
		tried++
		if want == nil && failed == nil {
			taken++
			if string(a.Canonical) != string(written) {
				t.Errorf("%s: sealed %s, written %s", what, a.Canonical, written)
			}
			return
		}
		var got *Error
		if errors.As(failed, &got); got == nil || want == nil || got.Code != want.Code || got.Pointer != want.Pointer {
			t.Errorf("%s: Seal says %v, a reader %v", what, failed, want)
		}
	}
	for _, kind := range allTypes {
		var places []string
		leaves(reflect.ValueOf(sample(kind)).Elem(), "", func(at string, v reflect.Value) { places = append(places, at) })
		for i, at := range places {
			switch {
			case at == ".Type", at == ".Canonical", at == ".Digest", strings.Contains(at, ".Args"), at == ".Meta",
				at == ".Request", at == ".Decision", at == ".Call", at == ".Effect":
				continue // the artifact itself, members that Seal sets, and members with tests of their own
			}
			place := func(a *Artifact) (out reflect.Value) {
				n := 0
				leaves(reflect.ValueOf(a).Elem(), "", func(_ string, v reflect.Value) {
					if n == i {
						out = v
					}
					n++
				})
				return out
			}
			for _, edge := range edgesOf(place(sample(kind))) {
				try(fmt.Sprintf("%s%s = %.40q", kind, at, fmt.Sprint(edge)), func() *Artifact {
					a := sample(kind)
					v := place(a)
					v.Set(reflect.ValueOf(edge).Convert(v.Type()))
					return a
				})
			}
		}
		for name, value := range map[string]any{"\xff": "x", "x": "\xff", "": "", "a\x00": "b\x1f", "n": Number("1e400"), "m": Number("-0"), "l": []int{}} {
			try(fmt.Sprintf("%s.Meta[%q] = %q", kind, name, value), func() *Artifact {
				a := sample(kind)
				a.Meta[name] = value
				return a
			})
		}
	}
	if tried < 1000 || taken < 300 || tried-taken < 300 {
		t.Errorf("%d tried, %d taken", tried, taken)
	}
}

// TestWhatNoDoubleHoldsIsNotSealed: the gate of a reader refuses such a number before its rule sees it.
func TestWhatNoDoubleHoldsIsNotSealed(t *testing.T) {
	for _, size := range []int64{math.MinInt64, math.MaxInt64} {
		for _, set := range []func(a *Artifact){
			func(a *Artifact) { a.Effect.BatchTotalBytes = size },
			func(a *Artifact) { a.Effect.DocumentHashes[0].SizeBytes = size },
		} {
			a := sample(EffectType)
			set(a)
			if err := a.Seal(); !errors.Is(err, SchemaViolation) {
				t.Errorf("%d: %v", size, err)
			}
		}
	}
}

// TestArgsLeaveRoomForWhatIsAroundThem: args with the deepest nesting can be read within their artifact.
func TestArgsLeaveRoomForWhatIsAroundThem(t *testing.T) {
	nested := func(depth int) []byte {
		return []byte(strings.Repeat(`{"a":`, depth-1) + "{}" + strings.Repeat("}", depth-1))
	}
	for _, kind := range []ArtifactType{RequestType, CallType} {
		a := sample(kind)
		a.proposal().Args = nested(MostDepth - argsDepth)
		if err := a.Seal(); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if _, err := DecodeStoredArtifact(a.Canonical); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		a = sample(kind)
		a.proposal().Args = nested(MostDepth - argsDepth + 1)
		if err := a.Seal(); !errors.Is(err, LimitExceeded) {
			t.Errorf("%s, one deeper: %v", kind, err)
		}
	}
}

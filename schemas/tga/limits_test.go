package tga

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// TestStateChangesAtTheirLimits: each member at its shortest and longest, and one past
// both; as many changes as an effect may list, and one more.
func TestStateChangesAtTheirLimits(t *testing.T) {
	for name, x := range map[string]struct {
		at          func(*StateChange) *string
		least, most int
	}{
		"resource_type": {func(c *StateChange) *string { return &c.ResourceType }, 1, 64},
		"resource_id":   {func(c *StateChange) *string { return &c.ResourceID }, 1, 1024},
		"operation":     {func(c *StateChange) *string { return &c.Operation }, 1, 64},
		"version":       {func(c *StateChange) *string { return &c.Version }, 0, 1024},
		"etag":          {func(c *StateChange) *string { return &c.ETag }, 0, 1024},
		"external_ref":  {func(c *StateChange) *string { return &c.ExternalRef }, 0, 1024},
	} {
		for _, n := range []int{x.least - 1, x.least, x.most, x.most + 1} {
			if n < 0 {
				continue
			}
			good := StateChange{ResourceType: "t", ResourceID: "i", Operation: "create"}
			changes := []StateChange{good, good}
			*x.at(&changes[1]) = strings.Repeat("x", n)
			encoded, err := EncodeStateChanges(changes)
			var e *Error
			switch fits := n >= x.least && n <= x.most; {
			case fits && err != nil:
				t.Errorf("%s of %d bytes: %v", name, n, err)
			case !fits && (!errors.As(err, &e) || e.Code != ValidationError || e.Pointer != fmt.Sprintf("/state_changes/1/%s", name)):
				t.Errorf("%s of %d bytes: %v", name, n, err)
			case fits:
				if got, err := DecodeStateChanges(encoded); err != nil || len(got) != 2 || got[1] != changes[1] {
					t.Errorf("%s of %d bytes reads back as %v, %v", name, n, got, err)
				}
			default:
				raw, err := json.Marshal(changes)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := DecodeStateChanges(raw); !errors.Is(err, ValidationError) {
					t.Errorf("%s of %d bytes is read: %v", name, n, err)
				}
			}
		}
	}
	many := make([]StateChange, MaxStateChanges+1)
	for i := range many {
		many[i] = StateChange{ResourceType: "t", ResourceID: "i", Operation: "create"}
	}
	if _, err := EncodeStateChanges(many[1:]); err != nil {
		t.Error(err)
	}
	if _, err := EncodeStateChanges(many); !errors.Is(err, LimitExceeded) {
		t.Error(err)
	}
}

// TestCeilingsOfLimits: positions in a text are kept in 32 bits, so no caller's limit is
// over them.
func TestCeilingsOfLimits(t *testing.T) {
	for _, x := range []struct{ asked, want Limits }{
		{Limits{}, Limits{DefaultMaxBytes, DefaultMaxDepth}},
		{Limits{-1, -1}, Limits{DefaultMaxBytes, DefaultMaxDepth}},
		{Limits{1, 1}, Limits{1, 1}},
		{Limits{math.MaxInt32, MostDepth}, Limits{math.MaxInt32, MostDepth}},
		{Limits{math.MaxInt32 + 1, MostDepth + 1}, Limits{math.MaxInt32, MostDepth}},
	} {
		if got := x.asked.resolve(); got != x.want {
			t.Errorf("%+v is %+v, want %+v", x.asked, got, x.want)
		}
	}
}

func TestStateChangesAreStrictJSON(t *testing.T) {
	for _, none := range [][]StateChange{nil, {}} {
		if raw, err := EncodeStateChanges(none); err != nil || string(raw) != "[]" {
			t.Errorf("no changes are %s, %v", raw, err)
		}
	}
	for _, bad := range []string{``, `{}`, `[1]`, `[{"resource_type":"t","resource_id":"i","operation":"o","operation":"p"}]`, `[{"resource_type":"t","resource_id":"i","operation":"o","x":1}]`} {
		if got, err := DecodeStateChanges([]byte(bad)); !errors.Is(err, ValidationError) {
			t.Errorf("%s: %v, %v", bad, got, err)
		}
	}
}

// TestTextFormsReadBack: what a scalar's text form is read into is the scalar, and what is
// no text form leaves the value as it was.
func TestTextFormsReadBack(t *testing.T) {
	digest, id, ts := Sum([]byte("x")), testID(1), testTS
	var d Digest
	if err := d.UnmarshalText([]byte(digest.String())); err != nil || d != digest {
		t.Error(d, err)
	}
	if err := d.UnmarshalText([]byte("no")); err == nil || d != digest {
		t.Error(d, err)
	}
	var i ID
	if err := i.UnmarshalText([]byte(id.String())); err != nil || i != id {
		t.Error(i, err)
	}
	if err := i.UnmarshalText([]byte("no")); err == nil || i != id {
		t.Error(i, err)
	}
	var m Millis
	if err := m.UnmarshalText([]byte(ts.String())); err != nil || m != ts {
		t.Error(m, err)
	}
	if err := m.UnmarshalText([]byte("no")); err == nil || m != ts {
		t.Error(m, err)
	}
}

// TestYearsThatDoNotFit: a time whose year has no four digits is written as package time
// writes it, and read by nobody.
func TestYearsThatDoNotFit(t *testing.T) {
	for year, fits := range map[int]bool{-1: false, 0: true, 1: true, 9999: true, 10000: false} {
		m := MillisOf(time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC))
		text, err := m.MarshalText()
		if err != nil || string(text) != m.Time().Format(millisLayout) {
			t.Errorf("year %d is %s, %v", year, text, err)
		}
		if back, err := ParseMillis(string(text)); (err == nil && back == m) != fits {
			t.Errorf("year %d: %s reads as %v, %v", year, text, back, err)
		}
	}
}

func TestErrorsNameTheirPlace(t *testing.T) {
	err := Errorf(ValidationError, "no")
	if got := err.Error(); got != "VALIDATION_ERROR: no" {
		t.Error(got)
	}
	if got := err.At("/a").Error(); got != "VALIDATION_ERROR: no (at /a)" {
		t.Error(got)
	}
	for n, want := range map[int]int{79: 79, 80: 80, 81: 80 + len("…")} {
		if got := len(clip(strings.Repeat("x", n))); got != want {
			t.Errorf("of %d bytes %d are repeated, want %d", n, got, want)
		}
	}
}

// TestDigestMemberIsWhole: a text that ends with the member has a digest, and one that is a
// byte shorter has none.
func TestDigestMemberIsWhole(t *testing.T) {
	whole := []byte(digestMember + strings.Repeat("a", 64) + `",`)
	if digest, rest, ok := splitDigest(whole); !ok || len(digest) != 64 || len(rest) != 0 {
		t.Errorf("%s, %q, %v", digest, rest, ok)
	}
	if _, _, ok := splitDigest(whole[:len(whole)-1]); ok {
		t.Error("a digest without its comma is taken")
	}
}

func TestAbsentSizesAreNotZero(t *testing.T) {
	for _, kind := range []ArtifactType{CallType, EffectType} {
		a := sample(kind)
		switch kind {
		case CallType:
			a.Call.BatchTotalBytes = -1
		case EffectType:
			a.Effect.BatchTotalBytes = -1
		}
		if err := a.Seal(); err != nil {
			t.Fatal(err)
		}
		got, err := DecodeArtifact(a.Canonical, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if kind == CallType && got.Call.BatchTotalBytes != -1 || kind == EffectType && got.Effect.BatchTotalBytes != -1 {
			t.Errorf("%s without batch_total_bytes is read as %s", kind, got.Canonical)
		}
	}
}

// TestEscapesAtBothEndsReadBack: an escape counts at the first character of a string and at
// the last.
func TestEscapesAtBothEndsReadBack(t *testing.T) {
	for _, s := range []string{`"`, `"k`, `k"`, "\n", "\\k\\"} {
		a := sample(RequestType)
		a.Request.IdempotencyKey = s
		if err := a.Seal(); err != nil {
			t.Fatal(err)
		}
		for name, read := range map[string]func([]byte) (*Artifact, error){
			"given":  func(raw []byte) (*Artifact, error) { return DecodeArtifact(raw, Limits{}) },
			"stored": DecodeStoredArtifact,
		} {
			if got, err := read(a.Canonical); err != nil || got.Request.IdempotencyKey != s {
				t.Errorf("%s: %q reads as %+v, %v", name, s, got, err)
			}
		}
	}
}

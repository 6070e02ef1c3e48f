package tga

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestStateChangesAtTheirLimits: each member at its shortest and longest, and one past both; as many changes
// as an effect may list, and one more.
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

// TestCeilingsOfLimits: positions in a text have 32 bits, so no limit of a caller can be larger.
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
	for _, bad := range []string{``, `{}`, `[1]`, `[{"resource_type":"t","resource_id":"i","operation":"o","operation":"p"}]`, `[{"resource_type":"t","resource_id":"i","operation":"o","x":1}]`,
		`[{"resource_type":"t","resource_id":"i","Operation":"o"}]`, `[{"resource_type":"t","resource_id":"i","operation":"create","Operation":"delete"}]`} {
		if got, err := DecodeStateChanges([]byte(bad)); !errors.Is(err, ValidationError) {
			t.Errorf("%s: %v, %v", bad, got, err)
		}
	}
}

// TestTextFormsReadBack: reading the text form of a scalar gives the scalar. Reading any other text
// leaves the value unchanged.
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

// TestYearsThatDoNotFit: a time whose year does not have four digits is written as package time
// writes it, and is refused when it is read.
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

// TestDigestMemberIsWhole: a text that ends with the member has a digest; a text that is one byte shorter
// has none.
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

// TestEscapesAtBothEndsReadBack: an escape is read at the first character of a string and at the last.
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

// TestNamesAtTheEdgeOfTheSurrogates: a character above U+FFFF is a surrogate pair in UTF-16, so it sorts
// before U+E000 to U+FFFF.
func TestNamesAtTheEdgeOfTheSurrogates(t *testing.T) {
	order := []string{"a", "\ud7ff", "\U00010000", "\U0010ffff", "\ue000", "\uefff", "\uf000", "\uffff"}
	for i, a := range order {
		for j, b := range order {
			if got := compareNames([]byte(a), []byte(b)); (got < 0) != (i < j) || (got == 0) != (i == j) {
				t.Errorf("%U and %U: %d", []rune(a), []rune(b), got)
			}
			if i >= j {
				continue
			}
			want := `{"` + a + `":1,"` + b + `":2}`
			for _, text := range []string{want, `{"` + b + `":2,"` + a + `":1}`} {
				if got, err := Canonicalize([]byte(text), Limits{}); err != nil || string(got) != want {
					t.Errorf("%s is %s, %v", text, got, err)
				}
			}
		}
	}
}

// TestEveryHexDigitOfAnEscape: both spellings of each digit, and the characters next to them.
func TestEveryHexDigitOfAnEscape(t *testing.T) {
	for c := range 128 {
		text := `"\u00` + string(rune(c)) + `9"`
		v, parsed := strconv.ParseUint(string(rune(c))+"9", 16, 8)
		got, err := Canonicalize([]byte(text), Limits{})
		if parsed != nil {
			if !errors.Is(err, ValidationError) {
				t.Errorf("%s is %s, %v", text, got, err)
			}
			continue
		}
		if want := AppendString(nil, string(rune(v))); err != nil || string(got) != string(want) {
			t.Errorf("%s is %s (%v), want %s", text, got, err, want)
		}
	}
}

// TestEveryCharacterHasOneSpelling: each ASCII character and some others, beside an escaped one, is spelled
// as RFC 8785 §3.2.2.2 says, however the text spells it.
func TestEveryCharacterHasOneSpelling(t *testing.T) {
	short := map[rune]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}
	for c := range rune(0x100) {
		spelled, ok := short[c]
		switch {
		case ok:
		case c < ' ':
			spelled = fmt.Sprintf(`\u%04x`, c)
		default:
			spelled = string(c)
		}
		for _, around := range []string{"", `\"`, "12345678"} { // strings of a few bytes and of eight are read in different ways
			want := `"` + around + spelled + around + `"`
			plain := strings.ReplaceAll(around, `\"`, `"`)
			if got := AppendString(nil, plain+string(c)+plain); string(got) != want {
				t.Errorf("%U is written %s, want %s", c, got, want)
			}
			for _, text := range []string{want, fmt.Sprintf(`"%s\u%04x%s"`, around, c, around), fmt.Sprintf(`"%s\u%04X%s"`, around, c, around)} {
				if got, err := Canonicalize([]byte(text), Limits{}); err != nil || string(got) != want {
					t.Errorf("%s is %s (%v), want %s", text, got, err, want)
				}
			}
		}
	}
}

// TestWhatIsKeptIsBounded: after one long text no long buffer is kept, and no decoded name keeps a long text
// in memory.
func TestWhatIsKeptIsBounded(t *testing.T) {
	for over, kept := range []bool{true, false} {
		var buf []byte
		keep(&buf, make([]byte, 0, mostKept+over))
		if (buf != nil) != kept {
			t.Errorf("a buffer of %d bytes: kept %v", mostKept+over, !kept)
		}
		for name, d := range map[string]*document{
			"nodes": {nodes: make([]node, 0, mostPooled+over)}, "names": {names: make([]byte, 0, mostPooled+over)},
			"order": {order: make([]int32, 0, mostPooled+over)},
		} {
			if d.large() == kept {
				t.Errorf("a document of %d %s: kept %v", mostPooled+over, name, !kept)
			}
		}
		if shared := newDecoder(&document{text: make([]byte, mostShared+over)}).text != ""; shared != kept {
			t.Errorf("a text of %d bytes: shared %v", mostShared+over, shared)
		}
		text := `"` + strings.Repeat("x", foldOver+over-2) + `"`
		d, err := parse([]byte(text), Limits{})
		if err != nil || d.folds == kept {
			t.Errorf("a text of %d bytes: folded %v", len(text), kept)
		}
		if err == nil {
			d.free()
		}
	}
}

// TestEndOfATextIsNamed: for a text that ends early the error says what is missing, not that a byte is
// wrong.
func TestEndOfATextIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"": "the text ends where a value is due", "[": "the text ends where a value is due", `{"a":`: "the text ends where a value is due",
		`"`: "the text ends inside a string", `"\`: "the text ends inside an escape", "[x": "no value starts with this byte",
	} {
		if err := Gate([]byte(text), Limits{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestPlainStringEndsWithItsValue: bytes that follow the value in memory are not read.
func TestPlainStringEndsWithItsValue(t *testing.T) {
	text := []byte(`"ab"\`)
	for _, v := range [][]byte{text[:4], text[:4:4]} {
		if got, ok := PlainString(v); !ok || string(got) != "ab" {
			t.Errorf("%q, %v", got, ok)
		}
	}
}

// TestCleanNames: a name that another program would clean, or join to another name, is not clean.
func TestCleanNames(t *testing.T) {
	long := strings.Repeat("a", maxToolName)
	for name, clean := range map[string]bool{
		"a": true, "A9_.-": true, "a/b": true, "...": true, ".a": true, "a.": true, "a/.b/c..": true, long: true,
		"": false, ".": false, "..": false, "/": false, "/a": false, "a/": false, "a//b": false, "a/./b": false, "a/../b": false, "a/..": false,
		"./a": false, long + "a": false, "a b": false, "é": false, "\x80": false, "\x7f": false,
	} {
		if got := CleanName(name); got != clean {
			t.Errorf("%q: %v", name, got)
		}
		if name == "" {
			continue
		}
		for at, p := range map[string]Proposal{"/tool_server": {ToolServer: name, ToolName: "t"}, "/tool_name": {ToolServer: "s", ToolName: name}} {
			var e *Error
			if err := p.CheckNames(); clean != (err == nil) || !clean && (!errors.As(err, &e) || e.Pointer != at) {
				t.Errorf("%q at %s: %v", name, at, err)
			}
		}
	}
}

// TestNamesOfTalosAtTheirLimits: one character, the most, and one more; the ends of each range of the
// alphabet and their neighbours.
func TestNamesOfTalosAtTheirLimits(t *testing.T) {
	long := strings.Repeat("a", maxToolName)
	for name, good := range map[string]bool{
		"a": true, "z": true, "0": true, "9": true, "_": true, "-": true, long: true,
		"": false, long + "a": false, "A": false, "Z": false, "`": false, "{": false, "/": false, ":": false, ".": false, "é": false,
	} {
		for at, p := range map[string]Proposal{"/tool_server": {ToolServer: name, ToolName: "t"}, "/tool_name": {ToolServer: "s", ToolName: name}} {
			if err := p.CheckTalosNames(); good != (err == nil) || !good && (err.Code != ValidationError || err.Pointer != at) {
				t.Errorf("%q at %s: %v", name, at, err)
			}
		}
	}
}

// TestTalosNamesItsMembers: each point in which the public Talos schemas accept less, with an
// artifact that they accept and one that they refuse.
func TestTalosNamesItsMembers(t *testing.T) {
	for name, x := range map[string]struct {
		kind    ArtifactType
		change  func(*Artifact)
		pointer string // "" = taken
	}{
		"request":                 {RequestType, func(*Artifact) {}, ""},
		"server in capitals":      {RequestType, func(a *Artifact) { a.Request.Proposal.ToolServer = "S" }, "/proposal/tool_server"},
		"tool with a dot":         {RequestType, func(a *Artifact) { a.Request.Proposal.ToolName = "a.b" }, "/proposal/tool_name"},
		"approval":                {DecisionType, func(*Artifact) {}, ""},
		"approval without token":  {DecisionType, func(a *Artifact) { a.Decision.MintedCapability = "" }, "/minted_capability"},
		"denial":                  {DecisionType, func(a *Artifact) { a.Decision.Decision, a.Decision.MintedCapability = Deny, "" }, ""},
		"denial with a token":     {DecisionType, func(a *Artifact) { a.Decision.Decision = Deny }, "/minted_capability"},
		"question with a token":   {DecisionType, func(a *Artifact) { a.Decision.Decision = NeedsApproval }, "/minted_capability"},
		"call":                    {CallType, func(*Artifact) {}, ""},
		"call without a digest":   {CallType, func(a *Artifact) { a.Call.CapabilityDigest = Digest{} }, "/capability_digest"},
		"call of another name":    {CallType, func(a *Artifact) { a.Call.Call.ToolName = "a/b" }, "/call/tool_name"},
		"effect":                  {EffectType, func(*Artifact) {}, ""},
		"success":                 {EffectType, func(a *Artifact) { a.Effect.Outcome = Outcome{Status: StatusSuccess} }, ""},
		"error without a message": {EffectType, func(a *Artifact) { a.Effect.Outcome.Error = &OutcomeError{Code: "X"} }, "/outcome/error/message"},
		"document of no bytes":    {EffectType, func(a *Artifact) { a.Effect.DocumentHashes = []DocumentHash{{Pointer: "/a", SizeBytes: 0}} }, ""},
		"document without a size": {EffectType, func(a *Artifact) {
			a.Effect.DocumentHashes = []DocumentHash{{Pointer: "/a", SizeBytes: 1}, {Pointer: "/b", SizeBytes: -1}}
		}, "/document_hashes/1/size_bytes"},
	} {
		a := sample(x.kind)
		switch x.kind {
		case RequestType:
			a.Request.Proposal.ToolName = "t"
		case DecisionType:
			a.Decision.Decision = Approve
		case CallType:
			a.Call.Call.ToolName = "t"
		case EffectType:
			a.Effect.Outcome.Error, a.Effect.DocumentHashes = &OutcomeError{Code: "X", Message: "m"}, nil
		}
		x.change(a)
		err := a.CheckTalos()
		var e *Error
		if (err == nil) != (x.pointer == "") || err != nil && (!errors.As(err, &e) || e.Code != SchemaViolation || e.Pointer != x.pointer || e.TraceID != a.TraceID) {
			t.Errorf("%s: %v, want %q", name, err, x.pointer)
		}
	}
}

// TestLongNamesInPointersAreCut: between characters, never inside one.
func TestLongNamesInPointersAreCut(t *testing.T) {
	for token, want := range map[string]string{
		strings.Repeat("a", 127):          strings.Repeat("a", 127),
		strings.Repeat("a", 128):          strings.Repeat("a", 128),
		strings.Repeat("a", 129):          strings.Repeat("a", 128) + "…",
		strings.Repeat("a", 127) + "éé":   strings.Repeat("a", 127) + "…",
		strings.Repeat("a", 126) + "éé":   strings.Repeat("a", 126) + "é…",
		strings.Repeat("a", 125) + "😀b":   strings.Repeat("a", 125) + "…",
		strings.Repeat("a", 124) + "😀bcd": strings.Repeat("a", 124) + "😀…",
	} {
		if got := Errorf(ValidationError, "no").under(token).Pointer; got != "/"+want {
			t.Errorf("%s is %s", token, got)
		}
	}
}

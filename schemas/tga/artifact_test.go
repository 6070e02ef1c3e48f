package tga

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func testID(n int) ID {
	id, err := ParseID(fmt.Sprintf("01936a8b-4c2d-7000-8000-%012x", n))
	if err != nil {
		panic(err)
	}
	return id
}

const testTS = Millis(1768503600123)

// sample returns an unsealed artifact of each type with every member set.
func sample(kind ArtifactType) *Artifact {
	a := &Artifact{Type: kind, ID: testID(int(kind)), TraceID: testID(0x11), PlanID: testID(0x12), TS: testTS, Meta: Meta{
		MetaNonce: "00112233445566778899aabbccddeeff", "n": Number("1.5"), "yes": true, "no": false, "nil": nil, "\U0001f600": "a\"b", "\ufb33": "x",
	}}
	proposal := Proposal{ToolServer: "payments", ToolName: "charge/v1.x_y-z", Args: []byte(`{"a":[1,{"b":null}],"z":"é"}`)}
	switch kind {
	case RequestType:
		a.Request = &ActionRequest{AgentID: testID(0x13), RiskLevel: RiskWrite, Intent: "Charge order 7.", Proposal: proposal,
			Resources: []Resource{{"repo", "r"}, {"db", "d\n"}}, IdempotencyKey: "key-1"}
	case DecisionType:
		a.Decision = &SupervisorDecision{RequestID: testID(1), RequestDigest: Sum([]byte("r")), Decision: Approve, Rationale: "By the rules.",
			MintedCapability: "aQ.bQ.cQ", PolicyHash: Sum([]byte("p"))}
	case CallType:
		a.Call = &ToolCall{DecisionID: testID(2), DecisionDigest: Sum([]byte("d")), CapabilityDigest: Sum([]byte("aQ.bQ.cQ")), Call: proposal,
			IdempotencyKey: "key-1", ToolClass: ClassWrite, ExpectedDocumentHashes: []DocumentHash{{"/x", Sum([]byte("x")), -1}}, BatchTotalBytes: 7}
	case EffectType:
		a.Effect = &ToolEffect{CallID: testID(3), CallDigest: Sum([]byte("c")), BatchTotalBytes: 0, ContentHashAlg: "sha256",
			DocumentHashes: []DocumentHash{{PointerResult, Sum([]byte("ok")), 2}, {PointerEvidence, Sum([]byte("e")), -1}},
			Outcome: Outcome{Status: StatusError, Summary: "No.", ExternalRefs: []ExternalRef{{"doc_id", "7"}},
				Error: &OutcomeError{Code: "TOOL_ERROR", Message: "refused", Retryable: true}}}
	}
	return a
}

var allTypes = []ArtifactType{RequestType, DecisionType, CallType, EffectType}

func sealed(t testing.TB, kind ArtifactType) *Artifact {
	t.Helper()
	a := sample(kind)
	if err := a.Seal(); err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	return a
}

func TestSealedArtifactsReadBack(t *testing.T) {
	for _, kind := range allTypes {
		a := sealed(t, kind)
		for name, decode := range map[string]func() (*Artifact, error){
			"given":  func() (*Artifact, error) { return DecodeArtifact(a.Canonical, Limits{}) },
			"stored": func() (*Artifact, error) { return DecodeStoredArtifact(a.Canonical) },
			"spaced": func() (*Artifact, error) {
				var b bytes.Buffer
				if err := json.Indent(&b, a.Canonical, "", "  "); err != nil {
					return nil, err
				}
				return DecodeArtifact(b.Bytes(), Limits{})
			},
		} {
			got, err := decode()
			if err != nil {
				t.Errorf("%s, %s: %v", kind, name, err)
			} else if diff := cmp.Diff(a, got); diff != "" {
				t.Errorf("%s, %s: sealed and decoded differ:\n%s", kind, name, diff)
			}
		}
		if again := sealed(t, kind); again.Digest != a.Digest {
			t.Errorf("%s: two seals, two digests", kind)
		}
	}
}

func TestAbsentMembersStayAbsent(t *testing.T) {
	a := sample(CallType)
	a.Meta, a.Call.CapabilityDigest, a.Call.ToolClass, a.Call.ExpectedDocumentHashes, a.Call.BatchTotalBytes = nil, Digest{}, "", nil, -1
	if err := a.Seal(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"meta", "capability_digest", "tool_class", "expected_document_hashes", "batch_total_bytes"} {
		if bytes.Contains(a.Canonical, []byte(`"`+name+`"`)) {
			t.Errorf("%s is written: %s", name, a.Canonical)
		}
	}
	got, err := DecodeArtifact(a.Canonical, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a, got); diff != "" {
		t.Error(diff)
	}
}

// Whatever a caller puts into Args or a Number stays inside its member.
func TestSealRefusesWhatWouldBreakOut(t *testing.T) {
	for _, c := range []struct {
		change  func(*Artifact)
		code    Code
		pointer string
	}{
		{func(a *Artifact) { a.Request.Proposal.Args = []byte(`{},"tool_name":"rm"`) }, ValidationError, "/proposal/args"},
		{func(a *Artifact) { a.Request.Proposal.Args = []byte(`{"n":9007199254740993}`) }, ValidationError, "/proposal/args/n"},
		{func(a *Artifact) { a.Request.Proposal.Args = []byte(`[]`) }, SchemaViolation, "/proposal/args"},
		{func(a *Artifact) { a.Request.Proposal.Args = nil }, ValidationError, "/proposal/args"},
		{func(a *Artifact) { a.Meta["n"] = Number(`1,"x":2`) }, ValidationError, "/meta/n"},
		{func(a *Artifact) { a.Meta["n"] = Number(`"1"`) }, SchemaViolation, "/meta/n"},
		{func(a *Artifact) { a.Meta["n"] = 7 }, SchemaViolation, "/meta/n"},
		{func(a *Artifact) { a.Request.Intent = "bad \xff utf-8 text" }, ValidationError, "/intent"},
		{func(a *Artifact) { a.Request.Intent = "short" }, SchemaViolation, "/intent"},
		{func(a *Artifact) { a.Request.Resources = nil }, SchemaViolation, "/resources"},
		{func(a *Artifact) { a.ID = ID{} }, SchemaViolation, "/action_request_id"},
		{func(a *Artifact) { a.Type = CallType }, SchemaViolation, ""},
		{func(a *Artifact) { a.Type = 0 }, SchemaViolation, ""},
		{func(a *Artifact) { a.Call = new(ToolCall) }, SchemaViolation, ""},
		{func(a *Artifact) { a.Request = nil }, SchemaViolation, ""},
	} {
		a := sample(RequestType)
		c.change(a)
		err := a.Seal()
		refused(t, fmt.Sprintf("%+v", a), err, c.code, c.pointer)
		if a.Canonical != nil || !a.Digest.IsZero() {
			t.Errorf("a failed seal left bytes: %s", a.Canonical)
		}
		var e *Error
		if errors.As(err, &e) && e.Where == "stored" {
			t.Errorf("%v blames the store", err)
		}
	}
	call := sample(CallType)
	call.ID = ID{}
	refused(t, "call without id", call.Seal(), MissingToolCallID, "/tool_call_id")
	call = sample(CallType)
	call.Call.IdempotencyKey = ""
	refused(t, "call without key", call.Seal(), IdempotencyKeyRequired, "/idempotency_key")
	effect := sample(EffectType)
	effect.Effect.CallID = ID{}
	refused(t, "effect without call id", effect.Seal(), MissingToolCallID, "/tool_call_id")
}

func TestSealMakesArgsCanonical(t *testing.T) {
	a := sample(RequestType)
	a.Request.Proposal.Args = []byte(`{ "b": 1.0, "a": "\u0041" }`)
	a.Meta["n"] = Number("1.50")
	if err := a.Seal(); err != nil {
		t.Fatal(err)
	}
	if got := string(a.Request.Proposal.Args); got != `{"a":"A","b":1}` {
		t.Errorf("args %s", got)
	}
	if _, err := DecodeStoredArtifact(a.Canonical); err != nil {
		t.Error(err)
	}
}

// tree decodes a sealed artifact into a map that tests change.
func tree(t *testing.T, canonical []byte) map[string]any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(canonical))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		t.Fatal(err)
	}
	return m
}

func marshal(t *testing.T, m map[string]any) []byte {
	t.Helper()
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func decodeTree(t *testing.T, m map[string]any) error {
	t.Helper()
	_, err := DecodeArtifact(marshal(t, m), Limits{})
	return err
}

// optionalMembers lists the members that may be missing; all others are required.
var optionalMembers = []string{
	"meta", "idempotency_key", "minted_capability", "policy_hash", "capability_digest", "tool_class", "expected_document_hashes",
	"batch_total_bytes", "document_hashes", "content_hash_alg", "summary", "external_refs", "error", "size_bytes", "message", "retryable",
}

// walk calls f for every object of m with its pointer.
func walk(pointer string, m map[string]any, f func(pointer string, m map[string]any)) {
	f(pointer, m)
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if name == "args" || name == "meta" {
			continue // any value is allowed there
		}
		switch child := m[name].(type) {
		case map[string]any:
			walk(pointer+"/"+name, child, f)
		case []any:
			for i, element := range child {
				walk(fmt.Sprintf("%s/%s/%d", pointer, name, i), element.(map[string]any), f)
			}
		}
	}
}

func TestUnknownMembersAreRefused(t *testing.T) {
	for _, kind := range allTypes {
		m := tree(t, sealed(t, kind).Canonical)
		walk("", m, func(pointer string, o map[string]any) {
			for _, name := range []string{"zzz", "a", "_digest2", "Ts", ""} {
				o[name] = "x"
				refused(t, kind.String()+pointer+"/"+name, decodeTree(t, m), SchemaViolation, pointer+"/"+name)
				delete(o, name)
			}
			for _, name := range slices.Sorted(maps.Keys(o)) {
				o[strings.ToUpper(name)] = o[name] // a variant in another case beside the member
				refused(t, kind.String()+pointer+"/"+name+" twice", decodeTree(t, m), SchemaViolation, pointer+"/"+strings.ToUpper(name))
				delete(o, strings.ToUpper(name))
			}
		})
	}
}

func TestMissingMembersAreRefused(t *testing.T) {
	for _, kind := range allTypes {
		m := tree(t, sealed(t, kind).Canonical)
		walk("", m, func(pointer string, o map[string]any) {
			for _, name := range slices.Sorted(maps.Keys(o)) {
				old := o[name]
				delete(o, name)
				err := decodeTree(t, m)
				what := kind.String() + pointer + "/" + name
				switch {
				case name == "tool_call_id":
					refused(t, what, err, MissingToolCallID, "/tool_call_id")
				case name == "idempotency_key" && kind == CallType:
					refused(t, what, err, IdempotencyKeyRequired, "/idempotency_key")
				case slices.Contains(optionalMembers, name):
					refused(t, what, err, StateChecksumMismatch, "/_digest") // well-formed, but a different document
				default:
					refused(t, what, err, SchemaViolation, pointer+"/"+name)
				}
				o[name] = old
			}
		})
	}
}

func TestMembersOfAnotherTypeAreRefused(t *testing.T) {
	for _, kind := range allTypes {
		m := tree(t, sealed(t, kind).Canonical)
		walk("", m, func(pointer string, o map[string]any) {
			for _, name := range slices.Sorted(maps.Keys(o)) {
				old := o[name]
				for _, v := range []any{nil, true, json.Number("-1"), json.Number("0.5"), "", []any{"x"}, map[string]any{"x": []any{}}} {
					if (name == "args" && fmt.Sprint(v) == "map[x:[]]") || (name == "retryable" && v == true) ||
						((name == "summary" || name == "message") && v == "") {
						continue // allowed there
					}
					o[name] = v
					want := SchemaViolation
					if name == "tool_call_id" && (v == nil || v == "") {
						want = MissingToolCallID
					}
					err := decodeTree(t, m)
					var e *Error
					if !errors.As(err, &e) || e.Code != want || !strings.HasPrefix(e.Pointer, pointer+"/"+name) {
						t.Errorf("%s%s/%s = %v: %v, want %s", kind, pointer, name, v, err, want)
					}
				}
				o[name] = old
			}
		})
	}
}

func TestRepeatedMembersAreRefused(t *testing.T) {
	a := sealed(t, RequestType)
	raw := bytes.Replace(a.Canonical, []byte(`"intent":`), []byte(`"inten\u0074":"x","intent":`), 1)
	_, err := DecodeArtifact(raw, Limits{})
	refused(t, "intent twice", err, ValidationError, "/intent")
}

func TestStringLimitsCountCharacters(t *testing.T) {
	long := func(n int) string { return strings.Repeat("\U0001f600", n) }
	for _, c := range []struct {
		kind      ArtifactType
		set       func(*Artifact, string)
		low, high int
		pointer   string
	}{
		{RequestType, func(a *Artifact, s string) { a.Request.Intent = s }, 10, 1000, "/intent"},
		{RequestType, func(a *Artifact, s string) { a.Request.IdempotencyKey = s }, 1, 255, "/idempotency_key"},
		{DecisionType, func(a *Artifact, s string) { a.Decision.Rationale = s }, 10, 1000, "/rationale"},
		{CallType, func(a *Artifact, s string) { a.Call.IdempotencyKey = s }, 1, 255, "/idempotency_key"},
		{EffectType, func(a *Artifact, s string) { a.Effect.Outcome.Summary = s }, 1, 500, "/outcome/summary"},
		{EffectType, func(a *Artifact, s string) { a.Effect.Outcome.Error.Message = s }, 0, 200, "/outcome/error/message"},
	} {
		for _, n := range []int{c.low, c.high} {
			a := sample(c.kind)
			c.set(a, long(n))
			if err := a.Seal(); err != nil {
				t.Errorf("%s with %d characters: %v", c.pointer, n, err)
			}
		}
		a := sample(c.kind)
		c.set(a, long(c.high+1))
		refused(t, "one past", a.Seal(), SchemaViolation, c.pointer)
		if c.low > 1 {
			c.set(a, long(c.low-1))
			refused(t, "one short", a.Seal(), SchemaViolation, c.pointer)
		}
	}
	for _, c := range []struct {
		name string
		ok   bool
	}{
		{strings.Repeat("a", 128), true}, {strings.Repeat("a", 129), false}, {"", false}, {"AZaz09_./-", true}, {"a b", false}, {"é", false}, {"a\n", false}, {"a:b", false}, {"a@b", false}, {"a[b", false}, {"a`b", false}, {"a{b", false},
	} {
		for pointer, set := range map[string]func(*Proposal){
			"/call/tool_name":   func(p *Proposal) { p.ToolName = c.name },
			"/call/tool_server": func(p *Proposal) { p.ToolServer = c.name },
		} {
			a := sample(CallType)
			set(&a.Call.Call)
			if err := a.Seal(); c.ok {
				if err != nil {
					t.Errorf("%s %q: %v", pointer, c.name, err)
				}
			} else {
				refused(t, pointer+" "+c.name, err, SchemaViolation, pointer)
			}
		}
	}
}

func TestWrongDigestsSayWhoseTheyAre(t *testing.T) {
	for _, kind := range allTypes {
		a := sealed(t, kind)
		bad := bytes.Clone(a.Canonical)
		i := len(digestMember)
		if bad[i]++; bad[i] == ':' || bad[i] == 'g' {
			bad[i] = '0'
		}
		for where, decode := range map[string]func([]byte) (*Artifact, error){
			"given":  func(b []byte) (*Artifact, error) { return DecodeArtifact(b, Limits{}) },
			"stored": DecodeStoredArtifact,
		} {
			_, err := decode(bad)
			var e *Error
			if !errors.As(err, &e) || e.Code != StateChecksumMismatch || e.Where != where || e.WantDigest != a.Digest || e.GotDigest == a.Digest {
				t.Errorf("%s, %s: %v", kind, where, err)
			}
		}
	}
}

// Each flipped bit of stored bytes is found, and the error is one about stored bytes.
func TestStoredBytesAreCheckedWhole(t *testing.T) {
	for _, kind := range allTypes {
		a := sealed(t, kind)
		for i := range a.Canonical {
			for bit := range 8 {
				bad := bytes.Clone(a.Canonical)
				bad[i] ^= 1 << bit
				_, err := DecodeStoredArtifact(bad)
				var e *Error
				if !errors.As(err, &e) || e.Code != StateChecksumMismatch || e.Where != "stored" || e.HTTPStatus() != 500 {
					t.Fatalf("%s: byte %d bit %d flipped: %v", kind, i, bit, err)
				}
			}
		}
		for i := range a.Canonical {
			if _, err := DecodeStoredArtifact(a.Canonical[:i]); !errors.Is(err, StateChecksumMismatch) {
				t.Fatalf("%s: cut to %d bytes: %v", kind, i, err)
			}
		}
	}
}

// The stored form must be canonical even where the digest fits.
func TestStoredBytesMustBeCanonical(t *testing.T) {
	a := sealed(t, RequestType)
	_, rest, _ := splitDigest(a.Canonical)
	loose := bytes.Replace(rest, []byte(`"meta":`), []byte(`"meta": `), 1)
	raw := append([]byte(digestMember+artifactDigest(loose).String()+`",`), loose...)
	_, err := DecodeStoredArtifact(raw)
	refused(t, "space in stored bytes", err, ValidationError, "")
}

func TestDecodedArtifactSharesNothingWithTheInput(t *testing.T) {
	a := sealed(t, CallType)
	raw := bytes.Clone(a.Canonical)
	got, err := DecodeArtifact(raw, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	clear(raw)
	if diff := cmp.Diff(a, got); diff != "" {
		t.Error(diff)
	}
}

func TestRequestDigestCoversTheWholeProposal(t *testing.T) {
	p := sample(CallType).Call.Call
	const want = `{"args":{"a":[1,{"b":null}],"z":"é"},"tool_name":"charge/v1.x_y-z","tool_server":"payments"}`
	if RequestDigest(p) != Sum([]byte(want)) {
		t.Error("the digest is not that of the canonical {args, tool_name, tool_server}")
	}
	for _, q := range []Proposal{{"x", p.ToolName, p.Args}, {p.ToolServer, "x", p.Args}, {p.ToolServer, p.ToolName, []byte("{}")}} {
		if q.Equal(p) || RequestDigest(q) == RequestDigest(p) {
			t.Errorf("%+v is taken for %+v", q, p)
		}
	}
	if !p.Equal(sample(RequestType).Request.Proposal) {
		t.Error("equal proposals differ")
	}
}

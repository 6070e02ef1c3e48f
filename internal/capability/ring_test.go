package capability

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

var (
	ctx = context.Background()
	t0  = time.Date(2026, 1, 15, 19, 0, 0, 0, time.UTC)
)

func id(n byte) tga.ID { return tga.ID{6: 0x70, 8: 0x80, 15: n} }

func grant() runtime.Grant {
	return runtime.Grant{
		TraceID: id(1), PlanID: id(2), Server: "payments", Tool: "refund/v2",
		ArgsDigest: tga.Sum([]byte(`{"amount":5}`)), SchemaDigest: tga.Sum([]byte(`{}`)),
	}
}

// at is a clock that a test moves.
type at struct{ now time.Time }

func (c *at) time() time.Time { return c.now }

func newRing(t testing.TB) (*Ring, *at) {
	t.Helper()
	clock := &at{t0}
	r, err := Open(filepath.Join(t.TempDir(), "key.pem"), "tgad", "store-1", Options{Clock: clock.time})
	if err != nil {
		t.Fatal(err)
	}
	return r, clock
}

func mint(t testing.TB, r *Ring, g runtime.Grant) string {
	t.Helper()
	token, err := r.Mint(ctx, g)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// refused fails the test unless err is CAPABILITY_INVALID, says all of words, and does
// not repeat the token.
func refused(t *testing.T, err error, token string, words ...string) {
	t.Helper()
	if !errors.Is(err, tga.CapabilityInvalid) {
		t.Fatalf("got %v, want CAPABILITY_INVALID", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
	for _, part := range strings.Split(token, ".") {
		if len(part) > 8 && strings.Contains(err.Error(), part) {
			t.Errorf("%q repeats the token", err)
		}
	}
}

func TestATokenPermitsOneCall(t *testing.T) {
	r, _ := newRing(t)
	for _, read := range []bool{false, true} {
		g := grant()
		g.ReadOnly = read
		token := mint(t, r, g)
		if err := r.Check(ctx, token, g); err != nil {
			t.Fatal(err)
		}
		for _, change := range []struct {
			claim string
			alter func(*runtime.Grant)
		}{
			{"trace_id", func(g *runtime.Grant) { g.TraceID = id(9) }},
			{"plan_id", func(g *runtime.Grant) { g.PlanID = id(9) }},
			{"constraints.tool_server", func(g *runtime.Grant) { g.Server = "payment" }},
			{"constraints.tool_name", func(g *runtime.Grant) { g.Tool = "refund/v3" }},
			{"constraints.args_digest", func(g *runtime.Grant) { g.ArgsDigest[31]++ }},
			{"constraints.tool_schema_digest", func(g *runtime.Grant) { g.SchemaDigest[0]++ }},
			{"constraints.tool_schema_digest", func(g *runtime.Grant) { g.SchemaDigest = tga.Digest{} }},
			{"constraints.read_only", func(g *runtime.Grant) { g.ReadOnly = !g.ReadOnly }},
		} {
			other := g
			change.alter(&other)
			err := r.Check(ctx, token, other)
			refused(t, err, token, "claim "+change.claim+" is ")
			var e *tga.Error
			if errors.As(err, &e); e.TraceID != other.TraceID {
				t.Errorf("%s: the error names trace %s", change.claim, e.TraceID)
			}
		}
	}
	// A tool without a definition does not match one with any definition.
	g := grant()
	g.SchemaDigest = tga.Digest{}
	token := mint(t, r, g)
	if err := r.Check(ctx, token, g); err != nil {
		t.Error(err)
	}
	refused(t, r.Check(ctx, token, grant()), token, "tool_schema_digest", strings.Repeat("0", 64))
}

func TestTimesAtTheirLimits(t *testing.T) {
	r, clock := newRing(t)
	token := mint(t, r, grant())
	for _, c := range []struct {
		after time.Duration
		says  string // "" = valid
	}{
		{-DefaultSkew, ""},
		{-DefaultSkew - 1, "claim iat"},
		{0, ""},
		{DefaultLifetime + DefaultSkew - 1, ""},
		{DefaultLifetime + DefaultSkew, "claim exp"},
	} {
		clock.now = t0.Add(c.after)
		err := r.Check(ctx, token, grant())
		if c.says == "" && err != nil {
			t.Errorf("%v after: %v", c.after, err)
		} else if c.says != "" {
			refused(t, err, token, c.says, "now is 2026-01-15T")
		}
	}
	for name, c := range map[string]Claims{
		"nbf": {IssuedAt: 100, NotBefore: 131, Expires: 200},
		"exp": {IssuedAt: 100, NotBefore: 100, Expires: 100},
	} {
		refused(t, c.ValidAt(time.Unix(100, 0), 30*time.Second), "", "claim "+name)
	}
	if err := (Claims{IssuedAt: 130, NotBefore: 130, Expires: 131}).ValidAt(time.Unix(100, 0), 30*time.Second); err != nil {
		t.Error(err)
	}
}

func TestOptionsAtTheirLimits(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("a", 255)
	for i, c := range []struct {
		issuer, audience string
		o                Options
		ok               bool
	}{
		{long, long, Options{}, true},
		{long + "a", "a", Options{}, false},
		{"a", long + "a", Options{}, false},
		{"", "a", Options{}, false},
		{"a", "", Options{}, false},
		{"a", "a<b", Options{}, false},
		{"a", "a\n", Options{}, false},
		{"a", "b", Options{Lifetime: time.Second, Skew: skew(MaxSkew)}, true},
		{"a", "b", Options{Lifetime: 720 * time.Hour}, true},
		{"a", "b", Options{Lifetime: 720*time.Hour + time.Second}, false},
		{"a", "b", Options{Lifetime: time.Second - 1}, false},
		{"a", "b", Options{Lifetime: time.Second + 1}, false},
		{"a", "b", Options{Lifetime: -time.Second}, false},
		{"a", "b", Options{Skew: skew(MaxSkew + 1)}, false},
		{"a", "b", Options{Skew: skew(-1)}, false},
	} {
		_, err := Open(filepath.Join(dir, "key"), c.issuer, c.audience, c.o)
		if c.ok && err != nil || !c.ok && !errors.Is(err, tga.ValidationError) {
			t.Errorf("case %d: %v", i, err)
		}
	}
}

func TestAnotherIssuerOrAudienceIsRefused(t *testing.T) {
	r, clock := newRing(t)
	for _, c := range []struct{ issuer, audience, says string }{
		{"tgae", "store-1", `claim iss is "tgae", want "tgad"`},
		{"tgad", "store-2", `claim aud is "store-2", want "store-1"`},
	} {
		other, err := Open(r.path, c.issuer, c.audience, Options{Clock: clock.time})
		if err != nil {
			t.Fatal(err)
		}
		token := mint(t, other, grant())
		refused(t, r.Check(ctx, token, grant()), token, c.says)
	}
}

// TestEveryByteOfATokenCounts: a token with any byte changed, added or removed is refused.
func TestEveryByteOfATokenCounts(t *testing.T) {
	r, _ := newRing(t)
	token := mint(t, r, grant())
	check := func(altered string) {
		t.Helper()
		if altered == token {
			return
		}
		if err := r.Check(ctx, altered, grant()); !errors.Is(err, tga.CapabilityInvalid) {
			t.Fatalf("%q is taken for %q: %v", altered, token, err)
		}
	}
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.=+/\n\r\x00 "
	for i := range len(token) {
		check(token[:i] + token[i+1:])
		others := "Aw\n.="
		// The last characters of the segments have bits that no byte needs: there every character is tried.
		if i+3 > len(token) || strings.Contains(token[i:i+3], ".") {
			others = alphabet
		}
		for _, c := range others {
			check(token[:i] + string(c) + token[i+1:])
			check(token[:i] + string(c) + token[i:])
		}
		check(token[:i] + string(token[i]^1) + token[i+1:])
	}
	for _, c := range alphabet {
		check(token + string(c))
	}
	check(token + ".")
	check(token + "." + token)
	check("")
}

// forge signs any header and claims with the ring's own key.
func forge(r *Ring, header, claims string) string {
	enc := base64.RawURLEncoding.EncodeToString
	signed := enc([]byte(header)) + "." + enc([]byte(claims))
	return signed + "." + enc(ed25519.Sign(r.keys.private, []byte(signed)))
}

// said returns the header and claims of a token.
func said(t testing.TB, token string) (string, string) {
	t.Helper()
	var out [2]string
	for i, part := range strings.Split(token, ".")[:2] {
		b, err := base64.RawURLEncoding.DecodeString(part)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = string(b)
	}
	return out[0], out[1]
}

func TestATokenIsCanonical(t *testing.T) {
	r, _ := newRing(t)
	head, claims := said(t, mint(t, r, grant()))
	for _, s := range []string{head, claims} {
		if canonical, err := tga.Canonicalize([]byte(s), tga.Limits{}); err != nil || string(canonical) != s {
			t.Errorf("%s\nis not canonical: %v", s, err)
		}
	}
	if forged := forge(r, head, claims); r.Check(ctx, forged, grant()) != nil {
		t.Error("the forger of these tests does not sign what Mint signs")
	}
}

// TestOnlyTheClaimsThereAre: a document with other members is refused, although the right key signed it.
func TestOnlyTheClaimsThereAre(t *testing.T) {
	r, _ := newRing(t)
	head, claims := said(t, mint(t, r, grant()))
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(claims), &members); err != nil {
		t.Fatal(err)
	}
	without := func(name string) string {
		out := map[string]json.RawMessage{}
		for k, v := range members {
			if k != name {
				out[k] = v
			}
		}
		b, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	type forgery struct{ header, claims, says string }
	all := []forgery{
		{head, strings.Replace(claims, `{"aud"`, `{"admin":true,"aud"`, 1), `member "admin" of claims is unknown`},
		{head, strings.Replace(claims, `{"aud"`, `{"Aud":"store-1","aud"`, 1), `member "Aud" of claims is unknown`},
		{head, strings.Replace(claims, `{"aud"`, `{"aud":"store-2","aud"`, 1), `claims is not in canonical form`},
		{head, strings.Replace(claims, `"constraints":{`, `"constraints":{"any":1,`, 1), `member "any" of constraints is unknown`},
		{head, strings.Replace(claims, `"read_only":false,`, ``, 1), `member read_only of constraints is missing`},
		{head, strings.Replace(claims, `"read_only":false`, `"read_only":null`, 1), `member read_only of constraints is null, want false`},
		{head, strings.Replace(claims, `"aud":"store-1"`, `"aud":["store-1"]`, 1), `aud`},
		{head, claims + " ", `claims is not in canonical form`},
		{head, claims + "{}", ``},
		{head, "null", `claims is no object`},
		{head, "[]", ``},
		{strings.Replace(head, `{"alg"`, `{"b64":false,"alg"`, 1), claims, `member "b64" of header is unknown`},
		{strings.Replace(head, `{"alg"`, `{"crit":["exp"],"alg"`, 1), claims, `member "crit" of header is unknown`},
		{strings.Replace(head, `,"typ":"JWT"`, ``, 1), claims, `member typ of header is missing`},
		{strings.Replace(head, `"JWT"`, `"jwt"`, 1), claims, `member typ of header is "jwt", want "JWT"`},
		{strings.Replace(head, `"alg":"EdDSA"`, `"alg":"none","alg":"EdDSA"`, 1), claims, `header is not in canonical form`},
		{strings.Replace(head, `"kid":"`, `"kid":"x`, 1), claims, `is no key of this ring`},
		{`{"alg":"EdDSA","typ":"JWT"}`, claims, `kid "" is no key of this ring`},
	}
	for name := range members {
		all = append(all, forgery{head, without(name), "member " + name + " of claims is missing"})
	}
	for _, f := range all {
		if f.header == head && f.claims == claims {
			t.Fatal("a forgery is none")
		}
		token := forge(r, f.header, f.claims)
		err := r.Check(ctx, token, grant())
		if err == nil {
			t.Errorf("taken: %s %s", f.header, f.claims)
			continue
		}
		refused(t, err, token, f.says)
	}
}

func TestOtherAlgorithmsAreRefused(t *testing.T) {
	r, _ := newRing(t)
	head, claims := said(t, mint(t, r, grant()))
	enc := base64.RawURLEncoding.EncodeToString
	swap := func(alg string) string {
		return enc([]byte(strings.Replace(head, "EdDSA", alg, 1))) + "." + enc([]byte(claims))
	}
	hs := swap("HS256")
	mac := hmac.New(sha256.New, r.keys.active.key) // the public key as a shared secret
	mac.Write([]byte(hs))
	token := mint(t, r, grant())
	parts := strings.Split(token, ".")
	for name, forged := range map[string]string{
		"none":              swap("none") + ".",
		"None":              swap("None") + ".",
		"none, signed":      swap("none") + "." + parts[2],
		"HS256":             hs + "." + enc(mac.Sum(nil)),
		"RS256":             swap("RS256") + "." + parts[2],
		"no signature":      parts[0] + "." + parts[1] + ".",
		"signature of more": parts[0] + "." + parts[1] + "." + enc(append(ed25519.Sign(r.keys.private, []byte(parts[0]+"."+parts[1])), 0)),
	} {
		t.Run(name, func(t *testing.T) { refused(t, r.Check(ctx, forged, grant()), forged) })
	}
	// Another key under this ring's kid.
	stranger, _ := newRing(t)
	stranger.keys.active.id = r.keys.active.id
	forged := mint(t, stranger, grant())
	refused(t, r.Check(ctx, forged, grant()), forged, "signature")
}

func TestTokenSizeAtTheLimit(t *testing.T) {
	r, _ := newRing(t)
	g := grant()
	// A name that no contract allows makes the token as long as possible.
	fits := func(n int) bool {
		g.Server = strings.Repeat("s", n)
		_, err := r.Mint(ctx, g)
		return err == nil
	}
	n := 2000
	for fits(n + 1) {
		n++
	}
	fits(n)
	token := mint(t, r, g)
	if len(token) != MaxToken {
		t.Fatalf("the longest token has %d bytes", len(token))
	}
	if err := r.Check(ctx, token, g); err != nil {
		t.Error(err)
	}
	fits(n + 1)
	if _, err := r.Mint(ctx, g); !errors.Is(err, tga.LimitExceeded) {
		t.Errorf("one more: %v", err)
	}
	pad := func(n int) error { return r.Check(ctx, strings.Repeat("A", n), g) }
	refused(t, pad(MaxToken), "", "number of segments")
	refused(t, pad(MaxToken+1), "", "4097 bytes, at most 4096")
	// The contract's longest names fit.
	g.Server, g.Tool = strings.Repeat("s", 128), strings.Repeat("t", 128)
	r.issuer, r.audience = strings.Repeat("i", 255), strings.Repeat("a", 255)
	if token := mint(t, r, g); len(token) > MaxToken/2+512 {
		t.Errorf("a token of the longest names has %d bytes", len(token))
	}
}

func TestMintNeedsACall(t *testing.T) {
	r, _ := newRing(t)
	for _, alter := range []func(*runtime.Grant){
		func(g *runtime.Grant) { g.TraceID = tga.ID{} },
		func(g *runtime.Grant) { g.PlanID = tga.ID{} },
		func(g *runtime.Grant) { g.Server = "" },
		func(g *runtime.Grant) { g.Tool = "" },
		func(g *runtime.Grant) { g.ArgsDigest = tga.Digest{} },
	} {
		g := grant()
		alter(&g)
		if token, err := r.Mint(ctx, g); !errors.Is(err, tga.ValidationError) || token != "" {
			t.Errorf("%+v: %v", g, err)
		}
	}
	r.opts.Rand = strings.NewReader("too short")
	if _, err := r.Mint(ctx, grant()); !errors.Is(err, tga.StoreUnavailable) {
		t.Error(err)
	}
}

func TestTwoTokensOfOneGrantDiffer(t *testing.T) {
	r, _ := newRing(t)
	if first, second := mint(t, r, grant()), mint(t, r, grant()); first == second {
		t.Error("no nonce")
	}
}

func FuzzToken(f *testing.F) {
	r, _ := newRing(f)
	token := mint(f, r, grant())
	head, claims := said(f, token)
	f.Add(token)
	f.Add(token + ".")
	f.Add(strings.Replace(token, ".", "\n.", 1))
	f.Add(forge(r, `{"alg":"none"}`, claims))
	f.Add(forge(r, head, "{}"))
	f.Add(forge(r, head, `{"exp":1e99}`))
	f.Add("..")
	valid := map[string]bool{token: true}
	f.Fuzz(func(t *testing.T, s string) {
		err := r.Check(ctx, s, grant())
		if (err == nil) != valid[s] {
			t.Fatalf("%q: %v", s, err)
		}
		if err != nil && !errors.Is(err, tga.CapabilityInvalid) {
			t.Fatalf("%q: %v", s, err)
		}
		// Claims of any form, with a good signature: only the form that Mint writes is accepted.
		own := forge(r, head, s)
		if c, _, err := open(own, r.keys.public()); err == nil {
			if raw, err := json.Marshal(c); err != nil || string(raw) != s {
				t.Fatalf("%q was read as %s", s, raw)
			}
		}
	})
}

func ExampleVerifyDetached() {
	dir, err := os.MkdirTemp("", "capability")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ring, err := Open(filepath.Join(dir, "key.pem"), "tgad", "store-1", Options{})
	if err != nil {
		panic(err)
	}
	token, err := ring.Mint(context.Background(), grant())
	if err != nil {
		panic(err)
	}
	keys, err := ring.JWKS() // all that an auditor needs
	if err != nil {
		panic(err)
	}
	claims, err := VerifyDetached(token, keys)
	fmt.Println(claims.Constraints.Server, claims.Constraints.Tool, err)
	// Output: payments refund/v2 <nil>
}

func skew(d time.Duration) *time.Duration { return &d }

// TestZeroSkewIsZero: a skew of zero allows no difference, tested at the limit and one past it; a skew
// that is not given is the default.
func TestZeroSkewIsZero(t *testing.T) {
	clock := &at{t0}
	r, err := Open(filepath.Join(t.TempDir(), "keys"), "tgad", "tgad", Options{Skew: skew(0), Clock: clock.time})
	if err != nil {
		t.Fatal(err)
	}
	token := mint(t, r, grant())
	for _, x := range []struct {
		after time.Duration
		word  string
	}{{-1, "claim iat"}, {0, ""}, {DefaultLifetime - 1, ""}, {DefaultLifetime, "claim exp"}} {
		clock.now = t0.Add(x.after)
		err := r.Check(t.Context(), token, grant())
		if x.word == "" {
			if err != nil {
				t.Errorf("after %v: %v", x.after, err)
			}
			continue
		}
		refused(t, err, token, x.word)
	}
}

package capability

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// MaxToken is the most bytes of a token that is read or minted.
const MaxToken = 4096

// Claims are the content of a token. The members are in the order of canonical JSON.
type Claims struct {
	Audience    string      `json:"aud"`
	Constraints Constraints `json:"constraints"`
	Expires     int64       `json:"exp"` // seconds since the Unix epoch; so are the other times
	IssuedAt    int64       `json:"iat"`
	Issuer      string      `json:"iss"`
	NotBefore   int64       `json:"nbf"`
	Nonce       string      `json:"nonce"` // 16 random bytes, hex
	PlanID      tga.ID      `json:"plan_id"`
	TraceID     tga.ID      `json:"trace_id"`
}

// Constraints name the one call that a token permits.
type Constraints struct {
	ArgsDigest   tga.Digest `json:"args_digest"`
	ReadOnly     bool       `json:"read_only"`
	Tool         string     `json:"tool_name"`
	SchemaDigest tga.Digest `json:"tool_schema_digest"`
	Server       string     `json:"tool_server"`
}

// header is the JOSE header, in the order of canonical JSON.
type header struct {
	Alg string `json:"alg"`
	Kid string `json:"kid"`
	Typ string `json:"typ"`
}

// body passes Claims to package jwt, which requires getters for its validator. That
// validator is not used here, because it does not say which values differ.
type body struct {
	Claims
	jwt.RegisteredClaims `json:"-"`
}

func invalid(format string, args ...any) *tga.Error {
	return tga.Errorf(tga.CapabilityInvalid, "capability: "+format, args...)
}

// publicKey is a key that tokens are verified with.
type publicKey struct {
	id    string
	key   ed25519.PublicKey
	until int64 // seconds since the Unix epoch; 0 = no end
}

// open returns the claims of a token that has the one valid form and was signed by
// one of keys. It reads no clock and checks no value, except that the token does not
// outlive its key. No error contains the token.
func open(token string, keys []publicKey) (Claims, publicKey, error) {
	var b body
	var by publicKey
	fail := func(err *tga.Error) (Claims, publicKey, error) { return Claims{}, publicKey{}, err }
	if len(token) > MaxToken {
		return fail(invalid("token has %d bytes, at most %d", len(token), MaxToken))
	}
	parser := jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation())
	parsed, err := parser.ParseWithClaims(token, &b, func(t *jwt.Token) (any, error) {
		kid, _ := t.Header["kid"].(string)
		n := slices.IndexFunc(keys, func(k publicKey) bool { return k.id == kid })
		if n < 0 {
			return nil, fmt.Errorf("kid %.80q is no key of this ring", kid)
		}
		by = keys[n]
		return by.key, nil
	})
	if err != nil {
		return fail(invalid("%w", err))
	}

	// Package jwt accepts line breaks within a segment, repeated, unknown and missing
	// members, and members in another case. Here a token has only one spelling, so its digest
	// identifies its content, and a token has no content besides the claims.
	claims, err := json.Marshal(b.Claims)
	if err != nil {
		return fail(invalid("claims: %w", err))
	}
	head, err := json.Marshal(header{Alg: jwt.SigningMethodEdDSA.Alg(), Kid: by.id, Typ: "JWT"})
	if err != nil {
		return fail(invalid("header: %w", err))
	}
	parts := strings.Split(token, ".")
	for i, want := range [...][]byte{head, claims, parsed.Signature} {
		if parts[i] == base64.RawURLEncoding.EncodeToString(want) {
			continue
		}
		got, err := tga.DecodeBase64URL(parts[i])
		if err != nil || bytes.Equal(got, want) {
			return fail(invalid("segment %d is not canonical base64url", i))
		}
		return fail(invalid("%s", difference([...]string{"header", "claims"}[i], got, want)))
	}
	if by.until != 0 && b.Expires > by.until {
		return fail(invalid("claim exp is %s, key %s ended at %s", second(b.Expires), by.id, second(by.until)))
	}
	return b.Claims, by, nil
}

// difference says where got differs from want, which is a canonical object.
func difference(name string, got, want []byte) string {
	var has, wants map[string]json.RawMessage
	if json.Unmarshal(got, &has) != nil || json.Unmarshal(want, &wants) != nil || has == nil {
		return name + " is no object"
	}
	for _, m := range slices.Sorted(maps.Keys(wants)) {
		if _, ok := has[m]; !ok {
			return fmt.Sprintf("member %s of %s is missing", m, name)
		}
	}
	for _, m := range slices.Sorted(maps.Keys(has)) {
		switch w, ok := wants[m]; {
		case !ok:
			return fmt.Sprintf("member %.40q of %s is unknown", m, name)
		case bytes.Equal(has[m], w):
		case w[0] == '{':
			return difference(m, has[m], w)
		default:
			return fmt.Sprintf("member %s of %s is %.80s, want %.80s", m, name, has[m], w)
		}
	}
	return name + " is not in canonical form"
}

func second(s int64) string { return time.Unix(s, 0).UTC().Format(time.RFC3339) }

// ValidAt returns nil if c is valid at t, else CAPABILITY_INVALID. skew is how far the
// minter's clock may differ from the clock of t.
func (c Claims) ValidAt(t time.Time, skew time.Duration) error {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	now := t.UTC().Format(time.RFC3339Nano)
	switch {
	case c.Expires <= c.NotBefore:
		return invalid("claim exp is %s, not after claim nbf %s", second(c.Expires), second(c.NotBefore))
	case t.Before(at(c.IssuedAt).Add(-skew)):
		return invalid("claim iat is %s, now is %s and the skew %v", second(c.IssuedAt), now, skew)
	case t.Before(at(c.NotBefore).Add(-skew)):
		return invalid("claim nbf is %s, now is %s and the skew %v", second(c.NotBefore), now, skew)
	case !t.Before(at(c.Expires).Add(skew)): // RFC 7519 §4.1.4: not on or after
		return invalid("claim exp is %s, now is %s and the skew %v", second(c.Expires), now, skew)
	}
	return nil
}

// Permits returns nil if c is the token of exactly this call, else
// CAPABILITY_INVALID.
func (c Claims) Permits(g runtime.Grant) error {
	for _, claim := range [...]struct{ name, got, want string }{
		{"trace_id", c.TraceID.String(), g.TraceID.String()},
		{"plan_id", c.PlanID.String(), g.PlanID.String()},
		{"constraints.tool_server", c.Constraints.Server, g.Server},
		{"constraints.tool_name", c.Constraints.Tool, g.Tool},
		{"constraints.args_digest", c.Constraints.ArgsDigest.String(), g.ArgsDigest.String()},
		{"constraints.tool_schema_digest", c.Constraints.SchemaDigest.String(), g.SchemaDigest.String()},
		{"constraints.read_only", strconv.FormatBool(c.Constraints.ReadOnly), strconv.FormatBool(g.ReadOnly)},
	} {
		if err := equal(claim.name, claim.got, claim.want); err != nil {
			return err.In(g.TraceID)
		}
	}
	return nil
}

// equal returns nil if a claim has the wanted value.
func equal(claim, got, want string) *tga.Error {
	if got == want {
		return nil
	}
	return invalid("claim %s is %.128q, want %.128q", claim, got, want)
}

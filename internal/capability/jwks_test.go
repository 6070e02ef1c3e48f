package capability

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

func TestAnAuditorNeedsThePublicKeysAlone(t *testing.T) {
	r, clock := newRing(t)
	before := mint(t, r, grant())
	if _, err := r.Rotate(); err != nil {
		t.Fatal(err)
	}
	after := mint(t, r, grant())
	set, err := r.JWKS()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(r.path); err != nil {
		t.Fatal(err)
	}
	clock.now = t0.Add(10 * 365 * 24 * time.Hour)
	for _, token := range []string{before, after} {
		c, err := VerifyDetached(token, set)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.Permits(grant()), c.ValidAt(t0, 0)); err != nil {
			t.Error(err)
		}
		refused(t, c.ValidAt(clock.now, 0), token, "claim exp")
	}
	var doc struct{ Keys []map[string]any }
	if err := json.Unmarshal(set, &doc); err != nil {
		t.Fatal(err)
	}
	for i, k := range doc.Keys {
		if k["d"] != nil || k["kty"] != "OKP" || k["crv"] != "Ed25519" || (k["exp"] != nil) != (i > 0) {
			t.Errorf("key %d: %v", i, k)
		}
	}
	stranger, _ := newRing(t)
	other, err := stranger.JWKS()
	if err != nil {
		t.Fatal(err)
	}
	_, err = VerifyDetached(after, other)
	refused(t, err, after, "is no key of this ring")
}

func TestKeySetsThatDeceiveAreRefused(t *testing.T) {
	r, _ := newRing(t)
	token := mint(t, r, grant())
	stranger, _ := newRing(t)
	raw, err := r.JWKS()
	if err != nil {
		t.Fatal(err)
	}
	set := string(raw)
	kid, other := r.keys.active.id, stranger.keys.active.id
	for name, s := range map[string]string{
		"kid of another": strings.Replace(set, kid, other, 1),
		"no kid":         strings.Replace(set, `"kid":"`+kid+`",`, ``, 1),
		"x twice":        strings.Replace(set, `"x":`, `"x":"AA","x":`, 1),
		"short x":        strings.Replace(set, `"x":"`, `"x":"AA","y":"`, 1),
		"short, its kid": `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AA","kid":"` + keyID([]byte{0}) + `"}]}`,
		"x over lines":   strings.Replace(set, `"x":"`, `"x":"\n`, 1),
		"negative end":   strings.Replace(set, `"crv"`, `"exp":-1,"crv"`, 1),
		"no JSON":        set[1:],
		"an array":       "[]",
	} {
		if _, err := VerifyDetached(token, []byte(s)); !errors.Is(err, tga.ValidationError) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Keys of other kinds do no harm, and do not verify.
	mixed := strings.Replace(set, `{"keys":[`, `{"keys":[{"kty":"RSA","kid":"`+kid+`","n":"AQ","e":"AQAB"},`, 1)
	if _, err := VerifyDetached(token, []byte(mixed)); err != nil {
		t.Error(err)
	}
	_, err = VerifyDetached(token, []byte(`{"keys":[]}`))
	refused(t, err, token, "is no key of this ring")
	pad := func(n int) error {
		_, err := VerifyDetached(token, append(raw, bytes.Repeat([]byte(" "), n-len(raw))...))
		return err
	}
	if err := pad(maxJWKS); err != nil {
		t.Error(err)
	}
	if err := pad(maxJWKS + 1); !errors.Is(err, tga.LimitExceeded) {
		t.Error(err)
	}
}

// TestKeySetNeedsAKey: a set that can verify nothing is refused when it is configured, not at the first
// token.
func TestKeySetNeedsAKey(t *testing.T) {
	r, _ := newRing(t)
	raw, err := r.JWKS()
	if err != nil {
		t.Fatal(err)
	}
	for set, want := range map[string]tga.Code{
		string(raw):   "",
		`{"keys":[]}`: tga.ValidationError,
		`{"keys":[{"kty":"RSA","kid":"a","n":"AQ","e":"AQAB"}]}`: tga.ValidationError,
		"[]": tga.ValidationError,
	} {
		if err := CheckKeySet([]byte(set)); tga.CodeOf(err) != want {
			t.Errorf("%s: %v", set, err)
		}
	}
}

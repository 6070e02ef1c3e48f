package identity

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestKeysAreTold: a key is recognised by a digest or a file, and no error contains a key.
func TestKeysAreTold(t *testing.T) {
	const ann, bob = "ann-0123456789-key", "bob-0123456789-key"
	sum := sha256.Sum256([]byte(ann))
	b, err := New([]Known{{Name: "ann", KeySHA256: hex.EncodeToString(sum[:])}, {Name: "bob", KeyFile: file(t, bob+"\n")}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for said, want := range map[string]string{
		"Bearer " + ann: "ann", "bearer  " + bob: "bob", "Bearer " + ann + "x": "", "Bearer " + ann[1:]: "", "Basic " + ann: "", ann: "", "": "", "Bearer": "", "Bearer ": "",
	} {
		if got := b.Of(said, nil); got != want {
			t.Errorf("%q is %q, want %q", said, got, want)
		}
	}
	atLimit, short := "0123456789abcdef", "0123456789abcde"
	for _, c := range []struct {
		what string
		all  []Known
		good bool
	}{
		{"the shortest key", []Known{{Name: "a", KeyFile: file(t, atLimit)}}, true},
		{"one that is shorter", []Known{{Name: "a", KeyFile: file(t, short)}}, false},
		{"a file that is not there", []Known{{Name: "a", KeyFile: "/nowhere"}}, false},
		{"no digest", []Known{{Name: "a", KeySHA256: "abc"}}, false},
		{"one key of two", []Known{{Name: "a", KeySHA256: hex.EncodeToString(sum[:])}, {Name: "b", KeyFile: file(t, ann)}}, false},
	} {
		_, err := New(c.all, nil)
		if (err == nil) != c.good {
			t.Errorf("%s: %v", c.what, err)
		}
		if err != nil && (strings.Contains(err.Error(), short) || strings.Contains(err.Error(), ann)) {
			t.Errorf("%s: the error has the key: %v", c.what, err)
		}
	}
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// TestTokensThatAreRefused: a token has no identity if no key of the file signed it, if it has another
// issuer or audience, or if it has expired or has no expiry.
func TestTokensThatAreRefused(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rs, err := rsa.GenerateKey(rand.Reader, minRSA)
	if err != nil {
		t.Fatal(err)
	}
	point, err := ec.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	set := func(keys ...map[string]string) string {
		raw, err := json.Marshal(map[string]any{"keys": keys})
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	ed := map[string]string{"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": b64(public)}
	path := file(t, set(ed, map[string]string{"kty": "EC", "crv": "P-256", "kid": "ec", "x": b64(point[1:33]), "y": b64(point[33:]), "use": "sig"},
		map[string]string{"kty": "RSA", "kid": "enc", "use": "enc"}))
	tokens, err := OpenTokens(path, "https://issuer", "gateway")
	if err != nil {
		t.Fatal(err)
	}
	b, err := New([]Known{{Name: "ann", Subject: "u1"}}, tokens)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().Unix()
	sign := func(m jwt.SigningMethod, key any, kid string, change func(jwt.MapClaims)) string {
		claims := jwt.MapClaims{"iss": "https://issuer", "aud": "gateway", "sub": "u1", "exp": now + 600}
		if change != nil {
			change(claims)
		}
		token := jwt.NewWithClaims(m, claims)
		token.Header["kid"] = kid
		s, err := token.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return "Bearer " + s
	}
	set1 := func(name string, v any) func(jwt.MapClaims) { return func(c jwt.MapClaims) { c[name] = v } }
	_, stranger, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good := sign(jwt.SigningMethodEdDSA, private, "ed", nil)
	for what, c := range map[string]struct{ said, want string }{
		"Ed25519":             {good, "ann"},
		"P-256":               {sign(jwt.SigningMethodES256, ec, "ec", nil), "ann"},
		"another subject":     {sign(jwt.SigningMethodEdDSA, private, "ed", set1("sub", "u2")), ""},
		"no subject":          {sign(jwt.SigningMethodEdDSA, private, "ed", set1("sub", "")), ""},
		"another issuer":      {sign(jwt.SigningMethodEdDSA, private, "ed", set1("iss", "https://other")), ""},
		"for somebody else":   {sign(jwt.SigningMethodEdDSA, private, "ed", set1("aud", "other")), ""},
		"within the leeway":   {sign(jwt.SigningMethodEdDSA, private, "ed", set1("exp", now-10)), "ann"},
		"over":                {sign(jwt.SigningMethodEdDSA, private, "ed", set1("exp", now-60)), ""},
		"without an end":      {sign(jwt.SigningMethodEdDSA, private, "ed", func(c jwt.MapClaims) { delete(c, "exp") }), ""},
		"not yet":             {sign(jwt.SigningMethodEdDSA, private, "ed", set1("nbf", now+600)), ""},
		"a stranger's":        {sign(jwt.SigningMethodEdDSA, stranger, "ed", nil), ""},
		"another key's name":  {sign(jwt.SigningMethodEdDSA, private, "ec", nil), ""},
		"a key without name":  {sign(jwt.SigningMethodEdDSA, private, "", nil), ""},
		"a secret":            {sign(jwt.SigningMethodHS256, []byte(public), "ed", nil), ""},
		"signed by none":      {sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "ed", nil), ""},
		"changed":             {good[:len(good)-3] + "AAA", ""},
		"too long":            {"Bearer " + strings.Repeat("a", maxToken+1), ""},
		"a key that is to be": {sign(jwt.SigningMethodRS256, rs, "rsa", nil), ""},
	} {
		if got := b.Of(c.said, nil); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
	// A key that is added to the file is used without a restart. A malformed file changes nothing.
	rsaKey := map[string]string{"kty": "RSA", "kid": "rsa", "n": b64(rs.N.Bytes()), "e": b64(big.NewInt(int64(rs.E)).Bytes())}
	for _, c := range []struct{ content, want string }{{"{", ""}, {set(ed, rsaKey), "ann"}} {
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := b.Of(sign(jwt.SigningMethodRS256, rs, "rsa", nil), nil); got != c.want {
			t.Errorf("with a new file: %q, want %q", got, c.want)
		}
		if got := b.Of(good, nil); got != "ann" {
			t.Errorf("an earlier key: %q", got)
		}
	}
	for what, content := range map[string]string{
		"no key":         set(),
		"a weak key":     set(map[string]string{"kty": "RSA", "n": b64(rs.N.Bytes()[1:]), "e": "AQAB"}),
		"a shared key":   set(map[string]string{"kty": "oct", "k": "AAAA"}),
		"no point":       set(map[string]string{"kty": "EC", "crv": "P-256", "x": "AQ", "y": "AQ"}),
		"a short key":    set(map[string]string{"kty": "OKP", "crv": "Ed25519", "x": "AQ"}),
		"one name twice": set(ed, ed),
	} {
		if _, err := OpenTokens(file(t, content), "i", "a"); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenTokens(path, "i", "a"); err == nil {
		t.Error("keys that anybody could have written were taken")
	}
}

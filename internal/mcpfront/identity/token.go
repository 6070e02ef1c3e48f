package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/schemas/tga"
)

// Tokens checks the tokens of one issuer (JWT, RFC 7519) with the public keys in a file (JWKS, RFC 7517).
type Tokens struct {
	path   string
	parser *jwt.Parser

	mu   sync.Mutex
	seen os.FileInfo // the file when it was read
	keys map[string]crypto.PublicKey
}

// Bounds of tokens and their keys.
const (
	maxToken = 16 << 10
	maxJWKS  = 1 << 20
	leeway   = 30 * time.Second
	minRSA   = 2048 // bits
)

// algorithms are the signature algorithms with a public key. With a shared secret the gateway could
// make tokens itself, so such a token would prove nothing.
var algorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

// OpenTokens reads the keys. A token must be of the issuer, for the audience, and have an expiry.
func OpenTokens(path, issuer, audience string) (*Tokens, error) {
	t := &Tokens{path: path, parser: jwt.NewParser(
		jwt.WithValidMethods(algorithms), jwt.WithIssuer(issuer), jwt.WithAudience(audience),
		jwt.WithExpirationRequired(), jwt.WithLeeway(leeway), jwt.WithStrictDecoding(),
	)}
	if err := t.read(); err != nil {
		return nil, tga.Errorf(tga.ValidationError, "the keys of tokens in %s: %w", path, err)
	}
	return t, nil
}

// Claim returns a claim of a valid token. It is "" if the token is not valid or the claim is no string.
func (t *Tokens) Claim(token, name string) string {
	if len(token) > maxToken {
		return ""
	}
	claims := jwt.MapClaims{}
	if _, err := t.parser.ParseWithClaims(token, claims, t.key); err != nil {
		return ""
	}
	text, _ := claims[name].(string)
	return text
}

// key finds the key that a token names. If the key is not known, key reads the file again if it has changed.
func (t *Tokens) key(token *jwt.Token) (any, error) {
	id, _ := token.Header["kid"].(string)
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.keys[id]; k != nil {
		return k, nil
	}
	if now, err := os.Stat(t.path); err == nil && (!now.ModTime().Equal(t.seen.ModTime()) || now.Size() != t.seen.Size()) {
		if err := t.read(); err != nil {
			return nil, err // the keys that were read before stay
		}
	}
	if k := t.keys[id]; k != nil {
		return k, nil
	}
	return nil, errors.New("no key of that name")
}

// read reads the file. The caller holds the lock, or nobody else has the Tokens yet.
func (t *Tokens) read() error {
	f, info, err := access.Open(t.path)
	if err != nil {
		return err
	}
	defer f.Close()
	if found := access.Of(info); found.Refuse != "" {
		return errors.New(found.Refuse)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxJWKS+1))
	if err != nil {
		return err
	}
	if len(raw) > maxJWKS {
		return fmt.Errorf("it has over %d bytes", maxJWKS)
	}
	keys, err := parseJWKS(raw)
	if err != nil {
		return err
	}
	t.keys, t.seen = keys, info
	return nil
}

type jwk struct {
	Kty, Kid, Use, Crv string
	N, E, X, Y         string
}

func parseJWKS(raw []byte) (map[string]crypto.PublicKey, error) {
	var set struct{ Keys []jwk }
	if err := json.Unmarshal(raw, &set); err != nil {
		return nil, err
	}
	keys := map[string]crypto.PublicKey{}
	for i, k := range set.Keys {
		if k.Use != "" && k.Use != "sig" {
			continue
		}
		public, err := k.public()
		switch {
		case err != nil:
			return nil, fmt.Errorf("key %d, %.40q: %w", i, k.Kid, err)
		case keys[k.Kid] != nil:
			return nil, fmt.Errorf("key %d: another one has the kid %.40q too", i, k.Kid)
		}
		keys[k.Kid] = public
	}
	if len(keys) == 0 {
		return nil, errors.New("there is no key that checks signatures")
	}
	return keys, nil
}

func (k *jwk) public() (crypto.PublicKey, error) {
	number := func(s string) *big.Int {
		b, err := base64.RawURLEncoding.DecodeString(s)
		if err != nil {
			return new(big.Int)
		}
		return new(big.Int).SetBytes(b)
	}
	switch k.Kty {
	case "RSA":
		n, e := number(k.N), number(k.E)
		if n.BitLen() < minRSA || !e.IsInt64() || e.Int64() < 3 || e.Int64() >= 1<<31 {
			return nil, fmt.Errorf("want an RSA key of at least %d bits", minRSA)
		}
		return &rsa.PublicKey{N: n, E: int(e.Int64())}, nil
	case "EC":
		curve := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}[k.Crv]
		if curve == nil {
			return nil, fmt.Errorf("curve %.20q: want P-256, P-384 or P-521", k.Crv)
		}
		size := (curve.Params().BitSize + 7) / 8
		point := make([]byte, 1+2*size)
		point[0] = 4
		x, y := number(k.X), number(k.Y)
		if x.BitLen() > 8*size || y.BitLen() > 8*size {
			return nil, errors.New("the point is not on its curve")
		}
		x.FillBytes(point[1 : 1+size])
		y.FillBytes(point[1+size:])
		return ecdsa.ParseUncompressedPublicKey(curve, point)
	case "OKP":
		x, err := base64.RawURLEncoding.DecodeString(k.X)
		if err != nil || k.Crv != "Ed25519" || len(x) != ed25519.PublicKeySize {
			return nil, errors.New("want an Ed25519 key of 32 bytes")
		}
		return ed25519.PublicKey(x), nil
	}
	return nil, fmt.Errorf("type %.20q: want RSA, EC or OKP", k.Kty)
}

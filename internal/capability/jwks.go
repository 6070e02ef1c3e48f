package capability

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"

	"github.com/tgad/tgad/schemas/tga"
)

// maxJWKS is the most bytes of a key set that are read.
const maxJWKS = 1 << 20

// jwk is an Ed25519 public key in JSON (RFC 8037 §2). exp is when the key ended.
type jwk struct {
	Alg string `json:"alg,omitempty"`
	Crv string `json:"crv"`
	Exp int64  `json:"exp,omitempty"`
	Kid string `json:"kid"`
	Kty string `json:"kty"`
	Use string `json:"use,omitempty"`
	X   string `json:"x"`
}

type jwks struct {
	Keys []jwk `json:"keys"`
}

// JWKS returns the public keys as a JSON Web Key Set (RFC 7517 §5), the active key
// first, canonical. Earlier keys have a member exp, in seconds.
func (r *Ring) JWKS() ([]byte, error) {
	var set jwks
	for _, k := range r.current().public() {
		set.Keys = append(set.Keys, jwk{
			Alg: "EdDSA", Crv: "Ed25519", Exp: k.until, Kid: k.id, Kty: "OKP", Use: "sig",
			X: base64.RawURLEncoding.EncodeToString(k.key),
		})
	}
	raw, err := json.Marshal(set)
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "key set: %w", err)
	}
	return tga.Canonicalize(raw, tga.Limits{})
}

// VerifyDetached returns the claims of a token that a key of the set signed, without
// the daemon and its key file. The caller compares them with the log: [Claims.Permits],
// and [Claims.ValidAt] at the time of the decision. Keys of other kinds in the set are
// ignored. CAPABILITY_INVALID for the token, VALIDATION_ERROR for the set.
func VerifyDetached(token string, keySet []byte) (Claims, error) {
	keys, err := decodeJWKS(keySet)
	if err != nil {
		return Claims{}, err
	}
	c, _, err := open(token, keys)
	return c, err
}

// CheckKeySet returns nil if a key set can be read and has a key that can verify tokens, else
// VALIDATION_ERROR.
func CheckKeySet(raw []byte) error {
	keys, err := decodeJWKS(raw)
	if err == nil && len(keys) == 0 {
		err = tga.Errorf(tga.ValidationError, "key set: it has no Ed25519 key")
	}
	return err
}

func decodeJWKS(raw []byte) ([]publicKey, error) {
	// The gate refuses a repeated member, so nobody has to guess which of two keys an auditor
	// means.
	if err := tga.Gate(raw, tga.Limits{MaxBytes: maxJWKS}); err != nil {
		return nil, err
	}
	var set jwks
	if err := json.Unmarshal(raw, &set); err != nil {
		return nil, tga.Errorf(tga.ValidationError, "key set: %w", err)
	}
	var keys []publicKey
	for i, k := range set.Keys {
		if k.Kty != "OKP" || k.Crv != "Ed25519" {
			continue
		}
		key, err := tga.DecodeBase64URL(k.X)
		if err != nil || len(key) != ed25519.PublicKeySize {
			return nil, tga.Errorf(tga.ValidationError, "key set: key %d: x is no Ed25519 key", i)
		}
		if id := keyID(key); k.Kid != id {
			return nil, tga.Errorf(tga.ValidationError, "key set: key %d: kid is %.40q, its digest says %s", i, k.Kid, id)
		}
		if k.Exp < 0 {
			return nil, tga.Errorf(tga.ValidationError, "key set: key %d: exp is %d", i, k.Exp)
		}
		keys = append(keys, publicKey{id: k.Kid, key: key, until: k.Exp})
	}
	return keys, nil
}

// Package identity identifies the clients of a gateway by what they send with each request: an API key, or a token
// that an issuer has signed. Over TLS a client may show a certificate instead.
//
// # Invariants
//
//	known    a request that matches no identity has none                  [Book.Of]  TestKeysAreTold, TestTokensThatAreRefused
//	one      a request that matches two identities has none               [Book.Of]  TestCertificatesAreTold
//	even     comparing keys takes the same time however much they differ  [Book.Of]
//	silent   no error contains a key or a token                           [New]      TestKeysAreTold
package identity

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/hex"
	"strings"

	"github.com/tgad/tgad/internal/secretfile"
	"github.com/tgad/tgad/schemas/tga"
)

// Known says how an identity is recognised: by the hex digest of a key or a file with a key (at
// most one of the two), by a token's subject, or by a name in a certificate.
type Known struct{ Name, KeySHA256, KeyFile, Subject, Certificate string }

// Book has the identities of a gateway.
type Book struct {
	keys     []key
	subjects map[string]string // identities, by subject of a token
	certs    map[string]string // identities, by name in a certificate
	tokens   *Tokens           // nil if tokens are not accepted
}

type key struct {
	sum  [sha256.Size]byte
	name string
}

// MinKey is the shortest API key that a file may have, in bytes. A shorter key could be guessed.
const MinKey = 16

// New reads the keys of identities. tokens may be nil.
func New(all []Known, tokens *Tokens) (*Book, error) {
	b := &Book{subjects: map[string]string{}, certs: map[string]string{}, tokens: tokens}
	for _, k := range all {
		if k.Subject != "" {
			b.subjects[k.Subject] = k.Name
		}
		if k.Certificate != "" {
			b.certs[k.Certificate] = k.Name
		}
		switch {
		case k.KeyFile != "":
			raw, err := secretfile.Read(k.KeyFile)
			if err != nil {
				return nil, tga.Errorf(tga.ValidationError, "the key of identity %q: %w", k.Name, err)
			}
			raw = bytes.TrimSpace(raw)
			if len(raw) < MinKey {
				return nil, tga.Errorf(tga.ValidationError, "the key of identity %q has %d bytes, want at least %d", k.Name, len(raw), MinKey)
			}
			b.keys = append(b.keys, key{sha256.Sum256(raw), k.Name})
		case k.KeySHA256 != "":
			raw, err := hex.DecodeString(k.KeySHA256)
			if err != nil || len(raw) != sha256.Size {
				return nil, tga.Errorf(tga.ValidationError, "the key of identity %q: want %d hex digits", k.Name, 2*sha256.Size)
			}
			b.keys = append(b.keys, key{[sha256.Size]byte(raw), k.Name})
		}
	}
	for i, k := range b.keys {
		for _, other := range b.keys[:i] {
			if other.sum == k.sum {
				return nil, tga.Errorf(tga.ValidationError, "identities %q and %q have the same key", other.name, k.name)
			}
		}
	}
	return b, nil
}

// Of returns the identity of a request, "" if it has none. authorization is the request's Authorization header, "" if
// absent, and cert the verified certificate of the client, nil if absent. A request that matches two identities has
// none. A request whose header matches no identity has none either, whatever its certificate says.
func (b *Book) Of(authorization string, cert *x509.Certificate) string {
	name := ""
	if cert != nil {
		for _, n := range namesOf(cert) {
			switch of := b.certs[n]; {
			case of == "" || of == name:
			case name == "":
				name = of
			default:
				return ""
			}
		}
	}
	if authorization == "" {
		return name
	}
	if said := b.said(authorization); name == "" || said == name {
		return said
	}
	return ""
}

// said is the identity that an Authorization header matches, "" if none.
func (b *Book) said(authorization string) string {
	scheme, said, _ := strings.Cut(authorization, " ")
	if said = strings.TrimSpace(said); !strings.EqualFold(scheme, "Bearer") || said == "" {
		return ""
	}
	sum, name := sha256.Sum256([]byte(said)), ""
	for _, k := range b.keys { // no early exit, so that the time does not tell which key matched
		if subtle.ConstantTimeCompare(k.sum[:], sum[:]) == 1 {
			name = k.name
		}
	}
	if name == "" && b.tokens != nil {
		name = b.subjects[b.tokens.Claim(said, "sub")]
	}
	return name
}

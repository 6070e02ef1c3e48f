package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	attestation "github.com/in-toto/attestation/go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	sumsName      = "SHA256SUMS"
	signatureName = "SHA256SUMS.sig"
	keyName       = "release.pub"
)

// public writes the key that the release is to be checked with, for openssl and for rpm.
func (r *release) public(context.Context) error {
	if r.signer == nil {
		return nil
	}
	public, err := x509.MarshalPKIXPublicKey(r.signer.Public())
	if err != nil {
		return err
	}
	if err := put(filepath.Join(r.out, keyName), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})); err != nil {
		return err
	}
	if r.pgp, err = pgpOf(r.signer, r.when); err != nil {
		return err
	}
	text, err := r.pgp.public()
	if err != nil {
		return err
	}
	return put(filepath.Join(r.out, pgpKeyName), text)
}

// seal writes provenance over what there is, checksums over that too, and signs both. A signature is of the
// bytes as they are, so that openssl checks it.
func (r *release) seal(ctx context.Context) error {
	if err := r.provenance(ctx, r.signer); err != nil {
		return err
	}
	sums, err := digests(r.out)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, s := range sums {
		fmt.Fprintf(&b, "%s  %s\n", s.digest, s.name)
	}
	if err := put(filepath.Join(r.out, sumsName), []byte(b.String())); err != nil || r.signer == nil {
		return err
	}
	return put(filepath.Join(r.out, signatureName), ed25519.Sign(r.signer, []byte(b.String())))
}

func readKey(name string) (ed25519.PrivateKey, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, fmt.Errorf("%s is not PEM", name)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s is a key of another kind: want ed25519", name)
	}
	return key, nil
}

type sum struct{ name, digest string }

// digests of the files of a directory, by name.
func digests(dir string) (all []sum, err error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		digest := sha256.Sum256(text)
		all = append(all, sum{f.Name(), hex.EncodeToString(digest[:])})
	}
	return all, nil
}

// provenance says of which commit, by which Go and how the files were made: an in-toto statement with SLSA's
// predicate, in a signed envelope where there is a key.
func (r *release) provenance(ctx context.Context, key ed25519.PrivateKey) error {
	sums, err := digests(r.out)
	if err != nil {
		return err
	}
	var targets []any
	for _, t := range r.targets {
		targets = append(targets, string(t))
	}
	how, err := structpb.NewStruct(map[string]any{"targets": targets, "version": r.version})
	if err != nil {
		return err
	}
	with, err := structpb.NewStruct(map[string]any{"go": r.built[r.targets[0]][0].info.GoVersion})
	if err != nil {
		return err
	}
	what := &provenance.Provenance{
		BuildDefinition: &provenance.BuildDefinition{
			BuildType: "https://github.com/tgad/tgad/blob/main/docs/INSTALL.md#how-a-release-is-made", ExternalParameters: how, InternalParameters: with,
			ResolvedDependencies: []*attestation.ResourceDescriptor{{Uri: "git+https://github.com/tgad/tgad", Digest: map[string]string{"gitCommit": r.commit}}},
		},
		RunDetails: &provenance.RunDetails{Builder: &provenance.Builder{Id: "https://github.com/tgad/tgad/tree/main/packaging/release"}},
	}
	raw, err := protojson.Marshal(what)
	if err != nil {
		return err
	}
	predicate := &structpb.Struct{}
	if err := protojson.Unmarshal(raw, predicate); err != nil {
		return err
	}
	statement := &attestation.Statement{Type: attestation.StatementTypeUri, PredicateType: "https://slsa.dev/provenance/v1", Predicate: predicate}
	for _, s := range sums {
		statement.Subject = append(statement.Subject, &attestation.ResourceDescriptor{Name: s.name, Digest: map[string]string{"sha256": s.digest}})
	}
	if err := statement.Validate(); err != nil {
		return err
	}
	if raw, err = protojson.Marshal(statement); err != nil {
		return err
	}
	// protojson puts spaces where it likes.
	var text bytes.Buffer
	if err := json.Compact(&text, raw); err != nil {
		return err
	}
	if key == nil {
		return put(filepath.Join(r.out, "provenance.json"), append(text.Bytes(), '\n'))
	}
	signer, err := dsse.NewEnvelopeSigner(signing(key))
	if err != nil {
		return err
	}
	envelope, err := signer.SignPayload(ctx, "application/vnd.in-toto+json", text.Bytes())
	if err != nil {
		return err
	}
	if raw, err = json.Marshal(envelope); err != nil {
		return err
	}
	return put(filepath.Join(r.out, "provenance.dsse.json"), append(raw, '\n'))
}

// signing is a key as package dsse wants it.
type signing ed25519.PrivateKey

func (k signing) Sign(_ context.Context, data []byte) ([]byte, error) {
	return ed25519.Sign(ed25519.PrivateKey(k), data), nil
}

func (k signing) KeyID() (string, error) {
	public, err := x509.MarshalPKIXPublicKey(k.Public())
	digest := sha256.Sum256(public)
	return hex.EncodeToString(digest[:]), err
}

func (k signing) Public() crypto.PublicKey { return ed25519.PrivateKey(k).Public() }

func (k signing) Verify(_ context.Context, data, signature []byte) error {
	if !ed25519.Verify(k.Public().(ed25519.PublicKey), data, signature) {
		return errors.New("the signature is of another key, or of other bytes")
	}
	return nil
}

package checkpoint

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	fnote "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/secretfile"
	"github.com/tgad/tgad/schemas/tga"
)

// NewKey makes a key whose name is origin. It returns the secret text, for a file, and the public
// key, for those who check signatures.
func NewKey(origin string) (secret, public string, err error) {
	if !goodName(origin) {
		return "", "", tga.Errorf(tga.ValidationError, "%q names no key: want text without blanks and +", origin)
	}
	secret, public, err = note.GenerateKey(rand.Reader, origin)
	if err != nil {
		return "", "", tga.Errorf(tga.StoreUnavailable, "new key: %w", err)
	}
	return secret, public, nil
}

// CreateKeyFile writes the secret text of a key into a new file that only its owner reads.
func CreateKeyFile(path, secret string) error {
	f, err := access.Create(path)
	if err != nil {
		return tga.Errorf(tga.ValidationError, "key: %w", err)
	}
	_, err = io.WriteString(f, secret+"\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		// Remove a partial file: CreateKeyFile overwrites no file, so it would be in the way.
		return tga.Errorf(tga.StoreUnavailable, "key: %w", errors.Join(err, os.Remove(path)))
	}
	return nil
}

func goodName(s string) bool { return s != "" && !strings.ContainsAny(s, "+ \t\r\n\u00a0\u2028") }

// Signer signs checkpoints.
type Signer struct {
	note.Signer
	Public string // public key in text form
}

// NewSigner makes a key for an origin, in memory only.
func NewSigner(origin string) (Signer, error) {
	secret, _, err := NewKey(origin)
	if err != nil {
		return Signer{}, err
	}
	return ParseSigner(secret)
}

// ReadSigner reads a secret key from a file that only its owner, or a group, can read.
func ReadSigner(path string) (Signer, error) {
	raw, err := secretfile.Read(path)
	if err != nil {
		return Signer{}, tga.Errorf(tga.ValidationError, "key: %w", err)
	}
	return ParseSigner(strings.TrimSpace(string(raw)))
}

// ParseSigner reads the secret text of a key. Its errors do not contain the text.
func ParseSigner(secret string) (Signer, error) {
	s, v, err := fnote.NewEd25519SignerVerifier(secret)
	if err != nil {
		return Signer{}, tga.Errorf(tga.ValidationError, "key: it is no secret key of a signed note with Ed25519")
	}
	// The last part of the text is one byte for the kind, and the seed.
	parts := strings.SplitN(secret, "+", 5)
	seed, err := base64.StdEncoding.DecodeString(parts[4])
	if err != nil || len(seed) != 1+ed25519.SeedSize {
		return Signer{}, tga.Errorf(tga.ValidationError, "key: it is no secret key of a signed note with Ed25519")
	}
	public, err := note.NewEd25519VerifierKey(v.Name(), ed25519.NewKeyFromSeed(seed[1:]).Public().(ed25519.PublicKey))
	if err != nil {
		return Signer{}, tga.Errorf(tga.ValidationError, "key: %w", err)
	}
	return Signer{s, public}, nil
}

// remoteTime limits one request to a program that signs.
const remoteTime = 10 * time.Second

// Remote returns a signer whose key is held by a program on a unix socket. The request is
// POST /sign with the text as the body; the answer is 200 with the 64 bytes of the signature.
// The signature is verified before it is used.
func Remote(socket, public string) (Signer, error) {
	v, err := note.NewVerifier(public)
	if err != nil {
		return Signer{}, tga.Errorf(tga.ValidationError, "key: %w", err)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	client := &http.Client{Timeout: remoteTime, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	return Signer{&remote{v, client, socket}, public}, nil
}

type remote struct {
	v      note.Verifier
	client *http.Client
	socket string
}

func (r *remote) Name() string    { return r.v.Name() }
func (r *remote) KeyHash() uint32 { return r.v.KeyHash() }

func (r *remote) Sign(msg []byte) ([]byte, error) {
	resp, err := r.client.Post("http://signer/sign", "application/octet-stream", bytes.NewReader(msg))
	if err != nil {
		return nil, fmt.Errorf("signer %s: %w", r.socket, err)
	}
	defer resp.Body.Close()
	sig, err := io.ReadAll(io.LimitReader(resp.Body, ed25519.SignatureSize+1))
	if err != nil {
		return nil, fmt.Errorf("signer %s: %w", r.socket, err)
	}
	if resp.StatusCode != http.StatusOK || !r.v.Verify(msg, sig) {
		return nil, fmt.Errorf("signer %s: it answered HTTP %d and no signature of key %s", r.socket, resp.StatusCode, r.v.Name())
	}
	return sig, nil
}

// Keys are the trusted keys of one origin: the key that the reader was given, and the keys that it
// was handed over to.
type Keys struct {
	origin string
	log    []trusted
	others []note.Verifier
}

// trusted is a key of the log, with the size of the largest tree that it may sign. That is the size at
// which it was handed over: whoever still has the key afterwards must not sign a larger tree.
type trusted struct {
	note.Verifier
	until int64
}

// TrustKeys returns Keys that trust one public key of an origin. It also recognizes the signatures of
// witnesses; [Keys.Open] returns those. A witness may be given twice, as where it has two addresses.
func TrustKeys(origin, public string, witnesses ...note.Verifier) (*Keys, error) {
	v, err := note.NewVerifier(public)
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "key: %w", err)
	}
	if origin == "" {
		origin = v.Name()
	}
	k := &Keys{origin: origin, log: []trusted{{v, math.MaxInt64}}}
	for _, w := range witnesses {
		same := func(o note.Verifier) bool { return o.Name() == w.Name() && o.KeyHash() == w.KeyHash() }
		if !slices.ContainsFunc(k.others, same) { // package note opens nothing under a key that it has twice
			k.others = append(k.others, w)
		}
	}
	return k, nil
}

// Origin returns the origin that the keys sign for.
func (k *Keys) Origin() string { return k.origin }

// Open returns a checkpoint and the signatures of witnesses on it, if a trusted key signed it for
// this origin.
//
// It refuses a signature whose base64 is not in its one canonical form, also of an unknown key. Three
// programs read evidence, and must agree on every byte of it.
func (k *Keys) Open(raw []byte) (Checkpoint, []note.Signature, error) {
	return k.believe(k.open(raw, k.verifiers()...))
}

// OpenSent is Open for a checkpoint from a network. As C2SP signed-note says, it ignores signatures of
// unknown keys, whatever their form.
func (k *Keys) OpenSent(raw []byte) (Checkpoint, []note.Signature, error) {
	n, err := k.openNote(raw, k.verifiers()...)
	if err == nil {
		err = k.signed(n, n.Sigs, k.verifiers())
	}
	return k.believe(n, err)
}

// believe returns the checkpoint in an opened note, if its origin and key permit it.
func (k *Keys) believe(n *note.Note, err error) (Checkpoint, []note.Signature, error) {
	if err != nil {
		return Checkpoint{}, nil, err
	}
	c, err := parse(n.Text)
	if err != nil {
		return Checkpoint{}, nil, err
	}
	if c.Origin != k.origin {
		return Checkpoint{}, nil, tga.Errorf(tga.PermissionDenied, "checkpoint of %q, want one of %q", c.Origin, k.origin)
	}
	if !slices.ContainsFunc(k.log, func(v trusted) bool { return c.Size <= v.until && signedBy(n, v) }) {
		return Checkpoint{}, nil, tga.Errorf(tga.PermissionDenied, "checkpoint of %d leaves by a key that was handed over before", c.Size)
	}
	var by []note.Signature
	for _, s := range n.Sigs {
		for _, v := range k.others {
			if s.Name == v.Name() && s.Hash == v.KeyHash() {
				by = append(by, s)
			}
		}
	}
	return c, by, nil
}

func (k *Keys) verifiers() []note.Verifier {
	keys := make([]note.Verifier, len(k.log))
	for i, v := range k.log {
		keys[i] = v
	}
	return keys
}

// Newest returns the key that the origin signs with now.
func (k *Keys) Newest() note.Verifier { return k.log[len(k.log)-1] }

// Had reports whether the origin has, or had before, the key of a signer.
func (k *Keys) Had(s note.Signer) bool {
	return slices.ContainsFunc(k.log, func(t trusted) bool { return t.Name() == s.Name() && t.KeyHash() == s.KeyHash() })
}

// open returns the note, if at least one of the keys signed it.
func (k *Keys) open(raw []byte, by ...note.Verifier) (*note.Note, error) {
	n, err := k.openNote(raw, by...)
	if err == nil {
		err = k.signed(n, append(n.UnverifiedSigs, n.Sigs...), by)
	}
	if err != nil {
		return nil, err
	}
	return n, nil
}

// openNote returns the note, if one of the keys or a witness signed it.
func (k *Keys) openNote(raw []byte, by ...note.Verifier) (*note.Note, error) {
	if len(raw) > MaxBytes {
		return nil, tga.Errorf(tga.LimitExceeded, "signed note of %d bytes: at most %d", len(raw), MaxBytes)
	}
	n, err := note.Open(raw, note.VerifierList(append(append([]note.Verifier{}, by...), k.others...)...))
	if err != nil {
		return nil, tga.Errorf(tga.PermissionDenied, "signed note: no trusted key signed it: %w", err)
	}
	return n, nil
}

// signed checks that one of the keys signed an opened note, and that the base64 of sigs is canonical:
// its unused bits are zero.
func (k *Keys) signed(n *note.Note, sigs []note.Signature, by []note.Verifier) error {
	for _, s := range sigs {
		if _, err := base64.StdEncoding.Strict().DecodeString(s.Base64); err != nil {
			return tga.Errorf(tga.SchemaViolation, "signed note: signature of %s: %w", s.Name, err)
		}
	}
	if slices.ContainsFunc(by, func(v note.Verifier) bool { return signedBy(n, v) }) {
		return nil
	}
	return tga.Errorf(tga.PermissionDenied, "signed note: no trusted key of the log signed it")
}

// signedBy reports whether a note that was opened has a good signature of a key.
func signedBy(n *note.Note, v note.Verifier) bool {
	return slices.ContainsFunc(n.Sigs, func(s note.Signature) bool { return s.Name == v.Name() && s.Hash == v.KeyHash() })
}

// handOver is the first line of a hand-over.
const handOver = "tgad key hand-over v1"

// HandOver returns the note by which one key gives an origin to the next, at a checkpoint.
func HandOver(at Checkpoint, from, to Signer) ([]byte, error) {
	text := strings.Join([]string{handOver, at.Origin, from.Public, to.Public, strconv.FormatInt(at.Size, 10), at.Head.String(), ""}, "\n")
	raw, err := note.Sign(&note.Note{Text: text}, from, to)
	if err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "sign the hand-over of %s: %w", at.Origin, err)
	}
	return raw, nil
}

// Follow trusts the new key that a hand-over names, if a trusted key of the log signed the hand-over,
// and returns the checkpoint at which it happened. From then on the older key may sign no larger
// tree, and may not be handed over again. Follow refuses a hand-over to a key that is trusted already.
func (k *Keys) Follow(raw []byte) (Checkpoint, error) {
	text, _, _ := strings.Cut(string(raw), "\n\n")
	lines := strings.Split(text, "\n")
	if len(lines) != 6 || lines[0] != handOver {
		return Checkpoint{}, tga.Errorf(tga.SchemaViolation, "hand-over: it does not begin with %q and five lines", handOver)
	}
	at := Checkpoint{Origin: lines[1]}
	size, err := strconv.ParseInt(lines[4], 10, 64)
	if err == nil {
		at.Size = size
		at.Head, err = tlog.ParseHash(lines[5])
	}
	if err != nil || at.Size < 0 || strconv.FormatInt(size, 10) != lines[4] || at.Head.String() != lines[5] || at.Origin != k.origin {
		return Checkpoint{}, tga.Errorf(tga.SchemaViolation, "hand-over: %q, %s leaves, head %s", at.Origin, lines[4], lines[5])
	}
	to, err := note.NewVerifier(lines[3])
	if err != nil {
		return Checkpoint{}, tga.Errorf(tga.SchemaViolation, "hand-over: %w", err)
	}
	same := func(v note.Verifier) func(trusted) bool {
		return func(t trusted) bool { return t.Name() == v.Name() && t.KeyHash() == v.KeyHash() }
	}
	from, err := note.NewVerifier(lines[2])
	if err != nil {
		return Checkpoint{}, tga.Errorf(tga.SchemaViolation, "hand-over: %w", err)
	}
	if i := slices.IndexFunc(k.log, same(from)); i >= 0 && k.log[i].until == math.MaxInt64 {
		if slices.ContainsFunc(k.log, same(to)) {
			return Checkpoint{}, tga.Errorf(tga.ValidationError, "hand-over of %s to a key that it had before", k.origin)
		}
		n, err := k.open(raw, k.log[i])
		if err != nil {
			return Checkpoint{}, err
		}
		// The text above ends at the first empty line, and the signed text at the last one. They must
		// be the same.
		if n.Text != text+"\n" {
			return Checkpoint{}, tga.Errorf(tga.SchemaViolation, "hand-over: more than five lines were signed")
		}
		// The new key must sign too, so that nobody can name a key whose holder did not agree.
		if _, err := k.open(raw, to); err != nil {
			return Checkpoint{}, err
		}
		k.log[i].until = at.Size
		k.log = append(k.log, trusted{to, math.MaxInt64})
		return at, nil
	}
	return Checkpoint{}, tga.Errorf(tga.PermissionDenied, "hand-over of %s by a key that is not trusted", k.origin)
}

// GivenBy returns the public key that a hand-over says it comes from. Nobody has checked it.
func GivenBy(raw []byte) string {
	lines := strings.SplitN(string(raw), "\n", 4)
	if len(lines) < 4 {
		return ""
	}
	return lines[2]
}

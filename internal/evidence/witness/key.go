package witness

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	fnote "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/secretfile"
	"github.com/tgad/tgad/schemas/tga"
)

// cosignatureV1 is the algorithm of C2SP tlog-cosignature with Ed25519. It is the first byte of a
// key, before those of the key itself.
const cosignatureV1 = 4

// secretParts is how many parts a secret key has, with a + between them. The last one is base64,
// which may have a + of its own.
const secretParts = 5

// Key signs checkpoints as a witness does: the signature holds the time at which it was made.
type Key struct {
	note.Verifier
	Public string // public key in text form

	private ed25519.PrivateKey
	now     func() time.Time
}

var _ note.Signer = (*Key)(nil)

// NewKey makes the key of a witness with that name. It returns the secret text, for a file, and the
// public key, for stores and auditors.
func NewKey(name string) (secret, public string, err error) {
	plain, public, err := checkpoint.NewKey(name)
	if err != nil {
		return "", "", err
	}
	if public, err = fnote.VKeyToCosignatureV1(public); err != nil {
		return "", "", tga.Errorf(tga.ValidationError, "%q names no key: %w", name, err)
	}
	seed, err := base64.StdEncoding.DecodeString(strings.SplitN(plain, "+", secretParts)[secretParts-1])
	if err != nil {
		return "", "", tga.Errorf(tga.ValidationError, "new key: %w", err)
	}
	seed[0] = cosignatureV1
	return fmt.Sprintf("PRIVATE+KEY+%s+%s+%s", name, strings.Split(public, "+")[1], base64.StdEncoding.EncodeToString(seed)), public, nil
}

// ReadKey reads a secret key from a file that only its owner, or a group, can read.
func ReadKey(path string) (*Key, error) {
	raw, err := secretfile.Read(path)
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "key: %w", err)
	}
	return ParseKey(strings.TrimSpace(string(raw)), time.Now)
}

// ParseKey reads the secret text of a key. now is the clock of the signatures. The errors do not
// contain the text. The key of a store is refused: one key must not serve two purposes.
func ParseKey(secret string, now func() time.Time) (*Key, error) {
	refused := tga.Errorf(tga.ValidationError, "key: it is no secret key of a witness (cosignature/v1): tgad evidence keygen --witness makes one")
	parts := strings.SplitN(secret, "+", secretParts)
	if len(parts) != secretParts || parts[0] != "PRIVATE" || parts[1] != "KEY" {
		return nil, refused
	}
	seed, err := base64.StdEncoding.Strict().DecodeString(parts[secretParts-1])
	if err != nil || len(seed) != 1+ed25519.SeedSize || seed[0] != cosignatureV1 {
		return nil, refused
	}
	private := ed25519.NewKeyFromSeed(seed[1:])
	plain, err := note.NewEd25519VerifierKey(parts[2], private.Public().(ed25519.PublicKey))
	if err != nil {
		return nil, refused
	}
	public, err := fnote.VKeyToCosignatureV1(plain)
	if err != nil || !strings.HasPrefix(public, parts[2]+"+"+parts[3]+"+") {
		return nil, refused
	}
	v, err := fnote.NewVerifierForCosignatureV1(public)
	if err != nil {
		return nil, refused
	}
	return &Key{v, public, private, now}, nil
}

// Sign implements [note.Signer].
func (k *Key) Sign(text []byte) ([]byte, error) {
	at := uint64(k.now().Unix())
	signed := fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", at, text)
	return append(binary.BigEndian.AppendUint64(nil, at), ed25519.Sign(k.private, signed)...), nil
}

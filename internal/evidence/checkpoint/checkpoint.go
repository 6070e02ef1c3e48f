package checkpoint

import (
	"strings"
	"unicode/utf8"

	"github.com/transparency-dev/formats/log"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/schemas/tga"
)

// MaxBytes bounds a signed checkpoint, with all cosignatures.
const MaxBytes = 64 << 10

// Checkpoint is the content of a signed checkpoint.
type Checkpoint struct {
	Origin string
	Size   int64 // leaves
	Head   tlog.Hash
}

// Origin returns the origin of a store whose configuration names none.
func Origin(store tga.ID) string { return "tgad/" + store.String() }

// CheckOrigin refuses an origin that a signed note cannot have: whoever signed it could not read it again.
func CheckOrigin(origin string) error {
	if len(origin) > 255 || !utf8.ValidString(origin) || strings.ContainsFunc(origin, func(r rune) bool { return r < ' ' }) {
		return tga.Errorf(tga.ValidationError, "origin %.80q: want at most 255 characters on one line, without control characters", origin)
	}
	return nil
}

// Text returns the body that is signed.
func (c Checkpoint) Text() string {
	return string(log.Checkpoint{Origin: c.Origin, Size: uint64(c.Size), Hash: c.Head[:]}.Marshal())
}

// Sign returns the signed checkpoint.
func (c Checkpoint) Sign(signers ...note.Signer) ([]byte, error) {
	raw, err := note.Sign(&note.Note{Text: c.Text()}, signers...)
	if err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "sign checkpoint %d of %s: %w", c.Size, c.Origin, err)
	}
	return raw, nil
}

// parse reads the body of a checkpoint. Lines after its first three are extensions, which are
// signed too. tgad ignores them.
func parse(text string) (Checkpoint, error) {
	var l log.Checkpoint
	if _, err := l.Unmarshal([]byte(text)); err != nil {
		return Checkpoint{}, tga.Errorf(tga.SchemaViolation, "checkpoint: %w", err)
	}
	c := Checkpoint{Origin: l.Origin, Size: int64(l.Size)}
	if len(l.Hash) != tlog.HashSize || l.Size > 1<<62 || l.Origin == "" {
		return Checkpoint{}, tga.Errorf(tga.SchemaViolation, "checkpoint of %d leaves with a head of %d bytes", l.Size, len(l.Hash))
	}
	copy(c.Head[:], l.Hash)
	if !strings.HasPrefix(text, c.Text()) { // another spelling of the same, such as 007
		return Checkpoint{}, tga.Errorf(tga.SchemaViolation, "checkpoint is not in its one form")
	}
	return c, nil
}

// Unverified returns the content of a checkpoint without checking its signatures: for messages, and
// to find out its origin.
func Unverified(raw []byte) (Checkpoint, error) {
	text, _, ok := strings.Cut(string(raw), "\n\n")
	if !ok || len(raw) > MaxBytes {
		return Checkpoint{}, tga.Errorf(tga.SchemaViolation, "checkpoint is no signed note of at most %d bytes", MaxBytes)
	}
	return parse(text + "\n")
}

package checkpoint

import (
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/schemas/tga"
)

// accepted is the first line of an acceptance.
const accepted = "tgad accepted loss v1"

// Acceptance says that a person let a store continue although a checkpoint outside contradicts it.
type Acceptance struct {
	Origin string
	Who    string
	// Seen is the checkpoint outside. If a witness reported it, Head is zero: a witness tells only
	// the number of leaves.
	Seen struct {
		Size int64
		Head tlog.Hash
	}
	// Size and Head are those of the store's own tree at the time of the acceptance.
	Size int64
	Head tlog.Hash
}

// Sign returns the signed acceptance.
func (a *Acceptance) Sign(s note.Signer) ([]byte, error) {
	text := strings.Join([]string{
		accepted, a.Origin, strconv.Quote(a.Who),
		strconv.FormatInt(a.Seen.Size, 10), a.Seen.Head.String(), strconv.FormatInt(a.Size, 10), a.Head.String(), "",
	}, "\n")
	raw, err := note.Sign(&note.Note{Text: text}, s)
	if err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "sign the accepted loss of %s: %w", a.Origin, err)
	}
	return raw, nil
}

// IsAcceptance tells an acceptance from other notes.
func IsAcceptance(raw []byte) bool { return strings.HasPrefix(string(raw), accepted+"\n") }

// OpenAcceptance returns an acceptance if a trusted key signed it for this origin.
func (k *Keys) OpenAcceptance(raw []byte) (a Acceptance, err error) {
	n, err := k.open(raw, k.verifiers()...)
	if err != nil {
		return a, err
	}
	lines := strings.Split(n.Text, "\n")
	if len(lines) != 8 || lines[0] != accepted || lines[1] != k.origin {
		return a, tga.Errorf(tga.SchemaViolation, "accepted loss: it does not begin with %q and %q", accepted, k.origin)
	}
	a.Origin = lines[1]
	if a.Who, err = strconv.Unquote(lines[2]); err == nil {
		a.Seen.Size, err = strconv.ParseInt(lines[3], 10, 64)
	}
	if err == nil {
		a.Seen.Head, err = tlog.ParseHash(lines[4])
	}
	if err == nil {
		a.Size, err = strconv.ParseInt(lines[5], 10, 64)
	}
	if err == nil {
		a.Head, err = tlog.ParseHash(lines[6])
	}
	if err != nil {
		return a, tga.Errorf(tga.SchemaViolation, "accepted loss: %w", err)
	}
	return a, nil
}

package witness

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/evidence/checkpoint"
)

const (
	mostProof = 63 // hashes, says tlog-witness
	// A size has at most 19 digits, a hash in base64 44 characters.
	mostHead = len("old ") + 19 + 1 + mostProof*(44+1) + 1
	// MaxRequest bounds the body of a request.
	MaxRequest = mostHead + checkpoint.MaxBytes
)

// request is a parsed body whose signatures and proof are not checked yet.
type request struct {
	old   int64 // the size that the sender believes the witness has
	proof tlog.TreeProof
	raw   []byte // the signed checkpoint
	claim checkpoint.Checkpoint
}

// refusal is an answer other than a cosignature.
type refusal struct {
	status int
	text   string // what is wrong; for 409 the size that the witness has
}

func (r *refusal) Error() string { return strconv.Itoa(r.status) + " " + r.text }

func malformed(text string) error { return &refusal{http.StatusBadRequest, text} }

// parse reads a body. Each request has one spelling: no leading zeros, padded base64 whose unused
// bits are zero.
func parse(body []byte) (*request, error) {
	head, raw, ok := bytes.Cut(body, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	digits, isOld := strings.CutPrefix(lines[0], "old ")
	if !ok || !isOld {
		return nil, malformed("want a line \"old SIZE\", lines of a proof, an empty line, and a checkpoint")
	}
	r := &request{raw: raw}
	var err error
	if r.old, err = strconv.ParseInt(digits, 10, 64); err != nil || r.old < 0 || strconv.FormatInt(r.old, 10) != digits {
		return nil, malformed("the old size is no decimal number without leading zeros")
	}
	if lines = lines[1:]; len(lines) > mostProof {
		return nil, malformed("more than 63 lines of a proof")
	}
	for _, line := range lines {
		h, err := tlog.ParseHash(line)
		if err != nil || h.String() != line {
			return nil, malformed("a line of the proof is no hash in base64")
		}
		r.proof = append(r.proof, h)
	}
	if r.claim, err = checkpoint.Unverified(raw); err != nil {
		return nil, malformed(err.Error())
	}
	var unverified *note.UnverifiedNoteError
	if _, err = note.Open(raw, nil); !errors.As(err, &unverified) {
		return nil, malformed("the checkpoint is no signed note")
	}
	return r, nil
}

// emptyHead is the head of the tree without leaves.
var emptyHead, _ = tlog.TreeHash(0, nil)

// judge says why a checkpoint is not signed; nil if its tree grew from seen, the checkpoint that the
// witness signed last. If it signed none, seen is the empty tree.
func judge(old int64, proof tlog.TreeProof, c, seen checkpoint.Checkpoint) error {
	grew := len(proof) == 0
	switch {
	case old > c.Size:
		return malformed("the old size is larger than that of the checkpoint")
	case old != seen.Size, c.Size == seen.Size && c.Head != seen.Head:
		return &refusal{http.StatusConflict, strconv.FormatInt(seen.Size, 10)}
	case old > 0 && old < c.Size:
		grew = tlog.CheckTree(proof, c.Size, c.Head, old, seen.Head) == nil
	}
	if !grew {
		return &refusal{http.StatusUnprocessableEntity, "the proof does not show that the tree grew from the one that was signed before"}
	}
	return nil
}

package bundle

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/schemas/tga"
)

// maxLine limits a line about the tree, in bytes. The longest is an escaped signed note.
const maxLine = 256 << 10

// maxProof is how many hashes a proof has at most: two for each level of the largest tree.
const maxProof = 128

type header struct {
	Kind    string   `json:"kind"`
	Version string   `json:"version"`
	About   []string `json:"about"`
	Origin  string   `json:"origin"`
	Key     string   `json:"key"`
	From    uint64   `json:"from"`
	To      uint64   `json:"to"`
	Leaves  int      `json:"leaves"`
	Traces  int      `json:"traces"`
}

type noteLine struct {
	Kind string `json:"kind"`
	Note string `json:"note"`
}

type prefixLine struct {
	Kind  string      `json:"kind"`
	Size  int64       `json:"size"`
	Head  tlog.Hash   `json:"head"`
	Proof []tlog.Hash `json:"proof"`
}

type leafLine struct {
	Kind  string      `json:"kind"`
	Index uint64      `json:"index"`
	Leaf  []byte      `json:"leaf"`
	Proof []tlog.Hash `json:"proof"`
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b) // ends the line
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

// decode reads a line, which must be byte for byte what encode would write. So no member is repeated,
// unknown or left out, and two different lines never mean the same.
func decode(line []byte, v any) error {
	err := json.Unmarshal(line, v)
	if err == nil {
		var again []byte
		if again, err = encode(v); err == nil && !bytes.Equal(again, append(bytes.Clone(line), '\n')) {
			err = errors.New("it is not in the one spelling of this format")
		}
	}
	if err != nil {
		return tga.Errorf(tga.SchemaViolation, "%w", err)
	}
	return nil
}

// kindOf returns the kind of a line, "" if it has none.
func kindOf(line []byte) string { return textBehind(line, `{"kind":"`) }

// versionOf returns the version of a first line. It is read before the line is decoded, because a
// later version may have other members.
func versionOf(line []byte) string { return textBehind(line, `{"kind":"evidence","version":"`) }

// textBehind returns the text between a beginning and the next quote, "" if it is over 20 bytes.
func textBehind(line []byte, beginning string) string {
	rest, ok := bytes.CutPrefix(line, []byte(beginning))
	text, _, end := bytes.Cut(rest, []byte{'"'})
	if !ok || !end || len(text) > 20 {
		return ""
	}
	return string(text)
}

// readLine returns the next line without its end; io.EOF means that there is none.
func readLine(r *bufio.Reader) ([]byte, error) {
	var b []byte
	for {
		part, err := r.ReadSlice('\n')
		b = append(b, part...)
		switch {
		case len(b) > maxLine:
			return nil, tga.Errorf(tga.LimitExceeded, "a line of more than %d bytes", maxLine)
		case err == nil:
			return b[:len(b)-1], nil
		case err == io.EOF && len(b) == 0:
			return nil, io.EOF
		case err == io.EOF:
			return nil, tga.Errorf(tga.StateChecksumMismatch, "it ends inside a line")
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, tga.Errorf(tga.StoreUnavailable, "read: %w", err)
		}
	}
}

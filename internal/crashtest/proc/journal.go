//go:build linux

package proc

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
)

// event is one line of the oracle's journal.
type event struct {
	Kind    string `json:"kind"` // received, effect
	Trace   string `json:"trace"`
	Call    string `json:"call"` // tool_call_id
	Attempt uint32 `json:"attempt"`
	Server  string `json:"server"`
	Tool    string `json:"tool"`
	Key     string `json:"key"`
	Args    string `json:"args"`             // exact bytes
	Remote  bool   `json:"remote,omitempty"` // sent by a remote executor
}

const (
	received = "received"
	effect   = "effect"
)

// readJournal reads a journal. A torn last line is that of an oracle that died in the
// write and did nothing on it.
func readJournal(dir, world string) ([]event, error) {
	b, err := os.ReadFile(filepath.Join(dir, world+".journal"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseJournal(b)
}

func parseJournal(b []byte) ([]event, error) {
	var all []event
	r := bufio.NewReader(bytes.NewReader(b))
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			// A line after a torn one starts in the middle of a line.
			if i := bytes.LastIndex(line, []byte(`{"kind"`)); i <= 0 || json.Unmarshal(line[i:], &e) != nil {
				return nil, err
			}
		}
		all = append(all, e)
	}
}

// once is what a tool acts once for, "" for one that acts each time it is asked, which is
// the worst that a server can do. One about which nothing is attested dedupes by key:
// under profile spec-9.3 that is what its operator is taken to attest.
func (e event) once() string {
	switch licenceOf(e.Tool) {
	case "dedupe_key", "none":
		return e.Tool + "\x00" + e.Key
	case "dedupe_args":
		return e.Tool + "\x00" + e.Args
	}
	return ""
}

// effectless says that a tool changes nothing.
func effectless(tool string) bool { return licenceOf(tool) == "read_only" }

package ui_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/internal/ui"
)

type rawEntry struct {
	Entry    string `json:"entry"`
	Artifact string `json:"artifact,omitempty"`
}

type rawTrace struct {
	TraceID string     `json:"trace_id"`
	Entries []rawEntry `json:"entries"`
	Notes   []string   `json:"notes"`
}

func (r rawTrace) copied() rawTrace {
	r.Entries, r.Notes = slices.Clone(r.Entries), slices.Clone(r.Notes)
	return r
}

// TestBrowserVerifies has the page's own code check traces in another JavaScript engine: unchanged, with an
// artifact erased, and with every kind of change. A changed byte anywhere is found.
func TestBrowserVerifies(t *testing.T) {
	node := serial.Program(t, "node")
	s := newStage(t, ui.Options{}).login()
	fetch := func(key string) (r rawTrace) {
		id := s.call("pay", key, `{"amount":5,"to":"Zoë \"x\""}`)
		_, raw := s.get("/traces/" + id.String() + "/raw")
		if err := json.Unmarshal([]byte(raw), &r); err != nil || len(r.Entries) < 3 {
			t.Fatalf("%v: %s", err, raw)
		}
		return r
	}
	doubt, other := fetch("k"), fetch("other")
	s.answer = `{"paid":5}`
	settled := fetch("settled")
	if len(doubt.Notes) == 0 {
		t.Fatal("the call in doubt has no note")
	}
	type tried struct {
		name  string
		trace rawTrace
		ok    bool
	}
	all := []tried{{"in doubt", doubt, true}, {"settled", settled, true}}
	same := settled.copied() // so that not only the forging is found
	same.Entries[len(same.Entries)-1].Entry = forged(t, same.Entries[len(same.Entries)-1].Entry, "entry_digest", "trace_id", settled.TraceID)
	all = append(all, tried{"nothing changed, digested anew", same, true})
	erased := settled.copied()
	erased.Entries[0].Artifact = ""
	all = append(all, tried{"erased", erased, true})
	for i := range doubt.Entries {
		gone, swapped, foreign := doubt.copied(), doubt.copied(), doubt.copied()
		gone.Entries = slices.Delete(gone.Entries, i, i+1)
		foreign.Entries[i] = other.Entries[i]
		swapped.Entries[i].Artifact = other.Entries[i].Artifact
		if i < len(doubt.Entries)-1 {
			all = append(all, tried{"an entry is gone", gone, false})
		}
		all = append(all, tried{"an entry of another trace", foreign, false}, tried{"an artifact of another trace", swapped, false})
	}
	foreign := doubt.copied()
	foreign.Notes = other.Notes
	all = append(all, tried{"notes of another trace", foreign, false})
	// A forger computes new digests for what was changed. No other digest covers the last entry.
	last := len(settled.Entries) - 1
	if len(settled.Notes) != 0 {
		t.Fatal("the finished call has notes, which name its entries")
	}
	for member, value := range map[string]any{"prev_entry_digest": strings.Repeat("1", 64), "trace_id": other.TraceID, "sequence_number": 9, "artifact_digest": strings.Repeat("1", 64)} {
		r := settled.copied()
		r.Entries[last].Entry = forged(t, r.Entries[last].Entry, "entry_digest", member, value)
		all = append(all, tried{"the last entry with another " + member, r, false})
	}
	for member, value := range map[string]any{"prev_note_digest": strings.Repeat("1", 64), "note_number": 9, "head_entry_digest": strings.Repeat("1", 64)} {
		r := doubt.copied()
		r.Notes[len(r.Notes)-1] = forged(t, r.Notes[len(r.Notes)-1], "note_digest", member, value)
		all = append(all, tried{"the last note with another " + member, r, false})
	}
	// Every seventh byte of each text is changed.
	flips := func(name, text string, put func(r *rawTrace, text string)) {
		for at := 1; at < len(text)-1; at += 7 {
			b := []byte(text)
			if b[at]++; b[at] == '"' || b[at] == '\\' || b[at] >= 0x7f || b[at] < 0x21 {
				continue // not text, or not JSON: refused before any digest is checked
			}
			r := doubt.copied()
			put(&r, string(b))
			all = append(all, tried{name, r, false})
		}
	}
	for i, e := range doubt.Entries {
		flips("an entry is changed", e.Entry, func(r *rawTrace, text string) { r.Entries[i].Entry = text })
		flips("an artifact is changed", e.Artifact, func(r *rawTrace, text string) { r.Entries[i].Artifact = text })
	}
	for i, n := range doubt.Notes {
		flips("a note is changed", n, func(r *rawTrace, text string) { r.Notes[i] = text })
	}
	var in, errs bytes.Buffer
	lines := json.NewEncoder(&in)
	for _, c := range all {
		if err := lines.Encode(c.trace); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(node, "testdata/verify.mjs", "assets/verify.js")
	cmd.Stdin, cmd.Stderr = &in, &errs
	out, err := cmd.Output()
	verdicts := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(verdicts) != len(all) {
		t.Fatalf("%d verdicts of %d, %v: %s", len(verdicts), len(all), err, errs.String())
	}
	for i, c := range all {
		if (verdicts[i] == `""`) != c.ok {
			t.Errorf("%s: %s", c.name, verdicts[i])
		}
	}
	t.Logf("%d traces", len(all))
}

// forged returns a canonical text with one changed member and a new digest.
func forged(t *testing.T, text, digest, member string, value any) string {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	v[member] = value
	delete(v, digest)
	canonical := func() []byte {
		raw, err := json.Marshal(v)
		if err == nil {
			raw, err = jcs.Transform(raw)
		}
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	v[digest] = fmt.Sprintf("%x", sha256.Sum256(canonical()))
	return string(canonical())
}

// TestVendoredFilesAreThose: the vendored files are those that their lock file names, with their licences.
func TestVendoredFilesAreThose(t *testing.T) {
	lock, err := os.ReadFile("assets/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]struct{ version, licence string }{
		"htmx.min.js": {`"node_modules/htmx.org": {` + "\n      " + `"version": "2.0.11"`, "LICENSE.htmx"},
		"sse.min.js":  {`"node_modules/htmx-ext-sse": {` + "\n      " + `"version": "2.2.4"`, "LICENSE.sse"},
	} {
		licence, err := os.ReadFile("assets/" + want.licence)
		if err != nil || !strings.Contains(string(licence), "Permission to use, copy, modify") {
			t.Errorf("%s: %v", want.licence, err)
		}
		if !strings.Contains(string(lock), want.version) {
			t.Errorf("the lock file has no %s", want.version)
		}
		if b, err := os.ReadFile("assets/" + file); err != nil || len(b) == 0 {
			t.Errorf("%s: %v", file, err)
		}
	}
	if b, err := os.ReadFile("assets/htmx.min.js"); err != nil || !bytes.Contains(b, []byte(`version:"2.0.11"`)) {
		t.Errorf("htmx is not 2.0.11: %v", err)
	}
}

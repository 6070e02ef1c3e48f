package vectors

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gowebpki/jcs"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
)

func load(t *testing.T, name string, v any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("tga", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// python returns the interpreter, or skips the test: Go checks the vectors too, and the module needs no
// python3 to be built or used.
func python(t *testing.T) string {
	t.Helper()
	return serial.Program(t, "python3")
}

func TestVectorsHoldOutsideGo(t *testing.T) {
	out, err := exec.Command(python(t), "check.py").CombinedOutput()
	if err != nil {
		t.Errorf("check.py: %v\n%s", err, out)
	}
}

// The outside checker must be able to fail, or its approval means nothing.
func TestOutsideCheckerSeesAChangedDigit(t *testing.T) {
	interpreter := python(t)
	for _, change := range []struct{ file, old, new string }{
		{"golden_chain.json", `"amount": 12.5,`, `"amount": 12.6,`},
		{"golden_chain.json", `"note_number": 2`, `"note_number": 3`},
		{"golden_chain.json", `ch_1\",\"amount`, `ch_2\",\"amount`},
		{"state_transition_vectors.json", `"code": "STATE_SEQUENCE_GAP"`, `"code": "STATE_CHECKSUM_MISMATCH"`},
		{"canonical_json.json", `"canonical": "[1,100,`, `"canonical": "[1,101,`},
		{"canonical_json.json", `"canonical": "[5e-324`, `"canonical": "[1e-323`},
		{"ledger_decisions.json", `"idempotency_key": "order-1", "sha256"`, `"idempotency_key": "order-2", "sha256"`},
		{"ledger_decisions.json", `"submitter": "uid:1000", "begin_id"`, `"submitter": "uid:1001", "begin_id"`},
		{"body_file.json", `54474144424f445900000001`, `54474144424f445900000002`},
		{"watermark.json", `"group": 8`, `"group": 9`},
		{"watermark.json", `74676164776d000203`, `74676164776d000303`},
		{"sealed_segment.json", `544741445345470a00000002`, `544741445345470a00000003`},
		{"sealed_segment.json", `"verdict": "STATE_SEQUENCE_GAP"`, `"verdict": "STATE_CHECKSUM_MISMATCH"`},
		{"sealed_segment.json", `"verdict": "FORMAT_TOO_NEW"`, `"verdict": "ok"`},
		{"packed_segment.json", `5447414450414b0a00000002`, `5447414450414b0a00000003`},
		{"packed_segment.json", `"body": "7468`, `"body": "7469`},
		{"packed_segment.json", `"verdict": "FORMAT_TOO_NEW"`, `"verdict": "ok"`},
		{"log_bytes.json", `"start": 4096`, `"start": 4104`},
		{"log_bytes.json", `544741444c4f470a00000002`, `544741444c4f470a00000003`},
		{"log_bytes.json", `74686520626f6479206f66`, `74686520626f6479206f67`},
		{"log_bytes.json", `"closed": true`, `"closed": false`},
		{"log_bytes.json", `"ledger_keys": 1`, `"ledger_keys": 2`},
	} {
		dir := t.TempDir()
		changed := false
		for _, name := range []string{"golden_chain.json", "state_transition_vectors.json", "canonical_json.json", "ledger_decisions.json", "log_bytes.json", "watermark.json", "body_file.json", "sealed_segment.json", "packed_segment.json"} {
			b, err := os.ReadFile(filepath.Join("tga", name))
			if err != nil {
				t.Fatal(err)
			}
			if name == change.file && bytes.Contains(b, []byte(change.old)) {
				b = bytes.Replace(b, []byte(change.old), []byte(change.new), 1)
				changed = true
			}
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if !changed {
			t.Errorf("%s does not contain %s", change.file, change.old)
			continue
		}
		if out, err := exec.Command(interpreter, "check.py", dir).CombinedOutput(); err == nil {
			t.Errorf("%s with %s: check.py accepts it\n%s", change.file, change.new, out)
		}
	}
}

func TestGoldenChainDecodes(t *testing.T) {
	var file struct {
		KnownAnswer struct{ Entry json.RawMessage } `json:"known_answer"`
		Traces      []struct {
			Name                      string
			Artifacts, Entries, Notes []json.RawMessage
			Preimages                 []string `json:"entry_preimages"`
			State, Checkpoint         json.RawMessage
		}
	}
	load(t, "golden_chain.json", &file)
	if _, err := tga.DecodeLogEntry(file.KnownAnswer.Entry); err != nil {
		t.Errorf("known answer: %v", err)
	}
	for _, trace := range file.Traces {
		for i, raw := range trace.Artifacts {
			a, err := tga.DecodeArtifact(raw, tga.Limits{})
			if err != nil {
				t.Errorf("%s: artifact %d: %v", trace.Name, i+1, err)
				continue
			}
			if want, err := jcs.Transform(raw); err != nil || !bytes.Equal(a.Canonical, want) {
				t.Errorf("%s: artifact %d: canonical %s, jcs %s (%v)", trace.Name, i+1, a.Canonical, want, err)
			}
			again, err := tga.DecodeStoredArtifact(a.Canonical)
			if err != nil || again.Digest != a.Digest {
				t.Errorf("%s: artifact %d read back: %v", trace.Name, i+1, err)
			}
		}
		for i, raw := range trace.Entries {
			e, err := tga.DecodeLogEntry(raw)
			if err != nil {
				t.Errorf("%s: entry %d: %v", trace.Name, i+1, err)
				continue
			}
			stored, err := tga.DecodeEntryPreimage([]byte(trace.Preimages[i]))
			if err != nil || *stored != *e {
				t.Errorf("%s: entry %d: preimage decodes to %+v (%v), want %+v", trace.Name, i+1, stored, err, e)
			}
		}
		for i, raw := range trace.Notes {
			if _, err := tga.DecodeNote(raw); err != nil {
				t.Errorf("%s: note %d: %v", trace.Name, i+1, err)
			}
		}
		if _, err := tga.DecodeExecutionState(trace.State); err != nil {
			t.Errorf("%s: state: %v", trace.Name, err)
		}
		if _, err := tga.DecodeCheckpoint(trace.Checkpoint); err != nil {
			t.Errorf("%s: checkpoint: %v", trace.Name, err)
		}
	}
}

func TestCanonicalVectorsHoldForJCS(t *testing.T) {
	var file struct {
		Accepted []struct{ Name, Input, Canonical string }
		Refused  []struct {
			Name    string
			Input   []byte `json:"input_base64"`
			Code    tga.Code
			Pointer string
		}
	}
	load(t, "canonical_json.json", &file)
	for _, c := range file.Accepted {
		if want, err := jcs.Transform([]byte(c.Input)); err != nil || string(want) != c.Canonical {
			t.Errorf("%s: vector %s, jcs %s (%v)", c.Name, c.Canonical, want, err)
		}
		if got, err := tga.Canonicalize([]byte(c.Input), tga.Limits{}); err != nil || string(got) != c.Canonical {
			t.Errorf("%s: vector %s, ours %s (%v)", c.Name, c.Canonical, got, err)
		}
	}
	for _, c := range file.Refused {
		var e *tga.Error
		if err := tga.Gate(c.Input, tga.Limits{}); !errors.As(err, &e) || e.Code != c.Code || e.Pointer != c.Pointer {
			t.Errorf("%s: %v, want %s at %q", c.Name, err, c.Code, c.Pointer)
		}
	}
}

// Package wal refuses a sequence, and has its own test with these vectors. Here every entry of it decodes,
// except for an entry whose own fault is the reason.
func TestTransitionVectorsAreEntries(t *testing.T) {
	var file struct {
		Sequences []struct {
			Name    string
			Entries []json.RawMessage
			Refused *struct {
				At   int
				Code tga.Code
			}
		}
	}
	load(t, "state_transition_vectors.json", &file)
	for _, s := range file.Sequences {
		for i, raw := range s.Entries {
			_, err := tga.DecodeLogEntry(raw)
			if err == nil {
				continue
			}
			if s.Refused == nil || s.Refused.At != i+1 || !errors.Is(err, s.Refused.Code) {
				t.Errorf("%s: entry %d: %v", s.Name, i+1, err)
			}
		}
	}
}

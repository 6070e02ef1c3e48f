//go:build unix

package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// answer is the part of a tool's answer that says what it did.
func answer(value []byte) []byte {
	var result struct {
		Structured json.RawMessage `json:"structuredContent"`
	}
	if json.Unmarshal(value, &result) == nil && result.Structured != nil {
		return result.Structured
	}
	return value
}

// settleDoubt is part 5: calls in doubt are listed, and settled with evidence.
func (s *show) settleDoubt(ctx context.Context) error {
	s.title("A call in doubt: shown, then settled with the journal as evidence")
	w := s.opaque
	list, err := w.client.InDoubt(ctx)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		// A short demo may have no call in doubt. Make one: kill after the charge.
		h, err := w.strike(ctx, "charge_opaque", point{N: s.Points + 1, On: charged})
		if err != nil {
			return err
		}
		if list, err = w.client.InDoubt(ctx); err != nil {
			return err
		}
		s.step("daemon", "kill -9 after a charge: %s", h.Recovery)
	}
	if len(list) == 0 {
		s.claim(false, "a call that may have run is in doubt", "none is")
		return nil
	}
	first, err := s.pick(list)
	if err != nil {
		return err
	}
	out, code, err := w.command(ctx, "show", first.TraceID.String())
	if err != nil {
		return err
	}
	s.step("operator", "tgad in-doubt lists %d calls; one of them, by tgad show:", len(list))
	s.text("")
	s.quote(out)
	s.text("")
	for _, t := range list {
		if err := s.settleOne(ctx, t); err != nil {
			return err
		}
	}
	left, err := w.client.InDoubt(ctx)
	if err != nil {
		return err
	}
	repeat, code2, err := w.command(ctx, "call", "payments", "charge_opaque", s.argsOf(ctx, first), "--key", first.IdempotencyKey)
	if err != nil {
		return err
	}
	s.step("caller", "%s again: %s", first.IdempotencyKey, answered(code2, repeat))
	count, err := w.charges("charge_opaque", first.IdempotencyKey)
	if err != nil {
		return err
	}
	s.claim(code == 0 && strings.Contains(out, "in doubt"), "the call is shown in doubt", "exit code %d: %s", code, firstLine(out))
	s.claim(len(left) == 0, "nothing is in doubt after it was settled", "%d calls", len(left))
	s.claim(count.Charges <= 1 && count.Received <= 1, "a settled call is served, not sent", "exit code %d, %+v", code2, count)
	return nil
}

// pick chooses a call in doubt that was charged, which only the tool server knows. If there
// is none, it chooses the first call.
func (s *show) pick(list []wire.OpenTrace) (wire.OpenTrace, error) {
	for _, t := range list {
		count, err := s.opaque.charges(t.ToolName, t.IdempotencyKey)
		if err != nil {
			return t, err
		}
		if count.Charges > 0 {
			return t, nil
		}
	}
	return list[0], nil
}

// settleOne resolves a call in doubt according to the journal.
func (s *show) settleOne(ctx context.Context, t wire.OpenTrace) error {
	count, err := s.opaque.charges(t.ToolName, t.IdempotencyKey)
	if err != nil {
		return err
	}
	evidence, err := json.Marshal(map[string]any{"source": "payments.journal", "key": t.IdempotencyKey, "received": count.Received, "charges": count.Charges})
	if err != nil {
		return err
	}
	outcome := "ran"
	if count.Charges == 0 {
		outcome = "not-run"
	}
	out, code, err := s.opaque.command(ctx, "resolve", t.TraceID.String(), "--outcome", outcome, "--evidence", string(evidence))
	if err != nil {
		return err
	}
	s.step("operator", "%-24s %d in the journal: resolved as %s", t.IdempotencyKey, count.Charges, outcome)
	if code != 0 {
		s.claim(false, "a call in doubt can be resolved", "exit code %d: %s", code, out)
	}
	return nil
}

// argsOf reads the arguments of a call from its request.
func (s *show) argsOf(ctx context.Context, t wire.OpenTrace) string {
	said, err := s.opaque.client.Trace(ctx, t.TraceID)
	if err != nil || len(said.Entries) == 0 {
		return "{}"
	}
	a, err := tga.DecodeArtifact(said.Entries[0].Artifact, tga.Limits{})
	if err != nil || a.Request == nil {
		return "{}"
	}
	return string(a.Request.Proposal.Args)
}

// answered says how a repeat went.
func answered(code int, output string) string {
	if code == 0 && strings.Contains(output, "served from trace") {
		return "served from its record"
	}
	return fmt.Sprintf("exit code %d, %s", code, firstLine(output))
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// tamper is part 6: verify finds one changed byte.
func (s *show) tamper(ctx context.Context) error {
	s.title("Verify, then change one byte in a copy")
	w := s.opaque
	export, store := filepath.Join(s.dir, "export.ndjson"), filepath.Join(s.dir, "copy")
	if err := os.RemoveAll(store); err != nil {
		return err
	}
	if err := os.Remove(export); err != nil && !os.IsNotExist(err) {
		return err
	}
	online, code, err := w.command(ctx, "verify")
	if err != nil {
		return err
	}
	s.step("verify", "the open store: %s", firstLine(online))
	s.claim(code == 0, "the log verifies after all that", "exit code %d: %s", code, online)
	out, code, err := w.command(ctx, "export", "-o", export)
	if err != nil || code != 0 {
		return fmt.Errorf("export: exit code %d: %s: %w", code, out, err)
	}
	if err := w.stop(); err != nil {
		return err
	}
	if err := os.CopyFS(store, os.DirFS(w.data)); err != nil {
		return err
	}

	where, err := flipInExport(export)
	if err != nil {
		return err
	}
	out, code, err = w.command(ctx, "verify", export)
	if err != nil {
		return err
	}
	s.step("export", "one byte changed at offset %d: exit code %d", where.offset, code)
	s.quote(out)
	named := strings.Contains(out, where.trace) && strings.Contains(out, "stored") && strings.Contains(out, "computed")
	s.claim(code == 3, "verify refuses the export", "exit code %d", code)
	s.claim(named, "and names the trace, the entry and both digests", "%s", out)

	name, offset, err := flipInStore(store)
	if err != nil {
		return err
	}
	out, code, err = w.command(ctx, "verify", store)
	if err != nil {
		return err
	}
	s.step("store", "one byte changed in %s at offset %d: exit code %d", name, offset, code)
	s.quote(out)
	s.claim(code == 3, "verify refuses the store", "exit code %d: %s", code, out)
	return nil
}

type flipped struct {
	offset int
	trace  string
}

// flipInExport changes a digit of the amount of a recorded call.
func flipInExport(path string) (flipped, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return flipped{}, err
	}
	at := 0
	for _, line := range bytes.SplitAfter(b, []byte("\n")) {
		if i := bytes.Index(line, []byte(`"amount":1`)); i >= 0 && bytes.Contains(line, []byte(`"kind":"artifact"`)) {
			var l struct {
				Artifact struct {
					TraceID string `json:"trace_id"`
				} `json:"artifact"`
			}
			if err := json.Unmarshal(line, &l); err != nil {
				return flipped{}, err
			}
			offset := at + i + len(`"amount":`)
			b[offset] = '9'
			return flipped{offset, l.Artifact.TraceID}, os.WriteFile(path, b, 0o640)
		}
		at += len(line)
	}
	return flipped{}, fmt.Errorf("%s has no call to change", path)
}

// flipInStore changes one bit of a store's log, in the middle of what is written there.
func flipInStore(dir string) (name string, offset int, err error) {
	var best []byte
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if filepath.Base(filepath.Dir(path)) != "log" {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		// A log file has zeros after the data that is written in it.
		if used := bytes.TrimRight(b, "\x00"); len(used) > len(best) {
			best, name = used, path
		}
		return nil
	})
	if err != nil {
		return "", 0, err
	}
	if name == "" {
		return "", 0, fmt.Errorf("%s has no table and no log", dir)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return "", 0, err
	}
	offset = len(best) / 2
	b[offset] ^= 1
	return filepath.Base(name), offset, os.WriteFile(name, b, 0o640)
}

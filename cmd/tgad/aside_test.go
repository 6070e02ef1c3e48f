package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// objects are the lines of a text, each of which must be an error as an object.
func objects(t *testing.T, text string) (all []cli.Failure) {
	t.Helper()
	for line := range strings.Lines(text) {
		var f cli.Failure
		if err := json.Unmarshal([]byte(line), &f); err != nil || f.Message == "" {
			t.Errorf("%q is no error as an object: %v", line, err)
		}
		all = append(all, f)
	}
	return all
}

// TestErrorsAboutOneOfManyAreObjectsToo: a verb that goes on with the others says with --json in the same form which was
// refused, and as text nothing that a terminal obeys.
func TestErrorsAboutOneOfManyAreObjectsToo(t *testing.T) {
	h := newHeld(t)
	socket := filepath.Join(filepath.Dir(h.data), "s")
	defer h.serves(socket)()
	code, _, errs := says("--json", "--socket", socket, "relicense", h.done, h.question, "--reason", "it honours keys for a day")
	if all := objects(t, errs); code != cli.ExitError || len(all) != 3 || !strings.Contains(all[0].Message, h.done) || all[0].Code == "" || !strings.Contains(all[1].Message, h.question) {
		t.Errorf("relicense: exit code %d, %+v", code, all)
	}
	code, _, errs = says("--socket", socket, "relicense", h.done, h.question, "--reason", "it honours keys for a day")
	if code != cli.ExitError || !strings.HasPrefix(errs, "tgad: trace "+h.done+": ") {
		t.Errorf("relicense: exit code %d, %s", code, errs)
	}

	id, err := tga.ParseID(h.done)
	if err != nil {
		t.Fatal(err)
	}
	hostile := "a \x1b[2J\u009b31m\u202e line\nand another"
	for _, inJSON := range []bool{true, false} {
		var out, errs strings.Builder
		e := &erasing{app: &app{Streams: cli.Streams{Out: &out, Err: &errs, JSON: inJSON}}}
		e.unread = []turn.Listed{{OpenTurn: turn.OpenTurn{InteractionID: id}, Err: tga.Errorf(tga.StateChecksumMismatch, "%s", hostile)}}
		err := sayErased(e, wire.Erased{Left: 1, Unread: []wire.Unread{{TraceID: id, Code: tga.StoreUnavailable, Detail: hostile}}})
		if cli.ExitCode(err) != cli.ExitError {
			t.Errorf("erase: %v", err)
		}
		if inJSON {
			if all := objects(t, errs.String()); len(all) != 1 || all[0].Code != tga.StateChecksumMismatch || !strings.Contains(all[0].Message, h.done) {
				t.Errorf("erase: %+v", all)
			}
			continue
		}
		for text, lines := range map[string]int{errs.String(): 1, out.String(): 3} {
			if strings.ContainsAny(text, "\x1b\u009b\u202e") || strings.Count(text, "\n") != lines {
				t.Errorf("erase: %q", text)
			}
		}
	}
}

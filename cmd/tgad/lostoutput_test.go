package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// fullDisk refuses every write, as /dev/full does.
type fullDisk struct{ err error }

func (f fullDisk) Write([]byte) (int, error) {
	return 0, &os.PathError{Op: "write", Path: "/dev/stdout", Err: f.err}
}

// TestOutputThatIsLostIsAnError: if a full disk does not take the output of a verb, the verb reports that
// and exits 1, as text and as JSON. So a user with the output in a file does not take a part of it for
// the whole. If the reader has closed its end, no error is reported.
func TestOutputThatIsLostIsAnError(t *testing.T) {
	t.Setenv("TGAD_SOCKET", "")
	h := newHeld(t)
	conf := filepath.Join(filepath.Dir(h.data), "tgad.toml")
	verbs := [][]string{
		{"version"}, {"explain", "EFFECT_IN_DOUBT"}, {"config", "show", conf}, {"config", "check", conf}, {"mcp", "config", "--", "x"},
		{"init", "--data", ""}, {"--help"}, {"ls", "--help"}, {"help", "ls"}, {"config"}, {"completion", "bash"},
	}
	for _, verb := range h.reading() {
		verbs = append(verbs, append(verb[:len(verb)-1:len(verb)-1], "--data", h.data))
	}
	for _, verb := range verbs {
		for _, more := range [][]string{nil, {"--json"}} {
			args := append(verb[:len(verb):len(verb)], more...)
			if verb[0] == "init" {
				args[2] = filepath.Join(t.TempDir(), "new")
			} else if _, out, _ := says(args...); out == "" {
				continue // there is no turn of an agent
			}
			var errs strings.Builder
			if code := run(args, strings.NewReader(""), fullDisk{syscall.ENOSPC}, &errs); code != 1 || !strings.Contains(errs.String(), "no space left") {
				t.Errorf("%q: exit code %d, %q", args, code, errs.String())
			}
		}
	}
	var errs strings.Builder
	if code := run([]string{"version"}, strings.NewReader(""), fullDisk{syscall.EPIPE}, &errs); code != 0 || errs.String() != "" {
		t.Errorf("closed by its reader: exit code %d, %q", code, errs.String())
	}

	// Verbs that print without end must end: otherwise a log in a file would have a hole.
	defer h.serves(filepath.Join(t.TempDir(), "s"))()
	for _, args := range [][]string{{"tail", "-f"}, {"tail", "-f", h.done}} {
		errs.Reset()
		if code := run(append(args, "--data", h.data), strings.NewReader(""), fullDisk{syscall.ENOSPC}, &errs); code != 1 {
			t.Errorf("%q: exit code %d, %q", args, code, errs.String())
		}
	}
}

// TestNoCallIsMadeInNoTime: an impossible duration is a usage error. It used to be answered with "the call
// may have run", exit code 4.
func TestNoCallIsMadeInNoTime(t *testing.T) {
	t.Setenv("TGAD_SOCKET", filepath.Join(t.TempDir(), "s"))
	for _, flags := range [][]string{{"--timeout", "0s"}, {"--timeout", "-1s"}, {"--reconnect", "-1s"}} {
		if code, _, errs := says(append([]string{"call", "x", "t", "{}", "--key", "k"}, flags...)...); code != 2 {
			t.Errorf("%q: exit code %d, %s", flags, code, errs)
		}
	}
}

package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/cli"
)

// TestInterruptedDoctorFindsNothingGood: a machine that was not looked at to the end is not found to be well.
func TestInterruptedDoctorFindsNothingGood(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{{"doctor"}, {"doctor", "--json"}} {
		var out, errs strings.Builder
		a := &app{Streams: cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}}
		root := a.command()
		root.SetArgs(args)
		if code := a.Fail(root.ExecuteContext(ctx)); code != cli.ExitInterrupted {
			t.Errorf("%q: exit code %d, %s%s", args, code, &out, &errs)
		}
	}
}

// TestDoctorFindsTheDaemonOfTheStore: as every verb that asks a daemon, by the directory alone, wherever the daemon listens.
// A socket that is named counts.
func TestDoctorFindsTheDaemonOfTheStore(t *testing.T) {
	t.Setenv("TGAD_SOCKET", "")
	h := newHeld(t)
	dir := filepath.Dir(h.data)
	defer h.serves(filepath.Join(dir, "s"))()
	for _, row := range []struct {
		socket, data string // of the environment
		args         []string
		finds        bool
	}{
		{"", "", []string{"--data", h.data}, true},
		{"", h.data, nil, true},
		{filepath.Join(dir, "other"), "", []string{"--data", h.data}, true},
		{filepath.Join(dir, "other"), h.data, nil, false},
		{"", h.data, []string{"--socket", filepath.Join(dir, "other")}, false},
	} {
		t.Setenv("TGAD_SOCKET", row.socket)
		t.Setenv("TGAD_DATA", row.data)
		_, out, errs := says(append([]string{"doctor"}, row.args...)...)
		if strings.Contains(out, "ready, answers in") != row.finds || strings.Contains(out, filepath.Join(dir, "s")+", mode") != row.finds {
			t.Errorf("%+v: %s%s", row, out, errs)
		}
	}
}

// TestDoctorKnowsTheLowWaterMark: whether calls are taken is a matter of the daemon's configuration, not of the default.
func TestDoctorKnowsTheLowWaterMark(t *testing.T) {
	t.Setenv("TGAD_SOCKET", "")
	h := newHeld(t)
	config := h.config
	for mark, want := range map[string]string{"1": "ok    space", "\"1000000GiB\"": "bad   space"} {
		h.config = config + "\n[store]\nlow_water_bytes = " + mark + "\n"
		stop := h.serves(filepath.Join(filepath.Dir(h.data), "s"))
		_, out, errs := says("doctor", "--data", h.data)
		if !strings.Contains(out, want) || strings.Contains(out, "Below 1 GiB") {
			t.Errorf("a mark of %s: %s%s", mark, out, errs)
		}
		stop()
	}
}

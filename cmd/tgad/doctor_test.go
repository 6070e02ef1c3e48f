package main

import (
	"context"
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

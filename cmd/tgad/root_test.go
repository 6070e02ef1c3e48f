package main

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
)

// TestTooManyArgumentsAreUsage: whatever a verb refuses of its arguments, at any depth, is an error of usage, and so exit
// code 2.
func TestTooManyArgumentsAreUsage(t *testing.T) {
	a := &app{Streams: cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}}
	refused := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, args := range [][]string{nil, {"one"}, strings.Fields("a b c d e f g h")} {
			if c.Args == nil {
				break
			}
			err := c.Args(c, args)
			if err == nil {
				continue
			}
			refused++
			var usage *cli.UsageError
			if !errors.As(err, &usage) {
				t.Errorf("%s with %d arguments: %v", c.CommandPath(), len(args), err)
			}
		}
		for _, below := range c.Commands() {
			walk(below)
		}
	}
	walk(a.command())
	if refused < 60 {
		t.Errorf("%d refusals were looked at", refused)
	}
}

package main

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
)

// TestHelpIsNarrow: no line of a verb's help is wider than a terminal, and no word of it is lost.
func TestHelpIsNarrow(t *testing.T) {
	verbs, broken := 0, 0
	var walk func(c, wide *cobra.Command)
	walk = func(c, wide *cobra.Command) {
		verbs++
		help := c.UsageString()
		for line := range strings.Lines(c.Long + "\n" + help) {
			if n := utf8.RuneCountInString(line) - 1; n > cli.HelpWidth {
				t.Errorf("%s --help has a line of %d characters: %s", c.CommandPath(), n, line)
			}
		}
		if before := wide.UsageString(); before != help {
			if broken++; !slices.Equal(strings.Fields(before), strings.Fields(help)) {
				t.Errorf("%s --help has other words:\n%s", c.CommandPath(), help)
			}
		}
		for i, below := range c.Commands() {
			walk(below, wide.Commands()[i])
		}
	}
	tree := func() *cobra.Command {
		return (&app{Streams: cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}}).command()
	}
	wide := tree()
	wide.SetUsageFunc(nil)
	walk(tree(), wide)
	if verbs < 60 || broken < 10 {
		t.Errorf("%d verbs, the help of %d was broken", verbs, broken)
	}
}

// TestTooManyArgumentsAreUsage: wrong arguments of a verb, at any depth, are a usage error with exit code 2.
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

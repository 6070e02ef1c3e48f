package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Prepare makes root the root of a program. All verbs were added before.
func (s *Streams) Prepare(root *cobra.Command) {
	// Errors are printed once, by Fail, in one form.
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetIn(s.In)
	root.SetOut(printed{s})
	root.SetErr(s.Err)
	root.SetFlagErrorFunc(flagError)
	// Their arguments are checked too. By itself, cobra adds these two verbs later.
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	argsAreUsage(root)
	NarrowHelp(root)
}

// Execute runs a program that is prepared, and returns its exit code.
func (s *Streams) Execute(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var usage *UsageError
	if errors.As(err, &usage) && wantsJSON(args) {
		s.JSON = true // cobra does not read the flags behind a mistake
	}
	return s.Fail(err)
}

// wantsJSON reports whether the flag --json is on a command line.
func wantsJSON(args []string) bool {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return slices.Contains(args, "--json")
}

// printed is where cobra prints a help or a script. It keeps the error of a failed write for [Streams.Fail], because
// cobra drops the error, or prints it in a form of its own.
type printed struct{ s *Streams }

func (p printed) Write(b []byte) (int, error) {
	_, err := p.s.Out.Write(b)
	p.s.lose(err)
	return len(b), nil
}

// flagError is the error of a wrong flag. Before a verb that does not exist, every flag is wrong: then the verb is the mistake.
func flagError(c *cobra.Command, err error) error {
	if words := c.Flags().Args(); len(words) > 0 && c.HasSubCommands() {
		if unknown := c.ValidateArgs(words); unknown != nil {
			return unknown
		}
	}
	return Usage(err)
}

// argsAreUsage turns the errors of argument checks, of a command and of all commands below it, into usage
// errors.
func argsAreUsage(c *cobra.Command) {
	switch {
	case c.Name() == "help" && c.Parent() == c.Root():
		c.Args = unknownTopic
	case c.HasSubCommands() && c.Args == nil:
		c.Args = unknownVerb
	}
	if !c.Runnable() {
		// By itself, cobra prints the help for a verb that does not exist too, and exits with 0.
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			switch {
			case err == nil || errors.As(err, new(*UsageError)):
				return err
			case isCount(err) && !c.HasSubCommands():
				// cobra reports "tgad init DIR" as an unknown command.
				return Usagef("%s takes other arguments: %s", c.CommandPath(), strings.TrimSuffix(c.UseLine(), " [flags]"))
			}
			return Usage(err)
		}
	}
	for _, below := range c.Commands() {
		argsAreUsage(below)
	}
}

// isCount reports whether an error is cobra's about how many arguments there are.
func isCount(err error) bool {
	return slices.ContainsFunc([]string{"unknown command ", "accepts ", "requires at "}, func(s string) bool { return strings.HasPrefix(err.Error(), s) })
}

// unknownVerb refuses an argument that is no verb, and suggests verbs with similar names.
func unknownVerb(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q", args[0])
	if c.HasParent() {
		text += fmt.Sprintf(" for %q", c.CommandPath())
	}
	c.SuggestionsMinimumDistance = 2
	if like := c.SuggestionsFor(args[0]); len(like) > 0 {
		text += "; did you mean " + strings.Join(like, " or ") + "?"
	}
	return Usagef("%s", text)
}

// unknownTopic refuses what the verb help has no text for.
func unknownTopic(c *cobra.Command, args []string) error {
	verb, rest, err := c.Root().Find(args)
	if err != nil {
		return Usage(err)
	}
	return unknownVerb(verb, rest)
}

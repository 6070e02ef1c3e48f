package main

import (
	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
)

// elsewhere is a verb of a program beside this one. That program takes this process over, with the
// arguments as they were typed.
func elsewhere(of cli.Beside, verb, short string) *cobra.Command {
	return &cobra.Command{
		Use: verb, Short: short, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			return of.Exec(verb, append([]string{verb}, args...))
		},
	}
}

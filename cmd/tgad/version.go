package main

import (
	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
)

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version: of the program, of Go, of Pebble and of each format",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := cli.BuildVersion()
			if a.JSON {
				return a.Line(v)
			}
			a.Printf("%s", v.Text())
			return nil
		},
	}
}

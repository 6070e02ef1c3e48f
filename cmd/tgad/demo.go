package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/demo"
)

func (a *app) demo() *cobra.Command {
	var o demo.Options
	var scenario string
	scenarios := map[string]func(context.Context, demo.Options) (int, error){"kill": demo.Run, "trust": demo.RunTrust}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Kill the daemon in mid call, again and again, and count the charges",
		Long: `demo runs a payments tool server, a caller and the daemon as processes, kills them
with SIGKILL, and counts the charges in the tool server's own journal. It takes about
15 seconds and exits 1 if anything it claims is not so.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			exe, err := os.Executable()
			if err != nil {
				return err
			}
			run := scenarios[scenario]
			if run == nil {
				return cli.Usagef("--scenario %q: want %s", scenario, strings.Join(slices.Sorted(maps.Keys(scenarios)), " or "))
			}
			if o.Points < 0 {
				return cli.Usagef("--points is %d", o.Points)
			}
			o.Exe, o.Out, o.JSON, o.Colour = exe, a.Out, a.JSON, cli.Colour(a.Out)
			failed, err := run(cmd.Context(), o)
			if err == nil && failed > 0 {
				err = fmt.Errorf("%d claims of the demo are not so", failed)
			}
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&scenario, "scenario", "kill", "kill: kill -9 in mid call; trust: the world is asked, people, undoing")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the kills")
	f.IntVar(&o.Points, "points", 20, "kills per tool in part 3 of kill, calls in part 1 of trust")
	f.StringVar(&o.Keep, "keep", "", "work in this directory and leave everything there")
	return c
}

// hidden are the verbs that the demo runs itself under.
func hidden() []*cobra.Command {
	var all []*cobra.Command
	for name, main := range map[string]func(args []string, stdin io.Reader, stdout, stderr io.Writer) int{
		"demo-payments": demo.Payments,
		"demo-caller":   demo.StockCaller,
		"demo-provider": demo.Provider,
	} {
		all = append(all, &cobra.Command{
			Use: name, Hidden: true, DisableFlagParsing: true,
			RunE: func(c *cobra.Command, args []string) error {
				if code := main(args, c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr()); code != cli.ExitOK {
					return cli.Silent(code)
				}
				return nil
			},
		})
	}
	return all
}

package lab

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/demo"
)

func demoVerb(s *cli.Streams) *cobra.Command {
	var o demo.Options
	var scenario string
	var view bool
	scenarios := map[string]func(context.Context, demo.Options) (int, error){"evidence": demo.RunEvidence, "kill": demo.Run, "mcp": demo.RunMCP, "state": demo.RunState, "trust": demo.RunTrust, "turn": demo.RunTurn}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Kill processes in the middle of calls, and count the charges",
		Long: `demo runs tool servers, callers and tgad as processes, kills them with SIGKILL, and counts
the charges in the tool servers' own journals: first an MCP client before and after one
word in its configuration (scenario mcp), then a daemon that is killed at every point of a
call (scenario kill). It takes about 15 seconds and exits 1 if anything it claims is not so.

With --ui it lays out a store with a crashed charge, a request that waits for a person and a
finished turn of an agent, and serves tgad ui on it until you interrupt it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			tgad, self, err := programs()
			if err != nil {
				return err
			}
			for _, name := range strings.Split(scenario, ",") {
				if scenarios[name] == nil {
					return cli.Usagef("--scenario %q: want %s", name, strings.Join(slices.Sorted(maps.Keys(scenarios)), " or "))
				}
			}
			if o.Points < 0 {
				return cli.Usagef("--points is %d", o.Points)
			}
			o.Exe, o.Lab, o.Out, o.JSON, o.Colour = tgad, self, s.Out, s.JSON, cli.Colour(s.Out)
			if view {
				return demo.RunUI(cmd.Context(), o)
			}
			failed := 0
			for _, name := range strings.Split(scenario, ",") {
				n, err := scenarios[name](cmd.Context(), o)
				if err != nil {
					return err
				}
				failed += n
			}
			if failed > 0 {
				return fmt.Errorf("%d claims of the demo are not so", failed)
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&scenario, "scenario", "mcp,kill", "mcp: a client's configuration, one word added; kill: kill -9 in mid call; state: kill -9 in mid-write of a workspace; trust: the world is asked, people, undoing; evidence: attacks on the store by who owns its disk; turn: an agent between message and answer")
	f.BoolVar(&view, "ui", false, "set a stage and show it in a browser")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the kills")
	f.IntVar(&o.Points, "points", 20, "kills per tool in part 3 of kill, kills in part 2 of state, calls in part 1 of trust")
	f.StringVar(&o.Keep, "keep", "", "work in this directory and leave everything there")
	return c
}

// programs returns the path of tgad, which is beside this program or in PATH, and of this program.
func programs() (tgad, self string, err error) {
	if self, err = os.Executable(); err != nil {
		return "", "", err
	}
	if tgad, err = exec.LookPath(filepath.Join(filepath.Dir(self), "tgad")); err != nil {
		tgad, err = exec.LookPath("tgad")
	}
	return tgad, self, err
}

// hidden returns the verbs with which the demo starts this program again, as its tool servers and callers.
func hidden(s *cli.Streams) []*cobra.Command {
	var all []*cobra.Command
	for name, main := range map[string]func(args []string, stdin io.Reader, stdout, stderr io.Writer) int{
		"agent":    demo.Agent,
		"payments": demo.Payments,
		"caller":   demo.StockCaller,
		"provider": demo.Provider,
		"till":     demo.Till,
	} {
		all = append(all, &cobra.Command{
			Use: name, Hidden: true, DisableFlagParsing: true,
			RunE: func(_ *cobra.Command, args []string) error {
				if code := main(args, s.In, s.Out, s.Err); code != cli.ExitOK {
					return cli.Silent(code)
				}
				return nil
			},
		})
	}
	return all
}

package lab

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/crashtest"
	"github.com/tgad/tgad/internal/crashtest/suite"
	"github.com/tgad/tgad/internal/killtest"
)

// tortureVerb is the verb that crashes stores made for the purpose.
func tortureVerb(s *cli.Streams) *cobra.Command {
	o := suite.Options{Tiers: []string{"mem", "rapid", "corrupt", "trust", "turn", "state"}}
	k := &killFlags{}
	var html string
	c := &cobra.Command{
		Use:   "torture",
		Short: "Crash stores made for the purpose, and count losses and double sends",
		Long: `torture makes stores, crashes them before each of their operations, inside recovery too,
fails their writes and damages their files, and holds what is left to the guarantee: of
calls, of what is asked of tool servers and people, of agents' turns and of working state.
The stores are in memory; with --data, processes with stores on that disk are killed as
well, on Linux. It touches no store that it did not make.

It prints a table and one JSON object of counts, or the object alone with --json, and exits
1 unless redispatches, double_effects, acked_losses and corruptions_silent are 0. Failures
leave their image and seed in a temporary directory.

With --store it runs another test, for any engine: it kills the engine's process in the
middle of calls and counts the charges of a payment service outside. It exits 1 if a call
was charged twice, lost, or spoken of falsely. tgad torture compare does that to several.

tgad torture report makes a report of results that were kept.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			killing := cmd.Flags().Changed("store")
			for flag, of := range map[string]bool{"budget": false, "world": true, "calls": true, "patience": true} {
				if cmd.Flags().Changed(flag) && of != killing {
					return cli.Usagef("--%s: with --store there are --world, --calls and --patience, without it --budget", flag)
				}
			}
			if !killing {
				return torture(cmd, s, o, html)
			}
			k.data, k.seed, k.html = o.Stores, o.Seed, html
			return k.run(cmd.Context(), s, func(string) bool { return true })
		},
	}
	k.register(c, nil, []string{killtest.Plain})
	c.AddCommand(compareVerb(s, &killFlags{}), speedVerb(s), reportVerb(s))
	htmlFlag(c, &html)
	c.Flags().StringVar(&o.Stores, "data", "", "directory whose disk is tried too; the stores in it are temporary")
	c.Flags().DurationVar(&o.Budget, "budget", time.Minute, "how long it runs")
	c.Flags().Uint64Var(&o.Seed, "seed", uint64(time.Now().UnixNano()), "where randomness begins")
	c.Flags().Lookup("seed").DefValue = "the time" // what help and manual pages say
	return c
}

func torture(cmd *cobra.Command, s *cli.Streams, o suite.Options, html string) (err error) {
	if o.Budget <= 0 {
		return cli.Usagef("--budget %s: want a positive duration, as 1m", o.Budget)
	}
	if err := htmlFits(html); err != nil {
		return err
	}
	if o.Stores != "" {
		o.Tiers = append(o.Tiers, "proc", "double")
	}
	if o.Images, err = os.MkdirTemp("", "tgad-torture-"); err != nil {
		return err
	}
	o.Out = s.Out
	if s.JSON {
		o.Out = io.Discard
	}
	res, err := suite.Run(cmd.Context(), o)
	if res == nil {
		return err
	}
	if !s.JSON {
		if err := res.Counts.Table(s.Out); err != nil {
			return err
		}
	}
	line, jsonErr := res.Counts.JSON()
	if jsonErr != nil {
		return jsonErr
	}
	s.Printf("%s\n", line)
	err = errors.Join(err, (&results{crash: []*crashtest.Result{res}}).write(html))
	if err == nil {
		err = res.Counts.Err()
	}
	if err == nil {
		return os.Remove(o.Images) // nothing failed: it is empty
	}
	return fmt.Errorf("%w (images in %s)", err, o.Images)
}

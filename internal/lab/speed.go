package lab

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/crashtest"
	"github.com/tgad/tgad/internal/killtest"
)

// speedVerb is the verb that measures the speed of the engines.
func speedVerb(s *cli.Streams) *cobra.Command {
	k := &killFlags{}
	var o killtest.SpeedOptions
	c := &cobra.Command{
		Use:   "speed",
		Short: "Measure how fast several engines make calls that nobody disturbs",
		Long: `speed starts each engine by its adapter, as compare does, and kills nothing. All engines run at
once; one after the other makes calls for a slice of time, in several rounds. The payment
service answers at once. It prints calls per second, how long a call takes, and what
processor time it takes, the engine's servers included, or with --json an object a line. Figures are medians over the rounds; a rate is compared with the first
engine's in the same round. docs/COMPARE.md describes the method.

It exits 1 if an engine fails, if a call does not complete, or if one was charged twice.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return k.speed(cmd.Context(), s, o) },
	}
	f := c.Flags()
	f.StringArrayVar(&k.stores, "store", []string{"dir", "outbox"}, storesUsage)
	f.IntSliceVar(&o.Callers, "callers", []int{1, 16, 64}, "callers at once")
	f.DurationVar(&o.Slice, "slice", 3*time.Second, "how long an engine is measured at once")
	f.IntVar(&o.Rounds, "rounds", 3, "how often each engine is measured")
	f.DurationVar(&k.wait, "patience", time.Minute, "how long an answer of an engine may take")
	f.StringVar(&k.data, "data", "", "directory whose disk the engines use; what they write is temporary")
	f.StringVar(&k.result, "result", "", "file to which an object a line is appended as well")
	return c
}

func (k *killFlags) speed(ctx context.Context, s *cli.Streams, o killtest.SpeedOptions) (err error) {
	if o.Commands, err = adaptersOf(k.stores); err != nil {
		return err
	}
	about := crashtest.NewResult(0) // of the tree before there are files of this run in it
	o.Patience = k.wait
	if o.Dir, err = k.place("tgad-speed-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	speeds, err := killtest.MeasureSpeed(ctx, o)
	if err != nil {
		return err
	}
	for _, speed := range speeds {
		speed.Commit, speed.Machine = about.Commit, about.Machine
		line, err := json.Marshal(speed)
		if err == nil {
			err = k.write(s, line)
		}
		if err != nil {
			return err
		}
	}
	if s.JSON {
		return nil
	}
	return killtest.SpeedTable(s.Out, speeds)
}

// Command torture runs the crash tiers and prints their counts: a table, and one line of
// JSON. It exits with status 1 if a property does not hold, a count that must be 0 is not,
// or a planted bug survives.
//
// With -sum it runs nothing and adds up result files.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/tgad/tgad/internal/crashtest"
	"github.com/tgad/tgad/internal/crashtest/suite"
)

func main() {
	suite.RunChild()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	o := suite.Options{Out: os.Stdout}
	names := flag.String("tiers", "mem,rapid,corrupt", "tiers to run, of "+strings.Join(suite.Names(), " "))
	flag.DurationVar(&o.Budget, "budget", 5*time.Minute, "time for all of them; each has its share")
	flag.Uint64Var(&o.Seed, "seed", uint64(time.Now().UnixNano()), "where randomness begins")
	flag.StringVar(&o.Images, "images", "", "directory for the images of failures; \"\" = a new temporary one")
	flag.StringVar(&o.Stores, "data", "", "directory for the stores of real processes; \"\" = a temporary one")
	bugs := flag.String("bugs", "", "planted bugs to try; \"\" = all")
	line := flag.String("json", "", "file for the line of JSON")
	result := flag.String("result", "", "file for the counts with seed, commit, machine and times")
	sum := flag.Bool("sum", false, "add up the result files that are named as arguments")
	flag.Parse()
	if *sum {
		return crashtest.Sum(os.Stdout, flag.Args())
	}
	o.Tiers = strings.Split(*names, ",")
	if *bugs != "" {
		o.Bugs = strings.Split(*bugs, ",")
	}
	if o.Images == "" {
		if o.Images, err = os.MkdirTemp("", "tgad-torture-"); err != nil {
			return err
		}
		// Remove deletes the directory only if it is empty, so failures that were kept stay.
		defer func() { _ = os.Remove(o.Images) }()
	}
	res, err := suite.Run(ctx, o)
	if res == nil {
		return err
	}
	return errors.Join(err, finish(res, *line, *result))
}

// finish prints and writes the counts.
func finish(res *crashtest.Result, line, result string) error {
	if err := res.Counts.Table(os.Stdout); err != nil {
		return err
	}
	b, err := res.Counts.JSON()
	if err != nil {
		return err
	}
	fmt.Println(string(b))
	if line != "" {
		err = os.WriteFile(line, append(b, '\n'), 0o644)
	}
	if result != "" {
		err = errors.Join(err, res.Write(result))
	}
	return errors.Join(err, res.Counts.Err())
}

// Command torture runs the crash tiers and says what they reached: a table, and one
// line of JSON. It ends with status 1 where a property does not hold, a count that must
// be 0 is not, or a planted bug survives.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/crashtest"
	"github.com/tgad/tgad/internal/crashtest/proc"
)

func main() {
	proc.RunChild() // a victim or an oracle of the process tiers does not return from here
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	testing.Init() // rapid asks for its flags
	names := flag.String("tiers", "mem,rapid,corrupt", "tiers to run, of "+strings.Join(tierNames(), " "))
	budget := flag.Duration("budget", 5*time.Minute, "time for all of them; each has its share")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "where randomness begins")
	out := flag.String("json", "", "file for the line of JSON")
	images := flag.String("images", "", "directory for the images of failures; \"\" = a new temporary one")
	flag.Parse()
	chosen, err := choose(*names)
	if err != nil {
		return err
	}
	if *images == "" {
		if *images, err = os.MkdirTemp("", "tgad-torture-"); err != nil {
			return err
		}
	}
	fmt.Printf("seed %d, commit %s, images of failures in %s\n", *seed, commit(), *images)
	begin := time.Now()
	total := &crashtest.Counts{}
	var failed []error
	for i, t := range chosen {
		if ctx.Err() != nil {
			break
		}
		shares := 0
		for _, left := range chosen[i:] {
			shares += left.Share
		}
		r := &crashtest.Run{Seed: *seed, SaveDir: *images, Out: os.Stdout}
		r.Deadline = time.Now().Add((*budget - time.Since(begin)) * time.Duration(t.Share) / time.Duration(shares))
		tierBegin := time.Now()
		t.Run(r)
		r.Show()
		fmt.Printf("tier %-10s %6.0f s\n", t.Name, time.Since(tierBegin).Seconds())
		if err := r.Err(); err != nil {
			failed = append(failed, fmt.Errorf("tier %s: %w", t.Name, err))
		}
		total.Add(&r.Counts)
	}
	total.Seconds = int64(time.Since(begin).Seconds())
	return errors.Join(append(failed, ctx.Err(), finish(total, *out))...)
}

// finish prints and writes what was reached.
func finish(total *crashtest.Counts, out string) error {
	if err := total.Table(os.Stdout); err != nil {
		return err
	}
	line, err := total.JSON()
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	if out != "" {
		if err := os.WriteFile(out, append(line, '\n'), 0o644); err != nil {
			return err
		}
	}
	return total.Err()
}

func tierNames() (names []string) {
	for _, t := range tiers {
		names = append(names, t.Name)
	}
	return names
}

func choose(names string) (chosen []crashtest.Tier, err error) {
	for _, name := range strings.Split(names, ",") {
		i := slices.Index(tierNames(), name)
		if i < 0 {
			return nil, fmt.Errorf("tier %q is none of %s", name, strings.Join(tierNames(), " "))
		}
		chosen = append(chosen, tiers[i])
	}
	return chosen, nil
}

// commit names the code under test; a tree without one is not named.
func commit() string {
	b, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}

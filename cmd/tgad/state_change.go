package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/runtime/workstate/hostdir"
	"github.com/tgad/tgad/schemas/tga"
)

const atUsage = "a resource lies at `NAME=PATH[,ASIDE]`: NAME as show prints it, or its kind"

func (v *stateVerbs) rollback() *cobra.Command {
	var (
		planOnly, yes, dropLogs bool
		at                      []string
	)
	c := &cobra.Command{
		Use:   "rollback STATE CALL",
		Short: "Roll a working state back to before a call",
		Long: `rollback makes the state what it was before CALL: slices, map, budget, and the
directories and databases that the state says it has. It prints the plan and asks, unless
--yes is given; --plan prints it and changes nothing. What the calls did outside stands:
the plan lists it, with how to make up for it where --config names an inverse.

The rollback is a boundary of its own, whose id is printed: going back to before that
undoes it. It is carried out to its end although the process dies in its middle, by the
next that opens the state. Opening ends what a crash left open, as the agent would.

A directory or database that was moved is named with --at, and found there from then on.
One that was removed is made again where --at names its old place.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			o := workstate.RestoreOptions{DropLogs: dropLogs}
			if planOnly {
				v.config = v.file // it names the key ring too
				return v.inspecting(ctx, args[0], func(ctx context.Context, s *workstate.State) error {
					_, err := v.plan(ctx, s, args[1], o)
					return err
				})
			}
			v.dir = cmp.Or(v.data, os.Getenv("TGAD_DATA"))
			return v.rollBack(ctx, args[0], args[1], at, o, yes)
		},
	}
	c.Flags().BoolVar(&planOnly, "plan", false, "print the plan and change nothing")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&dropLogs, "drop-logs", false, "take back the slices that are logs too")
	c.Flags().StringArrayVar(&at, "at", nil, atUsage)
	c.Flags().StringVar(&v.file, "config", "", "the daemon's configuration: which tools only read, and their inverses")
	return c
}

func (v *stateVerbs) plan(ctx context.Context, s *workstate.State, call string, o workstate.RestoreOptions) (*workstate.Plan, error) {
	plan, err := s.PlanRollback(ctx, call, o)
	if err != nil {
		return nil, err
	}
	return plan, cli.RollbackPlan(&v.Streams, plan)
}

func (v *stateVerbs) rollBack(ctx context.Context, name, call string, at []string, o workstate.RestoreOptions, yes bool) (err error) {
	s, err := v.open(ctx, name, at)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	plan, err := v.plan(ctx, s.State, call, o)
	if err != nil {
		return err
	}
	if !yes && !v.agreed("roll back?") {
		return tga.Errorf(tga.PermissionDenied, "nothing was rolled back: answer y, or pass --yes")
	}
	id, err := plan.Do(ctx)
	if err != nil {
		return err
	}
	if v.JSON {
		return v.Line(map[string]any{"ok": true, "verb": "rollback", "what": id})
	}
	find := "" // the store, where only the command line said which it is
	if v.data != "" {
		find = "--data " + cli.ShellWord(cli.Absolute(v.data)) + " "
	}
	if v.file != "" {
		find += "--config " + cli.ShellWord(cli.Absolute(v.file)) + " "
	}
	v.Printf("\nrolled back; to undo it: tgad state rollback %s%s %s\n", find, name, id)
	return nil
}

// agreed asks a question and reads one line. It asks on stderr, so that stdout has the output alone.
func (a *app) agreed(question string) bool {
	_, _ = fmt.Fprintf(a.Err, "\n%s [y/N]\n", question) // who can't see it answers nothing
	line, err := bufio.NewReader(a.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false
	}
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}

func (v *stateVerbs) fork() *cobra.Command {
	var at []string
	c := &cobra.Command{
		Use:   "fork STATE CALL [--at NAME=PATH[,ASIDE]]... [--config FILE]",
		Short: "Start a second working state from where a call began",
		Long: `fork begins a second state that is what STATE was before CALL, and prints its name. What
either does from then on the other does not see. Every directory and database of the state
needs a place of its own, which must not exist yet:

  tgad state fork STATE CALL --at directory=/srv/second

ASIDE is where its snapshots are kept; PATH.tgad where it is not given.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			s, err := v.open(cmd.Context(), args[0], nil)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.close()) }()
			fork, err := s.fork(cmd.Context(), args[1], at)
			if err != nil {
				return err
			}
			return v.done("fork", fmt.Sprintf("%s/%d", fork.ID(), fork.Number()))
		},
	}
	dataFlag(c, &v.dir)
	c.Flags().StringArrayVar(&at, "at", nil, atUsage)
	c.Flags().StringVar(&v.file, "config", "", "configuration `file` (TOML) that names the key ring, for a sealed store")
	return c
}

// fork makes a second state with the content of s from before a call. If it fails, it
// removes what it made at the new places.
func (s *openState) fork(ctx context.Context, call string, at []string) (_ *workstate.State, err error) {
	snap, err := s.PreSnapshot(ctx, call)
	if err != nil {
		return nil, err
	}
	was := s.Places()
	places, err := parseAt(at, was)
	if err != nil {
		return nil, err
	}
	for name := range was {
		if _, ok := places[name]; !ok {
			return nil, cli.Usagef("the fork needs a place of its own for %s: --at", name)
		}
	}
	var made []string
	defer func() {
		if err != nil {
			for _, path := range made {
				err = errors.Join(err, os.RemoveAll(path))
			}
		}
	}()
	for _, name := range slices.Sorted(maps.Keys(places)) {
		list, err := makePlace(places[name])
		made = append(made, list...)
		if err != nil {
			return nil, tga.Errorf(tga.ValidationError, "a place for %s: %w", name, err)
		}
	}
	own, err := openPlaces(ctx, places, func(workstate.Place) bool { return true })
	if err != nil {
		return nil, err
	}
	s.resources = append(s.resources, own)
	for name, r := range own.resources {
		d, ok := r.(*hostdir.Dir)
		if !ok || snap.Resources[name] == nil {
			continue
		}
		if err := d.Fetch(ctx, s.resources[0].resources[name].(*hostdir.Dir), snap.Resources[name]); err != nil {
			return nil, err
		}
	}
	return s.Fork(ctx, call, workstate.NewSession(), own.registry, workstate.Options{})
}

// makePlace makes an empty directory or file for a resource. Nothing may exist there yet.
func makePlace(p workstate.Place) (made []string, err error) {
	for _, path := range []string{p.Path, p.Aside} {
		if _, err := os.Lstat(path); err == nil {
			return nil, &fs.PathError{Op: "make", Path: path, Err: fs.ErrExist}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if p.Kind == workstate.PlaceDirectory {
		if err := os.Mkdir(p.Path, 0o755); err != nil {
			return nil, err
		}
		return []string{p.Path, p.Aside}, nil
	}
	file, err := os.OpenFile(p.Path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return []string{p.Path, p.Aside}, file.Close()
}

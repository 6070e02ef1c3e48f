package main

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/doctor"
	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/runtime/workstate/hostdir"
	"github.com/tgad/tgad/schemas/tga"
)

// stateVerbs are the verbs of state, with the flags that they share.
type stateVerbs struct {
	*app
	dir  string // of the store
	file string // with the configuration
}

func (a *app) state() *cobra.Command {
	v := &stateVerbs{app: a}
	c := &cobra.Command{
		Use:   "state",
		Short: "Inspect, roll back and fork the working state of an agent",
		Long: `state works on what an agent holds: its slices, files, databases and budget, before and
after each of its recent calls. ls, show, diff and rollback --plan ask the daemon where one
has the store. rollback and fork open it themselves, so no process may have it.

STATE is a state's id as ls prints it, with /NUMBER behind it for a fork. CALL is a
tool_call_id, or the id of any other boundary as show prints it.`,
	}
	c.AddCommand(a.of(needLog, v.ls()), a.of(needLog, v.show()), a.of(needLog, v.diff()), a.of(needLog, v.rollback()), v.fork())
	return c
}

func (v *stateVerbs) check() error {
	if v.dir == "" {
		return cli.Usagef("--data is required: the directory of the store")
	}
	if has, err := doctor.HasStore(v.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	} else if !has {
		return tga.Errorf(tga.NotFound, "there is no store in %s", v.dir)
	}
	return nil
}

// inspecting runs g on a state that is opened read-only.
func (v *stateVerbs) inspecting(ctx context.Context, name string, g func(ctx context.Context, s *workstate.State) error) error {
	id, number, err := cli.ParseState(name)
	if err != nil {
		return err
	}
	o, err := v.options()
	if err != nil {
		return err
	}
	return v.ask(ctx, func(ctx context.Context, c *client.Client) error {
		s, err := workstate.Inspect(ctx, c, id, number, o)
		if err != nil {
			return err
		}
		return g(ctx, s)
	})
}

func (v *stateVerbs) ls() *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the working states of a store",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return v.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				list, unread := workstate.States(ctx, c)
				if list == nil && unread != nil {
					return unread
				}
				return errors.Join(cli.WorkingStates(&v.Streams, list), unread)
			})
		},
	}
}

func (v *stateVerbs) show() *cobra.Command {
	var snapshot string
	c := &cobra.Command{
		Use:   "show STATE [CALL]",
		Short: "Show the calls that changed a state, or what one call changed",
		Long: `show prints the boundaries that a state keeps, oldest first, and where its directories
and databases lie. With CALL it prints the parts that the call changed, and with
--snapshot the whole state before or after it as JSON.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if snapshot != "" && snapshot != "before" && snapshot != "after" || snapshot != "" && len(args) < 2 {
				return cli.Usagef("--snapshot is before or after a CALL")
			}
			return v.inspecting(cmd.Context(), args[0], func(ctx context.Context, s *workstate.State) error {
				if len(args) == 1 {
					if err := cli.Boundaries(&v.Streams, s.List()); err != nil {
						return err
					}
					return cli.Places(&v.Streams, s.Places())
				}
				return v.one(ctx, s, args[1], snapshot)
			})
		},
	}
	c.Flags().StringVar(&snapshot, "snapshot", "", "print the state before or after the call as JSON")
	return c
}

// one prints one boundary: what it changed or, with --snapshot, the whole state before or after it.
func (v *stateVerbs) one(ctx context.Context, s *workstate.State, call, snapshot string) error {
	before, err := s.PreSnapshot(ctx, call)
	if err != nil {
		return err
	}
	after, err := s.PostSnapshot(ctx, call)
	if snapshot == "" && errors.Is(err, tga.NotFound) {
		after, err = before, nil // it did not succeed: it changed nothing
	}
	if snapshot != "before" && err != nil {
		return err
	}
	if snapshot == "" {
		return cli.Changes(&v.Streams, workstate.Diff(before, after))
	}
	if snapshot == "after" {
		before = after
	}
	raw, err := before.ToJSON()
	if err != nil {
		return err
	}
	return v.Bytes(append(raw, '\n'))
}

func (v *stateVerbs) diff() *cobra.Command {
	var files bool
	c := &cobra.Command{
		Use:   "diff STATE FROM [TO]",
		Short: "Show what differs between the state before one call and before another",
		Long: `diff prints the parts that differ between the state before the call FROM and the state
before the call TO. Without TO, or for now, it is the state as it was committed last.
With --files the paths that differ in directories are named too, for which their snapshot
repositories are opened: they must not be in use.`,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			return v.inspecting(cmd.Context(), args[0], func(ctx context.Context, s *workstate.State) error {
				from, err := stateAt(ctx, s, args[1])
				if err != nil {
					return err
				}
				to, err := stateAt(ctx, s, strings.Join(args[2:], ""))
				if err != nil {
					return err
				}
				if err := cli.Changes(&v.Streams, workstate.Diff(from, to)); err != nil || !files {
					return err
				}
				return v.fileChanges(ctx, s.Places(), from, to)
			})
		},
	}
	c.Flags().BoolVar(&files, "files", false, "name the paths that differ in directories")
	return c
}

// stateAt returns the state before a call; for "" and "now", the state as it is now.
func stateAt(ctx context.Context, s *workstate.State, call string) (*workstate.CompositeSnapshot, error) {
	if call == "" || call == "now" {
		return s.Snapshot(ctx, workstate.SnapshotOptions{IncludeAll: true}, "")
	}
	return s.PreSnapshot(ctx, call)
}

// fileChanges prints the paths in which directories differ.
func (v *stateVerbs) fileChanges(ctx context.Context, places map[string]workstate.Place, from, to *workstate.CompositeSnapshot) (err error) {
	open, err := openPlaces(ctx, places, func(p workstate.Place) bool { return p.Kind == workstate.PlaceDirectory })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, open.close()) }()
	var all []cli.FileChange
	for _, name := range open.names() {
		x, y := from.Resources[name], to.Resources[name]
		if x == nil || y == nil || x.Digest() == y.Digest() {
			continue
		}
		list, err := open.resources[name].(*hostdir.Dir).Diff(ctx, x, y)
		if err != nil {
			return err
		}
		for _, c := range list {
			all = append(all, cli.FileChange{Resource: name, Status: string(c.Status), Path: c.Path})
		}
	}
	return cli.FileChanges(&v.Streams, all)
}

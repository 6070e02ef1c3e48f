package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/crashtest"
	"github.com/tgad/tgad/internal/killtest"
	"github.com/tgad/tgad/internal/killtest/adapter"
	"github.com/tgad/tgad/internal/killtest/engines"
	"github.com/tgad/tgad/schemas/tga"
)

// killFlags are the flags of the kill test, which torture and compare share.
type killFlags struct {
	stores []string
	worlds []string
	calls  int
	seed   uint64
	data   string
	wait   time.Duration
	result string // a file, "" = none
	html   string // likewise
}

const storesUsage = "engine; may be given several times: dir and postgres are tgad, outbox and file are built in, cmd:PROGRAM ARGUMENT... is an adapter (docs/TORTURE.md)"

func (k *killFlags) register(c *cobra.Command, stores, worlds []string) {
	f := c.Flags()
	f.StringArrayVar(&k.stores, "store", stores, storesUsage)
	f.StringSliceVar(&k.worlds, "world", worlds, "payment service: plain charges for each request, keyed once for each Idempotency-Key")
	f.IntVar(&k.calls, "calls", 60, "calls to make for each engine and world; all but one of six are killed")
	f.DurationVar(&k.wait, "patience", time.Minute, "how long an answer of an engine may take")
}

// compareVerb is the verb that kills several engines, and prints which of them charge twice.
func compareVerb(s *cli.Streams, k *killFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "compare",
		Short: "Kill several engines in the middle of calls, and print a table of who doubles",
		Long: `compare starts each engine by its adapter, kills it at the points of a call, starts it again,
repeats the call by its key, and counts the charges of a payment service that lives outside
of what is killed. It prints a row for each engine and world, or with --json an object a
line. docs/TORTURE.md describes the protocol and docs/COMPARE.md the method.

It exits 1 if a store of tgad has a fault, or if an engine's run does not come to its end.
The faults of other engines are in the table.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return k.run(cmd.Context(), s, func(store string) bool { return store == "dir" || store == "postgres" })
		},
	}
	k.register(c, []string{"dir", "outbox", "file"}, []string{killtest.Plain, killtest.Keyed})
	c.Flags().StringVar(&k.data, "data", "", "directory whose disk the engines use; what they write is temporary")
	c.Flags().Uint64Var(&k.seed, "seed", 1, "where randomness begins")
	htmlFlag(c, &k.html)
	c.Flags().StringVar(&k.result, "result", "", "file to which an object a line is appended as well")
	return c
}

// run runs each engine in each world. Faults of those that ours is true of are its error.
func (k *killFlags) run(ctx context.Context, s *cli.Streams, ours func(store string) bool) error {
	for _, world := range k.worlds {
		if world != killtest.Plain && world != killtest.Keyed {
			return cli.Usagef("--world %q: want plain or keyed", world)
		}
	}
	if k.calls < 1 || k.calls > killtest.MaxCalls {
		return cli.Usagef("--calls %d: want 1 to %d", k.calls, killtest.MaxCalls)
	}
	if k.wait < killtest.MinPatience {
		return cli.Usagef("--patience %v: want at least %v", k.wait, killtest.MinPatience)
	}
	if err := htmlFits(k.html); err != nil {
		return err
	}
	commands, err := adaptersOf(k.stores)
	if err != nil {
		return err
	}
	var all results
	var errs []error
	for i, store := range k.stores {
		for _, world := range k.worlds {
			res, err := k.one(ctx, commands[i], world)
			if err != nil {
				errs = append(errs, fmt.Errorf("--store %q, world %s: %w", store, world, err))
				continue
			}
			all.kill = append(all.kill, res)
			if ours(store) {
				errs = append(errs, res.Err())
			}
			line, err := json.Marshal(res)
			errs = append(errs, err, k.write(s, line))
		}
	}
	if len(all.kill) > 0 {
		errs = append(errs, all.write(k.html))
		if !s.JSON {
			errs = append(errs, killtest.Table(s.Out, all.kill))
		}
	}
	return errors.Join(errs...)
}

// one runs one engine in one world, in a directory that is removed afterwards.
func (k *killFlags) one(ctx context.Context, command []string, world string) (res *killtest.Result, err error) {
	about := crashtest.NewResult(k.seed) // before this run makes files, which would change the state of the tree
	dir, err := k.place("tgad-kill-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	res, err = killtest.Run(ctx, killtest.Options{
		Command: command, Dedupes: world == killtest.Keyed, Calls: k.calls, Seed: k.seed, Dir: dir, Patience: k.wait,
	})
	if err != nil {
		return nil, err
	}
	res.Commit, res.Machine = about.Commit, about.Machine
	return res, nil
}

// place makes the directory of a run. Others may pass through it, because an adapter's server may run as another user,
// as PostgreSQL does.
func (k *killFlags) place(pattern string) (dir string, err error) {
	if dir, err = os.MkdirTemp(k.data, pattern); err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return "", errors.Join(err, os.Remove(dir))
	}
	return filepath.Abs(dir)
}

// write writes a result as soon as it is there, so that a later failure cannot lose it.
func (k *killFlags) write(s *cli.Streams, line []byte) error {
	if s.JSON {
		s.Printf("%s\n", line)
	}
	if k.result == "" {
		return nil
	}
	f, err := os.OpenFile(k.result, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// postgresAdapter is the program of the adapter of tgad with a store in PostgreSQL. Its module is not linked
// into tgad-lab.
const postgresAdapter = "tgad-adapter-postgres"

// adaptersOf returns the commands of the adapters that --store names.
func adaptersOf(stores []string) ([][]string, error) {
	commands := make([][]string, len(stores))
	for i, store := range stores {
		var err error
		if commands[i], err = adapterOf(store); err != nil {
			return nil, err
		}
	}
	return commands, nil
}

// adapterOf returns the command of the adapter that --store names.
func adapterOf(store string) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if _, ok := engines.Named()[store]; ok {
		return []string{self, "adapter", store}, nil
	}
	line, other := strings.CutPrefix(store, "cmd:")
	command := strings.Fields(line)
	switch {
	case store == "postgres":
		command = []string{postgresAdapter}
		if beside := filepath.Join(filepath.Dir(self), postgresAdapter); executable(beside) {
			command[0] = beside
		}
	case !other || len(command) == 0:
		return nil, cli.Usagef("--store %q: want postgres, %s or cmd:PROGRAM", store, strings.Join(slices.Sorted(maps.Keys(engines.Named())), ", "))
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return nil, tga.Errorf(tga.NotFound, "--store %q: %w; make adapters builds the adapters of tgad's repository", store, err)
	}
	// The adapter runs in another directory, so its path must be absolute.
	if command[0], err = filepath.Abs(path); err != nil {
		return nil, err
	}
	return command, nil
}

func executable(path string) bool {
	_, err := exec.LookPath(path)
	return err == nil
}

// adapterVerb is the hidden verb that runs the adapter of a built-in engine.
func adapterVerb() *cobra.Command {
	return &cobra.Command{
		Use: "adapter NAME", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			e, ok := engines.Named()[args[0]]
			if !ok {
				return cli.Usagef("adapter %q: there is none", args[0])
			}
			adapter.Main(e)
			return nil
		},
	}
}

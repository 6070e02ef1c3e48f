package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/schemas/tga"
)

// initialized is what init says.
type initialized struct {
	Store   tga.ID `json:"store"`
	Data    string `json:"data"`
	New     bool   `json:"new"`
	Witness string `json:"witness,omitempty"`
	Config  string `json:"config,omitempty"`
}

func (a *app) init() *cobra.Command {
	var data, witness string
	var conf newConfig
	c := &cobra.Command{
		Use:   "init --data DIR [--witness FILE] [--config FILE]",
		Short: "Make a new store and print its id; the directory may exist if it is empty",
		Long: `init makes a store in DIR and prints its id. The other verbs make one only where DIR does
not exist: an empty directory may be a disk that is not mounted, and a new store would
send again what the one on that disk has recorded. So a package runs init once, and
puts the id into the configuration, where it pins the store:

  [store]
  id = "…"

Where DIR holds a store already, init prints its id and changes nothing.

--witness makes FILE, which should be on another disk, the witness of the store, whatever
it was the witness of: say so only of the newest directory there is. The configuration
then has to name it as [store] witness_file.

--config writes a new configuration, with comments, that pins the store: --server and --approve
say what is in it, or a person on a terminal is asked. A FILE that is there is never changed.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if data == "" {
				return cli.Usagef("--data is required: the directory of the store")
			}
			if conf.file == "" && (len(conf.servers) > 0 || conf.approve != "" || conf.yes) {
				return cli.Usagef("--server, --approve and --yes are about the file that --config writes")
			}
			said, err := conf.initialize(a, data, witness)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Line(said)
			}
			what := "store"
			if said.New {
				what = "new store"
			}
			a.Printf("%s %s in %s\n", what, said.Store, data)
			if said.Config != "" {
				a.Printf("new configuration in %s\nstart the daemon: tgad serve --data %s --config %s\n", said.Config, cli.ShellWord(data), cli.ShellWord(said.Config))
			}
			return nil
		},
	}
	dataFlag(c, &data)
	c.Flags().StringVar(&witness, "witness", "", "`file` by which a copied or rolled-back directory is recognised")
	f := c.Flags()
	f.StringVar(&conf.file, "config", "", "write a new configuration into this `file`")
	f.StringArrayVar(&conf.servers, "server", nil, "`ID=COMMAND` or ID=URL of an MCP tool server in it (repeatable)")
	f.StringVar(&conf.approve, "approve", "", "which calls it approves: ask (those that only read; a person decides about the rest), all or none (default ask)")
	f.BoolVar(&conf.yes, "yes", false, "ask nothing, also on a terminal")
	return c
}

// initialize makes the store and, with --config, its configuration. Everything that can be refused
// is checked before anything is made.
func (n *newConfig) initialize(a *app, data, witness string) (initialized, error) {
	if n.file == "" {
		return initialize(data, witness)
	}
	answers, err := n.answers(a, !n.yes && terminal(a.In) && terminal(a.Err))
	if err == nil {
		err = n.ready(answers)
	}
	if err != nil {
		return initialized{}, err
	}
	said, err := initialize(data, witness)
	if err != nil {
		return said, err
	}
	answers.Store, answers.Witness, said.Config = said.Store.String(), cli.Absolute(witness), n.file
	return said, n.write(answers)
}

func initialize(data, witness string) (initialized, error) {
	said := initialized{Data: data, Witness: witness}
	db, err := engine.OpenReadOnly(data, engine.Options{})
	switch {
	case err == nil:
		said.Store = db.Stats().StoreID
		if err := db.Close(); err != nil || witness == "" {
			return said, err
		}
		return said, engine.Witness(data, engine.Options{WitnessFile: witness})
	case !errors.Is(err, tga.NotFound):
		return said, err
	}
	said.New = true
	if db, err = engine.Open(data, engine.Options{Create: true, WitnessFile: witness}); err != nil {
		return said, err
	}
	said.Store = db.Stats().StoreID
	return said, db.Close()
}

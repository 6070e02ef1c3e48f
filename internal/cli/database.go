package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/config"
)

// Database has the functions that a program with a database driver implements for the verbs.
type Database struct {
	Open    OpenStore
	Migrate func(ctx context.Context, url string, months int) (Migrated, error)
	Copy    func(ctx context.Context, c Copying) (Copied, error)
	Retire  func(ctx context.Context, r Retiring) (Retired, error)
	Shards  ShardVerbs
}

// Migrated says what a migration did.
type Migrated struct {
	From  int    `json:"from"`  // version of the tables before; 0 where there were none
	To    int    `json:"to"`    // and now
	Until string `json:"until"` // the last month that has a partition of its own, as 2026-11
}

// Run runs the program that links a database. It has those verbs of tgad that need the database.
func (d Database) Run(program string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // a second signal ends the process at once
	s := &Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	var socket string
	root := &cobra.Command{Use: program, Short: "The verbs of tgad for a store in PostgreSQL; tgad starts it"}
	root.PersistentFlags().BoolVar(&s.JSON, "json", false, "print one JSON object a line")
	root.PersistentFlags().BoolVar(&s.Progress, "progress", false, "show how far long work is, on stderr; a terminal shows it without")
	root.PersistentFlags().StringVar(&socket, "socket", DefaultSocket(), "the daemon's socket (or $TGAD_SOCKET)")
	root.AddCommand(Serve(s, &socket, d.Open), d.pg(s), d.copyStore(s), d.verify(s), Commands(s))
	s.Prepare(root)
	return s.Execute(ctx, root, os.Args[1:])
}

// pg is the verb for the tables of a database.
func (d Database) pg(s *Streams) *cobra.Command {
	pg := &cobra.Command{Use: "pg", Short: "Look after the tables of a store in PostgreSQL"}
	months := 2
	migrate := &cobra.Command{
		Use:   "migrate URL",
		Short: "Make the tables of a store, or bring them to this version",
		Long: `migrate makes the tables, the functions and the four roles of a store in a database,
or brings older ones to this version, and makes the partitions of this month and of the next
ones. Run it once, after each update, and each month. It needs the right to make schemas and
roles; tgad serve needs neither. URL has no password: PGPASSFILE, PGPASSWORD or ~/.pgpass has it.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if months < 0 || months > 120 {
				return Usagef("--until %d: want 0 to 120 months", months)
			}
			if err := config.CheckStoreURL(args[0]); err != nil {
				return Usage(err)
			}
			done, err := d.Migrate(c.Context(), args[0], months)
			if err != nil {
				return err
			}
			if s.JSON {
				return s.Line(done)
			}
			switch {
			case done.From == 0:
				s.Printf("made the tables, version %d\n", done.To)
			case done.From == done.To:
				s.Printf("the tables were of version %d already\n", done.To)
			default:
				s.Printf("brought the tables from version %d to %d\n", done.From, done.To)
			}
			s.Printf("partitions up to %s\n", done.Until)
			return nil
		},
	}
	migrate.Flags().IntVar(&months, "until", months, "make partitions for so many `months` after this one")
	pg.AddCommand(migrate, d.retire(s), d.Shards.add(s), d.Shards.list(s), d.Shards.place(s), d.Shards.move(s))
	return pg
}

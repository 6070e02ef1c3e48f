package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/config"
)

// Retiring says which month of which database is retired, and where its archive is.
type Retiring struct {
	URL     string
	Month   time.Time      // its first day
	Archive string         // a directory
	Config  *config.Config // for the key ring, and the rest of [store]
}

// Retired says what a retirement did.
type Retired struct {
	Month    string   `json:"month"`    // as 2026-11
	Traces   int      `json:"traces"`   // whose artifacts and documents were dropped
	Entries  int      `json:"entries"`  // of the month, which all stay
	Archives []string `json:"archives"` // the files that have them
}

// retire is the verb for a month that is old enough.
func (d Database) retire(s *Streams) *cobra.Command {
	var month, archive, file string
	c := &cobra.Command{
		Use:   "retire URL --month YYYY-MM --archive DIR [--config FILE]",
		Short: "Archive what the calls of a month carried, and drop its partition",
		Long: `retire exports the calls of a month that is over into files of DIR, reads these back and verifies
them, and drops the month's partition. One without arguments, answers and documents takes its place: each
entry stays with its digests, so the chain verifies as before, and no key is free again. Nothing is
dropped while a call of the month is open, while a timer of one waits, or when one cannot be exported. The
export is in the clear; for a sealed store FILE names its key ring in [keyring]. The verb needs the rights
of pg migrate. URL has no password.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			first, err := time.Parse("2006-01", month)
			if err != nil {
				return Usagef("--month %q: want a month, as 2026-11", month)
			}
			if archive == "" {
				return Usagef("--archive is required: the directory that gets the export")
			}
			if err := config.CheckStoreURL(args[0]); err != nil {
				return Usage(err)
			}
			conf, err := assemble.Given(file)
			if err != nil {
				return err
			}
			done, err := d.Retire(c.Context(), Retiring{URL: args[0], Month: first, Archive: archive, Config: conf})
			return s.retired(done, err)
		},
	}
	c.Flags().StringVar(&month, "month", "", "the `month`, as 2026-11")
	c.Flags().StringVar(&archive, "archive", "", "the `directory` that gets the export")
	c.Flags().StringVar(&file, "config", "", "configuration `file` with [keyring], for sealed stores, and with password_file")
	return c
}

func (s *Streams) retired(done Retired, err error) error {
	switch {
	case err != nil && len(done.Archives) > 0:
		return fmt.Errorf("%w (nothing was dropped; the export in %v is of traces that the store has too)", err, done.Archives)
	case err != nil:
		return err
	case s.JSON:
		return s.Line(done)
	case done.Traces == 0:
		s.Printf("%s was retired already\n", done.Month)
		return nil
	}
	s.Printf("%s is retired: %d calls, of which %d entries stay\n", done.Month, done.Traces, done.Entries)
	for _, name := range done.Archives {
		s.Printf("archived in %s\n", name)
	}
	return nil
}

package main

import (
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/keyring"
	"github.com/tgad/tgad/schemas/tga"
)

// keyrings are the verbs about the file with the data keys. They work on the file itself, so no
// daemon may have it open meanwhile.
type keyrings struct{ *app }

func (a keyrings) verb() *cobra.Command {
	c := &cobra.Command{
		Use:   "keyring",
		Short: "Manage the keys under which a store seals what it keeps",
		Long: `A store whose configuration names a key ring seals arguments and answers under data keys in a
file outside of it. Each data key is wrapped under a key-encryption key, which comes from a file
or from a program. To erase a trace is to destroy its key.`,
	}
	c.AddCommand(a.make(), a.rotate(), a.count())
	return c
}

// kek are the flags that say where a key-encryption key comes from.
type kek struct {
	file, command, socket string
	timeout               time.Duration
}

func (k *kek) flags(c *cobra.Command, prefix, of string) {
	f := c.Flags()
	f.StringVar(&k.file, prefix+"kek-file", "", "`FILE` with "+of+": 32 bytes, or 64 hex digits; nobody else can read it")
	f.StringVar(&k.command, prefix+"kek-command", "", "`COMMAND` that wraps and unwraps "+of+": its arguments end at blanks, wrap or unwrap is added")
	f.StringVar(&k.socket, prefix+"kek-socket", "", "unix `SOCKET` of a program that wraps and unwraps "+of)
	f.DurationVar(&k.timeout, prefix+"kek-timeout", 0, "for one call of the program (10s)")
}

func (k *kek) options() keyring.Options {
	return keyring.Options{KEK: keyring.KEK{File: k.file, Command: strings.Fields(k.command), Socket: k.socket, Timeout: k.timeout}}
}

func (a keyrings) make() *cobra.Command {
	var from kek
	c := &cobra.Command{
		Use:   "init RING --kek-file FILE | --kek-command COMMAND | --kek-socket SOCKET",
		Short: "Make a key ring",
		Long: `init makes a key ring in the file RING, which must not be there. Put it on another disk than the
store, and keep a copy: without it nothing that was sealed can be read. A copy has the keys of
that day; keys that are destroyed later are still in it.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			id := tga.ID(uuid.Must(uuid.NewV7()))
			if err := keyring.Create(args[0], id, from.options()); err != nil {
				return err
			}
			if a.JSON {
				return a.Line(map[string]any{"ring": id})
			}
			a.Printf("key ring %s\n", id)
			return nil
		},
	}
	from.flags(c, "", "the key-encryption key")
	return c
}

func (a keyrings) rotate() *cobra.Command {
	var old, to kek
	c := &cobra.Command{
		Use:   "rotate RING --kek-file FILE --new-kek-file FILE",
		Short: "Wrap every key anew, under another key-encryption key",
		Long: `rotate wraps every data key of a ring anew. Then destroy the old key-encryption key: copies of
the ring from before, which still have keys that were destroyed since, cannot be opened any
more. No daemon may have the ring meanwhile.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := keyring.Rotate(args[0], old.options(), to.options()); err != nil {
				return err
			}
			return a.done("keyring rotate", "every key is wrapped under the new key-encryption key. Destroy the old one")
		},
	}
	old.flags(c, "", "the key-encryption key of now")
	to.flags(c, "new-", "the new key-encryption key")
	return c
}

func (a keyrings) count() *cobra.Command {
	var from kek
	c := &cobra.Command{
		Use:   "show RING --kek-file FILE | --kek-command COMMAND | --kek-socket SOCKET",
		Short: "Say what a key ring has",
		Long:  `show opens a ring, which no daemon may have meanwhile, and counts its keys.`,
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) (err error) {
			r, err := keyring.Open(args[0], from.options())
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, r.Close()) }()
			i, err := r.Info()
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Line(map[string]any{"ring": i.ID, "keys": i.Keys, "subjects": i.Subjects, "destroyed": i.Destroyed, "damaged": i.Damaged, "missing": i.Missing})
			}
			a.Printf("key ring %s: %d keys, those of %d subjects among them; %d destroyed, %d damaged, %d missing\n", i.ID, i.Keys, i.Subjects, i.Destroyed, i.Damaged, i.Missing)
			return nil
		},
	}
	from.flags(c, "", "the key-encryption key")
	return c
}

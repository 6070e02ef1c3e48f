package main

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/evidence/witness"
	"github.com/tgad/tgad/schemas/tga"
)

// witness is the verb that runs a witness for the stores of others.
func (a proving) witness() *cobra.Command {
	c := &cobra.Command{
		Use:   "witness",
		Short: "Remember the checkpoints of others' stores, and sign what grew",
	}
	c.AddCommand(a.serveWitness())
	return c
}

func (a proving) serveWitness() *cobra.Command {
	var key, state, listen, trustFile string
	var trusts []string
	var create bool
	c := &cobra.Command{
		Use:   `serve --key FILE --state FILE --listen HOST:PORT --trust "ORIGIN KEY"`,
		Short: "Answer POST /add-checkpoint of C2SP tlog-witness",
		Long: `serve remembers the newest checkpoint of each store that it trusts, and signs another one
only with the proof that it grew from that. Run it on another machine than the store, by
somebody else: a store that is rolled back is then found out, whoever did it. Make its key
with tgad evidence keygen --witness.

The state is what makes it a witness. At the very first start give --create; a start that
does not find its state is refused, since it would sign again what it signed against.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if key == "" || state == "" || listen == "" || len(trusts) == 0 && trustFile == "" {
				return cli.Usagef("name the key, the state, where to listen, and whom to trust")
			}
			trust, err := readTrust(trusts, trustFile)
			if err != nil {
				return err
			}
			k, err := witness.ReadKey(key)
			if err != nil {
				return err
			}
			return a.witnessing(cmd.Context(), k, trust, state, create, listen)
		},
	}
	c.Flags().StringVar(&key, "key", "", "the `file` of the witness's secret key, mode 0600")
	c.Flags().StringVar(&state, "state", "", "the `file` that remembers what was signed")
	c.Flags().BoolVar(&create, "create", false, "make the state; it must not be there")
	c.Flags().StringVar(&listen, "listen", "", "`address` to listen at, as 127.0.0.1:7070")
	c.Flags().StringArrayVar(&trusts, "trust", nil, "`origin and public key` of a store, with a blank between; may be given again")
	c.Flags().StringVar(&trustFile, "trust-file", "", "a `file` with a line of the kind for each store")
	return c
}

// readTrust reads which stores to trust. Empty lines of the file, and lines that begin with #, are ignored.
func readTrust(lines []string, path string) (witness.Trust, error) {
	if path != "" {
		found, err := access.Check(path)
		if err == nil && found.Refuse != "" {
			return nil, tga.Errorf(tga.PermissionDenied, "trust: %s: %s: others could have the witness trust their keys", path, found.Refuse)
		}
		f, err := os.Open(path)
		if err != nil {
			return nil, tga.Errorf(tga.ValidationError, "trust: %w", err)
		}
		defer f.Close()
		scan := bufio.NewScanner(f)
		for scan.Scan() {
			if line := strings.TrimSpace(scan.Text()); line != "" && line[0] != '#' {
				lines = append(lines, line)
			}
		}
		if err := scan.Err(); err != nil {
			return nil, tga.Errorf(tga.ValidationError, "trust: %s: %w", path, err)
		}
	}
	trust := witness.Trust{}
	for _, line := range lines {
		if err := trust.Add(line); err != nil {
			return nil, err
		}
	}
	if len(trust) == 0 {
		return nil, tga.Errorf(tga.ValidationError, "trust: %s names no store", path)
	}
	return trust, nil
}

func (a proving) witnessing(ctx context.Context, k *witness.Key, trust witness.Trust, state string, create bool, listen string) (err error) {
	s, err := witness.Open(state, create)
	if err != nil {
		return &cli.Unopened{Err: err}
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return &cli.Unopened{Err: tga.Errorf(tga.StoreUnavailable, "witness: %w", err)}
	}
	log := a.Lines(slog.LevelInfo, a.JSON)
	defer cli.OutliveHangup(log)()
	defer cli.OutliveReaders()()
	log.Info("listening", "address", l.Addr().String(), "stores", len(trust), "key", k.Public)
	return witness.New(k, trust, s, log).Serve(ctx, l)
}

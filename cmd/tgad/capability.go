package main

import (
	"encoding/json"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/capability"
	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/schemas/tga"
)

// capability has the verbs about the keys that sign approvals. They work on the key file
// itself. A daemon that uses the file notices a change at the next approval.
func (a *app) capability() *cobra.Command {
	c := &cobra.Command{
		Use:   "capability",
		Short: "Manage the keys and tokens of approvals",
	}
	c.AddCommand(a.capabilityKeys(), a.capabilityRotate(), a.capabilityVerify())
	return c
}

// keys opens the key file of a configuration, which must be there.
func keys(file string) (*assemble.Keys, error) {
	if file == "" {
		return nil, cli.Usagef("--config is required: the configuration that names the key file")
	}
	c, err := assemble.Load(file)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(c.KeyFile()); err != nil {
		return nil, tga.Errorf(tga.NotFound, "the key file: %w", err)
	}
	return assemble.OpenKeys(c, assemble.Options{})
}

func configFlag(c *cobra.Command, file *string) {
	c.Flags().StringVar(file, "config", "", "configuration `file` (TOML) with the key file")
}

func (a *app) capabilityKeys() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "keys --config FILE",
		Short: "List the public keys; the first one signs",
		Long:  `keys lists the public keys. With --json it prints the JSON Web Key Set that an auditor needs.`,
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			ring, err := keys(file)
			if err != nil {
				return err
			}
			set, err := ring.JWKS()
			if err != nil {
				return err
			}
			if a.JSON {
				_, err := a.Out.Write(append(set, '\n'))
				return err
			}
			var parsed struct {
				Keys []struct {
					Kid string `json:"kid"`
					Exp int64  `json:"exp"`
				} `json:"keys"`
			}
			if err := json.Unmarshal(set, &parsed); err != nil {
				return err
			}
			var rows [][]string
			for _, k := range parsed.Keys {
				standing := "signs"
				if k.Exp != 0 {
					standing = "verifies until " + time.Unix(k.Exp, 0).UTC().Format(time.RFC3339)
				}
				rows = append(rows, []string{k.Kid, standing})
			}
			return a.Table([]string{"KEY", "STANDING"}, rows)
		},
	}
	configFlag(c, &file)
	return c
}

func (a *app) capabilityRotate() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "rotate --config FILE",
		Short: "Make a new signing key",
		Long: `rotate makes a new key that signs from now on. The key before it verifies what it has
signed until the last of those tokens ends; its private half is gone. To revoke a key at
once, delete its block from the file.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			ring, err := keys(file)
			if err != nil {
				return err
			}
			id, err := ring.Rotate()
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Line(map[string]string{"key": id})
			}
			a.Printf("key %s signs\n", id)
			return nil
		},
	}
	configFlag(c, &file)
	return c
}

func (a *app) capabilityVerify() *cobra.Command {
	var file, set, at string
	c := &cobra.Command{
		Use:   "verify TOKEN --config FILE|--keys FILE",
		Short: "Verify a token and print what it permits",
		Long: `verify checks a token (minted_capability of a decision) against the keys of a
configuration, or against a JSON Web Key Set, and prints its claims. It exits 3 for one
that no key signed, or that was not in force at the time.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			when := time.Now()
			if at != "" {
				ms, err := tga.ParseMillis(at)
				if err != nil {
					return cli.Usage(err)
				}
				when = ms.Time()
			}
			public, err := keySet(file, set)
			if err != nil {
				return err
			}
			claims, err := capability.VerifyDetached(args[0], public)
			if tga.CodeOf(err) == tga.CapabilityInvalid {
				return &cli.Unverified{Err: err}
			}
			if err != nil {
				return err
			}
			if err := a.Line(claims); err != nil {
				return err
			}
			if err := claims.ValidAt(when, capability.DefaultSkew); err != nil {
				return &cli.Unverified{Err: err}
			}
			return nil
		},
	}
	configFlag(c, &file)
	c.Flags().StringVar(&set, "keys", "", "JSON Web Key Set `file`, as capability keys --json prints it")
	c.Flags().StringVar(&at, "at", "", "in force at this time, as the decision's ts (default: now)")
	return c
}

// keySet reads the public keys from where the command line says.
func keySet(file, set string) ([]byte, error) {
	if (file == "") == (set == "") {
		return nil, cli.Usagef("give --config or --keys")
	}
	if set != "" {
		return os.ReadFile(set)
	}
	ring, err := keys(file)
	if err != nil {
		return nil, err
	}
	return ring.JWKS()
}

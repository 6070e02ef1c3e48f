package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/schemas/tga"
)

// configuration is the verb config: it reads a configuration without a daemon.
type configuration struct {
	*app
	alone bool // look at the file alone
}

func configVerb(a *app) *cobra.Command {
	v := &configuration{app: a}
	c := &cobra.Command{
		Use:   "config",
		Short: "Check a configuration, or show what holds",
		Long: `config looks at the TOML file that serve --config reads. docs/CONFIG.md lists its keys.
No daemon is asked, and nothing is changed.`,
	}
	c.AddCommand(v.check(), v.show(), v.schema())
	return c
}

// load reads a file as serve does or, with --alone, without the files that it names.
func (v *configuration) load(name string) (*config.Config, error) {
	if v.alone {
		return config.Load(name, nil)
	}
	return assemble.Load(name)
}

func (v *configuration) aloneFlag(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVar(&v.alone, "alone", false, "look at the file alone, and not at the files that it names: for a machine that does not have them")
	return c
}

// checked is what check prints about a valid file.
type checked struct {
	File     string          `json:"file"`
	Warnings []config.Advice `json:"warnings"`
}

func (v *configuration) check() *cobra.Command {
	var strict bool
	c := &cobra.Command{
		Use:   "check FILE",
		Short: "Say what is wrong with a configuration, and what is unwise",
		Long: `check reads FILE as tgad serve does and contacts nobody. Each error names the file, the line
and the column, and a key that does not exist is named with the one that it resembles. What
is allowed and unwise is a warning.

Exit codes: 0 the file can be served, 1 it cannot, or has warnings and --strict is given.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			conf, err := v.load(args[0])
			if err != nil {
				return err
			}
			said := checked{File: args[0], Warnings: conf.Unwise()}
			if v.JSON {
				if said.Warnings == nil {
					said.Warnings = []config.Advice{}
				}
				err = v.Line(said)
			} else {
				for _, w := range said.Warnings {
					v.Printf("%s: warning: %s\n", cli.Clean(placed(args[0], w.Line, w.Column)), cli.Clean(withPath(w)))
				}
				v.Printf("%s: ok, %s\n", cli.Clean(args[0]), counted(len(said.Warnings), "warning"))
			}
			if err == nil && strict && len(said.Warnings) > 0 {
				return tga.Errorf(tga.ValidationError, "%s has %s, and --strict is given", args[0], counted(len(said.Warnings), "warning"))
			}
			return err
		},
	}
	c.Flags().BoolVar(&strict, "strict", false, "exit with 1 where there are warnings")
	return v.aloneFlag(c)
}

// withPath returns an advice with the key that it is about in front.
func withPath(w config.Advice) string {
	if w.Path == "" {
		return w.Text
	}
	return w.Path + ": " + w.Text
}

// placed returns FILE:LINE:COLUMN, or FILE if the line is not known.
func placed(file string, line, column int) string {
	if line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d:%d", file, line, column)
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// shownSetting is a line of show as JSON.
type shownSetting struct {
	config.Setting
	Origin string `json:"origin"`
}

func (v *configuration) show() *cobra.Command {
	var origin bool
	var url string
	c := &cobra.Command{
		Use:   "show [--origin] FILE",
		Short: "Print every value that holds, defaults too, without secrets",
		Long: `show prints FILE as TOML with every value that holds: what the file says, and the defaults of
the tables that it has. With --origin each line ends with the place in the file, the flag, or
"default". With --store it shows what holds where serve is given the same flag.

What may be a secret is shown as ***.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			conf, err := v.load(args[0])
			if err != nil {
				return err
			}
			if url != "" {
				if err := config.CheckStoreURL(url); err != nil {
					return cli.Usagef("--store: %s", err)
				}
				conf.Store.URL = url
			}
			for i, s := range conf.Settings() {
				from := placed(args[0], s.Line, s.Column)
				switch {
				case s.Path == "store.url" && url != "":
					from = "--store"
				case s.Preset:
					from = "default"
				}
				if err := v.line(s, from, origin, i == 0); err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&origin, "origin", false, "say of each value where it comes from")
	c.Flags().StringVar(&url, "store", "", "the flag of serve: the store's `URL` in a database")
	return v.aloneFlag(c)
}

// line prints a setting: as JSON, as the head of a table, or as a key.
func (v *configuration) line(s config.Setting, from string, origin, first bool) error {
	text := s.Key + " = " + s.Value
	switch {
	case v.JSON && s.Key == "":
		return nil
	case v.JSON:
		return v.Line(shownSetting{s, from})
	case s.Key == "":
		if !first {
			v.Printf("\n")
		}
		v.Printf("%s\n", s.Head)
	case origin:
		v.Printf("%-40s # %s\n", cli.Clean(text), cli.Clean(from))
	default:
		v.Printf("%s\n", cli.Clean(text))
	}
	return nil
}

func (v *configuration) schema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration, for editors",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			raw, err := config.Schema()
			if err == nil {
				_, err = v.Out.Write(raw)
			}
			return err
		},
	}
}

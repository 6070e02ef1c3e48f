//go:build unix

package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/mcpfront"
	"github.com/tgad/tgad/internal/mcpfront/toolset"
	"github.com/tgad/tgad/schemas/tga"
)

func (m *mcp) inspect() *cobra.Command {
	var accept, toml bool
	c := &cobra.Command{
		Use:   "inspect [flags] -- COMMAND [ARGS]",
		Short: "List the tools of a tool server and their licences",
		Long: `inspect starts the tool server, lists its tools, and ends it. Class and licence are what
the configuration says; without it every tool is a write tool about which nothing is
attested. A hint of the tool server's is no attestation: it is shown as one, and believed only
with --trust-hints. A tool whose definition is not the pinned one is marked; --accept pins what
is there now.

Below the table stands what you can paste into the configuration: the server, and a row for
each tool whose hints say that repeating it is harmless. --toml prints this part alone. If you
paste a row, you attest what it says: read it first.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := m.options(args)
			if err != nil {
				return err
			}
			conf := config.Default()
			if m.file != "" {
				if conf, err = assemble.Load(m.file); err != nil {
					return err
				}
			}
			// What is pinned is in the log's store.
			c, stop, err := m.log(cmd.Context(), cmd, o.Logger)
			if err != nil {
				return err
			}
			defer stop()
			o.Log, o.Stderr = c, nil
			s, err := mcpfront.New(o)
			if err != nil {
				return err
			}
			tools, err := s.Inspect(cmd.Context(), accept)
			if err == nil {
				err = m.inspected(o.Server, tools, conf, toml)
			}
			return errors.Join(err, s.Close())
		},
	}
	c.Flags().BoolVar(&toml, "toml", false, "print only what is for the configuration")
	c.Flags().BoolVar(&accept, "accept", false, "pin the definitions as they are now")
	return c
}

// inspected is one line of inspect.
type inspected struct {
	toolset.Inspected
	Class   string `json:"class"`
	Licence string `json:"licence"`
	Why     string `json:"why"`
}

func (m *mcp) inspected(server string, tools []toolset.Inspected, conf *config.Config, only bool) error {
	if only {
		m.Printf("%s", toPaste(server, tools, conf))
		return nil
	}
	if err := m.tabulate(server, tools, conf); err != nil || m.JSON {
		return err
	}
	m.Printf("\n%s", toPaste(server, tools, conf))
	return nil
}

// toPaste returns lines to paste into a configuration: the server, and those of its tools
// that the configuration has no row for. Text of the server appears only in TOML strings,
// never in a comment, because it is not trusted.
func toPaste(server string, tools []toolset.Inspected, conf *config.Config) string {
	var b strings.Builder
	b.WriteString("# for the configuration: read it before you paste it\n")
	if !slices.ContainsFunc(conf.Servers, func(s config.Server) bool { return s.ID == server }) {
		fmt.Fprintf(&b, "[[server]]\nid = %q\ntype = \"external\"\ntrusted = false # true: hints count without the rows below\n", server)
	}
	silent := 0
	for _, t := range tools {
		class, licence := t.Suggests()
		switch {
		case conf.ToolOf(server, t.Name) != nil, !tga.CleanName(t.Name):
		case licence == "":
			silent++
		default:
			fmt.Fprintf(&b, "\n[[tool]]\nserver = %q\nname = %q\nclass = %q\nlicence = %q\n", server, t.Name, class, licence)
		}
	}
	if silent > 0 {
		fmt.Fprintf(&b, "\n# %d more have no such hint: write, park\n", silent)
	}
	return b.String()
}

func (m *mcp) tabulate(server string, tools []toolset.Inspected, conf *config.Config) error {
	var rows [][]string
	for _, t := range tools {
		line := inspected{Inspected: t, Class: tga.ClassWrite, Licence: "park", Why: "nothing is attested"}
		if p, ok := conf.Policy(server, t.Name); ok {
			line.Class, line.Licence, line.Why = p.Class, p.Licence.Kind.String(), "the configuration says so"
		} else if class, licence := t.Suggests(); m.trust && licence != "" && !t.Changed() {
			line.Class, line.Licence, line.Why = class, licence, "its hint is trusted"
		}
		standing := "pinned"
		switch {
		case t.Pinned == "":
			standing = "new"
		case t.Changed():
			standing = "CHANGED"
		}
		if m.JSON {
			if err := m.Line(line); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{t.Name, line.Class, line.Licence, line.Why, strings.Join(t.Hints, " "), standing})
	}
	if m.JSON {
		return nil
	}
	return m.Table([]string{"TOOL", "CLASS", "LICENCE", "WHY", "ITS HINTS", "DEFINITION"}, rows)
}

package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Verb describes a command. A separate program, which is not linked into tgad, makes manual pages from it.
type Verb struct {
	Use     string `json:"use"`
	Short   string `json:"short"`
	Long    string `json:"long,omitempty"`
	Example string `json:"example,omitempty"`
	Flags   []Flag `json:"flags,omitempty"`  // its own
	Shared  []Flag `json:"shared,omitempty"` // and those that the verbs below have too
	Verbs   []Verb `json:"verbs,omitempty"`
}

// Flag is a flag of a command.
type Flag struct {
	Name    string `json:"name"`
	Short   string `json:"short,omitempty"` // the one letter
	Usage   string `json:"usage"`
	Type    string `json:"type"`
	Default string `json:"default,omitempty"`
	Bare    string `json:"bare,omitempty"` // what it means without a value
}

// Commands is a hidden verb. It prints the whole command tree of the program as one JSON object.
func Commands(s *Streams) *cobra.Command {
	return &cobra.Command{
		Use:    "commands",
		Short:  "Print the tree of commands as JSON, for manual pages",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE:   func(c *cobra.Command, _ []string) error { return s.Line(verbOf(c.Root())) },
	}
}

func verbOf(c *cobra.Command) Verb {
	v := Verb{Use: c.Use, Short: c.Short, Long: c.Long, Example: c.Example, Flags: flagsOf(c.LocalNonPersistentFlags()), Shared: flagsOf(c.PersistentFlags())}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			v.Verbs = append(v.Verbs, verbOf(sub))
		}
	}
	return v
}

func flagsOf(set *pflag.FlagSet) (all []Flag) {
	set.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			all = append(all, Flag{f.Name, f.Shorthand, f.Usage, f.Value.Type(), f.DefValue, f.NoOptDefVal})
		}
	})
	return all
}

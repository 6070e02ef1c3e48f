//go:build unix

package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/mcpfront/setup"
)

// installing has the flags of the verbs install and uninstall of mcp.
type installing struct {
	*mcp
	scope, file, program string
	servers              []string
	dry                  bool
}

// installed is what install and uninstall say, as JSON.
type installed struct {
	Client  string         `json:"client"`
	File    string         `json:"file"`
	Servers []setup.Change `json:"servers"`
	Changed int            `json:"changed"`
	Written bool           `json:"written"`
	Exact   bool           `json:"exact,omitempty"` // uninstall: the file is what it was before
	Backup  string         `json:"backup,omitempty"`
}

func (m *mcp) install() *cobra.Command {
	v := &installing{mcp: m}
	c := &cobra.Command{
		Use:   "install CLIENT [flags]",
		Short: "Put tgad before the tool servers in an MCP client's configuration",
		Long: `install changes the file of CLIENT: each tool server that a command starts is started by
tgad mcp, which then starts that command. Environment, comments and all other settings stay as
they are. It prints the commands before and after, keeps a backup, and replaces the file at
once. A second install changes nothing. tgad mcp uninstall puts back what was there.

CLIENT is one of ` + strings.Join(setup.ClientNames(), ", ") + `.
For another client with the same form of file, name a similar client and the --file.

The flags --data, --config, --socket, --state and --trust-hints are written into the file, with
absolute paths. Start the client anew afterwards.`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: setup.ClientNames(),
		RunE:      func(cmd *cobra.Command, args []string) error { return v.run(cmd, args[0], true) },
	}
	return v.flags(c)
}

func (m *mcp) uninstall() *cobra.Command {
	v := &installing{mcp: m}
	c := &cobra.Command{
		Use:   "uninstall CLIENT [flags]",
		Short: "Take tgad out of an MCP client's configuration again",
		Long: `uninstall puts back the file of CLIENT as it was before tgad mcp install. If the file was changed
since, it takes tgad out of the commands, and the rest stays as it is now.`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: setup.ClientNames(),
		RunE:      func(cmd *cobra.Command, args []string) error { return v.run(cmd, args[0], false) },
	}
	return v.flags(c)
}

func (v *installing) flags(c *cobra.Command) *cobra.Command {
	f := c.Flags()
	f.StringVar(&v.scope, "scope", setup.User, "whose file: user, project (this directory, for everybody) or local (this directory, for you)")
	f.StringVar(&v.file, "file", "", "the client's `file`, where it is at another place")
	f.StringArrayVar(&v.servers, "server", nil, "`NAME` of a tool server in the client's file (repeatable; default: all)")
	f.StringVar(&v.program, "program", "", "the `command` that the client starts (default: the path of this tgad)")
	f.BoolVar(&v.dry, "dry-run", false, "print what would change, and change nothing")
	return c
}

// place finds the client's file.
func (v *installing) place(name string) (*setup.Client, setup.Place, error) {
	client, ok := setup.ClientOf(name)
	if !ok {
		return nil, setup.Place{}, Usagef("%q is no client that is known; want one of %s", name, strings.Join(setup.ClientNames(), ", "))
	}
	if v.scope != setup.User && v.scope != setup.Project && v.scope != setup.Local {
		return nil, setup.Place{}, Usagef("--scope %q: want user, project or local", v.scope)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, setup.Place{}, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, setup.Place{}, err
	}
	p, err := client.Place(v.scope, v.file, setup.Machine{Home: home, Dir: dir, System: goruntime.GOOS, Env: os.Getenv})
	if err == nil {
		p.File, err = setup.Follow(p.File)
	}
	return client, p, err
}

// front returns the program and the flags that are put in front of the commands.
func (v *installing) front(cmd *cobra.Command) (setup.Front, error) {
	f := setup.Front{Program: v.program}
	if f.Program == "" {
		self, err := os.Executable()
		if err != nil {
			return f, err
		}
		f.Program = self
		// Prefer the path in PATH: it stays the same when tgad is updated.
		if found, err := exec.LookPath("tgad"); err == nil && SameFile(found, self) {
			f.Program = Absolute(found)
		}
	}
	f.Flags = v.written(cmd)
	if v.scope != setup.User {
		dir, err := filepath.Abs(".")
		if err != nil {
			return f, err
		}
		// The same name in two projects is two servers.
		f.Flags = append(f.Flags, "--scope", dir)
	}
	return f, nil
}

// written returns the flags that say which log a shim uses, in the form for a client's file. Paths are
// absolute, because the client starts the shim in a directory of its own choice.
func (m *mcp) written(cmd *cobra.Command) (flags []string) {
	flags = paths([][2]string{{"--data", m.data}, {"--config", m.file}, {"--state", m.state}})
	if cmd.Flags().Changed("socket") {
		flags = append(flags, "--socket", Absolute(*m.socket))
	}
	if m.trust {
		flags = append(flags, "--trust-hints")
	}
	return flags
}

// writtenOfOne returns the flags that concern one tool server only.
func (m *mcp) writtenOfOne() (flags []string) {
	flags = paths([][2]string{{"--headers-file", m.headers}, {"--workspace", m.workspace.Dir}, {"--workspace-snapshots", m.workspace.Aside}})
	for _, path := range m.workspace.Exclude {
		flags = append(flags, "--workspace-exclude", path)
	}
	if m.workspace.Keep != 0 {
		flags = append(flags, "--workspace-keep", strconv.Itoa(m.workspace.Keep))
	}
	return flags
}

func paths(all [][2]string) (flags []string) {
	for _, f := range all {
		if f[1] != "" {
			flags = append(flags, f[0], Absolute(f[1]))
		}
	}
	return flags
}

func (v *installing) run(cmd *cobra.Command, name string, install bool) error {
	if v.server != "" || v.url != "" || len(v.writtenOfOne()) > 0 {
		return Usagef("--server-id, --url, --headers-file and --workspace are of one tool server: write them into the client's file, as tgad mcp config prints them")
	}
	client, p, err := v.place(name)
	if err != nil {
		return err
	}
	f, err := v.front(cmd)
	if err != nil {
		return err
	}
	before, err := os.ReadFile(p.File)
	if err != nil {
		return err
	}
	said := installed{Client: client.Title, File: p.File}
	var after []byte
	if install {
		after, said.Servers, err = setup.Install(before, p, f, v.servers)
	} else {
		after, said.Servers, err = setup.Uninstall(before, p, f, v.servers)
	}
	if err != nil {
		return err
	}
	for _, c := range said.Servers {
		if c.After != nil {
			said.Changed++
		}
	}
	if said.Changed > 0 && !v.dry {
		if err := v.write(p, f, before, after, install, &said); err != nil {
			return err
		}
		said.Written = true
	}
	return v.report(said)
}

// write replaces the file.
func (v *installing) write(p setup.Place, f setup.Front, before, after []byte, install bool, said *installed) (err error) {
	original, _, err := setup.Uninstall(before, p, f, nil)
	if err != nil {
		return err
	}
	if !install && bytes.Equal(after, original) {
		if said.Exact, err = setup.PutBack(p.File, before); err != nil || said.Exact {
			return err
		}
		return setup.Replace(p.File, before, after)
	}
	said.Backup, err = setup.Put(p.File, before, after, original)
	return err
}

func (v *installing) report(said installed) error {
	if v.JSON {
		for i := range said.Servers {
			c := &said.Servers[i]
			c.Before, c.After = config.MaskWords(c.Before), config.MaskWords(c.After)
		}
		return v.Line(said)
	}
	var b bytes.Buffer
	b.WriteString(said.Client + ": " + said.File + "\n")
	for _, c := range said.Servers {
		if c.After == nil {
			b.WriteString("  " + c.Server + " stays as it is: " + c.Why + "\n")
			continue
		}
		b.WriteString("  " + c.Server + "\n  - " + shellWords(c.Before) + "\n  + " + shellWords(c.After) + "\n")
	}
	switch {
	case len(said.Servers) == 0:
		b.WriteString("it has no tool server in this scope: nothing to change\n")
	case said.Changed == 0:
		b.WriteString("nothing to change\n")
	case !said.Written:
		b.WriteString("nothing is changed: --dry-run\n")
	case said.Exact:
		b.WriteString("the file is what it was before; start the client anew\n")
	case said.Backup != "":
		b.WriteString("changed; start the client anew. What was there before: " + said.Backup + "\n")
	default:
		b.WriteString("changed; start the client anew. The file had been changed since the install: what else it says has stayed\n")
	}
	for line := range strings.Lines(b.String()) {
		v.Printf("%s\n", Clean(strings.TrimSuffix(line, "\n")))
	}
	return nil
}

// shellWords returns a command in the form for a shell, with secrets masked.
func shellWords(words []string) string {
	var out []string
	for _, w := range config.MaskWords(words) {
		out = append(out, ShellWord(w))
	}
	return strings.Join(out, " ")
}

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// verb and flag are what the hidden verb commands of tgad prints.
type verb struct {
	Use, Short, Long, Example string
	Flags, Shared             []flagOf
	Verbs                     []verb
}

type flagOf struct{ Name, Short, Usage, Type, Default, Bare string }

// completions are the shells, each with the file that it looks for.
var completions = map[string]string{"bash": "tgad.bash", "zsh": "_tgad", "fish": "tgad.fish"}

// pages makes the manual pages and the completions, with the programs that were built for this machine, and
// puts them into the stage of each target that is a kind of Unix.
func (r *release) pages(ctx context.Context) error {
	man, shells := map[string][]byte{}, map[string][]byte{}
	for _, p := range r.built[target("linux/"+runtime.GOARCH)] {
		raw, err := asked(ctx, p.path, "commands")
		if err != nil {
			return err
		}
		if err := r.manual(raw, man); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if p.name != "tgad" {
			continue
		}
		for shell, file := range completions {
			if shells[file], err = asked(ctx, p.path, "completion", shell); err != nil {
				return err
			}
		}
	}
	for _, t := range r.targets {
		if t.os() == "windows" {
			continue
		}
		for dir, files := range map[string]map[string][]byte{"man": man, "completions": shells} {
			for name, text := range files {
				if err := put(filepath.Join(r.stage, t.String(), dir, name), text); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// asked runs a program that was built, without the environment of whoever makes the release: defaults of flags
// depend on it.
func asked(ctx context.Context, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %v: %w", program, args, err)
	}
	return out, nil
}

// manual makes the pages of one program's tree, compressed as packages have them.
func (r *release) manual(tree []byte, pages map[string][]byte) error {
	var v verb
	if err := json.Unmarshal(tree, &v); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "tgad-man-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	header := &doc.GenManHeader{Section: "1", Date: &r.when, Source: "tgad " + r.version, Manual: "tgad"}
	if err := doc.GenManTree(commandOf(v), header, dir); err != nil {
		return err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return err
		}
		if pages[f.Name()+".gz"], err = compressed(text, gzip.BestCompression); err != nil {
			return err
		}
	}
	return nil
}

func compressed(text []byte, level int) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, level)
	if err != nil {
		return nil, err
	}
	_, err = z.Write(text)
	err = errors.Join(err, z.Close()) // before the bytes are taken: it writes the end
	return b.Bytes(), err
}

// commandOf is a command that does nothing, with the texts and flags of a verb.
func commandOf(v verb) *cobra.Command {
	c := &cobra.Command{Use: v.Use, Short: v.Short, Long: v.Long, Example: v.Example, DisableAutoGenTag: true, Run: func(*cobra.Command, []string) {}}
	for set, flags := range map[*pflag.FlagSet][]flagOf{c.Flags(): v.Flags, c.PersistentFlags(): v.Shared} {
		for _, f := range flags {
			flag := set.VarPF(&said{f.Type, f.Default}, f.Name, f.Short, f.Usage)
			flag.NoOptDefVal = f.Bare
		}
	}
	for _, sub := range v.Verbs {
		c.AddCommand(commandOf(sub))
	}
	return c
}

// said is the value of a flag that only says what it is.
type said struct{ kind, text string }

func (s *said) String() string        { return s.text }
func (s *said) Set(text string) error { s.text = text; return nil }
func (s *said) Type() string          { return s.kind }

// put writes a file, and the directories that it needs.
func put(name string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o644)
}

package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/schemas/tga"
)

// newConfig is the configuration that init writes, from flags and, on a terminal, from questions.
type newConfig struct {
	file    string
	servers []string
	approve string
	yes     bool
}

// answers returns the values of the flags and, if ask is true, asks a person for missing ones.
func (n *newConfig) answers(a *app, ask bool) (config.Answers, error) {
	said := config.Answers{Approve: n.approve}
	for _, text := range n.servers {
		s, err := serverOf(text)
		if err != nil {
			return said, cli.Usagef("--server: %v", err)
		}
		said.Servers = append(said.Servers, s)
	}
	if ask {
		q := questions{bufio.NewReader(a.In), a.Err}
		if err := q.fill(&said); err != nil {
			return said, err
		}
	}
	said.Approve = cmp.Or(said.Approve, config.ApproveAsk)
	if !known(said.Approve) {
		return said, cli.Usagef("--approve %q: want ask, all or none", said.Approve)
	}
	return said, nil
}

func known(approve string) bool {
	return approve == config.ApproveAsk || approve == config.ApproveAll || approve == config.ApproveNone
}

// serverOf reads ID=COMMAND or ID=URL. A command with blanks in its words is a list of JSON.
func serverOf(text string) (config.Server, error) {
	id, what, ok := strings.Cut(text, "=")
	s := config.Server{ID: strings.TrimSpace(id), Type: config.MCPCommand}
	what = strings.TrimSpace(what)
	switch {
	case !ok || what == "" || !tga.CleanName(s.ID):
		return s, fmt.Errorf("%q: want ID=COMMAND or ID=URL; an id is %s", text, tga.CleanNameForm)
	case strings.HasPrefix(what, "http://"), strings.HasPrefix(what, "https://"):
		s.Type, s.URL = config.MCPURL, what
	case strings.HasPrefix(what, "["):
		if err := json.Unmarshal([]byte(what), &s.Command); err != nil || len(s.Command) == 0 {
			return s, fmt.Errorf("%q: want a list such as [\"npx\", \"-y\", \"@some/server\"]", what)
		}
	default:
		s.Command = strings.Fields(what)
	}
	return s, nil
}

// questions asks a person on a terminal.
type questions struct {
	in  *bufio.Reader
	out io.Writer
}

// fill asks for what no flag has set. After a wrong answer it asks again.
func (q questions) fill(said *config.Answers) error {
	for len(said.Servers) == 0 {
		text, err := q.ask("An MCP tool server: ID=COMMAND or ID=URL, such as files=npx -y @some/server. Empty: none yet")
		if err != nil || text == "" {
			if err != nil {
				return err
			}
			break
		}
		s, err := serverOf(text)
		if err != nil {
			if _, err := fmt.Fprintln(q.out, err); err != nil {
				return err // who is asked sees nothing
			}
			continue
		}
		said.Servers = append(said.Servers, s)
	}
	for said.Approve == "" {
		text, err := q.ask("Which calls run without a person? ask: those that only read; all; none. Empty: ask")
		if err != nil {
			return err
		}
		text = cmp.Or(text, config.ApproveAsk)
		if known(text) {
			said.Approve = text
		}
	}
	return nil
}

func (q questions) ask(question string) (string, error) {
	if _, err := fmt.Fprintf(q.out, "%s\n> ", question); err != nil {
		return "", err
	}
	line, err := q.in.ReadString('\n')
	if errors.Is(err, io.EOF) {
		if line == "" {
			return "", cli.Usagef("the input is at its end: give --server and --approve, or --yes")
		}
		err = nil
	}
	return strings.TrimSpace(line), err
}

// ready refuses answers of which no valid configuration can be made, and a file that exists already.
// It is called before anything is made.
func (n *newConfig) ready(said config.Answers) error {
	if _, err := os.Lstat(n.file); err == nil {
		return tga.Errorf(tga.ValidationError, "%s is there already, and is left as it is: tgad config check says what is wrong with it", n.file)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(filepath.Dir(n.file)); err != nil {
		return tga.Errorf(tga.NotFound, "the directory of %s: %w", n.file, err)
	}
	_, err := assemble.Parse(n.file, config.Template(said))
	return err
}

// write makes the file, which must not exist.
func (n *newConfig) write(said config.Answers) (err error) {
	f, err := os.OpenFile(n.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(config.Template(said))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		err = errors.Join(err, os.Remove(n.file))
	}
	return err
}

// terminal says whether a person can be asked.
func terminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && f.Name() != os.DevNull
}

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/tgad/tgad/internal/notice"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// told returns the notices that a program of [[notify]] was given, one a line.
func (p *process) told() (all []notice.Notice, err error) {
	raw, err := os.ReadFile(filepath.Join(p.dir, "notices"))
	if err != nil {
		return nil, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		var n notice.Notice
		if err := json.Unmarshal(lines.Bytes(), &n); err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// matter waits until a notice names a trace.
func (p *process) matter(trace tga.ID) (found notice.Matter) {
	p.t.Helper()
	err := waitFor(func() error {
		all, err := p.told()
		for _, n := range all {
			for _, m := range n.Matters {
				if m.TraceID == trace {
					found = m
					return nil
				}
			}
		}
		return errors.Join(err, errors.New("nobody was told of "+trace.String()))
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return found
}

// types runs a line as a person types it who has set no variables for the daemon.
func (p *process) types(line, want string) {
	p.t.Helper()
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.Dir = "/"
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "TGAD_SOCKET=") && !strings.HasPrefix(v, "TGAD_DATA=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), want) {
		p.t.Errorf("%s\nsays %sand %v, want %q", line, out, err, want)
	}
}

// TestHintsOfANoticeWork runs the commands that people are told to type, verbatim, also if the socket's name
// has characters that a shell must be told about. Then tgad notify shows which receivers were told, and its
// test shows which cannot be.
func TestHintsOfANoticeWork(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	p.client.Close()
	p.socket = filepath.Join(p.dir, "it's the run", "s")
	p.client = client.New(p.socket, client.Options{Name: "test"})
	conf := testConfig(p.journal) + "\n[[server]]\nid = \"remote\"\ntype = \"external\"\n" +
		"[[notify]]\nid = \"file\"\ntype = \"command\"\ncommand = [\"sh\", \"-c\", \"cat >> \\\"$0\\\"\", \"" + filepath.Join(p.dir, "notices") + "\"]\nafter = \"1ms\"\npause = \"1ms\"\n"
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(p.dir, "tgad.toml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(conf)
	p.start()
	begin := func(risk string) runtime.Begun {
		begun, err := p.client.Begin(t.Context(), runtime.BeginRequest{
			Request: runtime.Request{Server: "remote", Tool: "pay", Key: uuid.NewString(), Risk: risk, Args: []byte(`{"n":1}`)}, BeginID: uuid.NewString(),
		})
		if err != nil {
			t.Fatal(err)
		}
		return begun
	}
	for i, want := range []string{"EXECUTING", "COMPLETED", "FAILED", "FAILED"} { // show, ran, not-run, abandon
		if i == 0 {
			continue
		}
		begun := begin("")
		if err := p.client.GiveUp(t.Context(), begun.Result.TraceID, begun.Permit, "", 0); err != nil && !errors.Is(err, tga.EffectInDoubt) {
			t.Fatal(err)
		}
		m := p.matter(begun.Result.TraceID)
		if len(m.Commands) != 4 {
			t.Fatalf("told %+v", m)
		}
		p.types(m.Commands[0], "EXECUTING")
		p.types(m.Commands[i], want)
	}
	for i, want := range []string{"PENDING", "AUTHORIZED", "DENIED"} { // show, approve, deny
		if i == 0 {
			continue
		}
		m := p.matter(begin(tga.RiskHigh).Result.TraceID)
		if len(m.Commands) != 3 {
			t.Fatalf("told %+v", m)
		}
		p.types(m.Commands[0], "PENDING")
		p.types(m.Commands[i], want)
	}
	all, err := p.told()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range all[len(all)-1].Lists {
		p.types(line, "")
	}

	if out, code := p.run("notify"); code != 0 || !strings.Contains(out, "RECEIVER") || !strings.Contains(out, "command") || strings.Contains(out, "never") {
		t.Errorf("%d, %s", code, out)
	}
	if out, code := p.run("notify", "--test"); code != 0 || !strings.Contains(out, " taken") {
		t.Errorf("%d, %s", code, out)
	}
	if all, err = p.told(); err != nil || all[len(all)-1].Type != notice.TypeTest || !strings.Contains(all[len(all)-1].Text, "This is a test") {
		t.Errorf("%v: the last notice is %+v", err, all[len(all)-1])
	}
	write(conf + "[[notify]]\nid = \"none\"\ntype = \"command\"\ncommand = [\"/nonexistent\"]\n")
	if out, code := p.run("reload"); code != 0 || !strings.Contains(out, "notify") {
		t.Errorf("%d, %s", code, out)
	}
	if out, code := p.run("notify", "--test"); code != 1 || !strings.Contains(out, " taken") || !strings.Contains(out, "not taken: /nonexistent") {
		t.Errorf("%d, %s", code, out)
	}
	write(testConfig(p.journal) + "\n[[server]]\nid = \"remote\"\ntype = \"external\"\n")
	if out, code := p.run("reload"); code != 0 {
		t.Errorf("%d, %s", code, out)
	}
	if out, code := p.run("notify", "--test"); code != 1 || !strings.Contains(out, "no receivers") {
		t.Errorf("%d, %s", code, out)
	}
}

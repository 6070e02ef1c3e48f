package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestCallThatLosesItsAnswerSaysHowToAsk: the daemon is killed, or Ctrl-C is pressed, while the
// tool has the call. The command exits 4 and prints a command line, which the test runs as printed.
func TestCallThatLosesItsAnswerSaysHowToAsk(t *testing.T) {
	for name, lose := range map[string]func(p *process, cmd *exec.Cmd){
		"killed daemon": func(p *process, _ *exec.Cmd) {
			p.end(syscall.SIGKILL)
		},
		"Ctrl-C": func(p *process, cmd *exec.Cmd) {
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				p.t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProcess(t)
			p.start()
			cmd := exec.Command("tgad", "call", "payments", "charge_opaque", `{"account":"a","amount":5,"delay_ms":20000}`, "--key", "lost")
			cmd.Env = append(os.Environ(), "TGAD_SOCKET="+p.socket)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if err := waitFor(func() error {
				if strings.Contains(journalText(t, p), "lost") {
					return nil
				}
				return os.ErrNotExist
			}); err != nil {
				t.Fatal(err)
			}
			lose(p, cmd)
			_ = cmd.Wait() // the caller looks at its exit code
			if code := cmd.ProcessState.ExitCode(); code != 4 {
				t.Fatalf("exit code %d:\n%s", code, out.String())
			}
			line := regexp.MustCompile(`(?m)tgad show .*$`).FindString(out.String())
			if line == "" {
				t.Fatalf("no command line to ask with:\n%s", out.String())
			}
			if p.cmd == nil {
				p.start()
			}
			shown, err := exec.Command("sh", "-c", line).CombinedOutput()
			if err != nil || !strings.Contains(string(shown), "EXECUTING") {
				t.Errorf("%s: %v\n%s", line, err, shown)
			}
		})
	}
}

// journalText returns what the tool server has written, or "" if there is nothing.
func journalText(t *testing.T, p *process) string {
	t.Helper()
	b, err := os.ReadFile(p.journal)
	if err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
	return string(b)
}

// TestNoDaemonIsNoDoubt: if nobody listens, nothing was sent, and the exit code says so.
func TestNoDaemonIsNoDoubt(t *testing.T) {
	p := newProcess(t)
	if out, code := p.run("call", "payments", "charge", `{"amount":5}`, "--key", "k"); code != 1 || !strings.Contains(out, "no daemon listens") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

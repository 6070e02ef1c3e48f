//go:build unix

package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tgad/tgad/runtime"
)

// proofs is the scenario about attackers who control the disk, and perhaps the keys.
type proofs struct {
	*show
	w       *world
	witness *exec.Cmd
	address string // of the witness

	key, public, cosigner string // file and public key of the store, public key of the witness
	outside, old, state   string // files that others keep: the newest checkpoint, an old one, a monitor's state
	empty, honest         string // copies of the store
}

// RunEvidence runs the scenario evidence: seven attacks by somebody who can write to the whole
// disk, the last one with the key that signs, and who finds out about each.
func RunEvidence(ctx context.Context, o Options) (failed int, err error) {
	start := time.Now()
	s := &show{printer: printer{w: o.Out, json: o.JSON, colour: o.Colour}, Options: o}
	p := &proofs{show: s}
	defer func() { err = errors.Join(err, p.end()) }()
	s.text("%s", s.bold("tgad demo --scenario evidence"))
	s.text("A store, an attacker with root and the store's files, and four who look:")
	s.text("the chain of the store, a witness, a monitor, and an auditor with an old checkpoint.")
	for _, part := range []func(context.Context) error{p.begin, p.attacks} {
		if err := part(ctx); err != nil {
			return s.failed(), err
		}
	}
	s.summary(time.Since(start))
	return s.failed(), nil
}

func (p *proofs) end() error {
	err := p.w.close()
	if p.witness != nil && p.witness.Process != nil {
		err = errors.Join(err, p.witness.Process.Kill())
		_ = p.witness.Wait() // it was killed
	}
	return errors.Join(err, p.dropDir())
}

// begin makes an honest store with three calls, whose checkpoints a witness, a monitor and an
// auditor have seen.
func (p *proofs) begin(ctx context.Context) error {
	err := p.makeDir("evidence")
	if err != nil {
		return err
	}
	if p.w, err = newWorld(p.Exe, p.Lab, filepath.Join(p.dir, "shop")); err != nil {
		return err
	}
	at := func(name string) string { return filepath.Join(p.dir, name) }
	p.key, p.outside, p.old, p.state = at("key"), at("outside"), at("old"), at("monitor")
	p.empty, p.honest = at("empty"), at("honest")
	p.title("An honest store: its checkpoints are seen by others")
	if p.public, err = p.keygen(ctx, "shop.example/tgad", "-o", p.key); err != nil {
		return err
	}
	if err := p.startWitness(ctx, at); err != nil {
		return err
	}
	if err := p.configure(p.key, true); err != nil {
		return err
	}
	if err := p.w.start(ctx); err != nil {
		return err
	}
	if err := errors.Join(p.w.stop(), copyTree(p.w.data, p.empty)); err != nil {
		return err
	}
	if err := p.w.start(ctx); err != nil {
		return err
	}
	trace, err := p.charge(ctx, 5, 1, 2, 3)
	if err != nil {
		return err
	}
	receipt, code, err := p.w.command(ctx, "receipt", trace, "--wait", "30s")
	if err != nil {
		return err
	}
	p.claim(code == 0 && strings.Contains(receipt, "in the checkpoint of"), "the last of three calls has a receipt with a proof", "exit %d: %s", code, firstLine(receipt))
	old, code, err := p.w.command(ctx, "evidence", "checkpoint")
	if err == nil && code == 0 {
		err = os.WriteFile(p.old, []byte(old), 0o600)
	}
	if err != nil {
		return err
	}
	seen, code, err := p.monitor(ctx)
	if err != nil {
		return err
	}
	p.claim(code == 0, "the monitor has checked every append", "exit %d: %s", code, firstLine(seen))
	verdict, code, err := p.audit(ctx)
	if err != nil {
		return err
	}
	p.claim(code == 0 && strings.HasPrefix(verdict, "PROVED"), "the auditor verifies an evidence file without the store", "exit %d: %s", code, firstLine(verdict))
	return errors.Join(p.w.stop(), copyTree(p.w.data, p.honest))
}

func (p *proofs) keygen(ctx context.Context, args ...string) (string, error) {
	out, code, err := p.w.command(ctx, append([]string{"evidence", "keygen"}, args...)...)
	if err == nil && code != 0 {
		err = fmt.Errorf("keygen: %s", out)
	}
	return strings.TrimSpace(out), err
}

func (p *proofs) startWitness(ctx context.Context, at func(string) string) (err error) {
	if p.cosigner, err = p.keygen(ctx, "witness.example", "--witness", "-o", at("witness.key")); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	p.address = l.Addr().String()
	if err := l.Close(); err != nil {
		return err
	}
	p.witness = exec.Command(p.Exe, "witness", "serve", "--key", at("witness.key"), "--state", at("witness.state"), "--create",
		"--listen", p.address, "--trust", "shop.example/tgad "+p.public)
	if err := p.witness.Start(); err != nil {
		return err
	}
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		c, err := net.Dial("tcp", p.address)
		if err == nil {
			return c.Close()
		}
		if time.Now().After(until) {
			return fmt.Errorf("the witness does not listen: %w", err)
		}
	}
}

// configure writes the configuration, with a signing key ("" for none) and, with places, the places outside.
func (p *proofs) configure(key string, places bool) error {
	text := p.w.configText()
	if key != "" {
		text += fmt.Sprintf("\n[evidence]\nkey_file = %s\norigin = \"shop.example/tgad\"\nevery = \"50ms\"\n", strconv.Quote(key))
	}
	if places {
		text += fmt.Sprintf("\n[[evidence.place]]\nfile = %s\n\n[[evidence.place]]\nwitness = \"http://%s\"\nkey = %q\n", strconv.Quote(p.outside), p.address, p.cosigner)
	}
	return os.WriteFile(p.w.config, []byte(text), 0o640)
}

// charge makes calls with these keys and returns the trace of the last one.
func (p *proofs) charge(ctx context.Context, amount int, keys ...int) (trace string, err error) {
	for _, key := range keys {
		res, err := p.w.client.Call(ctx, runtime.Request{Server: "payments", Tool: "charge", Key: fmt.Sprint("order-", key), Args: fmt.Appendf(nil, `{"account":"acme","amount":%d}`, amount)})
		if err != nil {
			return "", err
		}
		trace = res.TraceID.String()
	}
	return trace, nil
}

func (p *proofs) monitor(ctx context.Context) (string, int, error) {
	if err := os.RemoveAll(p.state + ".alarm"); err != nil {
		return "", 0, err
	}
	return p.w.command(ctx, "monitor", "--key", p.public, "--state", p.state, "--once")
}

// audit exports everything, with a proof that it grew from the old checkpoint, and verifies both.
func (p *proofs) audit(ctx context.Context) (string, int, error) {
	file := filepath.Join(p.dir, "file.evidence")
	if err := os.RemoveAll(file); err != nil {
		return "", 0, err
	}
	if out, code, err := p.w.command(ctx, "evidence", "export", "-o", file, "--against", p.old); err != nil || code != 0 {
		return out, code, err
	}
	return p.w.command(ctx, "evidence", "verify", file, "--key", p.public, "--against", p.old)
}

// attack is one thing that the attacker does to the stopped store.
type attack struct {
	title string
	do    func(ctx context.Context) error
	by    string // who finds it
	look  func(ctx context.Context) (string, error)
	want  string // a pattern of the words
}

func (p *proofs) attacks(ctx context.Context) error {
	p.title("Seven attacks; the last one with the key that signs")
	for i, a := range []attack{
		{"changes an amount in the log", p.edit, "the chain", p.byChain, `FAULT`},
		{"takes the last call away, and the store's own checkpoints", func(ctx context.Context) error { return p.anew(ctx, 5, 1, 2) }, "the store at its start", p.byStart, `rolled back|rewritten`},
		{"takes the second call out", func(ctx context.Context) error { return p.anew(ctx, 5, 1, 3) }, "the store at its start", p.byStart, `rolled back|rewritten`},
		{"changes an amount and makes every digest anew", func(ctx context.Context) error { return p.anew(ctx, 6, 1, 2, 3) }, "the store at its start", p.byStart, `rolled back|rewritten`},
		{"adds a call, and signs with a key of their own", p.forge, "the monitor", p.byMonitor, `key: .*no trusted key signed it`},
		{"puts last week's copy back, and all checkpoints here", p.rollBack, "the witness alone", p.byStart, `witness witness.example: .*rolled back`},
		{"makes everything anew and signs it with the stolen key", p.stolen, "the monitor", p.byMonitor, `(fork|rollback): `},
	} {
		if err := a.do(ctx); err != nil {
			return err
		}
		said, err := a.look(ctx)
		if err != nil {
			return err
		}
		line := found(said, a.want)
		p.step("attacker", "%d  %s", i+1, a.title)
		p.quote(line)
		p.claim(line != "", "found by "+a.by, "%s", firstLine(said))
		if i == 6 {
			verdict, code, err := p.audit(ctx)
			if err != nil {
				return err
			}
			p.claim(code != 0 && found(verdict, `was rewritten`) != "", "and by the auditor, who has an old checkpoint", "exit %d: %s", code, firstLine(verdict))
		}
		if err := p.w.stop(); err != nil {
			return err
		}
	}
	return nil
}

// found returns the line of a text that a pattern is in.
func found(text, want string) string {
	re := regexp.MustCompile(want)
	for l := range strings.Lines(text) {
		if re.MatchString(l) {
			return strings.TrimSpace(l)
		}
	}
	return ""
}

// edit changes a digit of the log where it lies.
func (p *proofs) edit(context.Context) error {
	if err := copyTree(p.honest, p.w.data); err != nil {
		return err
	}
	return filepath.WalkDir(filepath.Join(p.w.data, "log"), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(name, bytes.Replace(raw, []byte(`"amount":5`), []byte(`"amount":6`), 1), 0o600)
	})
}

// anew makes a new store without the key, with these calls.
func (p *proofs) anew(ctx context.Context, amount int, keys ...int) error {
	if err := p.begun(ctx, ""); err != nil {
		return err
	}
	if _, err := p.charge(ctx, amount, keys...); err != nil {
		return err
	}
	return errors.Join(p.w.stop(), p.configure(p.key, true))
}

// begun starts the store as it was before the first call.
func (p *proofs) begun(ctx context.Context, key string) error {
	if err := errors.Join(copyTree(p.empty, p.w.data), p.configure(key, false)); err != nil {
		return err
	}
	return p.w.start(ctx)
}

// forge continues the store without its checkpoints, under another key.
func (p *proofs) forge(ctx context.Context) error {
	if err := errors.Join(copyTree(p.honest, p.w.data), os.RemoveAll(filepath.Join(p.w.data, "evidence"))); err != nil {
		return err
	}
	own := filepath.Join(p.dir, "own.key")
	if _, err := p.keygen(ctx, "shop.example/tgad", "-o", own); err != nil {
		return err
	}
	if err := p.configure(own, false); err != nil {
		return err
	}
	return p.goOn(ctx, 5, 4)
}

// goOn starts the store, makes calls, and waits until they are signed.
func (p *proofs) goOn(ctx context.Context, amount int, keys ...int) error {
	if err := p.w.start(ctx); err != nil {
		return err
	}
	trace, err := p.charge(ctx, amount, keys...)
	if err != nil {
		return err
	}
	_, _, err = p.w.command(ctx, "receipt", trace, "--wait", "30s")
	return err
}

func (p *proofs) rollBack(context.Context) error {
	return errors.Join(copyTree(p.empty, p.w.data), os.RemoveAll(p.outside), p.configure(p.key, true))
}

// stolen makes a new store with the stolen key, and does not show it to the witness or the file outside.
func (p *proofs) stolen(ctx context.Context) error {
	if err := errors.Join(copyTree(p.empty, p.w.data), p.configure(p.key, false)); err != nil {
		return err
	}
	return p.goOn(ctx, 6, 1, 2, 3, 4)
}

func (p *proofs) byChain(ctx context.Context) (string, error) {
	out, _, err := p.w.command(ctx, "verify", "--data", p.w.data)
	return out, err
}

func (p *proofs) byMonitor(ctx context.Context) (string, error) {
	out, _, err := p.monitor(ctx)
	return out, err
}

// byStart starts the daemon with its places outside, and returns why the daemon refuses to serve.
func (p *proofs) byStart(ctx context.Context) (string, error) {
	if err := p.w.launch(); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		err := p.w.client.Ready(ctx)
		switch {
		case err == nil:
			return "it serves", nil
		case strings.Contains(err.Error(), "frozen"):
			out, _, err := p.w.command(ctx, "verify")
			return out, err
		case ctx.Err() != nil:
			return "", err
		}
		select {
		case <-p.w.exited:
			return "", errors.New("the daemon ended")
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// copyTree replaces a directory by a copy of another.
func copyTree(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	return os.CopyFS(to, os.DirFS(from))
}

//go:build unix

package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/modelserver"
	"github.com/tgad/tgad/internal/payments/journal"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/schemas/tga"
)

// turns is the scenario about whole turns: an agent with two tools, a model, and a
// process that is killed three times on the way from message to answer.
type turns struct {
	*show
	model    *modelserver.Server
	config   string
	manifest string
	journal  string // of the payments tool server
	id       tga.ID // of the first turn
	runs     int
}

const turnManifest = `apiVersion: ossa/v0.2.9
kind: Agent
metadata: {name: treasurer, version: 1.0.0}
spec:
  role: You pay the invoices that people name, each once.
  llm: {provider: local, model: demo-1}
  tools:
    - {type: mcp, server: payments, name: charge}
    - {type: mcp, server: payments, name: charge_opaque}
`

// turnConfig is the operator's configuration: %[1]q is the executable with the tool server,
// %[2]q the journal of the payments tool server, %[3]q the URL of the model.
const turnConfig = `[store]
memtable_bytes = "4MiB"

[[model]]
provider = "local"
type = "openai"
url = %[3]q
stream = true

[[server]]
id = "payments"
type = "mcp-command"
command = [%[1]q, "payments", "--journal", %[2]q]

# It honours the key of both tools here.
[[tool]]
server = "payments"
name = "charge"
licence = "dedupe_key"
window = "24h"

[[tool]]
server = "payments"
name = "charge_opaque"
licence = "park"

[[rule]]
decision = "APPROVE"
`

// turnScript is what the model says: two calls, then the answer. The model holds each answer
// until the demo releases it.
var turnScript = []modelserver.Answer{
	{ToolCalls: []modelserver.ToolCall{
		{ID: "call_1", Name: "charge", Arguments: `{"account":"acme","amount":4200,"delay_ms":400}`},
		{ID: "call_2", Name: "charge_opaque", Arguments: `{"account":"globex","amount":1300}`},
	}, Hold: true, Input: 120, Output: 40},
	{Text: "Both invoices are paid: 42.00 to acme, 13.00 to globex.", Hold: true, Input: 190, Output: 18},
}

// RunTurn runs the scenario turn.
func RunTurn(ctx context.Context, o Options) (failed int, err error) {
	start := time.Now()
	s := &show{printer: printer{w: o.Out, json: o.JSON, colour: o.Colour}, Options: o}
	t := &turns{show: s, id: newID()}
	defer func() { err = errors.Join(err, t.end()) }()
	if err := t.begin(); err != nil {
		return 0, err
	}
	s.text("%s", s.bold("tgad demo --scenario turn"))
	s.text("An agent with two tools and a model, and kill -9 between message and answer.")
	for _, part := range []func(context.Context) error{t.killed, t.timeline} {
		if err := part(ctx); err != nil {
			return s.failed(), err
		}
	}
	s.summary(time.Since(start))
	return s.failed(), nil
}

func (t *turns) begin() (err error) {
	if err = t.makeDir(""); err != nil {
		return err
	}
	t.config, t.manifest, t.journal = filepath.Join(t.dir, "tgad.toml"), filepath.Join(t.dir, "treasurer.yaml"), filepath.Join(t.dir, "payments.journal")
	t.model, err = modelserver.Start(modelserver.Options{
		Script: turnScript, ByConversation: true, Journal: filepath.Join(t.dir, "model.journal"),
	})
	if err != nil {
		return err
	}
	config := fmt.Sprintf(turnConfig, t.Lab, t.journal, t.model.URL())
	return errors.Join(os.WriteFile(t.config, []byte(config), 0o640), os.WriteFile(t.manifest, []byte(turnManifest), 0o640))
}

func (t *turns) end() error {
	var err error
	if t.model != nil {
		err = t.model.Close()
	}
	return errors.Join(err, t.dropDir())
}

// process is one run of tgad agent.
type process struct {
	cmd  *exec.Cmd
	out  bytes.Buffer
	err  bytes.Buffer
	done chan error
}

// start starts the agent: the first time with its message, then to go on.
func (t *turns) start(ctx context.Context) (*process, error) {
	args := []string{"agent", "--data", filepath.Join(t.dir, "data"), "--config", t.config}
	if t.runs++; t.runs == 1 {
		args = append(args, "run", t.manifest, "--id", t.id.String(), "--session", "s-1", "--message", "Pay acme 42 and globex 13.")
	} else {
		args = append(args, "resume", t.manifest)
	}
	p := &process{cmd: exec.CommandContext(ctx, t.Exe, args...), done: make(chan error, 1)}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { p.done <- p.cmd.Wait() }()
	return p, nil
}

// until waits until what is closed, or until the process ends.
func (p *process) until(what <-chan struct{}) error {
	select {
	case <-what:
		return nil
	case err := <-p.done:
		return fmt.Errorf("the agent ended before its time: %w\n%s", err, p.err.String())
	}
}

func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	<-p.done // it was killed
	return nil
}

// killed runs the agent and kills it three times.
func (t *turns) killed(ctx context.Context) error {
	t.title("One message, three kills")
	t.step("caller", "tgad agent run treasurer.yaml --message %q", "Pay acme 42 and globex 13.")
	p, err := t.start(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(p.until(t.model.Held()), p.kill()); err != nil {
		return err
	}
	t.step("agent", "kill -9 while the model thinks about the first question")

	if p, err = t.start(ctx); err != nil {
		return err
	}
	t.step("agent", "tgad agent resume")
	if err := p.until(t.model.Held()); err != nil {
		return err
	}
	t.model.Release()
	if err := errors.Join(p.until(t.charged(ctx, 1)), p.kill()); err != nil {
		return err
	}
	t.step("agent", "kill -9 after the first charge, before its answer")

	if p, err = t.start(ctx); err != nil {
		return err
	}
	t.step("agent", "tgad agent resume")
	if err := errors.Join(p.until(t.model.Held()), p.kill()); err != nil {
		return err
	}
	t.step("agent", "kill -9 while the model thinks about what the tools said")

	if p, err = t.start(ctx); err != nil {
		return err
	}
	t.step("agent", "tgad agent resume")
	if err := p.until(t.model.Held()); err != nil {
		return err
	}
	t.model.Release()
	if err := <-p.done; err != nil {
		return fmt.Errorf("the last resume: %w\n%s", err, p.err.String())
	}
	answer := strings.TrimSpace(p.out.String())
	t.quote(answer)
	t.claim(answer == turnScript[1].Text, "the answer is the one that an undisturbed run would have given", "%q", answer)

	asked := t.model.Counts()
	t.step("model", "%d questions, sent %d times", len(asked.ByKey), asked.Requests)
	t.claim(len(asked.ByKey) == 2, "the model was asked two different questions, as in one run", "%d", len(asked.ByKey))
	t.claim(asked.Requests == 4, "each was sent again once, with its key, for the kill before its answer", "%d requests", asked.Requests)
	sum, err := journal.Read(t.journal)
	if err != nil {
		return err
	}
	total := sum.Total()
	t.step("payments", "received %d calls, charged %d", total.Received, total.Charges)
	t.claim(total.Charges == 2, "each invoice was charged once", "%d charges", total.Charges)
	t.claim(total.Received == 3, "the call whose answer was lost was sent again, with its key; the other not", "%d received", total.Received)

	if p, err = t.start(ctx); err != nil {
		return err
	}
	if err := <-p.done; err != nil {
		return fmt.Errorf("a resume after the end: %w\n%s", err, p.err.String())
	}
	again := t.model.Counts()
	t.claim(again.Requests == asked.Requests, "a resume after the end asks nobody", "%d requests", again.Requests)
	return nil
}

// charged is closed when the payments tool server has charged n times.
func (t *turns) charged(ctx context.Context, n uint64) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		for ctx.Err() == nil {
			if sum, err := journal.Read(t.journal); err == nil && sum.Total().Charges >= n {
				close(done)
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	return done
}

// timeline shows the journals of both turns.
func (t *turns) timeline(ctx context.Context) (err error) {
	t.title("What the journals say")
	db, err := engine.OpenReadOnly(filepath.Join(t.dir, "data"), engine.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	once, links := true, 0
	for id := t.id; ; {
		records, err := turn.Records(ctx, db, id)
		if err != nil {
			return err
		}
		seen := map[string]bool{}
		var next struct {
			Next *tga.ID `json:"next"`
		}
		first := records[0].TS
		for _, r := range records {
			word := string(r.Phase) + " " + string(r.Kind)
			once = once && !seen[word]
			seen[word] = true
			links++
			t.step("+"+strconv.FormatInt(int64(r.TS-first), 10)+" ms", "%-16s %s", word, r.Digest.String()[:12])
		}
		if err := json.Unmarshal(records[len(records)-1].Body, &next); err != nil {
			return err
		}
		if next.Next == nil {
			break
		}
		id = *next.Next
		t.text("")
	}
	t.claim(once && links == 16, "two turns, each phase ended once, every link checked", "%d records, once %v", links, once)
	open, err := turn.ListOpen(ctx, db)
	t.claim(err == nil && len(open) == 0, "nothing is left open", "%v %v", open, err)
	return nil
}

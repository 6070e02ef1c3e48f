//go:build unix

package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/tgad/tgad/internal/modelserver"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// viewed is a store for the web view, in which something waits for a person.
type viewed struct {
	*show
	w     *world
	model *modelserver.Server
}

// RunUI makes a store with a finished turn of an agent, a charge that was cut off by kill -9 and a request that
// waits for a decision, and serves its web view until ctx ends. It checks no claims.
func RunUI(ctx context.Context, o Options) (err error) {
	s := &show{printer: printer{w: o.Out, json: o.JSON, colour: o.Colour}, Options: o}
	if err := s.makeDir(""); err != nil {
		return err
	}
	v := &viewed{show: s}
	defer func() { err = errors.Join(err, v.end()) }()
	if v.w, err = newWorld(o.Exe, o.Lab, filepath.Join(s.dir, "ui")); err != nil {
		return err
	}
	s.text("%s", s.bold("tgad demo --ui"))
	for _, part := range []func(context.Context) error{v.turn, v.crash, v.question, v.serve} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (v *viewed) end() error {
	var err error
	if v.model != nil {
		err = v.model.Close()
	}
	return errors.Join(err, v.w.close(), v.dropDir())
}

// turn runs an agent to its end. It opens the store itself, so it comes before the daemon.
func (v *viewed) turn(ctx context.Context) (err error) {
	script := make([]modelserver.Answer, len(turnScript))
	for i, a := range turnScript {
		a.Hold = false
		script[i] = a
	}
	if v.model, err = modelserver.Start(modelserver.Options{Script: script, ByConversation: true}); err != nil {
		return err
	}
	config, manifest := filepath.Join(v.dir, "agent.toml"), filepath.Join(v.dir, "treasurer.yaml")
	err = errors.Join(os.WriteFile(config, fmt.Appendf(nil, turnConfig, v.Lab, v.w.journal, v.model.URL()), 0o640), os.WriteFile(manifest, []byte(turnManifest), 0o640))
	if err != nil {
		return err
	}
	out, code, err := v.w.command(ctx, "agent", "--config", config, "run", manifest, "--session", "demo", "--message", "Pay acme 42 and globex 13.")
	if err == nil && code != 0 {
		err = fmt.Errorf("the agent ended with %d: %s", code, out)
	}
	v.step("agent", "a treasurer paid two invoices")
	return err
}

// crash makes a charge and kills the daemon after it, before its answer.
func (v *viewed) crash(ctx context.Context) error {
	if err := v.w.start(ctx); err != nil {
		return err
	}
	req := runtime.Request{TraceID: newID(), Server: "payments", Tool: "charge_opaque", Key: "order-18", Args: []byte(orderArgs(1900, time.Minute)), Intent: "the charge of order 18"}
	if _, _, err := v.w.killDuring(ctx, req, point{On: charged}); err != nil {
		return err
	}
	v.step("daemon", "kill -9 after the charge of order-18, before its answer")
	return v.w.start(ctx)
}

// question asks for a payment that needs a person.
func (v *viewed) question(ctx context.Context) error {
	_, err := v.w.client.Call(ctx, runtime.Request{
		Server: "payments", Tool: "charge", Key: "order-17", Args: []byte(orderArgs(4200, 0)), Risk: tga.RiskHigh, Intent: "the charge of order 17, which is a large one",
	})
	if !errors.Is(err, tga.EscalationRequired) {
		return fmt.Errorf("the request does not wait for a person: %w", err)
	}
	v.step("caller", "the charge of order-17 waits for a decision")
	return nil
}

// serve serves the view until ctx ends.
func (v *viewed) serve(ctx context.Context) error {
	v.text("")
	v.text("What to do in the browser:")
	v.text("  1  Inbox: the charge of order-17 waits. Say why it may be made, press Approve.")
	v.text("  2  Inbox: the charge of order-18 is in doubt. Say that the journal of the")
	v.text("     payments server has it, %s, press It ran.", filepath.Base(v.w.journal))
	v.text("  3  Turns, finished ones too: what the treasurer was asked, said and did.")
	v.text("Ctrl-C ends it.")
	v.text("")
	args := []string{"ui", "--socket", v.w.socket}
	if v.json {
		args = append(args, "--json")
	}
	cmd := exec.CommandContext(ctx, v.Exe, args...)
	cmd.Stdout, cmd.Stderr = v.Out, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); ctx.Err() == nil {
		return err
	}
	return nil
}

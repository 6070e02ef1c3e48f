package notice

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"time"

	"github.com/tgad/tgad/internal/audit/deliver"
	"github.com/tgad/tgad/internal/clip"
)

// Webhook is a sink that posts notices, signed as audit records are.
type Webhook struct{ *deliver.Webhook }

// Put implements [Sink].
func (w Webhook) Put(ctx context.Context, n *Notice) error {
	raw, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return w.Post(ctx, n.ID, "application/json", raw)
}

// Command is a sink that starts a program for each notice. The program gets the notice as one line of JSON on its
// standard input. The notice is taken if the program exits with 0. The beginning of its output is logged.
type Command struct {
	Argv   []string
	Logger *slog.Logger
}

// Limits of the output that is logged, in bytes, and of the time that the program's pipes stay open after its end.
const (
	mostOutput = 1000
	outputTime = time.Second
)

// Put implements [Sink].
func (c Command) Put(ctx context.Context, n *Notice) error {
	raw, err := json.Marshal(n)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	lead(cmd)
	cmd.WaitDelay = outputTime
	said := &clip.Head{Most: mostOutput}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(append(raw, '\n')), said, said
	err = cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it exited with 0, and a process that it left behind holds its output open
	}
	if text := strings.TrimSpace(said.String()); text != "" {
		c.Logger.Info("the program that tells people wrote something", "program", c.Argv[0], "output", clip.Clean(text), "cut", said.Over)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.Argv[0], err)
	}
	return nil
}

// Close implements [Sink].
func (c Command) Close() error { return nil }

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/top"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

func topView(a *app) *cobra.Command {
	var once bool
	var every time.Duration
	c := &cobra.Command{
		Use:   "top",
		Short: "Watch a daemon: rates, times, and what waits for people",
		Long: `top shows what a daemon does now, in a frame that is drawn anew: calls and appends a
second, how long syncs, appends and sends take (as well as the buckets of the metrics
tell: they grow fourfold), open calls, calls in doubt, approvals, leases, breakers, audit
receivers that lag, the disk. The key q ends it. It takes the verb read.

--once prints one frame, of one interval, as plain text.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < 10*time.Millisecond {
				return cli.Usagef("--every %v: want 10ms or more", every)
			}
			if a.JSON {
				return cli.Usagef("top has no --json: /metrics has the numbers")
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				w := &watching{c: c, where: a.socket, every: every}
				if once {
					return w.once(ctx, a.Out)
				}
				out, ok := a.Out.(*os.File)
				in, ok2 := a.In.(*os.File)
				if !ok || !ok2 || !term.IsTerminal(int(out.Fd())) || !term.IsTerminal(int(in.Fd())) {
					return cli.Usagef("top draws on a terminal: --once prints one frame without")
				}
				return w.live(ctx, in, out)
			})
		},
	}
	c.Flags().BoolVar(&once, "once", false, "print one frame, and end")
	c.Flags().DurationVar(&every, "every", 2*time.Second, "time between frames")
	return c
}

// watching samples the metrics of a daemon again and again.
type watching struct {
	c     *client.Client
	where string
	every time.Duration

	now, before *top.Sample
	trouble     error // why there is nothing newer
	doubts      []wire.OpenTrace
	looked      time.Time // for doubts
}

// listEvery is how often calls in doubt are listed: the daemon looks at every open trace for it.
const listEvery = 5 * time.Second

// look takes another sample.
func (w *watching) look(ctx context.Context) error {
	raw, err := w.c.Metrics(ctx)
	if err != nil {
		return err
	}
	now, err := top.Parse(time.Now(), raw)
	if err != nil {
		return err
	}
	w.before, w.now = w.now, now
	if time.Since(w.looked) < listEvery {
		return nil
	}
	w.looked, w.doubts = time.Now(), nil
	if w.now.InDoubt() {
		w.doubts, err = w.c.InDoubt(ctx)
	}
	return err
}

func (w *watching) once(ctx context.Context, out io.Writer) error {
	for range 2 {
		if err := w.look(ctx); err != nil {
			return err
		}
		if w.before == nil {
			select {
			case <-time.After(w.every):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	_, err := io.WriteString(out, strings.Join(w.frame(0, 0), "\n")+"\n")
	return err
}

func (w *watching) frame(width, height int) []string {
	before := w.before
	if before == nil {
		before = w.now
	}
	return top.Frame(top.View{Where: w.where, Now: w.now, Before: before, Doubts: w.doubts, Width: width, Height: height})
}

// Control sequences: switch to the alternate screen without a cursor, and back.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
)

// sizeEvery is how often the size of the terminal is polled, because not every system has a signal for it.
const sizeEvery = 200 * time.Millisecond

// live draws until q or Ctrl-C is pressed, or ctx ends. A daemon that does not answer is asked again.
func (w *watching) live(ctx context.Context, in, out *os.File) (err error) {
	if err := w.look(ctx); err != nil {
		return err
	}
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return tga.Errorf(tga.ValidationError, "top: the terminal: %w", err)
	}
	defer func() {
		_, werr := io.WriteString(out, leaveScreen)
		err = errors.Join(err, werr, term.Restore(int(in.Fd()), state))
	}()
	if _, err := io.WriteString(out, enterScreen); err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx) // also ends a question to a daemon that hangs
	defer end()
	go func() { // it waits for a key until the process ends
		defer end()
		for key := make([]byte, 1); ; {
			if _, err := in.Read(key); err != nil || key[0] == 'q' || key[0] == 3 {
				return
			}
		}
	}()
	frames, sizes := time.NewTicker(w.every), time.NewTicker(sizeEvery)
	defer frames.Stop()
	defer sizes.Stop()
	for width, height := 0, 0; ; {
		nowWidth, nowHeight, err := term.GetSize(int(out.Fd()))
		if err != nil {
			return tga.Errorf(tga.ValidationError, "top: the terminal has no size: %w", err)
		}
		if width != nowWidth || height != nowHeight {
			width, height = nowWidth, nowHeight
			if err := w.draw(out, width, height); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-sizes.C:
		case <-frames.C:
			if w.trouble = w.look(ctx); ctx.Err() != nil {
				return nil
			}
			if err := w.draw(out, width, height); err != nil {
				return err
			}
		}
	}
}

// draw writes a frame over the one before it.
func (w *watching) draw(out io.Writer, width, height int) error {
	lines := w.frame(width, height)
	if w.trouble != nil {
		text := []rune("the daemon does not answer, and is asked again: " + cli.Clean(w.trouble.Error()))
		lines[0] = string(text[:min(len(text), width)])
	}
	_, err := io.WriteString(out, "\x1b[H"+strings.Join(lines, "\x1b[K\r\n")+"\x1b[K\x1b[J")
	return err
}

package mcpfront

import (
	"cmp"
	"context"
	"errors"
	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// world is a log, a tool server's journal, and what a test changes about them and the shim.
type world struct {
	*testWorld
	opts  Options
	log   asklog.Log // what the shim sees; nil = rt
	extra []string
	tune  func(*Shim) // changes a shim before it runs
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{testWorld: makeWorld(t)}
}

// shim is a running shim with its client.
type shim struct {
	*testClient
	s *Shim
}

func (w *world) options() Options {
	o := w.opts
	o.Server = "fake"
	if o.Command == nil && o.URL == "" {
		o.Command = []string{fakeProgram()}
	}
	o.Env = append(append([]string{envFake + "=" + w.journal}, o.Env...), w.extra...)
	if o.Log = w.log; o.Log == nil {
		o.Log = local{w.rt}
	}
	o.EndGrace = cmp.Or(o.EndGrace, noteGrace) // most tests leave calls behind that nobody answers
	if o.State == "" {
		o.State = filepath.Join(w.dir, "state")
	}
	if testing.Verbose() && o.Logger == nil { // a test that reads the log keeps its own
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
		o.Stderr = os.Stderr
	}
	return o
}

func (w *world) start() *shim {
	w.t.Helper()
	s, err := New(w.options())
	if err != nil {
		w.t.Fatal(err)
	}
	if w.tune != nil {
		w.tune(s)
	}
	return w.wire(s, func(ctx context.Context, in io.Reader, out io.Writer) error {
		return errors.Join(s.Stdio(ctx, in, out), s.Close())
	})
}

// wire gives what serves a client on stdin and stdout a client.
func (w *world) wire(s *Shim, serve func(ctx context.Context, in io.Reader, out io.Writer) error) *shim {
	w.t.Helper()
	return &shim{w.serveLines(serve), s}
}

// listening serves a world's tool server over HTTP and returns its URL.
func (w *world) listening() string {
	w.t.Helper()
	_, url := w.served()
	return url
}

// served is [world.listening] with the shim at hand.
func (w *world) served() (*Shim, string) {
	w.t.Helper()
	s, err := New(w.options())
	if err != nil {
		w.t.Fatal(err)
	}
	if w.tune != nil {
		w.tune(s)
	}
	w.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return s, w.door(func(life context.Context) lobby { return s.front(life, nil) })
}

func runShim(ctx context.Context, dir string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := os.WriteFile(filepath.Join(dir, "shim.pid"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	c, stop, err := processLog(ctx, dir, log)
	if err != nil {
		return err
	}
	defer stop()
	k := newKiller(dir)
	s, err := New(Options{
		Server: "fake", Command: os.Args[1:], Log: k.log(c), State: filepath.Join(dir, "state"),
		Env: []string{envProcess + "="}, Stderr: os.Stderr, Logger: log,
	})
	if err != nil {
		return err
	}
	return errors.Join(s.Stdio(ctx, k.reader(os.Stdin), k.writer(os.Stdout)), s.Close())
}

func TestMain(m *testing.M) {
	code := runTests(m, map[string]func(context.Context, string) error{"shim": runShim, "gate": runGate})
	removeNPM()
	os.Exit(code)
}

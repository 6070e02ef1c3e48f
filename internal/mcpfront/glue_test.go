package mcpfront

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/entry"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
)

// world is a [fronttest.World] with the settings of the shim that a test may change.
type world struct {
	*fronttest.World
	opts  Options
	log   asklog.Log // what the shim sees; nil = rt
	extra []string
	tune  func(*Shim) // changes a shim before it runs
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{World: fronttest.New(t)}
}

// shim is a running shim with its client.
type shim struct {
	*fronttest.Client
	s *Shim
}

func (w *world) options() Options {
	o := w.opts
	o.Server = "fake"
	if o.Command == nil && o.URL == "" {
		o.Command = []string{fronttest.FakeProgram()}
	}
	o.Env = append(append([]string{fronttest.EnvFake + "=" + w.Journal}, o.Env...), w.extra...)
	if o.Log = w.log; o.Log == nil {
		o.Log = w.Local()
	}
	o.EndGrace = cmp.Or(o.EndGrace, entry.NoteGrace) // short, because most tests leave calls without an answer
	if o.State == "" {
		o.State = filepath.Join(w.Dir, "state")
	}
	if testing.Verbose() && o.Logger == nil { // a test that reads the log keeps its own
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
		o.Stderr = os.Stderr
	}
	return o
}

func (w *world) start() *shim {
	w.T.Helper()
	s, err := New(w.options())
	if err != nil {
		w.T.Fatal(err)
	}
	if w.tune != nil {
		w.tune(s)
	}
	return w.wire(s, func(ctx context.Context, in io.Reader, out io.Writer) error {
		return errors.Join(s.Stdio(ctx, in, out), s.Close())
	})
}

// wire makes a client of a server on stdin and stdout.
func (w *world) wire(s *Shim, serve func(ctx context.Context, in io.Reader, out io.Writer) error) *shim {
	w.T.Helper()
	return &shim{w.ServeLines(serve), s}
}

// listening serves a world's tool server over HTTP and returns its URL.
func (w *world) listening() string {
	w.T.Helper()
	_, url := w.served()
	return url
}

// served is [world.listening] and also returns the shim.
func (w *world) served() (*Shim, string) {
	w.T.Helper()
	s, err := New(w.options())
	if err != nil {
		w.T.Fatal(err)
	}
	if w.tune != nil {
		w.tune(s)
	}
	w.T.Cleanup(func() {
		if err := s.Close(); err != nil {
			w.T.Error(err)
		}
	})
	return s, w.Door(func(life context.Context) entry.Lobby { return s.Front(life, nil, nil) })
}

func runShim(ctx context.Context, dir string) (err error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := os.WriteFile(filepath.Join(dir, "shim.pid"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	c, stop, err := fronttest.ProcessLog(ctx, dir, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	k := fronttest.NewKiller(dir)
	s, err := New(Options{
		Server: "fake", Command: os.Args[1:], Log: k.Log(c), State: filepath.Join(dir, "state"),
		Env: []string{fronttest.EnvProcess + "="}, Stderr: os.Stderr, Logger: log,
	})
	if err != nil {
		return err
	}
	return errors.Join(s.Stdio(ctx, k.Reader(os.Stdin), k.Writer(os.Stdout)), s.Close())
}

func TestMain(m *testing.M) {
	code := fronttest.Run(m, map[string]func(context.Context, string) error{"shim": runShim})
	removeNPM()
	os.Exit(code)
}

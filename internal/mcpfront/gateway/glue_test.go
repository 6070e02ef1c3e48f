package gateway

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/tgad/tgad/internal/mcpfront"
	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/entry"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
)

// world is a [fronttest.World] with the settings of the shim that a test may change.
type world struct {
	*fronttest.World
	opts mcpfront.Options
	log  asklog.Log // what the shim sees; nil = rt
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{World: fronttest.New(t)}
}

func (w *world) options() mcpfront.Options {
	o := w.opts
	o.Server = "fake"
	if o.Command == nil && o.URL == "" {
		o.Command = []string{fronttest.FakeProgram()}
	}
	o.Env = append([]string{fronttest.EnvFake + "=" + w.Journal}, o.Env...)
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

// shim is a client of a gateway.
type shim struct{ *fronttest.Client }

// wire makes a client of a server on stdin and stdout.
func (w *world) wire(serve func(ctx context.Context, in io.Reader, out io.Writer) error) *shim {
	w.T.Helper()
	return &shim{w.ServeLines(serve)}
}

// listening serves a world's tool server over HTTP and returns its URL.
func (w *world) listening() string {
	w.T.Helper()
	s, err := mcpfront.New(w.options())
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() {
		if err := s.Close(); err != nil {
			w.T.Error(err)
		}
	})
	return w.Door(func(life context.Context) entry.Lobby { return s.Front(life, nil, nil) })
}

func TestMain(m *testing.M) {
	os.Exit(fronttest.Run(m, map[string]func(context.Context, string) error{"gate": runGate, "tokens": runTokenGate}))
}

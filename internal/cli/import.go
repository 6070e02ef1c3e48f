package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Imported says what an import brought over.
type Imported struct {
	Traces  int `json:"traces"`
	Entries int `json:"entries"`
	Notes   int `json:"notes"`
	// Unkeyed counts traces whose call is erased: the export does not say under which key it was
	// sent, so the new store has no record of that key.
	Unkeyed int `json:"unkeyed"`
}

// Import is the verb import.
func Import(s *Streams) *cobra.Command {
	var data, file string
	c := &cobra.Command{
		Use:   "import FILE --data DIR",
		Short: "Make a store from an export; the store opens frozen",
		Long: `import makes the store DIR, which must not exist, from what tgad export wrote; - is standard
input. Entries, artifacts, documents and notes keep their bytes and digests, so an export of
the new store is the same file. The ledger is made from them: no call that the export has is
sent again.

The store gets an id of its own and is frozen, as a store is that was restored from a backup:
calls that were made after the export are not in it. tgad unfreeze --accept-loss says that you
know that.

Every line is checked while it is read. A file that was changed, cut, or put together of two
exports is refused with the number of the line, and exit code 3; no store is left then.

An export has traces alone. Working state, turns, waiting timers, and the keys of calls that
were erased are not in it. To move a store as it is, use tgad backup and tgad restore.

With --config the new store is sealed under the key ring of that file.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if data == "" {
				return Usagef("--data is required: the directory of the new store")
			}
			return s.imports(cmd.Context(), args[0], data, file)
		},
	}
	c.Flags().StringVar(&data, "data", os.Getenv("TGAD_DATA"), "the new store's `directory` (or $TGAD_DATA)")
	c.Flags().StringVar(&file, "config", "", "configuration `file` with the [keyring] that the new store is sealed under")
	return c
}

func (s *Streams) imports(ctx context.Context, from, data, file string) (err error) {
	in := s.In
	if from != "-" {
		f, err := os.Open(from)
		if errors.Is(err, fs.ErrNotExist) {
			return tga.Errorf(tga.NotFound, "there is no export: %w", err)
		} else if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	var o engine.Options
	if file != "" {
		c, err := assemble.Load(file)
		if err != nil {
			return err
		}
		ring, err := assemble.Keyring(c, data)
		if err != nil {
			return err
		}
		if ring == nil {
			return Usagef("--config %s: it has no [keyring]", file)
		}
		o.Keyring = ring
		defer func() { err = errors.Join(err, ring.Close()) }()
	}
	reader := &left{ctx: ctx, from: in}
	var traces atomic.Int64
	stop := s.Watch(ctx, func(context.Context) string {
		return fmt.Sprintf("import: %d MiB read, %d traces", reader.read.Load()>>20, traces.Load())
	})
	done, err := importFrom(ctx, reader, data, o, &traces)
	stop()
	if err != nil {
		return err
	}
	if s.JSON {
		return s.Line(done)
	}
	s.Printf("import: %s (frozen): %d traces, %d entries, %d notes\n", data, done.Traces, done.Entries, done.Notes)
	if done.Unkeyed > 0 {
		s.Printf("the calls of %d traces are erased: the new store does not know their keys, and refuses a key that it does not know until tgad unfreeze --end-quarantine\n", done.Unkeyed)
	}
	return nil
}

// importFrom makes a store from an export. An error about the export itself is [Unverified].
func importFrom(ctx context.Context, in io.Reader, data string, o engine.Options, traces *atomic.Int64) (done Imported, err error) {
	err = engine.Import(ctx, data, o, func(add func([]chain.Entry, []tga.Note) error) error {
		report, err := ndjson.Each(in, func(entries []chain.Entry, notes []tga.Note) error {
			for i := range entries {
				if entries[i].Type == tga.CallType && entries[i].Artifact == nil {
					done.Unkeyed++
				}
			}
			traces.Add(1)
			return add(entries, notes)
		})
		done.Traces, done.Entries, done.Notes = report.Traces, report.Entries, report.Notes
		if err != nil && ctx.Err() == nil && tga.CodeOf(err) != tga.StoreUnavailable {
			err = &Unverified{err}
		}
		return err
	})
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return done, err
}

// left is a reader whose pending read is abandoned when ctx ends. Otherwise a pipe whose writer has
// stopped would keep the process alive after an interrupt.
type left struct {
	ctx  context.Context
	from io.Reader
	own  []byte
	read atomic.Int64
}

func (l *left) Read(p []byte) (int, error) {
	if err := l.ctx.Err(); err != nil {
		return 0, err
	}
	if len(l.own) < len(p) {
		l.own = make([]byte, len(p))
	}
	var n int
	var err error
	done := make(chan struct{})
	go func() {
		n, err = l.from.Read(l.own[:len(p)])
		close(done)
	}()
	select {
	case <-done:
		l.read.Add(int64(n))
		return copy(p, l.own[:n]), err
	case <-l.ctx.Done():
		return 0, l.ctx.Err()
	}
}

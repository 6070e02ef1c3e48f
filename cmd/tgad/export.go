package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/wire"
)

func (a *app) export() *cobra.Command {
	var file, dialect string
	c := &cobra.Command{
		Use:   "export [TRACE...]",
		Short: "Write traces as NDJSON that anyone can check",
		Long: `export writes the named traces, or all, as NDJSON: entries with their artifacts and
documents, and notes. tgad verify FILE checks it without a store; so can any program
that knows SHA-256 and RFC 8785. What does not verify is not exported. The last line says
how many traces there are: without it the export was cut off, and verify FILE says so.

With --dialect talos each artifact passes the public Talos schemas too. A trace that was
not written under profile talos is refused, with the member that they do not take.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := parseIDs(args)
			if err != nil {
				return err
			}
			if dialect != wire.DialectTgad && dialect != wire.DialectTalos {
				return cli.Usagef("--dialect %q: want tgad or talos", dialect)
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				var done atomic.Int64
				defer a.Watch(ctx, func(context.Context) string { return fmt.Sprintf("export: %d traces", done.Load()) })()
				return a.toFile(ctx, file, func(w io.Writer) error {
					return exportTo(w, c.Export(ctx, wire.ExportRequest{TraceIDs: ids, Dialect: dialect}), &done)
				})
			})
		},
	}
	c.Flags().StringVarP(&file, "output", "o", "", "write to a `file`, which must not exist, instead of stdout")
	c.Flags().StringVar(&dialect, "dialect", wire.DialectTgad, "whose schemas each artifact must pass: tgad or talos")
	return c
}

// exportTo writes the lines of an export as they come, and counts its traces.
func exportTo(w io.Writer, lines iter.Seq2[[]byte, error], done *atomic.Int64) error {
	for line, err := range lines {
		if err != nil {
			return err
		}
		if bytes.HasPrefix(line, []byte(`{"kind":"head",`)) {
			done.Add(1)
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return nil
}

// leavable is an output whose pending write is abandoned when ctx ends. Otherwise a reader that has
// stopped reading, such as a pager, would keep the process alive after an interrupt.
type leavable struct {
	ctx context.Context
	to  io.Writer
}

func (l leavable) Write(p []byte) (n int, err error) {
	if err := l.ctx.Err(); err != nil {
		return 0, err
	}
	own, done := bytes.Clone(p), make(chan struct{}) // the caller uses p again
	go func() {
		n, err = l.to.Write(own)
		close(done)
	}()
	select {
	case <-done:
		return n, err
	case <-l.ctx.Done():
		return 0, l.ctx.Err()
	}
}

// toFile calls write with stdout or with a new file, which is there when it is whole.
// What went to stdout before an error cannot be taken back: it lacks the last line.
func (a *app) toFile(ctx context.Context, name string, write func(io.Writer) error) (err error) {
	if name == "" {
		w := bufio.NewWriterSize(leavable{ctx, a.Out}, 64<<10)
		if err := write(w); err != nil {
			return err
		}
		return w.Flush()
	}
	return newFile(name, write)
}

// newFile writes a file that must not be there. It gets its name when it is whole and durable: whoever is killed before leaves
// tgad-NUMBER.part beside it, and no part that has the name.
func newFile(name string, write func(io.Writer) error) (err error) {
	if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return cmp.Or(err, error(&fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}))
	}
	dir := filepath.Dir(name)
	f, err := os.CreateTemp(dir, "tgad-*.part")
	if why := (*fs.PathError)(nil); errors.As(err, &why) {
		why.Path = name // which was asked for
	}
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	if err = write(w); err == nil {
		err = w.Flush() // which would say again what a write has said
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Link(f.Name(), name) // it replaces nothing, unlike a rename
		if _, is := os.Lstat(name); err != nil && errors.Is(is, fs.ErrNotExist) {
			return errors.Join(os.Rename(f.Name(), name), access.SyncDir(dir)) // a disk without links
		}
	}
	return errors.Join(err, os.Remove(f.Name()), access.SyncDir(dir))
}

package logfile

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
)

// Reader reads a file until its context ends. So an interrupt stops the reading of a long file.
type Reader struct {
	ctx  context.Context
	file *os.File
	read atomic.Int64
}

// NewReader returns a reader of an open file.
func NewReader(ctx context.Context, f *os.File) *Reader { return &Reader{ctx: ctx, file: f} }

// Progress returns a line that says how much of the file has been read. work names the work.
func (r *Reader) Progress(work string) string {
	of := ""
	if st, err := r.file.Stat(); err == nil {
		of = fmt.Sprintf(" of %d", st.Size()>>20)
	}
	return fmt.Sprintf("%s: %d%s MiB read", work, r.read.Load()>>20, of)
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.file.Read(p)
	r.read.Add(int64(n))
	return n, err
}

// ReadAt implements io.ReaderAt.
func (r *Reader) ReadAt(p []byte, at int64) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.file.ReadAt(p, at)
	r.read.Add(int64(n))
	return n, err
}

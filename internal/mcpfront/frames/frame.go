package frames

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/internal/onwire"
	"github.com/tgad/tgad/schemas/tga"
)

// Frame is one JSON-RPC message as it came, byte for byte, without its newline. A message
// over SpillBytes is kept whole in a file without a name, and only its first part is in
// memory.
type Frame struct {
	mcpraw.Envelope
	Head []byte   // the whole message, or its first part if file is set
	file *os.File // nil, or the whole message
	Size int64
	// Unsent is set in place of a message: why the tool server did not accept the request
	// with this id. That request certainly did not run.
	Unsent string
	// After is the Retry-After of the tool server.
	After time.Duration
	// GivenUp is set in place of a message: this side ended the request with this id.
	GivenUp bool
	// Challenge is set beside Unsent if the tool server wants authorization.
	Challenge *Challenge
}

// Limits of a frame.
const (
	// SpillBytes is how much of one message is held in memory while it passes.
	SpillBytes = 1 << 20
	// DefaultMaxFrameBytes is the longest message that passes at all.
	DefaultMaxFrameBytes = 1 << 30
)

// NewFrame makes a frame of bytes in memory.
func NewFrame(b []byte) *Frame {
	s := &mcpraw.Scanner{}
	_, _ = s.Write(b)
	return &Frame{Envelope: s.Finish(), Head: b, Size: int64(len(b))}
}

// Close closes the frame's file, if it has one.
func (f *Frame) Close() {
	if f.file != nil {
		_ = f.file.Close() // the file has no name, so this also removes it
		f.file = nil
	}
}

// Bytes returns a part of the message. A part over limit is LIMIT_EXCEEDED.
func (f *Frame) Bytes(s mcpraw.Span, limit int64) ([]byte, error) {
	n := s.To - s.From
	if n > limit {
		return nil, tga.Errorf(tga.LimitExceeded, "a part of a message has %d bytes, over %d", n, limit)
	}
	if s.To <= int64(len(f.Head)) {
		return f.Head[s.From:s.To], nil
	}
	if f.file == nil {
		return nil, tga.Errorf(tga.LimitExceeded, "a message of %d bytes was not kept", f.Size)
	}
	b := make([]byte, n)
	if _, err := f.file.ReadAt(b, s.From); err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "read a spilled message: %w", err)
	}
	return b, nil
}

// Reader returns a part of the message as a stream.
func (f *Frame) Reader(s mcpraw.Span) io.Reader {
	if s.To <= int64(len(f.Head)) {
		return bytes.NewReader(f.Head[s.From:s.To])
	}
	if f.file == nil {
		return bytes.NewReader(nil)
	}
	return io.NewSectionReader(f.file, s.From, s.To-s.From)
}

// WriteTo writes the message.
func (f *Frame) WriteTo(w io.Writer) (int64, error) {
	if f.file == nil {
		n, err := w.Write(f.Head)
		return int64(n), err
	}
	return io.Copy(w, io.NewSectionReader(f.file, 0, f.Size))
}

// Frames reads messages, one from each line.
type Frames struct {
	in   *bufio.Reader // nil = the messages are no lines, and may have line ends
	most int64         // longest message
	Dir  string        // directory of the files of long messages
}

// NewFrames makes a reader of messages of at most most bytes; 0 is [DefaultMaxFrameBytes].
func NewFrames(in io.Reader, most int64) *Frames {
	if most <= 0 {
		most = DefaultMaxFrameBytes
	}
	return &Frames{in: bufio.NewReaderSize(in, 64<<10), most: most}
}

// Next returns the next message, or io.EOF at the end. It skips lines of white space.
func (r *Frames) Next() (*Frame, error) {
	for {
		f, err := r.line()
		if err != nil || f.Size > 0 {
			return f, err
		}
		f.Close()
	}
}

// line reads one line. It scans and drops the bytes of a line that are over the limit, so that the
// id of a message that is too long is still known.
func (r *Frames) line() (*Frame, error) {
	b := r.begin()
	for {
		part, err := r.in.ReadSlice('\n')
		done := err == nil
		if done {
			part = bytes.TrimRight(part, "\r\n")
		}
		if keepErr := b.add(part); keepErr != nil {
			return nil, keepErr
		}
		if done || (err == io.EOF && !b.blank) {
			return b.end(), nil
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			b.drop()
			return nil, err
		}
	}
}

// building is a message that is arriving.
type building struct {
	r     *Frames
	f     *Frame
	s     mcpraw.Scanner
	line  oneLine
	blank bool // nothing but white space so far
}

func (r *Frames) begin() *building { return &building{r: r, f: &Frame{}, blank: true} }

func (b *building) add(part []byte) error {
	if b.blank && len(bytes.TrimSpace(part)) > 0 {
		b.blank = false
	}
	if b.r.in == nil {
		b.line.join(part)
	}
	_, _ = b.s.Write(part) // never fails
	if err := b.r.keep(b.f, part); err != nil {
		b.drop()
		return err
	}
	return nil
}

func (b *building) drop() { b.f.Close() }

// end returns the message, or a frame of size 0 if there was none.
func (b *building) end() *Frame {
	if b.blank {
		b.drop()
		return &Frame{}
	}
	b.f.Envelope = b.line.checked(b.s.Finish())
	if b.f.Size > b.r.most {
		b.f.Bad = "it has " + strconv.FormatInt(b.f.Size, 10) + " bytes, over " + strconv.FormatInt(b.r.most, 10)
	}
	return b.f
}

// keep adds a part to the frame, in memory or in its file.
func (r *Frames) keep(f *Frame, part []byte) error {
	f.Size += int64(len(part))
	switch {
	case f.Size > r.most:
		f.Close()
		f.Head = nil
		return nil
	case f.file == nil && f.Size <= SpillBytes:
		f.Head = append(f.Head, part...)
		return nil
	case f.file == nil:
		file, err := os.CreateTemp(r.Dir, "tgad-mcp-*")
		if err != nil {
			return tga.Errorf(tga.StoreUnavailable, "a message of over %d bytes needs a file: %w", SpillBytes, err)
		}
		// A file without a name is gone when this process ends, however it ends.
		if err := os.Remove(file.Name()); err != nil {
			_ = file.Close()
			return tga.Errorf(tga.StoreUnavailable, "a message of over %d bytes needs a file: %w", SpillBytes, err)
		}
		f.file = file
		if _, err := file.Write(f.Head); err != nil {
			return tga.Errorf(tga.StoreUnavailable, "spill a message: %w", err)
		}
	}
	if _, err := f.file.Write(part); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "spill a message: %w", err)
	}
	return nil
}

// Key is a JSON-RPC id in a form that is the same for all spellings of the id.
type Key string

// KeyOf returns the key of an id. Some peers write 7.0 for 7, or 0 for -0.
func KeyOf(raw []byte) Key {
	if len(raw) > 0 && raw[0] == '"' {
		var s string
		if json.Unmarshal(raw, &s) == nil {
			return Key("s" + s)
		}
	}
	if f, err := strconv.ParseFloat(string(raw), 64); err == nil {
		// Above 2^53 two ids could be the same double, so the key of such an id is its spelling.
		if f > -(1<<53) && f < 1<<53 {
			if f == 0 {
				f = 0 // replaces -0, which has another text
			}
			return Key("n" + strconv.FormatFloat(f, 'g', -1, 64))
		}
	}
	return Key("r" + string(raw))
}

// Answers reports whether an answer with the id got is one to the request with the id want. Some servers write the
// number of a request as a string, and the clients of the official SDKs take that.
func Answers(got, want []byte) bool {
	return KeyOf(got) == KeyOf(want) || len(want) > 0 && want[0] != '"' && mcpraw.Text(got) == string(want)
}

// AnswerTo returns an answer with the id of its request. An answer that is not in memory stays as it is.
func AnswerTo(f *Frame, id []byte) *Frame {
	if f.file != nil || KeyOf(f.RawID) == KeyOf(id) {
		return f
	}
	to := Replace(f, f.ID, id)
	to.After = f.After
	return to
}

// Sink writes messages one at a time, each whole.
type Sink struct {
	mu    sync.Mutex
	Under io.Writer
	wrote int64 // bytes that the system has accepted
	// late is set until the first byte of a message is accepted that may come too late.
	late func() error
	out  *bufio.Writer
	err  error // of the first write that failed; after a line that was cut short nothing can be written
}

// NewSink writes messages to w.
func NewSink(w io.Writer) *Sink {
	s := &Sink{Under: w}
	s.out = bufio.NewWriterSize(counted{s}, 64<<10)
	return s
}

type counted struct{ s *Sink }

func (c counted) Write(p []byte) (int, error) {
	n, err := c.s.begin(p)
	if err == nil && n < len(p) {
		var more int
		more, err = c.s.Under.Write(p[n:])
		n += more
	}
	c.s.wrote += int64(n)
	return n, err
}

// lateEvery is the time between two looks whether a message is late, while its reader takes no byte of it.
const lateEvery = 100 * time.Millisecond

// begin writes the beginning of a message that may come too late: as much of p as is accepted at once. It writes nothing of
// another message. A reader that takes no byte, as one whose pipe is full, does not hold the message back beyond its time.
func (s *Sink) begin(p []byte) (n int, err error) {
	under, ok := s.Under.(interface{ SetWriteDeadline(time.Time) error })
	for s.late != nil && n == 0 && err == nil {
		if err = s.late(); err != nil || !ok || under.SetWriteDeadline(time.Now().Add(lateEvery)) != nil {
			break
		}
		if n, err = s.Under.Write(p); errors.Is(err, os.ErrDeadlineExceeded) {
			err = nil
		}
		err = errors.Join(err, under.SetWriteDeadline(time.Time{}))
	}
	s.late = nil
	return n, err
}

// Write writes parts and a newline, and returns once the system has accepted them. The error
// wraps [runtime.ErrNotSent] if the system accepted no byte of them.
func (s *Sink) Write(parts ...io.WriterTo) error {
	return s.writeUnless(nil, parts...)
}

// writeUnless is [Sink.Write], but writes nothing if late returns an error right before this message
// is written. late may be nil.
func (s *Sink) writeUnless(late func() error, parts ...io.WriterTo) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return onwire.NotSent(s.err)
	}
	before := s.wrote
	s.late = late
	err := s.put(parts)
	s.late = nil
	if err != nil && s.wrote == before {
		s.out.Reset(counted{s}) // no line was cut short: the next message may be written
	} else {
		s.err = err
	}
	return onwire.Wrote(s.wrote-before, err)
}

func (s *Sink) put(parts []io.WriterTo) error {
	for _, p := range parts {
		if _, err := p.WriteTo(s.out); err != nil {
			return err
		}
	}
	if err := s.out.WriteByte('\n'); err != nil {
		return err
	}
	return s.out.Flush()
}

// Text is a part of a message in memory.
type Text []byte

func (t Text) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(t)
	return int64(n), err
}

// Nonce makes a unique part of an id.
func Nonce() string {
	var b [16]byte
	rand.Read(b[:]) // it never fails: crypto/rand ends the program instead
	return hex.EncodeToString(b[:])
}

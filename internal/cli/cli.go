// Package cli has what the verbs of the command share: how they print, how they fail, and
// how they show a trace as text.
//
// # Exit codes
//
//	0  ok
//	1  an error; stderr says which
//	2  usage: the command line itself is wrong
//	3  verification failed: a log is not what it says it is
//	4  a call is in doubt
//	5  the store or the trace cannot be had: another holds it, or the store's files fail
//	130  interrupted (SIGINT or SIGTERM) before it was done
//
// # Invariants
//
//	one form   an error is one line "tgad: CODE: message", or one JSON object  [Streams.Fail]   TestErrorsHaveOneForm
//	                                                                           [Streams.Aside]  TestErrorsAboutOneOfManyAreObjectsToo
//	whole      output that did not all reach stdout is an error                [Streams.Fail]   TestOutputThatIsLostIsAnError
//	harmless   text from a log sends no control sequence to a terminal         [clip.Clean]     TestTimelineIsHarmlessWhateverTheLogHolds
//	                                                                           [Streams.Printf] TestPrintedTextIsHarmless
//	                                                                           [Streams.Bytes]  TestAnswersAreHarmlessOnATerminal
package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/schemas/tga"
)

// Streams are where a verb reads and prints.
type Streams struct {
	In   io.Reader
	Out  io.Writer
	Err  io.Writer
	JSON bool // print one JSON object a line

	Progress bool // show how far long work is although stderr is no terminal

	lost lostText
}

// lostText keeps the first error of a write to stdout that failed.
type lostText struct {
	mu  sync.Mutex
	err error
}

// Line prints v as one line of JSON.
func (s *Streams) Line(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = s.Out.Write(append(b, '\n'))
	return err
}

// Printf prints text for people, without control characters other than tabs and the ends of lines. It keeps the error of a
// failed write, which [Streams.Fail] reports at the end. A verb that prints without end checks [Streams.Lost].
func (s *Streams) Printf(format string, args ...any) {
	_, err := io.WriteString(s.Out, cleanLines(fmt.Sprintf(format, args...)))
	s.lose(err)
}

// lose keeps the error of a write to stdout.
func (s *Streams) lose(err error) {
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return // a closed stdout is the reader's choice (| head); there is nobody left to tell
	}
	s.lost.mu.Lock()
	defer s.lost.mu.Unlock()
	if s.lost.err == nil {
		s.lost.err = err
	}
}

// Lost returns the error of the first write of text that failed, nil if all text reached stdout.
func (s *Streams) Lost() error {
	s.lost.mu.Lock()
	defer s.lost.mu.Unlock()
	return s.lost.err
}

// Lines returns a logger that writes to stderr, one line for each record, as JSON if inJSON is set. Of an error it
// writes the message alone: Pebble's errors would otherwise print stacks of thirty lines.
func (s *Streams) Lines(level slog.Leveler, inJSON bool) *slog.Logger {
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if err, is := a.Value.Any().(error); is && err != nil {
			a.Value = slog.StringValue(err.Error())
		}
		return a
	}}
	if inJSON {
		return slog.New(slog.NewJSONHandler(s.Err, o))
	}
	return slog.New(slog.NewTextHandler(s.Err, o))
}

// Bytes prints what a tool or a log has said as it is, so that a pipe gets each byte of it. A terminal gets it without
// control characters, like all other text: a tool's answer could otherwise send it commands.
func (s *Streams) Bytes(b []byte) error {
	if isTerminal(s.Out) {
		b = []byte(cleanLines(string(b)))
	}
	_, err := s.Out.Write(b)
	return err
}

// Table prints rows under a header, in columns. Each cell is cleaned.
func (s *Streams) Table(header []string, rows [][]string) error {
	w := tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = Clean(c)
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "\t"), "\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}

// Clean is [clip.Clean].
func Clean(s string) string { return clip.Clean(s) }

// cleanLines is [Clean] for text of several lines, which may have tabs.
func cleanLines(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		end := strings.IndexAny(s, "\n\t")
		if end < 0 {
			b.WriteString(Clean(s))
			break
		}
		b.WriteString(Clean(s[:end]) + s[end:end+1])
		s = s[end+1:]
	}
	return b.String()
}

// Colour reports whether to write colours to w: it is a terminal, and neither NO_COLOR nor TERM=dumb is set.
func Colour(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// ParseID reads a trace id from the command line: a wrong one is a usage error.
func ParseID(s string) (tga.ID, error) {
	id, err := tga.ParseID(s)
	if err != nil {
		return id, Usage(err)
	}
	return id, nil
}

// ParseTime reads the value of a flag that is a point in time, or a duration before now such as 2h. For "" it
// returns 0. Any other text is a usage error.
func ParseTime(flag, s string, now time.Time) (tga.Millis, error) {
	t, err := story.ParseTime(s, now)
	if err != nil {
		return 0, Usagef("%s %w", flag, err)
	}
	return t, nil
}

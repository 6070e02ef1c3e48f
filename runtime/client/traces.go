package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"strconv"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

func tracesRequest(q *wire.TracesQuery) request {
	set := func(is bool) string {
		if is {
			return "1"
		}
		return ""
	}
	at := func(m tga.Millis) string {
		if m == 0 {
			return ""
		}
		return m.String()
	}
	after := ""
	if !q.After.IsZero() {
		after = q.After.String()
	}
	return get("/v1/traces", "all", set(q.All), "newest", set(q.Newest), "state", q.State, "namespace", q.Namespace, "server", q.Server, "tool", q.Tool,
		"key", q.Key, "class", q.Class, "text", q.Text, "since", at(q.Since), "until", at(q.Until), "before", at(q.Before), "after", after)
}

// Traces yields the open traces, or all traces, by id or the newest first.
func (c *Client) Traces(ctx context.Context, q wire.TracesQuery) iter.Seq2[wire.OpenTrace, error] {
	return func(yield func(wire.OpenTrace, error) bool) {
		q := q // each range begins there
		for {
			var page wire.Traces
			if err := c.ask(ctx, tracesRequest(&q), &page); err != nil {
				yield(wire.OpenTrace{}, err)
				return
			}
			for _, t := range page.Traces {
				if !yield(t, nil) {
					return
				}
			}
			if page.Next.IsZero() {
				return
			}
			q.After, q.Before = page.Next, page.Before
		}
	}
}

// Trace returns everything about one trace. NOT_FOUND if there is none.
func (c *Client) Trace(ctx context.Context, trace tga.ID) (wire.Timeline, error) {
	var t wire.Timeline
	err := c.ask(ctx, get(tracePath(trace, "")), &t)
	return t, err
}

// State returns the execution state of a trace, its digest recomputed.
func (c *Client) State(ctx context.Context, trace tga.ID) (tga.ExecutionState, error) {
	raw, _, err := c.bytes(ctx, get(tracePath(trace, "/state")))
	if err != nil {
		return tga.ExecutionState{}, err
	}
	s, err := tga.DecodeExecutionState(raw)
	if err != nil {
		return tga.ExecutionState{}, err
	}
	return *s, nil
}

// Document returns the exact bytes of a stored document of a trace's effect, after comparing
// them with the digest that the daemon names. NOT_FOUND if there is no such document.
func (c *Client) Document(ctx context.Context, trace tga.ID, pointer string) ([]byte, tga.Digest, error) {
	raw, header, err := c.bytes(ctx, get(tracePath(trace, "/documents"), "pointer", pointer))
	if err != nil {
		return nil, tga.Digest{}, err
	}
	tag, err := strconv.Unquote(header.Get("ETag"))
	if err != nil {
		return nil, tga.Digest{}, tga.Errorf(tga.StateChecksumMismatch, "document %s: the ETag %q names no digest", pointer, header.Get("ETag")).In(trace)
	}
	want, err := tga.ParseDigest(tag)
	if err != nil {
		return nil, tga.Digest{}, err
	}
	if got := tga.Sum(raw); got != want {
		e := tga.Errorf(tga.StateChecksumMismatch, "document %s of %d bytes has another digest than its ETag", pointer, len(raw)).In(trace)
		e.WantDigest, e.GotDigest, e.Where = want, got, "given"
		return nil, tga.Digest{}, e
	}
	return raw, want, nil
}

// Entries yields the entries of a trace after a sequence number. With follow it goes on
// with later entries, until the trace is terminal or ctx ends.
func (c *Client) Entries(ctx context.Context, trace tga.ID, after uint64, follow bool) iter.Seq2[wire.Entry, error] {
	return stream[wire.Entry](ctx, c, get(tracePath(trace, "/entries"), "after", number(after), "follow", flag(follow)))
}

// Log yields the appends of the store after a cursor ("" is the beginning), without a gap,
// as far as the peer may see them. With follow it goes on with later appends.
func (c *Client) Log(ctx context.Context, after string, follow bool) iter.Seq2[wire.LogLine, error] {
	return stream[wire.LogLine](ctx, c, get("/v1/log", "after", after, "follow", flag(follow)))
}

// Changes yields a cursor whenever something was appended that the peer may see, at most four
// times a second, until ctx ends. It is for programs that show the log and read it again at each change. It starts
// with the next append.
func (c *Client) Changes(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for line, err := range stream[wire.LogLine](ctx, c, get("/v1/log", "after", wire.Newest, "follow", flag(true), "changes", flag(true))) {
			if !yield(line.Cursor, err) {
				return
			}
		}
	}
}

// Export yields the lines of an export, each with its newline and valid until the next line. The
// last line marks the end. An export that breaks off before that yields an error:
// STORE_UNAVAILABLE, or the error that the daemon reports.
func (c *Client) Export(ctx context.Context, m wire.ExportRequest) iter.Seq2[[]byte, error] {
	return ended(ctx, c, post("/v1/export", m))
}

// ended yields the lines of an answer whose last line marks its end.
func ended(ctx context.Context, c *Client, r request) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		ended := false
		for line, err := range lines(ctx, c, r) {
			if err != nil {
				yield(nil, err)
				return
			}
			if ended {
				yield(nil, tga.Errorf(tga.StoreUnavailable, "%s: a line after the end", r.path))
				return
			}
			ended = bytes.HasPrefix(line, []byte(exportEnd))
			if !yield(append(line, '\n'), nil) {
				return
			}
		}
		if !ended {
			yield(nil, tga.Errorf(tga.StoreUnavailable, "%s: the answer broke off before its end", r.path))
		}
	}
}

// exportEnd begins the last line of an export.
const exportEnd = `{"kind":"end",`

func number(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

func flag(on bool) string {
	if on {
		return "1"
	}
	return ""
}

// streamError is the last line of a stream that the daemon could not continue.
type streamError struct {
	Problem *wire.Problem `json:"problem"`
}

// stream reads an NDJSON answer of messages.
func stream[T any](ctx context.Context, c *Client, r request) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for line, err := range lines(ctx, c, r) {
			var v T
			if err == nil {
				if err = json.Unmarshal(line, &v); err != nil {
					err = tga.Errorf(tga.StoreUnavailable, "%s: a line is not understood: %w", r.path, err)
				}
			}
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			if !yield(v, nil) {
				return
			}
		}
	}
}

// lines reads an NDJSON answer. It skips empty lines, which only show that the daemon is alive. A
// line that says why the daemon ends the stream is returned as the error in it.
func lines(ctx context.Context, c *Client, r request) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		resp, err := c.do(ctx, r)
		if err != nil {
			yield(nil, err)
			return
		}
		defer resp.Body.Close()
		lines := bufio.NewReaderSize(resp.Body, 64<<10)
		for {
			line, err := readLine(lines, c.opts.MaxAnswerBytes)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				if !errors.Is(err, tga.LimitExceeded) {
					err = c.unreachable(ctx, r, err)
				}
				yield(nil, err)
				return
			}
			if len(line) == 0 {
				continue
			}
			var end streamError
			if bytes.HasPrefix(line, []byte(problemBegins)) && json.Unmarshal(line, &end) == nil && end.Problem != nil && end.Problem.Code != "" {
				yield(nil, &refused{end.Problem.Err(), *end.Problem})
				return
			}
			if !yield(line, nil) {
				return
			}
		}
	}
}

// problemBegins begins the last line of a stream that ends early. That line has one member.
const problemBegins = `{"problem":`

// readLine reads a line, without its newline. If the stream breaks off within a line, it
// returns io.ErrUnexpectedEOF: half an entry is no entry.
func readLine(r *bufio.Reader, most int64) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case int64(len(line)) > most:
			return nil, tga.Errorf(tga.LimitExceeded, "a line is over %d bytes", most)
		case err == nil:
			return bytes.TrimSuffix(line, []byte("\n")), nil
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		}
		return nil, err
	}
}

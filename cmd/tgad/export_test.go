package main

import (
	"bytes"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// TestExportIsOneRequest: exporting all traces of a store is a single request. Its lines are those
// of the exports of single traces, in the order of the traces' first entries. Without a daemon
// the export is the same.
func TestExportIsOneRequest(t *testing.T) {
	t.Setenv("TGAD_SOCKET", "")
	h := newHeld(t)
	for _, more := range []int{0, 9} {
		h.fill(more, 100)
		socket := filepath.Join(filepath.Dir(h.data), "s")
		stop := h.serves(socket)
		c := client.New(socket, client.Options{})
		before := requests(t, c)
		code, out, errs := says("export", "--data", h.data)
		if code != 0 {
			t.Fatalf("exit code %d: %s", code, errs)
		}
		// Each look at the metrics is a request too.
		if n := requests(t, c) - before - 1; n != 1 {
			t.Errorf("%d requests for an export of %d traces", n, 3+more)
		}
		want := traceByTrace(t, c)
		c.Close()
		stop()
		if n := strings.Count(out, `{"kind":"head",`); out != want || n != 3+more {
			t.Errorf("the export of %d traces is not that of each by itself:\n%s\nwant\n%s", n, out, want)
		}
		if code, rest, errs := says("export", "--data", h.data); code != 0 || rest != out {
			t.Errorf("of a store that nobody has: exit code %d %s\n%s", code, errs, rest)
		}
	}
}

// requests returns the number of requests that the daemon has answered.
func requests(t *testing.T, c *client.Client) (n int) {
	t.Helper()
	raw, err := c.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if strings.HasPrefix(line, "tgad_http_requests_total{") {
			v, err := strconv.Atoi(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]))
			if err != nil {
				t.Fatal(err)
			}
			n += v
		}
	}
	return n
}

// traceByTrace puts an export together from the exports of single traces.
func traceByTrace(t *testing.T, c *client.Client) string {
	t.Helper()
	var out bytes.Buffer
	seen := map[tga.ID]bool{}
	for line, err := range c.Log(t.Context(), "", false) {
		if err != nil {
			t.Fatal(err)
		}
		if seen[line.TraceID] || len(line.Entries) == 0 {
			continue
		}
		seen[line.TraceID] = true
		said, err := c.Trace(t.Context(), line.TraceID)
		if err == nil {
			err = ndjson.Write(&out, line.TraceID, story.Entries(said, documents(t.Context(), c, line.TraceID)), story.Notes(said))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := ndjson.End(&out, len(seen)); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// exported asks for an export and returns its lines, and the error that ended it.
func (b *bench) exported(m wire.ExportRequest) (out []byte, err error) {
	for line, err := range b.client.Export(b.t.Context(), m) {
		if err != nil {
			return out, err
		}
		out = append(out, line...)
	}
	return out, nil
}

// TestExportOfNamedTraces: an export has the named traces in the order of the request, as often as they
// are named. The export of an empty store has only the end.
func TestExportOfNamedTraces(t *testing.T) {
	b := start(t, "")
	if out, err := b.exported(wire.ExportRequest{}); err != nil || string(out) != `{"kind":"end","traces":0}`+"\n" {
		t.Errorf("of an empty store: %q %v", out, err)
	}
	var ids []tga.ID
	for i := range 3 {
		res, err := b.client.Call(t.Context(), charge(fmt.Sprint("k", i)))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, res.TraceID)
	}
	for _, list := range [][]tga.ID{nil, {ids[2], ids[0]}, {ids[1], ids[1]}} {
		out, err := b.exported(wire.ExportRequest{TraceIDs: list})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ndjson.Verify(bytes.NewReader(out)); err != nil {
			t.Errorf("%v: %v", list, err)
		}
		if list == nil {
			list = ids
		}
		var got []tga.ID
		for line := range bytes.Lines(out) {
			var head struct {
				Kind    string `json:"kind"`
				TraceID tga.ID `json:"trace_id"`
			}
			if err := json.Unmarshal(line, &head); err != nil {
				t.Fatal(err)
			}
			if head.Kind == "head" {
				got = append(got, head.TraceID)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(list) {
			t.Errorf("%v, want %v", got, list)
		}
	}
}

// TestExportThatFailsIsNoWholeOne: an error before the first line has its status; one later
// is the last line, after whole lines, and what came before does not verify as an export.
func TestExportThatFailsIsNoWholeOne(t *testing.T) {
	b := start(t, "")
	res, err := b.client.Call(t.Context(), charge("k"))
	if err != nil {
		t.Fatal(err)
	}
	good, missing := res.TraceID.String(), newID().String()
	for _, row := range []struct {
		name, body string
		status     int
		code       tga.Code
	}{
		{"none such", `{"trace_ids":["` + missing + `"]}`, 404, tga.NotFound},
		{"none such later", `{"trace_ids":["` + good + `","` + missing + `"]}`, 200, tga.NotFound},
		{"not of the dialect", `{"dialect":"talos"}`, 422, tga.SchemaViolation},
		{"no dialect", `{"dialect":"other"}`, 422, tga.ValidationError},
	} {
		status, _, raw := b.raw("POST", "/v1/export", row.body)
		if status != row.status {
			t.Errorf("%s: status %d, want %d: %s", row.name, status, row.status, raw)
		}
		last := raw[bytes.LastIndexByte(bytes.TrimSpace(raw), '\n')+1:]
		var said struct {
			wire.Problem
			Last wire.Problem `json:"problem"`
		}
		if err := json.Unmarshal(last, &said); err != nil || said.Code != row.code && said.Last.Code != row.code {
			t.Errorf("%s: %v, %s", row.name, err, last)
		}
		if _, err := ndjson.Verify(bytes.NewReader(raw[:len(raw)-len(last)])); err == nil {
			t.Errorf("%s: what came before verifies", row.name)
		}
		var m wire.ExportRequest
		if err := json.Unmarshal([]byte(row.body), &m); err != nil {
			t.Fatal(err)
		}
		_, err := b.exported(m)
		wantCode(t, err, row.code)
	}
}

// TestExportEndsWithItsReader: a reader that stopped reading and disconnected takes no place any more.
func TestExportEndsWithItsReader(t *testing.T) {
	b := start(t, "[limits]\nfollowers = 1\n")
	for i := range 8 {
		c := charge(fmt.Sprint("k", i))
		c.Args = []byte(`{"text":"` + strings.Repeat("x", 100<<10) + `"}`)
		if _, err := b.client.Call(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	for _, err := range b.client.Export(ctx, wire.ExportRequest{}) {
		if err != nil {
			t.Fatal(err)
		}
		// The rest is more than the socket takes: the daemon waits for this reader.
		_, err := b.exported(wire.ExportRequest{})
		wantCode(t, err, tga.LimitExceeded)
		break
	}
	cancel()
	for b.scrape("tgad_streams") != 0 {
		time.Sleep(time.Millisecond)
	}
	if _, err := b.exported(wire.ExportRequest{}); err != nil {
		t.Error(err)
	}
}

// TestDrainEndsAnExport: a daemon that stops does not wait for a reader that takes nothing.
func TestDrainEndsAnExport(t *testing.T) {
	b := start(t, "")
	for i := range 8 {
		c := charge(fmt.Sprint("k", i))
		c.Args = []byte(`{"text":"` + strings.Repeat("x", 100<<10) + `"}`)
		if _, err := b.client.Call(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	other := client.New(b.socket, client.Options{Name: "slow"})
	defer other.Close()
	var last error
	began := time.Now()
	for _, err := range other.Export(t.Context(), wire.ExportRequest{}) {
		b.stop()
		last = err
	}
	if last == nil {
		t.Error("the export came to its end")
	}
	if took := time.Since(began); took > exportTime/10 {
		t.Errorf("the daemon stopped after %v", took)
	}
}

// deadlines is an answer that takes deadlines.
type deadlines struct{ *httptest.ResponseRecorder }

func (deadlines) SetWriteDeadline(time.Time) error { return nil }

// TestExportHandsOnWholeLines: what is cut in the middle of a line waits for the rest.
func TestExportHandsOnWholeLines(t *testing.T) {
	w := deadlines{httptest.NewRecorder()}
	x := &exporting{q: &request{d: &Daemon{drain: make(chan struct{})}, w: http.ResponseWriter(w)}}
	for _, row := range [][2]string{{"ab", ""}, {"c", ""}, {"d\nef", "abcd\n"}, {"g\n", "abcd\nefg\n"}, {"h\ni\nj", "abcd\nefg\nh\ni\n"}} {
		if n, err := x.Write([]byte(row[0])); err != nil || n != len(row[0]) {
			t.Errorf("%q: %d %v", row[0], n, err)
		}
		if got := w.Body.String(); got != row[1] {
			t.Errorf("after %q it has handed on %q, want %q", row[0], got, row[1])
		}
	}
}

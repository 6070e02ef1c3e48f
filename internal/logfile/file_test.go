package logfile_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/logfile"
	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/internal/segment"
	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
	"github.com/tgad/tgad/wal/chain"
)

// made returns traces: finished ones with documents and notes, and a last one that is in doubt.
func made(finished int) (all []*chaintest.Trace) {
	for i := range finished {
		docs := []chain.Document{{Pointer: tga.PointerResult, Data: []byte(`{"paid":5}`)}}
		t := chaintest.New(chaintest.Options{Seed: uint64(i + 1), Documents: docs, Notes: 2})
		all = append(all, t)
	}
	return append(all, chaintest.New(chaintest.Options{Seed: 99, Entries: 3}))
}

func export(t *testing.T, all []*chaintest.Trace) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, tr := range all {
		if err := ndjson.Write(&b, tr.ID, tr.AllEntries(), tr.AllNotes()); err != nil {
			t.Fatal(err)
		}
	}
	if err := ndjson.End(&b, len(all)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func sealed(t *testing.T, all []*chaintest.Trace) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := segment.NewWriter(&b, chain.NoKeys{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tr := range all {
		sealed := segment.Trace{ID: tr.ID, Entries: tr.Entries}
		for _, n := range tr.Notes {
			sealed.Notes = append(sealed.Notes, segment.Note{Note: n})
		}
		if err := w.Add(&sealed); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func write(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, data, 0o400); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, path string) *logfile.File {
	t.Helper()
	f, err := logfile.Open(t.Context(), path, func(*logfile.Reader) func() { return func() {} })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// ids returns the ids of a list.
func ids(t *testing.T, f *logfile.File, q wire.TracesQuery) (all []tga.ID) {
	t.Helper()
	for o, err := range f.Traces(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o.TraceID)
	}
	return all
}

// whole checks that a file gives a trace as it was made.
func whole(t *testing.T, f *logfile.File, want *chaintest.Trace) {
	t.Helper()
	said, err := f.Trace(t.Context(), want.ID)
	if err != nil {
		t.Fatal(err)
	}
	got, err := story.Fold(said, func(pointer string) ([]byte, error) {
		data, _, err := f.Document(t.Context(), want.ID, pointer)
		return data, err
	})
	if err != nil || got.Head.Digest != want.Entries[len(want.Entries)-1].Digest || len(got.Notes) != len(want.Notes) {
		t.Errorf("trace %s: %v", want.ID, err)
	}
	if len(got.Documents) > 0 && string(got.Documents[0].Data) != `{"paid":5}` {
		t.Errorf("its document is %q", got.Documents[0].Data)
	}
	if a, err := f.Request(t.Context(), want.ID); err != nil || a.TraceID != want.ID {
		t.Errorf("its request: %v", err)
	}
}

// TestFilesShowTheirTraces: a segment and an export, each with everything that it has of each trace.
func TestFilesShowTheirTraces(t *testing.T) {
	all := made(3)
	for kind, data := range map[string][]byte{logfile.Export: export(t, all), logfile.Segment: sealed(t, all[:3])} {
		f := open(t, write(t, data))
		if f.Kind != kind || f.Fault != nil {
			t.Fatalf("%s: kind %s, %v", kind, f.Kind, f.Fault)
		}
		want := all
		if kind == logfile.Segment {
			want = all[:3]
		}
		for _, tr := range want {
			whole(t, f, tr)
		}
		list := ids(t, f, wire.TracesQuery{All: true})
		if len(list) != len(want) || f.Found.Traces != len(want) {
			t.Errorf("%s: %d of %d traces listed, %d counted", kind, len(list), len(want), f.Found.Traces)
		}
		if rest := ids(t, f, wire.TracesQuery{All: true, After: list[0]}); len(rest) != len(want)-1 || rest[0] != list[1] {
			t.Errorf("%s: after the first there are %d", kind, len(rest))
		}
		doubt, err := f.InDoubt(t.Context())
		if open := ids(t, f, wire.TracesQuery{}); err != nil || len(open) != len(want)-3 || len(doubt) != len(want)-3 {
			t.Errorf("%s: open are %v, in doubt %v, %v", kind, open, doubt, err)
		}
		if kind == logfile.Export && (doubt[0].TraceID != all[3].ID || doubt[0].Attempts != 1) {
			t.Errorf("in doubt is %+v", doubt[0])
		}
		if _, err := f.Trace(t.Context(), tga.ID{1}); tga.CodeOf(err) != tga.NotFound {
			t.Errorf("%s: a trace that it has not: %v", kind, err)
		}
	}
}

// TestOtherFilesAreRefused: a file that does not come from tgad is not shown.
func TestOtherFilesAreRefused(t *testing.T) {
	for _, data := range []string{"", "\x89PNG", "root:x:0:0", `{"a":1}`, "[]"} {
		f, err := logfile.Open(t.Context(), write(t, []byte(data)), func(*logfile.Reader) func() { return func() {} })
		if tga.CodeOf(err) != tga.ValidationError {
			t.Errorf("%q: %v", data, err)
		}
		if err == nil {
			_ = f.Close()
		}
	}
}

// TestDamageIsSaidAndTheRestIsShown: a changed byte or a missing end is a fault with its code, and the
// traces before it are shown.
func TestDamageIsSaidAndTheRestIsShown(t *testing.T) {
	all := made(3)
	lines, seg := export(t, all), sealed(t, all[:3])
	second := bytes.Index(lines, []byte(all[1].ID.String()))
	for name, c := range map[string]struct {
		data []byte
		code tga.Code
		left int
	}{
		"a changed digest": {flip(lines, second+bytes.Index(lines[second:], []byte(`"artifact_digest":"`))+30), tga.StateChecksumMismatch, 1},
		"no end":           {lines[:bytes.LastIndex(lines, []byte(`{"kind":"end"`))], tga.StateChecksumMismatch, 4},
		"cut in a trace":   {lines[:second+200], tga.ValidationError, 1},
		"a first line":     {[]byte(`{"kind":"entry",`), tga.ValidationError, 0},
		"a block":          {flip(seg, 60), tga.StateChecksumMismatch, 0},
		"a footer":         {flip(seg, len(seg)-150), tga.StateChecksumMismatch, 3},
		"a trailer":        {flip(seg, len(seg)-5), tga.StateChecksumMismatch, 3},
	} {
		f := open(t, write(t, c.data))
		list := ids(t, f, wire.TracesQuery{All: true})
		if tga.CodeOf(f.Fault) != c.code || len(list) != c.left {
			t.Errorf("%s: %d traces, want %d; %v", name, len(list), c.left, f.Fault)
		}
		for _, id := range list {
			for _, tr := range all {
				if tr.ID == id {
					whole(t, f, tr)
				}
			}
		}
	}
}

func flip(data []byte, at int) []byte {
	data = bytes.Clone(data)
	if data[at]++; data[at] == 'g' || data[at] == ':' {
		data[at] = '0'
	}
	return data
}

// TestChangedWhileOpen: a change of the file after it was verified is found when it is read.
func TestChangedWhileOpen(t *testing.T) {
	all := made(2)
	data := export(t, all)
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f := open(t, path)
	at := bytes.Index(data, []byte(`"artifact_digest":"`)) + 30
	if err := os.WriteFile(path, flip(data, at), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Trace(t.Context(), all[0].ID); tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("a changed trace: %v", err)
	}
	whole(t, f, all[1])
	swapped := export(t, []*chaintest.Trace{all[1], all[0], all[2]})
	if err := os.WriteFile(path, swapped, 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := f.Trace(t.Context(), all[0].ID); err == nil {
		t.Errorf("the place of one trace has another, and it is shown as %s", said.TraceID)
	}
}

// TestTheLongestIsShown: of two exports in one file, the later one has more of a trace.
func TestTheLongestIsShown(t *testing.T) {
	long := made(1)[0]
	short := *long
	short.Entries, short.Notes = short.Entries[:3], nil
	for _, both := range [][2]*chaintest.Trace{{&short, long}, {long, &short}} {
		f := open(t, write(t, append(export(t, both[:1]), export(t, both[1:])...)))
		if f.Fault != nil || len(ids(t, f, wire.TracesQuery{All: true})) != 1 {
			t.Fatal(f.Fault)
		}
		whole(t, f, long)
	}
}

// TestFilesAreOnlyRead: nothing is written. Neither a directory nor a missing file is accepted.
func TestFilesAreOnlyRead(t *testing.T) {
	data := export(t, made(1))
	path := write(t, data)
	dir := filepath.Dir(path)
	f := open(t, path)
	whole(t, f, made(1)[0])
	left, err := os.ReadDir(dir)
	if now, e := os.ReadFile(path); e != nil || err != nil || !bytes.Equal(now, data) || len(left) != 1 {
		t.Errorf("the directory has %v now, %v %v", left, e, err)
	}
	for at, want := range map[string]tga.Code{dir: tga.ValidationError, filepath.Join(dir, "none"): tga.NotFound} {
		if _, err := logfile.Open(t.Context(), at, nil); tga.CodeOf(err) != want {
			t.Errorf("%s: %v", at, err)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := logfile.Open(over, path, func(r *logfile.Reader) func() {
		return func() {
			if !strings.Contains(r.Progress("ui"), "ui: 0 of 0 MiB read") {
				t.Error(r.Progress("ui"))
			}
		}
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("an opening that was interrupted: %v", err)
	}
}

package ndjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

func doc(pointer, data string) chain.Document {
	return chain.Document{Pointer: pointer, Data: []byte(data)}
}

var shapes = map[string]chaintest.Options{
	"finished":  {Seed: 1, Key: "order-1", Notes: 2, Documents: []chain.Document{doc("/result", `{"amount":12,"id":"ch_1"}`), doc("/evidence", "no\nJSON \xff")}},
	"denied":    {Seed: 2, Verdict: tga.Deny},
	"open":      {Seed: 3, Entries: 3, Notes: 1},
	"odd bytes": {Seed: 4, Documents: []chain.Document{doc("/result", ""), doc("/state_changes", ` {"a":1}`), doc("/evidence", `{"a":1.0}`), doc(`/a"\`+"\t\u00fc", "null")}},
}

func export(t *testing.T, traces ...*chaintest.Trace) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, tr := range traces {
		if err := ndjson.Write(&b, tr.ID, tr.AllEntries(), tr.AllNotes()); err != nil {
			t.Fatal(err)
		}
	}
	if err := ndjson.End(&b, len(traces)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func verify(b []byte) (ndjson.Report, error) { return ndjson.Verify(bytes.NewReader(b)) }

func erasedTrace() *chaintest.Trace {
	tr := chaintest.New(chaintest.Options{Seed: 5, Documents: []chain.Document{doc("/result", "1")}})
	tr.Entries[0], tr.Entries[3] = chaintest.Erase(tr.Entries[0]), chaintest.Erase(tr.Entries[3])
	return tr
}

// TestErasedDocumentsAreCounted: documents that were destroyed although their artifact is still there are
// counted.
func TestErasedDocumentsAreCounted(t *testing.T) {
	tr := chaintest.New(chaintest.Options{Seed: 6, Documents: []chain.Document{doc("/result", "1"), doc("/evidence", "2")}})
	tr.Entries[3].Documents = []chain.Document{doc("/result", "1"), {Pointer: "/evidence", Erased: true}}
	b := export(t, tr)
	want := ndjson.Report{Lines: bytes.Count(b, []byte("\n")), Traces: 1, Entries: 4, Documents: 1, Erased: 1}
	if report, err := verify(b); err != nil || report != want {
		t.Errorf("report %+v, %v, want %+v", report, err, want)
	}
}

func TestExportVerifies(t *testing.T) {
	var all []byte
	want := ndjson.Report{}
	for name, o := range shapes {
		b := export(t, chaintest.New(o))
		report, err := verify(b)
		if err != nil || report.Traces != 1 || report.Lines != bytes.Count(b, []byte("\n")) {
			t.Errorf("%s: %+v, %v\n%s", name, report, err, b)
		}
		for line := range bytes.Lines(b) {
			if !json.Valid(line) {
				t.Errorf("%s: %s", name, line)
			}
		}
		all = append(all, b...)
		want.Lines += report.Lines
	}
	b := export(t, erasedTrace())
	all = append(all, b...)
	report, err := verify(all)
	want = ndjson.Report{Lines: want.Lines + bytes.Count(b, []byte("\n")), Traces: 5, Entries: 17, Notes: 3, Documents: 6, Erased: 2}
	if err != nil || report != want {
		t.Errorf("report %+v, %v, want %+v", report, err, want)
	}
	if report, err := verify(export(t)); err != nil || report != (ndjson.Report{Lines: 1}) {
		t.Errorf("an export of nothing: %+v, %v", report, err)
	}
}

// TestDocumentBytesSurvive reads the documents back as a program without this package
// would.
func TestDocumentBytesSurvive(t *testing.T) {
	o := shapes["odd bytes"]
	var at int
	for line := range bytes.Lines(export(t, chaintest.New(o))) {
		var l struct {
			Kind, Pointer string
			JSON          json.RawMessage
			Base64        []byte
		}
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatal(err)
		}
		if l.Kind != "document" {
			continue
		}
		got := l.Base64
		if l.JSON != nil {
			got = l.JSON
		}
		if want := o.Documents[at]; l.Pointer != want.Pointer || !bytes.Equal(got, want.Data) {
			t.Errorf("document %s is %q, want %s %q", l.Pointer, got, want.Pointer, want.Data)
		}
		at++
	}
	if at != len(o.Documents) {
		t.Errorf("%d documents of %d", at, len(o.Documents))
	}
}

// TestDocumentUnderJSONIsCanonical: the digest of {"a":1.0} is right, but a reader that parses the line
// could not compute it.
func TestDocumentUnderJSONIsCanonical(t *testing.T) {
	whole := string(export(t, chaintest.New(shapes["odd bytes"])))
	changed := strings.Replace(whole, `"base64":"eyJhIjoxLjB9"`, `"json":{"a":1.0}`, 1)
	if _, err := verify([]byte(changed)); changed == whole || tga.CodeOf(err) != tga.SchemaViolation {
		t.Errorf("changed: %v, verifies with %v", changed != whole, err)
	}
}

// TestReformattedExportVerifies: spaces and the order of members do not count.
func TestReformattedExportVerifies(t *testing.T) {
	var out bytes.Buffer
	for line := range bytes.Lines(export(t, chaintest.New(chaintest.Options{Seed: 6, Notes: 1}))) {
		out.WriteString(strings.NewReplacer(`,"`, ` , "`, `":`, `": `).Replace(string(line)))
	}
	if _, err := verify(out.Bytes()); err != nil {
		t.Error(err)
	}
}

// TestEveryFlipIsDetected changes each byte of an export. Only commit time and epoch are not covered by a
// digest.
func TestEveryFlipIsDetected(t *testing.T) {
	for _, tr := range []*chaintest.Trace{chaintest.New(shapes["finished"]), erasedTrace()} {
		whole := export(t, tr)
		free := map[int]bool{}
		for i := range whole {
			for _, name := range []string{`"committed":"`, `"epoch":"`} {
				if bytes.HasPrefix(whole[i:], []byte(name)) {
					end := bytes.IndexByte(whole[i+len(name):], '"')
					for n := range end {
						free[i+len(name)+n] = true
					}
				}
			}
		}
		b := bytes.Clone(whole)
		for i := range b {
			for _, mask := range []byte{1, 0x20} {
				b[i] ^= mask
				_, err := verify(b)
				if code := tga.CodeOf(err); err == nil && !free[i] || err != nil && (code == "" || code == tga.StoreUnavailable) {
					t.Fatalf("byte %d changed from %q to %q: %v\n%s", i, whole[i], b[i], err, b[max(0, i-60):min(len(b), i+60)])
				}
				b[i] = whole[i]
			}
		}
	}
}

// TestEveryTruncationIsDetected cuts an export of two traces at every byte, also between the traces and
// before the first one. Only the end of the last line may be missing.
func TestEveryTruncationIsDetected(t *testing.T) {
	whole := export(t, chaintest.New(shapes["finished"]), chaintest.New(shapes["denied"]))
	for n := range whole {
		if _, err := verify(whole[:n]); (err == nil) != (n == len(whole)-1) || err != nil && tga.CodeOf(err) == tga.StoreUnavailable {
			t.Fatalf("cut to %d of %d bytes: %v", n, len(whole), err)
		}
	}
}

// TestEndCountsTheTraces: the export has one trace less or more than its end line says, or its end line is
// inside a trace.
func TestEndCountsTheTraces(t *testing.T) {
	one, two := chaintest.New(shapes["finished"]), chaintest.New(shapes["denied"])
	whole, alone := export(t, one, two), export(t, one)
	first := alone[:len(alone)-len("{\"kind\":\"end\",\"traces\":1}\n")]
	for name, b := range map[string][]byte{
		"a trace gone":     append(slices.Clone(first), "{\"kind\":\"end\",\"traces\":2}\n"...),
		"a trace too many": append(slices.Clone(first), bytes.Replace(whole, []byte(`"traces":2`), []byte(`"traces":1`), 1)...),
		"none counted":     append(slices.Clone(first), "{\"kind\":\"end\",\"traces\":0}\n"...),
		"an end of both":   append(slices.Clone(alone), whole[len(first):]...),
		"below zero":       append(slices.Clone(first), "{\"kind\":\"end\",\"traces\":-1}\n"...),
		"inside a trace":   append([]byte("{\"kind\":\"end\",\"traces\":0}\n"), append(first[:bytes.IndexByte(first, '\n')+1:bytes.IndexByte(first, '\n')+1], "{\"kind\":\"end\",\"traces\":0}\n"...)...),
		"a trace after it": append(slices.Clone(alone), first...),
	} {
		if report, err := verify(b); err == nil || tga.CodeOf(err) == "" {
			t.Errorf("%s: %+v, %v", name, report, err)
		}
	}
	if report, err := verify(append(slices.Clone(alone), whole...)); err != nil || report.Traces != 3 {
		t.Errorf("two exports in one file: %+v, %v", report, err)
	}
}

// TestVerifyNamesTheLine removes, repeats and swaps lines. The error names the line.
func TestVerifyNamesTheLine(t *testing.T) {
	tr := chaintest.New(shapes["finished"])
	lines := bytes.SplitAfter(export(t, tr), []byte("\n"))
	lines = lines[:len(lines)-1]
	check := func(name string, got [][]byte, line int) {
		t.Helper()
		report, err := verify(bytes.Join(got, nil))
		var te *tga.Error
		if !errors.As(err, &te) {
			t.Errorf("%s: %v", name, err)
			return
		}
		if report.Lines+1 < line || te.Where != "stored" || !strings.HasPrefix(te.Message, fmt.Sprintf("line %d, trace ", report.Lines+1)) && !strings.HasPrefix(te.Message, fmt.Sprintf("line %d: ", report.Lines+1)) {
			t.Errorf("%s: %d lines were right, fault is in line %d: %v", name, report.Lines, line, err)
		}
	}
	for i := range lines {
		gone := append(append([][]byte{}, lines[:i]...), lines[i+1:]...)
		check("line gone", gone, i+1)
		twice := append(append([][]byte{}, lines[:i+1]...), lines[i:]...)
		check("line twice", twice, i+1)
		if i > 0 {
			swapped := append([][]byte{}, lines...)
			swapped[i-1], swapped[i] = lines[i], lines[i-1]
			check("lines swapped", swapped, i)
		}
	}
}

// TestVerifyNamesTheEntry: the error names the entry or the note whose link is wrong.
func TestVerifyNamesTheEntry(t *testing.T) {
	lines := bytes.SplitAfter(export(t, chaintest.New(shapes["finished"])), []byte("\n"))
	number := regexp.MustCompile(`"(sequence_number|note_number)":(\d+)`)
	link := regexp.MustCompile(`("prev_(?:entry|note)_digest":")(.)`)
	entries, notes := 0, 0
	for i, line := range lines {
		m := number.FindSubmatch(line)
		if m == nil || !link.Match(line) {
			continue
		}
		bad := slices.Clone(lines)
		bad[i] = link.ReplaceAllFunc(line, func(b []byte) []byte {
			b = slices.Clone(b)
			b[len(b)-1] ^= 1
			return b
		})
		_, err := verify(bytes.Join(bad, nil))
		var te *tga.Error
		if !errors.As(err, &te) {
			t.Fatalf("line %d: %v", i+1, err)
		}
		n, err := strconv.Atoi(string(m[2]))
		if err != nil {
			t.Fatal(err)
		}
		if string(m[1]) == "sequence_number" {
			entries++
			if te.Seq != uint64(n) || te.Note != 0 {
				t.Errorf("entry %d: the fault is of entry %d, note %d: %v", n, te.Seq, te.Note, te)
			}
		} else if notes++; te.Note != uint32(n) || te.Seq != 0 {
			t.Errorf("note %d: the fault is of entry %d, note %d: %v", n, te.Seq, te.Note, te)
		}
	}
	if entries != 4 || notes != 2 {
		t.Errorf("%d entries and %d notes were tried", entries, notes)
	}
}

func TestVerifyNamesTheDigests(t *testing.T) {
	tr, other := chaintest.New(chaintest.Options{Seed: 7}), chaintest.New(chaintest.Options{Seed: 7, Args: `{"amount":13}`})
	b := export(t, tr)
	// Lines 1 and 2 are the first entry and artifact; lines 5 and 6 are the third ones.
	lines, others := bytes.SplitAfter(b, []byte("\n")), bytes.SplitAfter(export(t, other), []byte("\n"))
	lines[4], lines[5] = others[4], others[5]
	_, err := verify(bytes.Join(lines, nil))
	var te *tga.Error
	if !errors.As(err, &te) || te.Code != tga.StateChecksumMismatch || te.TraceID != tr.ID || te.Seq != 3 ||
		te.WantDigest != tr.Entries[1].Digest || te.GotDigest != other.Entries[1].Digest {
		t.Errorf("%+v", te)
	}
}

func TestBadLinesAreRefused(t *testing.T) {
	lines := strings.SplitAfter(string(export(t, chaintest.New(shapes["finished"]))), "\n")
	const entry, artifact, result, evidence, note, head = 0, 1, 8, 9, 10, 12
	for _, c := range []struct {
		name     string
		line     int
		old, new string
	}{
		{"no JSON", entry, "{", ""},
		{"an array", head, lines[head], "[]\n"},
		{"null", head, lines[head], "null\n"},
		{"empty line", head, lines[head], "\n" + lines[head]},
		{"unknown kind", head, `"kind":"head"`, `"kind":"foot"`},
		{"kind no string", head, `"kind":"head"`, `"kind":1`},
		{"case variant", head, `"kind"`, `"Kind"`},
		{"repeated member", head, `"kind":"head"`, `"kind":"head","kind":"head"`},
		{"unknown member", head, `"kind":"head"`, `"kind":"head","more":1`},
		{"missing member", head, `,"state":"COMPLETED"`, ``},
		{"head of another state", head, `COMPLETED`, `FAILED`},
		{"head of fewer notes", head, `"notes":2`, `"notes":1`},
		{"head of more entries", head, `"entries":4`, `"entries":5`},
		{"entries no number", head, `"entries":4`, `"entries":4.0`},
		{"committed no time", entry, `"committed":"2026`, `"committed":"26`},
		{"epoch a number", entry, `"epoch":"4294967303"`, `"epoch":4294967303`},
		{"epoch over 64 bits", entry, `"epoch":"`, `"epoch":"99999999999`},
		{"artifact of another seq", artifact, `"seq":1`, `"seq":2`},
		{"artifact and erased", artifact, `"seq":1`, `"seq":1,"erased":true`},
		{"document under two forms", result, `"json"`, `"base64":"","json"`},
		{"document under none", result, `"json":{"amount":12,"id":"ch_1"}`, `"erased":false`},
		{"document with other spaces", result, `{"amount":12,`, `{"amount":12 ,`},
		{"document with another number form", result, `{"amount":12,`, `{"amount":12.0,`},
		{"base64 with a space", evidence, `"base64":"`, `"base64":" `},
		{"base64 with a line end", evidence, `"base64":"`, `"base64":"\n`},
		{"base64 with a line end behind it", evidence, `"}`, `\r\n"}`},
		{"note of another who", note, `"who":"tgad"`, `"who":"tgae"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			changed := strings.Replace(lines[c.line], c.old, c.new, 1)
			if changed == lines[c.line] {
				t.Fatalf("%q is not in %s", c.old, lines[c.line])
			}
			b := strings.Join(lines[:c.line], "") + changed + strings.Join(lines[c.line+1:], "")
			report, err := verify([]byte(b))
			if code := tga.CodeOf(err); code == "" || code == tga.StoreUnavailable {
				t.Errorf("verifies: %+v, %v", report, err)
			}
			if report.Traces != 0 {
				t.Errorf("a trace is counted")
			}
		})
	}
}

// endless returns one line that never ends.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

func TestLimitsOfALine(t *testing.T) {
	if _, err := ndjson.Verify(endless{}); tga.CodeOf(err) != tga.LimitExceeded {
		t.Errorf("a line without end: %v", err)
	}
	b := export(t, chaintest.New(chaintest.Options{Seed: 8}))
	pad := func(n int64) io.Reader {
		line := bytes.IndexByte(b, '\n')
		return io.MultiReader(bytes.NewReader(b[:line]), io.LimitReader(endless{}, n-int64(line)-1), bytes.NewReader(b[line:]))
	}
	if _, err := ndjson.Verify(pad(ndjson.MaxLine)); err != nil {
		t.Errorf("a line at the limit: %v", err)
	}
	if _, err := ndjson.Verify(pad(ndjson.MaxLine + 1)); tga.CodeOf(err) != tga.LimitExceeded {
		t.Errorf("a line one over the limit: %v", err)
	}
}

type failing struct{ n int }

var errDisk = errors.New("disk")

func (f *failing) Write(b []byte) (int, error) {
	if f.n -= len(b); f.n < 0 {
		return 0, errDisk
	}
	return len(b), nil
}

func (f *failing) Read(b []byte) (int, error) { return 0, errDisk }

func TestIOErrorsAreReported(t *testing.T) {
	tr := chaintest.New(shapes["finished"])
	if err := ndjson.Write(&failing{}, tr.ID, tr.AllEntries(), tr.AllNotes()); tga.CodeOf(err) != tga.StoreUnavailable || !errors.Is(err, errDisk) {
		t.Errorf("write: %v", err)
	}
	big := chaintest.New(chaintest.Options{Documents: []chain.Document{doc("/result", strings.Repeat("x", 200<<10))}})
	if err := ndjson.Write(&failing{n: 100 << 10}, big.ID, big.AllEntries(), nil); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("write of a long trace: %v", err)
	}
	if _, err := ndjson.Verify(&failing{}); tga.CodeOf(err) != tga.StoreUnavailable || !errors.Is(err, errDisk) {
		t.Errorf("verify: %v", err)
	}
}

func TestBrokenTraceIsNotExported(t *testing.T) {
	tr := chaintest.New(chaintest.Options{Seed: 9})
	tr.Entries[2].Digest[0]++
	var b bytes.Buffer
	if err := ndjson.Write(&b, tr.ID, tr.AllEntries(), nil); tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("write: %v", err)
	}
	if report, err := verify(b.Bytes()); report.Traces != 0 || b.Len() > 0 && err == nil {
		t.Errorf("what was written of it verifies: %+v, %v", report, err)
	}
	if err := ndjson.Write(&b, tr.ID, chaintest.Seq2[chain.Entry](nil), nil); tga.CodeOf(err) != tga.NotFound {
		t.Errorf("empty trace: %v", err)
	}
}

package verifiers_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/evidence/bundle"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/schemas/tga"
)

const origin = "tgad/test"

// object is a JSON object whose numbers keep their digits.
type object = map[string]any

func parse(t *testing.T, b []byte) object {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var o object
	if err := d.Decode(&o); err != nil {
		t.Fatal(err)
	}
	return o
}

func canonical(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err == nil {
		b, err = tga.Canonicalize(b, tga.Limits{MaxDepth: 1000})
	}
	if err != nil {
		t.Fatalf("%v: %v", v, err)
	}
	return b
}

func digestWithout(t *testing.T, o object, name string) string {
	rest := maps.Clone(o)
	delete(rest, name)
	return tga.Sum(canonical(t, rest)).String()
}

// trace is the export of a trace in parts, which a test can change. Everything above them is made anew, as
// somebody with the store's key could: see reseal.
type trace struct {
	id        tga.ID
	lines     []object // as they are written
	entries   []object // the members entry of the lines, in order
	artifacts []object // nil where erased
	notes     []object
	seal      func(o object) // changes each entry and note before its digest is made
	appends   []int          // how many entries each of the first appends has; every later append has one entry or note
}

func traceOf(t *testing.T, tr *chaintest.Trace, appends ...int) *trace {
	t.Helper()
	var b bytes.Buffer
	if err := ndjson.Write(&b, tr.ID, tr.AllEntries(), tr.AllNotes()); err != nil {
		t.Fatal(err)
	}
	return traceFrom(t, tr.ID, b.Bytes(), appends)
}

func traceFrom(t *testing.T, id tga.ID, export []byte, appends []int) *trace {
	x := &trace{id: id, appends: appends}
	for line := range bytes.Lines(export) {
		l := parse(t, line)
		x.lines = append(x.lines, l)
		switch l["kind"] {
		case "entry":
			x.entries = append(x.entries, l["entry"].(object))
		case "artifact":
			a, _ := l["artifact"].(object)
			x.artifacts = append(x.artifacts, a)
		case "note":
			x.notes = append(x.notes, l["note"].(object))
		}
	}
	return x
}

func (x *trace) clone(t *testing.T) *trace { return traceFrom(t, x.id, x.export(t), x.appends) }

func (x *trace) of(kind string) object {
	for _, l := range x.lines {
		if l["kind"] == kind {
			return l
		}
	}
	return nil
}

func (x *trace) export(t *testing.T) []byte {
	var b []byte
	for _, l := range x.lines {
		rest := maps.Clone(l)
		delete(rest, "kind")
		b = append(append(b, `{"kind":`...), canonical(t, l["kind"])...)
		if len(rest) > 0 {
			b = append(b, ',')
		}
		b = append(append(b, canonical(t, rest)[1:]...), '\n')
	}
	return b
}

// reseal makes the digests right again: those of artifacts, of entries and notes, and of their chains. It
// sets the links from an artifact to the one before unless link says otherwise.
func (x *trace) reseal(t *testing.T, link bool) *trace {
	set := func(o object, name string, v any) { // a member that a test removed stays removed
		if _, ok := o[name]; ok {
			o[name] = v
		}
	}
	types := []string{"action_request", "supervisor_decision", "tool_call", "tool_effect"}
	prev, was := strings.Repeat("0", 64), map[string]string{}
	for i, e := range x.entries {
		if a := x.artifacts[i]; a != nil {
			if link && i > 0 && i < len(types) && x.artifacts[i-1] != nil {
				set(a, types[i-1]+"_digest", x.artifacts[i-1]["_digest"])
			}
			a["_digest"] = digestWithout(t, a, "_digest")
			e["artifact_digest"] = a["_digest"]
		}
		e["prev_entry_digest"] = prev
		if x.seal != nil {
			x.seal(e)
		}
		old := e["entry_digest"]
		prev = digestWithout(t, e, "entry_digest")
		was[fmt.Sprint(old)], e["entry_digest"] = prev, prev
	}
	x.of("head")["head_digest"] = prev
	prev = strings.Repeat("0", 64)
	for _, n := range x.notes {
		if now, ok := was[fmt.Sprint(n["head_entry_digest"])]; ok {
			set(n, "head_entry_digest", now)
		}
		n["prev_note_digest"] = prev
		if x.seal != nil {
			x.seal(n)
		}
		prev = digestWithout(t, n, "note_digest")
		n["note_digest"] = prev
	}
	x.of("head")["note_digest"] = prev
	return x
}

// leaf returns the leaf of the n-th append.
func (x *trace) leaf(t *testing.T, n int) (tree.Leaf, bool) {
	l := tree.Leaf{TraceID: x.id, Committed: chaintest.Start + tga.Millis(n), NewestTS: chaintest.Start}
	entries, notes := 0, 0
	for i := 0; i <= n; i++ {
		l.FirstSeq, l.Entries, l.FirstNote, l.Notes = 0, 0, 0, 0
		if entries == len(x.entries) {
			if notes++; notes > len(x.notes) {
				return l, false
			}
			l.FirstNote, l.Notes = uint32(notes), 1
			continue
		}
		more := 1
		if i < len(x.appends) {
			more = x.appends[i]
		}
		l.FirstSeq, l.Entries = uint64(entries)+1, uint16(more)
		entries += more
	}
	l.HeadDigest = digest(t, x.entries[entries-1]["entry_digest"])
	if notes > 0 {
		l.NoteDigest = digest(t, x.notes[notes-1]["note_digest"])
	}
	return l, true
}

func digest(t *testing.T, v any) tga.Digest {
	d, err := tga.ParseDigest(fmt.Sprint(v))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// hashes are those of a tree, and give its proofs.
type hashes []tlog.Hash

func (h hashes) ReadHashes(at []int64) ([]tlog.Hash, error) {
	var out []tlog.Hash
	for _, i := range at {
		out = append(out, h[i])
	}
	return out, nil
}

func (h hashes) Prove(index uint64, size int64) (tlog.RecordProof, error) {
	return tlog.ProveRecord(size, int64(index)-1, h)
}
func (h hashes) ProvePrefix(old, size int64) (tlog.TreeProof, error) {
	return tlog.ProveTree(size, old, h)
}

// world is a store whose traces append alternately.
type world struct {
	t      *testing.T
	key    checkpoint.Signer
	traces []*trace
	leaves []tree.Leaf
	tree   hashes
}

func newKey(t *testing.T, name string) (secret string, s checkpoint.Signer) {
	t.Helper()
	secret, _, err := checkpoint.NewKey(name)
	if err == nil {
		s, err = checkpoint.ParseSigner(secret)
	}
	if err != nil {
		t.Fatal(err)
	}
	return secret, s
}

func newWorld(t *testing.T, key checkpoint.Signer, traces ...*trace) *world {
	t.Helper()
	w := &world{t: t, key: key, traces: traces}
	for round, any := 0, true; any; round++ {
		any = false
		for _, x := range traces {
			if l, ok := x.leaf(t, round); ok {
				any = true
				w.append(l)
			}
		}
	}
	return w
}

func (w *world) append(l tree.Leaf) {
	l.Index = uint64(len(w.leaves)) + 1
	more, err := tlog.StoredHashesForRecordHash(int64(len(w.leaves)), l.Hash(), w.tree)
	if err != nil {
		w.t.Fatal(err)
	}
	w.leaves, w.tree = append(w.leaves, l), append(w.tree, more...)
}

func (w *world) size() int64 { return int64(len(w.leaves)) }

func (w *world) at(size int64) checkpoint.Checkpoint {
	head, err := tlog.TreeHash(size, w.tree)
	if err != nil {
		w.t.Fatal(err)
	}
	return checkpoint.Checkpoint{Origin: origin, Size: size, Head: head}
}

func (w *world) checkpoint(size int64, by ...note.Signer) []byte {
	w.t.Helper()
	raw, err := w.at(size).Sign(append([]note.Signer{w.key}, by...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	return raw
}

func (w *world) content(size int64) bundle.Content {
	return bundle.Content{
		Key: w.key.Public, Checkpoint: w.checkpoint(size), From: 1, To: uint64(size), Leaves: w.leaves[:size],
		Traces: func(out io.Writer, ids []tga.ID) error {
			for _, id := range ids {
				for _, x := range w.traces {
					if x.id == id {
						if _, err := out.Write(x.export(w.t)); err != nil {
							return err
						}
					}
				}
			}
			return nil
		},
	}
}

// chosen returns the content of the leaves for which keep returns true.
func (w *world) chosen(size int64, keep func(l tree.Leaf) bool) bundle.Content {
	c := w.content(size)
	c.From, c.To = 0, 0
	c.Leaves = slices.DeleteFunc(slices.Clone(c.Leaves), func(l tree.Leaf) bool { return !keep(l) })
	return c
}

func (w *world) bundle(c bundle.Content) []byte {
	w.t.Helper()
	var b bytes.Buffer
	if err := bundle.Write(&b, c, w.tree); err != nil {
		w.t.Fatal(err)
	}
	return b.Bytes()
}

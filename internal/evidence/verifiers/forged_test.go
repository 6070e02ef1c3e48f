package verifiers_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/evidence/bundle"
	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/schemas/tga"
)

// forged adds bundles that somebody with the store's key could make: every member of every object is
// changed, with all digests right. The programs must agree on what the contract allows.
func (g *grid) forged() {
	base := rich(g.t)
	base.appends = []int{4}
	g.put("made anew", bundle.Proved, base.clone(g.t).reseal(g.t, true))
	for i := range base.artifacts {
		g.members(fmt.Sprintf("artifact %d", i+1), true, func(x *trace) object { return x.artifacts[i] }, base)
		g.members(fmt.Sprintf("entry %d", i+1), false, func(x *trace) object { return x.entries[i] }, base)
	}
	other := failed(g.t)
	other.appends = []int{4}
	g.members("effect of a failure", true, func(x *trace) object { return x.artifacts[3]["outcome"].(object) }, other)
	for i := range base.notes {
		g.members(fmt.Sprintf("note %d", i+1), false, func(x *trace) object { return x.notes[i] }, base)
	}
	for i, l := range base.lines { // no digest covers the members of a line, so these stay changed
		g.lineMembers(fmt.Sprintf("line %d, %s", i+1, l["kind"]), func(x *trace) object { return x.lines[i] }, base)
	}
	g.put("links that are not made right again", "", func() *trace {
		x := base.clone(g.t)
		x.artifacts[0]["intent"] = "charge the customer twice"
		return x.reseal(g.t, false)
	}())
	g.swapped(base)
}

// values are what a member is changed to.
var values = []any{nil, true, "", "x", 0, -1, 1.5, []any{}, object{}, "2026-02-29T00:00:00.000Z", strings.Repeat("0", 64), "01936a8b-4c2d-7000-8000-000000000001", "COMPLETED", []any{object{}}}

// resealed are the members that reseal sets to the right value, whatever they were.
var resealed = []string{"_digest", "entry_digest", "prev_entry_digest", "note_digest", "prev_note_digest", "artifact_digest"}

// walk calls f with each object in v, and with its place.
func walk(at string, v any, f func(at string, o object)) {
	switch v := v.(type) {
	case object:
		f(at, v)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			walk(at+"/"+name, v[name], f)
		}
	case []any:
		for i := range v {
			walk(fmt.Sprint(at, "/", i), v[i], f)
		}
	}
}

// members adds a bundle for each changed member of an object, and of the objects inside it.
func (g *grid) members(name string, link bool, of func(*trace) object, base *trace) {
	g.eachMember(name, of, base, func(name string, x *trace) { g.put(name, "", x.reseal(g.t, link)) })
}

func (g *grid) lineMembers(name string, of func(*trace) object, base *trace) {
	leaves := g.world(base)
	g.eachMember(name, of, base, func(name string, x *trace) {
		c := leaves.content(leaves.size())
		c.Traces = func(w io.Writer, _ []tga.ID) error { _, err := w.Write(x.export(g.t)); return err }
		g.add(name, leaves.bundle(c), g.mine(), "")
	})
}

func (g *grid) eachMember(name string, of func(*trace) object, base *trace, put func(string, *trace)) {
	var places []string
	walk("", of(base), func(at string, o object) {
		if strings.HasPrefix(at, "/entry") || strings.HasPrefix(at, "/artifact") || at == "/note" || strings.HasPrefix(at, "/json") || strings.HasPrefix(at, "/proposal/args/") || strings.HasPrefix(at, "/call/args/") {
			return
		}
		places = append(places, at+"/")
		for _, member := range slices.Sorted(maps.Keys(o)) {
			if !slices.Contains(resealed, member) || strings.HasPrefix(name, "line") {
				places = append(places, at+"/"+member)
			}
		}
	})
	for n, place := range places {
		edit := func(what string, f func(o object, member string)) {
			x := base.clone(g.t)
			i := strings.LastIndexByte(place, '/')
			walk("", of(x), func(at string, o object) {
				if at == place[:i] {
					f(o, place[i+1:])
				}
			})
			put(fmt.Sprintf("%s: %s %s", name, place, what), x)
		}
		if strings.HasSuffix(place, "/") {
			edit("has an unknown member", func(o object, _ string) { o["zz"] = 1 })
			continue
		}
		edit("is gone", func(o object, member string) { delete(o, member) })
		for k := range 3 { // a part of the values for each, so that all values are used
			v := values[(n*3+k)%len(values)]
			edit(fmt.Sprintf("is %.80v", v), func(o object, member string) { o[member] = v })
		}
		var text bool
		walk("", of(base), func(at string, o object) {
			if i := strings.LastIndexByte(place, '/'); at == place[:i] {
				_, text = o[place[i+1:]].(string)
			}
		})
		if text {
			edit("is longer", func(o object, member string) { o[member] = o[member].(string) + "A" })
		}
	}
}

// swapped adds changes of whole objects, and of more than one at a time.
func (g *grid) swapped(base *trace) {
	for name, f := range map[string]func(x *trace){
		"call is not the proposal": func(x *trace) { x.artifacts[2]["call"].(object)["tool_name"] = "refund" },
		"both keys another": func(x *trace) {
			x.artifacts[2]["idempotency_key"], x.entries[2]["idempotency_key"], x.entries[3]["idempotency_key"] = "k", "k", "k"
		},
		"two notes with one number": func(x *trace) { x.notes[1]["note_number"] = 1 },
		"a note about an earlier head": func(x *trace) {
			x.notes[0]["head_entry_digest"], x.notes[1]["head_entry_digest"] = x.entries[1]["entry_digest"], x.entries[0]["entry_digest"]
		},
		"a note about the same earlier head": func(x *trace) {
			x.notes[0]["head_entry_digest"], x.notes[1]["head_entry_digest"] = x.entries[1]["entry_digest"], x.entries[1]["entry_digest"]
		},
		"no capability digest": func(x *trace) { x.artifacts[2]["capability_digest"] = strings.Repeat("0", 64) },
		"no capability":        func(x *trace) { delete(x.artifacts[1], "minted_capability") },
		"a capability that is spelled otherwise": func(x *trace) {
			x.artifacts[1]["minted_capability"] = strings.Replace(token, "fQ.", "fR.", 1)
		},
		"a capability of two parts": func(x *trace) { x.artifacts[1]["minted_capability"] = "eyJh.eyJh" },
		"denied and sent":           func(x *trace) { x.artifacts[1]["decision"] = "DENY" },
		"needs approval":            func(x *trace) { x.artifacts[1]["decision"] = "NEEDS_APPROVAL" },
		"failed and completed":      func(x *trace) { x.artifacts[3]["outcome"].(object)["status"] = "FAILURE" },
		"completed and failed":      func(x *trace) { x.entries[3]["to_state"], x.of("head")["state"] = "FAILED", "FAILED" },
		"failed, all three": func(x *trace) {
			x.artifacts[3]["outcome"].(object)["status"], x.entries[3]["to_state"], x.of("head")["state"] = "FAILURE", "FAILED", "FAILED"
		},
		"a document bound twice": func(x *trace) {
			h := x.artifacts[3]["document_hashes"].([]any)
			x.artifacts[3]["document_hashes"] = append(h, h[3])
		},
		"a document that is not bound": func(x *trace) {
			h := x.artifacts[3]["document_hashes"].([]any)
			x.artifacts[3]["document_hashes"] = h[:3]
		},
		"a document bound and not there":   func(x *trace) { x.lines = slices.Delete(x.lines, 8, 9) },
		"a free document bound, not there": func(x *trace) { x.lines = slices.Delete(x.lines, 11, 12) },
		"documents in another order":       func(x *trace) { x.lines[8], x.lines[9] = x.lines[9], x.lines[8] },
		"a document of the same bytes": func(x *trace) {
			x.lines[8] = object{"kind": "document", "seq": 4, "pointer": "/result", "base64": "eyJhbW91bnQiOjEyLCJpZCI6ImNoXzEifQ=="}
		},
		"a document in loose base64": func(x *trace) {
			x.lines[8] = object{"kind": "document", "seq": 4, "pointer": "/result", "base64": "eyJhbW91bnQiOjEyLCJpZCI6ImNoXzEifR=="}
		},
		"a document in base64 with a line end": func(x *trace) {
			x.lines[8] = object{"kind": "document", "seq": 4, "pointer": "/result", "base64": "eyJhbW91bnQiOjEyLCJpZCI6ImNoXzEifQ==\n"}
		},
		"a document that is erased": func(x *trace) {
			x.lines[8] = object{"kind": "document", "seq": 4, "pointer": "/result", "erased": true}
		},
		"a document whose size is not bound": func(x *trace) { delete(x.artifacts[3]["document_hashes"].([]any)[0].(object), "size_bytes") },
		"an effect erased, documents not": func(x *trace) {
			x.artifacts[3] = nil
			x.lines[7] = object{"kind": "artifact", "seq": 4, "erased": true}
		},
		"a decision erased": func(x *trace) {
			x.artifacts[1] = nil
			x.lines[3] = object{"kind": "artifact", "seq": 2, "erased": true}
		},
		"a request erased": func(x *trace) {
			x.artifacts[0] = nil
			x.lines[1] = object{"kind": "artifact", "seq": 1, "erased": true}
		},
		"a call erased": func(x *trace) {
			x.artifacts[2] = nil
			x.lines[5] = object{"kind": "artifact", "seq": 3, "erased": true}
		},
		"an artifact of another type":   func(x *trace) { x.artifacts[3] = x.artifacts[2]; x.lines[7]["artifact"] = x.artifacts[2] },
		"the nesting is at its limit":   func(x *trace) { nest(x, 127) },
		"the nesting is over its limit": func(x *trace) { nest(x, 128) },
	} {
		x := base.clone(g.t)
		f(x)
		g.put("forged: "+name, "", x.reseal(g.t, true))
	}
}

// nest puts arrays into the arguments.
func nest(x *trace, depth int) {
	var v any = 1
	for range depth {
		v = []any{v}
	}
	for _, o := range []object{x.artifacts[0]["proposal"].(object), x.artifacts[2]["call"].(object)} {
		o["args"] = object{"a": v}
	}
}

// inconsistent adds trees whose leaves do not agree with the traces.
func (g *grid) inconsistent() {
	other := func() *trace {
		return traceOf(g.t, chaintest.New(chaintest.Options{Seed: 2, Status: tga.StatusError, Notes: 1, Args: `{"amount":99}`}))
	}
	w := g.world(failed(g.t), denied(g.t))
	n := w.size()
	c := w.content(n)
	c.Traces = g.world(other(), denied(g.t)).content(n).Traces
	g.add("a trace made anew under old leaves", w.bundle(c), g.mine(), "")
	for _, keep := range []int{1, 2, 3, 4} { // lines of entries that stay, then notes
		x := failed(g.t)
		short := traceOf(g.t, chaintest.New(chaintest.Options{Seed: 2, Status: tga.StatusError, Entries: keep}))
		x.lines = short.lines
		c := w.content(n)
		c.Traces = func(out io.Writer, _ []tga.ID) error {
			_, err := out.Write(append(x.export(g.t), denied(g.t).export(g.t)...))
			return err
		}
		g.add(fmt.Sprintf("a trace cut behind entry %d", keep), w.bundle(c), g.mine(), "")
	}
	for name, f := range map[string]func(l *tree.Leaf){
		"two entries": func(l *tree.Leaf) { l.Entries = 2 }, "entry 5": func(l *tree.Leaf) { l.FirstSeq = 5 }, "another trace": func(l *tree.Leaf) { l.TraceID = chaintest.ID(9, 9) },
		"another head": func(l *tree.Leaf) { l.HeadDigest[3]++ }, "a note before its time": func(l *tree.Leaf) { l.NoteDigest[3]++ }, "no first": func(l *tree.Leaf) { l.FirstSeq = 0 },
		"a first note": func(l *tree.Leaf) { l.FirstNote = 1 }, "a note": func(l *tree.Leaf) { l.Notes, l.FirstNote = 1, 1 }, "65535 entries": func(l *tree.Leaf) { l.Entries = 65535 },
		"a time before 1970": func(l *tree.Leaf) { l.Committed = -1 }, "no entries": func(l *tree.Leaf) { l.Entries, l.FirstSeq, l.Notes, l.FirstNote = 0, 0, 1, 1 },
	} {
		for at := range w.leaves {
			forged := g.world(w.traces...)
			forged.leaves, forged.tree = nil, nil
			for i, l := range w.leaves {
				if i == at {
					f(&l)
				}
				forged.append(l)
			}
			g.add(fmt.Sprintf("leaf %d with %s", at+1, name), forged.bundle(forged.content(n)), g.mine(), "")
		}
	}
	all := w.bundle(w.content(n))
	leaf := regexp.MustCompile(`"leaf":"([^"]*)"`)
	g.add("a leaf that says what another does", leaf.ReplaceAll(all, []byte(`"leaf":"`+string(leaf.FindSubmatch(all)[1])+`"`)), g.mine(), "")
	lines := slices.Collect(bytes.Lines(all))
	g.add("leaves out of order", bytes.Join(append([][]byte{lines[0], lines[1], lines[3], lines[2]}, lines[4:]...), nil), g.mine(), "")
	x := failed(g.t)
	c = w.content(n)
	c.Traces = func(out io.Writer, _ []tga.ID) error {
		_, err := out.Write(slices.Concat(x.export(g.t), denied(g.t).export(g.t), x.export(g.t)))
		return err
	}
	g.add("a trace twice", bytes.Replace(w.bundle(c), []byte(`"kind":"end","traces":2`), []byte(`"kind":"end","traces":3`), 1), g.mine(), "")
	c.Leaves, c.From, c.To = w.leaves[:1], 0, 0
	g.add("a trace without a leaf", bytes.Replace(w.bundle(w.chosenOf(w.leaves[:1])), []byte(`"leaves":1,"traces":1`), []byte(`"leaves":1,"traces":2`), 1), g.mine(), "")
}

// chosenOf is a bundle of these leaves with every trace.
func (w *world) chosenOf(leaves []tree.Leaf) bundle.Content {
	c := w.content(w.size())
	every := c.Traces
	c.From, c.To, c.Leaves = 0, 0, leaves
	c.Traces = func(out io.Writer, _ []tga.ID) error {
		var ids []tga.ID
		for _, x := range w.traces {
			ids = append(ids, x.id)
		}
		return every(out, ids)
	}
	return c
}

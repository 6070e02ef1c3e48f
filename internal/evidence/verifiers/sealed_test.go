package verifiers_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// The cases of this file are for checks that another check comes before or after: a coarser change never
// tells the two apart.

const otherID = "01936a8b-4c2d-7000-8000-000000000001"

// sealed adds traces in which one thing is changed and everything above it is right.
func (g *grid) sealed() {
	base := rich(g.t)
	base.appends = []int{4}
	f := strings.Repeat("f", 64)
	set := func(number string, n int, member string, v any) func(*trace) {
		return func(x *trace) {
			x.seal = func(o object) {
				if fmt.Sprint(o[number]) == fmt.Sprint(n) {
					o[member] = v
				}
			}
		}
	}
	entry := func(n int, member string, v any) func(*trace) { return set("sequence_number", n, member, v) }
	note := func(n int, member string, v any) func(*trace) { return set("note_number", n, member, v) }
	for name, change := range map[string]func(x *trace){
		"an entry with a later number": func(x *trace) {
			x.entries[1]["sequence_number"] = 7
			x.lines[3]["seq"] = 7
		},
		"an entry behind another":                entry(2, "prev_entry_digest", f),
		"the first entry behind another":         entry(1, "prev_entry_digest", f),
		"an entry with another artifact digest":  entry(2, "artifact_digest", f),
		"an effect with another artifact digest": entry(4, "artifact_digest", f),
		"an entry of another trace":              entry(3, "trace_id", otherID),
		"a request with a tool_call_id":          entry(1, "tool_call_id", otherID),
		"a call with another tool_call_id":       entry(3, "tool_call_id", otherID),
		"an effect with another tool_call_id":    entry(4, "tool_call_id", otherID),
		"an effect with another key":             entry(4, "idempotency_key", "x"),
		"an effect without call in its entry":    entry(4, "tool_call_id", nil),
		"a request with another id":              entry(1, "artifact_id", otherID),
		"a note behind another":                  note(2, "prev_note_digest", f),
		"a first note behind another":            note(1, "prev_note_digest", f),
		"a note of another trace":                note(2, "trace_id", otherID),
		"a note about no entry":                  note(1, "head_entry_digest", f),
		"a note with a later number":             note(2, "note_number", 7),
		"another plan":                           func(x *trace) { x.artifacts[1]["plan_id"] = otherID },
		"another capability digest":              func(x *trace) { x.artifacts[2]["capability_digest"] = f },
		"a capability that is no token": func(x *trace) {
			loose := strings.Replace(token, "fQ.", "fR.", 1)
			x.artifacts[1]["minted_capability"] = loose
			x.artifacts[2]["capability_digest"] = tga.Sum([]byte(loose)).String()
		},
		"no resources":                    func(x *trace) { x.artifacts[0]["resources"] = []any{} },
		"an empty tool_call_id":           func(x *trace) { x.artifacts[3]["tool_call_id"] = "" },
		"a tool_call_id that is null":     func(x *trace) { x.artifacts[2]["tool_call_id"] = nil },
		"a document under a long pointer": func(x *trace) { repoint(x, "/"+strings.Repeat("é", 512)) },
		"a document under the longest":    func(x *trace) { repoint(x, "/"+strings.Repeat("é", 511)+"x") },
		"254 documents":                   func(x *trace) { manyDocuments(x, 254) },
		"255 documents":                   func(x *trace) { manyDocuments(x, 255) },
		"a size in another spelling":      func(x *trace) { x.artifacts[3]["batch_total_bytes"] = json.Number("1e3") },
	} {
		x := base.clone(g.t)
		change(x)
		g.put("sealed: "+name, "", x.reseal(g.t, true))
	}
	gone := base.clone(g.t)
	gone.artifacts[3] = nil
	gone.lines = slices.Concat(gone.lines[:7], []object{{"kind": "artifact", "seq": 4, "erased": true}}, gone.lines[12:])
	g.put("sealed: an effect erased with its documents", "", gone.reseal(g.t, true))
	g.lineMembers("line 8, an erased artifact", func(x *trace) object { return x.lines[7] }, gone)
	g.counts(base)
	g.handSigned()
	g.oddLines()
	g.oddTreeLines()
	g.misplaced()
}

// repoint moves the last document of a rich trace.
func repoint(x *trace, to string) {
	x.artifacts[3]["document_hashes"].([]any)[3].(object)["pointer"] = to
	x.lines[11]["pointer"] = to
}

// manyDocuments gives a rich trace n documents.
func manyDocuments(x *trace, n int) {
	hashes := x.artifacts[3]["document_hashes"].([]any)
	var more []object
	for i := len(hashes); i < n; i++ {
		at := fmt.Sprintf("/more/%d", i)
		hashes = append(hashes, object{"pointer": at, "hash": tga.Sum([]byte("1")).String()})
		more = append(more, object{"kind": "document", "seq": 4, "pointer": at, "json": 1})
	}
	x.artifacts[3]["document_hashes"] = hashes
	x.lines = slices.Concat(x.lines[:12], more, x.lines[12:])
}

// counts adds bundles whose counts are right although a trace has no leaf, is there twice, or has a leaf and
// is missing.
func (g *grid) counts(base *trace) {
	two := failed(g.t)
	w := g.world(base, two)
	put := func(name string, leaves int64, head, end int, of ...*trace) {
		c := w.content(leaves)
		c.Traces = func(out io.Writer, _ []tga.ID) error {
			for _, x := range of {
				if _, err := out.Write(x.export(g.t)); err != nil {
					return err
				}
			}
			return nil
		}
		b := regexp.MustCompile(`"traces":\d+}\n\{`).ReplaceAll(w.bundle(c), fmt.Appendf(nil, "\"traces\":%d}\n{", head))
		b = regexp.MustCompile(`"end","traces":\d+`).ReplaceAll(b, fmt.Appendf(nil, `"end","traces":%d`, end))
		g.add("counted: "+name, b, g.mine(), "")
	}
	put("a trace without a leaf", 1, 2, 2, base, two)
	put("a leaf without its trace", 2, 1, 1, base)
	put("a trace twice", 2, 2, 3, base, two, base)
	put("a trace twice, counted twice", 2, 3, 3, base, two, base)
}

// handSign signs a note of any text, also one that package note does not sign.
func (g *grid) handSign(text string, by checkpoint.Signer) string {
	sig, err := by.Sign([]byte(text))
	if err != nil {
		g.t.Fatal(err)
	}
	raw := append(binary.BigEndian.AppendUint32(nil, by.KeyHash()), sig...)
	return text + "\n\u2014 " + by.Name() + " " + base64.StdEncoding.EncodeToString(raw) + "\n"
}

// handSigned adds notes that are signed although they may not be.
func (g *grid) handSigned() {
	w := g.world(failed(g.t))
	at := w.at(4)
	for name, more := range map[string]string{"nothing more": "", "a tab": "a\tb\n", "a carriage return": "a\r\n", "a zero": "\x00\n", "a delete": "\x7f\n", "a next line": "\u0085\n"} {
		g.replaceNote("hand-signed with "+name, w, g.handSign(at.Text()+more, g.key), g.mine())
	}
	_, next := newKey(g.t, origin)
	raw, err := checkpoint.HandOver(w.at(2), g.key, next)
	if err != nil {
		g.t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(raw), "\n\n")
	for name, change := range map[string]func(l []string){
		"an empty head": func(l []string) { l[5] = "" }, "a short head": func(l []string) { l[5] = "AAAA" }, "a size of 2^63": func(l []string) { l[4] = "9223372036854775808" },
		"a size of 2^63-1": func(l []string) { l[4] = "9223372036854775807" }, "an old key in error": func(l []string) { l[2] += "A" }, "no size": func(l []string) { l[4] = "" },
		"the new key twice": func(l []string) { l[2] = l[3] }, "the old key twice": func(l []string) { l[3] = l[2] }, "another first line": func(l []string) { l[0] += "2" },
	} {
		lines := strings.Split(text, "\n")
		change(lines)
		signed, err := note.Sign(&note.Note{Text: strings.Join(lines, "\n") + "\n"}, g.key, next)
		if err != nil {
			g.t.Fatal(err)
		}
		c := w.content(4)
		c.Checkpoint, c.HandOvers = g.sign(at.Text(), next), [][]byte{signed}
		b := w.bundle(c)
		g.add("a hand-over with "+name, b, g.mine(), "")
		g.add("a hand-over with "+name+", reader has the next key", b, trust{key: next.Public}, "")
	}
}

// oddLines adds lines of JSON that an export never has.
func (g *grid) oddLines() {
	w := g.world(traceOf(g.t, chaintest.New(chaintest.Options{Seed: 8, Notes: 1})))
	whole := string(w.bundle(w.content(w.size())))
	for _, odd := range []string{
		`[]`, `[1,2]`, `"x"`, `1`, `null`, `{}`, `[`, `{"kind":"note"`, `{"a":1} {`, `{"a":NaN}`, `{"a":-Infinity}`, "{\"a\":\"\t\"}", `{"a":01}`, `{,}`, `{"a":1,}`, `{"a" 1}`,
		`{"kind":1}`, `{"kind":null}`, `["\ud800"]`, strings.Repeat("[", 131) + strings.Repeat("]", 131), strings.Repeat("[", 132) + strings.Repeat("]", 132),
	} {
		for _, before := range []string{`{"kind":"entry"`, `{"kind":"note"`} {
			g.add(fmt.Sprintf("oddly, %.20q before %s", odd, before), []byte(strings.Replace(whole, before, odd+"\n"+before, 1)), g.mine(), "")
		}
	}
}

// misplaced adds lines outside a trace, and documents under json with the right digest and a wrong form.
func (g *grid) misplaced() {
	w := g.world(traceOf(g.t, chaintest.New(chaintest.Options{Seed: 9, Notes: 1, Documents: []chain.Document{doc("/result", `{"b":1,"a":1.0}`)}})))
	c := w.content(w.size())
	c.From, c.To = 0, 0
	whole := w.bundle(c)
	lines := slices.Collect(bytes.Lines(whole))
	first := slices.IndexFunc(lines, func(line []byte) bool { return bytes.HasPrefix(line, []byte(`{"kind":"entry"`)) })
	for i := first; i < len(lines); i++ {
		g.add(fmt.Sprintf("line %d before the first trace", i+1), bytes.Join(slices.Insert(slices.Clone(lines), first, lines[i]), nil), g.mine(), "")
		g.add(fmt.Sprintf("line %d behind the last trace", i+1), bytes.Join(slices.Insert(slices.Clone(lines), len(lines)-1, lines[i]), nil), g.mine(), "")
	}
	head := regexp.MustCompile(`"(head|note)_digest":"[0-9a-f]{64}"`)
	line := len(lines) - 2
	for _, m := range head.FindAll(lines[line], -1) {
		other := bytes.Replace(lines[line], m, regexp.MustCompile(`[0-9a-f]{64}`).ReplaceAll(m, []byte(strings.Repeat("f", 64))), 1)
		g.add(fmt.Sprintf("a head with another %.11s", m), bytes.Join(slices.Replace(slices.Clone(lines), line, line+1, other), nil), g.mine(), "")
	}
	raw := base64.StdEncoding.EncodeToString([]byte(`{"b":1,"a":1.0}`))
	for _, json := range []string{`{"b":1,"a":1.0}`, `{"a":1,"b":1}`} {
		b := bytes.Replace(whole, []byte(`"base64":"`+raw+`"`), []byte(`"json":`+json), 1)
		g.add("a document as "+json, b, g.mine(), "")
	}
	fewer := bytes.Replace(whole, fmt.Appendf(nil, `"leaves":%d`, w.size()), fmt.Appendf(nil, `"leaves":%d`, w.size()-1), 1)
	g.add("more leaves than the first line says", fewer, g.mine(), "")
}

// oddTreeLines adds leaves and first lines whose members are of a wrong kind or too large.
func (g *grid) oddTreeLines() {
	w := g.world(rich(g.t))
	c, at := w.content(w.size()), w.at(2)
	c.Against = &at
	whole := string(w.bundle(c))
	m := regexp.MustCompile(`"index":1,"leaf":"([^"]*)","proof":\[[^\]]*\]`).FindStringSubmatch(whole)
	raw, err := base64.StdEncoding.DecodeString(m[1])
	if err != nil {
		g.t.Fatal(err)
	}
	leaf := func(f func(b []byte) []byte) string {
		return strings.Replace(m[0], m[1], base64.StdEncoding.EncodeToString(f(bytes.Clone(raw))), 1)
	}
	index := func(s string) string { return strings.Replace(m[0], `"index":1`, `"index":`+s, 1) }
	proof := func(s string) string { return regexp.MustCompile(`\[.*\]`).ReplaceAllString(m[0], s) }
	for name, now := range map[string]string{
		"a short leaf": leaf(func(b []byte) []byte { return b[:120] }), "a long leaf": leaf(func(b []byte) []byte { return append(b, 0) }), "no leaf": leaf(func([]byte) []byte { return nil }),
		"a leaf of version 2": leaf(func(b []byte) []byte { b[8] = 2; return b }), "a leaf of index 0": strings.Replace(leaf(func(b []byte) []byte { b[7] = 0; return b }), `"index":1`, `"index":0`, 1),
		"index 2^64": index("18446744073709551616"), "index -1": index("-1"), "an index that is text": index(`"1"`), "an index that is a list": index("[1]"),
		"a short hash": proof(`["AAAA"]`), "a proof that is text": proof(`"x"`), "a proof that is an object": proof(`{}`), "a leaf that is a list": strings.Replace(m[0], `"`+m[1]+`"`, `[1]`, 1),
	} {
		g.add("oddly, "+name, []byte(strings.Replace(whole, m[0], now, 1)), g.mine(), "")
	}
	key := `"key":"` + g.key.Public
	for _, of := range [][2]string{
		{`"size":2`, `"size":9223372036854775808`}, {`"size":2`, `"size":-9223372036854775809`}, {`"leaves":`, `"leaves":922337203685477580`}, {`"version":"1"`, `"version":""`},
		{`"version":"1"`, `"version":"123456789012345678901"`}, {key, `"key":"x`}, {key, key + "A"}, {key, `"key":"`}, {`"origin":"` + origin, `"origin":"`},
	} {
		b := strings.Replace(whole, of[0], of[1], 1)
		if b == whole {
			g.t.Fatalf("%s is not there", of[0])
		}
		for _, tr := range []trust{g.mine(), {}} {
			g.add(fmt.Sprintf("oddly, %.30s made %.40s", of[0], of[1]), []byte(b), tr, "")
		}
	}
}

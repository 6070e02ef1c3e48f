package verifiers_test

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	fnote "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/evidence/bundle"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// trust is what the reader knows, as text.
type trust struct {
	key       string
	witnesses []string
	old       []byte
}

// tried is a case of the grid.
type tried struct {
	name   string
	bundle []byte // shared by cases that differ in one byte
	at     int    // of the changed byte, -1 = none
	byte   byte
	trust
	want string // verdict of a good bundle; "" = the one of package bundle
}

// grid collects cases.
type grid struct {
	t     *testing.T
	key   checkpoint.Signer
	cases []tried
}

func (g *grid) add(name string, b []byte, tr trust, want string) {
	g.cases = append(g.cases, tried{name: name, bundle: b, at: -1, trust: tr, want: want})
}

func (g *grid) mine() trust { return trust{key: g.key.Public} }

func (g *grid) world(traces ...*trace) *world { return newWorld(g.t, g.key, traces...) }

// put adds the complete bundle of traces that somebody with the key made.
func (g *grid) put(name string, want string, traces ...*trace) {
	w := g.world(traces...)
	g.add(name, w.bundle(w.content(w.size())), g.mine(), want)
}

func doc(pointer, data string) chain.Document {
	return chain.Document{Pointer: pointer, Data: []byte(data)}
}

const token = "eyJhIjoxfQ.eyJiIjoyfQ.c2ln"

// rich is a trace with every kind of part: documents of all forms, a capability, a key, meta, and numbers
// and names that can be written in more than one way.
func rich(t *testing.T) *trace {
	return traceOf(t, chaintest.New(chaintest.Options{
		Seed: 1, Key: "order-1\u2028é", Token: token, Notes: 2,
		Meta: tga.Meta{tga.MetaNamespace: "n", tga.MetaDeadline: "2026-02-28T23:59:59.999Z", "a": nil, "b": true, "c": tga.Number("1e-7")},
		Args: `{"":0,"a":[1,2.5,1e+21,1e-7,5e-324,-0.001,123456789012345680000,{"z":null}],"é":"\u000b\"\\",` + "\"\U0001f600\":1,\"\uf900\":\"\u2028\"}",
		Documents: []chain.Document{
			doc("/result", `{"amount":12,"id":"ch_1"}`), doc("/state_changes", ` {"a":1}`), doc("/evidence", "no\nJSON \xff"), doc("/other", ""),
		},
	}), 3)
}

func failed(t *testing.T) *trace {
	return traceOf(t, chaintest.New(chaintest.Options{Seed: 2, Status: tga.StatusError, Notes: 1}))
}
func denied(t *testing.T) *trace {
	return traceOf(t, chaintest.New(chaintest.Options{Seed: 3, Verdict: tga.Deny}))
}
func open(t *testing.T) *trace {
	return traceOf(t, chaintest.New(chaintest.Options{Seed: 4, Entries: 3, Notes: 1}))
}

func erased(t *testing.T) *trace {
	tr := chaintest.New(chaintest.Options{Seed: 5, Notes: 1, Documents: []chain.Document{doc("/result", "1"), doc("/evidence", "2")}})
	tr.Entries[0] = chaintest.Erase(tr.Entries[0])
	tr.Entries[3].Documents = []chain.Document{doc("/result", "1"), {Pointer: "/evidence", Erased: true}}
	return traceOf(t, tr)
}

func all(t *testing.T) []*trace {
	gone := chaintest.New(chaintest.Options{Seed: 6, Documents: []chain.Document{doc("/result", "1")}})
	gone.Entries[3] = chaintest.Erase(gone.Entries[3])
	return []*trace{rich(t), failed(t), denied(t), open(t), erased(t), traceOf(t, gone)}
}

// good adds bundles that are believed, and the verdict of each.
func (g *grid) good() {
	w := g.world(all(g.t)...)
	n := w.size()
	whole := w.bundle(w.content(n))
	g.add("everything", whole, g.mine(), bundle.Proved)
	g.add("no key", whole, trust{}, bundle.OwnKey)
	one := g.world(denied(g.t))
	for size := int64(1); size <= n; size++ {
		want := bundle.NotCovered
		if size == n {
			want = bundle.Proved
		}
		first := func(l tree.Leaf) bool { return l.TraceID == w.leaves[0].TraceID }
		g.add(fmt.Sprintf("all up to %d", size), w.bundle(w.content(size)), g.mine(), want)
		g.add(fmt.Sprintf("one trace up to %d", size), w.bundle(w.chosen(size, first)), g.mine(), "")
	}
	c := w.content(n)
	c.From, c.To = 8, 12
	g.add("a range inside", w.bundle(c), g.mine(), bundle.Proved)
	c.To = uint64(n)
	g.add("a range to the end", w.bundle(c), g.mine(), bundle.Proved)
	g.add("nothing", w.bundle(w.chosen(n, func(tree.Leaf) bool { return false })), g.mine(), bundle.Proved)
	g.add("a tree of one leaf", one.bundle(one.content(1)), g.mine(), bundle.NotCovered)
	g.add("no newline at the end", whole[:len(whole)-1], g.mine(), bundle.Proved)
	tree, export, _ := strings.Cut(string(whole), `{"kind":"entry"`)
	spaces := strings.NewReplacer(`,"kind"`, ` , "kind"`, `{"kind":"`, ` { "kind" : "`, `,"entry":`, "\t,\r\"entry\" :  ", `"seq":`, `"\u0073eq" : `)
	g.beside()
	g.add("an export with spaces", []byte(tree+spaces.Replace(`{"kind":"entry"`+export)), g.mine(), bundle.Proved)
}

// beside adds appends without entry or note: one of something that is not a trace, and one of a trace.
func (g *grid) beside() {
	for name, c := range map[string]struct {
		change func(*tree.Leaf)
		want   string
	}{
		"a turn":                          {func(l *tree.Leaf) { l.TraceID, l.HeadDigest = chaintest.ID(77, 0), tga.Digest{} }, bundle.Proved},
		"a trace":                         {func(*tree.Leaf) {}, bundle.Proved},
		"a trace at another head":         {func(l *tree.Leaf) { l.HeadDigest[0]++ }, "refused"},
		"a trace at another note":         {func(l *tree.Leaf) { l.NoteDigest[0]++ }, "refused"},
		"a trace that is not in the file": {func(l *tree.Leaf) { l.TraceID, l.Notes, l.FirstNote = chaintest.ID(77, 0), 1, 1 }, ""},
	} {
		w := g.world(failed(g.t))
		l := w.leaves[len(w.leaves)-1]
		l.FirstSeq, l.Entries, l.FirstNote, l.Notes = 0, 0, 0, 0
		c.change(&l)
		w.append(l)
		content := w.content(w.size())
		g.add("beside the traces: "+name, w.bundle(content), g.mine(), c.want)
	}
}

// oldCheckpoints adds checkpoints that a reader may have kept from earlier.
func (g *grid) oldCheckpoints() {
	w := g.world(failed(g.t), denied(g.t))
	n := w.size()
	for old := int64(0); old <= n; old++ {
		tr := trust{key: g.key.Public, old: w.checkpoint(old)}
		g.add(fmt.Sprintf("old checkpoint of %d, no proof", old), w.bundle(w.content(n)), tr, "")
		if old == 0 {
			continue
		}
		c, at := w.content(n), w.at(old)
		c.Against = &at
		b := w.bundle(c)
		g.add(fmt.Sprintf("grew from %d", old), b, tr, bundle.Proved)
		g.add(fmt.Sprintf("grew from %d, nobody asks", old), b, g.mine(), bundle.Proved)
		g.add(fmt.Sprintf("grew from %d, asked for another", old), b, trust{key: g.key.Public, old: w.checkpoint(old%n + 1)}, "")
		forged, err := checkpoint.Checkpoint{Origin: origin, Size: old, Head: tlog.Hash{1}}.Sign(g.key)
		if err != nil {
			g.t.Fatal(err)
		}
		g.add(fmt.Sprintf("another history of %d", old), b, trust{key: g.key.Public, old: forged}, "")
		for name, raw := range map[string]string{"in CRLF": strings.ReplaceAll(string(tr.old), "\n", "\r\n"), "that nobody signed": "x", "without signatures": string(w.at(old).Text())} {
			g.add(fmt.Sprintf("old checkpoint of %d %s", old, name), b, trust{key: g.key.Public, old: []byte(raw)}, "")
		}
		prefix := string(b[bytes.Index(b, []byte(`{"kind":"prefix"`)):bytes.Index(b, []byte(`{"kind":"leaf"`))])
		proof := regexp.MustCompile(`"[A-Za-z0-9+/]{43}="`).FindAllString(prefix, -1)
		g.add(fmt.Sprintf("two proofs that it grew from %d", old), []byte(strings.Replace(string(b), prefix, prefix+prefix, 1)), g.mine(), "")
		if len(proof) > 1 {
			longer := strings.Replace(prefix, proof[len(proof)-1], proof[len(proof)-1]+","+proof[0], 1)
			g.add(fmt.Sprintf("grew from %d by a longer proof", old), []byte(strings.Replace(string(b), prefix, longer, 1)), tr, "")
			other := strings.Replace(prefix, proof[1], proof[0], 1)
			g.add(fmt.Sprintf("grew from %d by another proof", old), []byte(strings.Replace(string(b), prefix, other, 1)), tr, "")
		}
	}
	rewritten := g.world(failed(g.t), open(g.t))
	c, at := rewritten.content(rewritten.size()), w.at(4)
	c.Against = &at
	g.add("a rewritten history", rewritten.bundle(c), trust{key: g.key.Public, old: w.checkpoint(4)}, "")
	g.add("an older bundle", w.bundle(w.content(3)), trust{key: g.key.Public, old: w.checkpoint(4)}, "")
}

func (g *grid) sign(text string, by ...note.Signer) []byte {
	raw, err := note.Sign(&note.Note{Text: text}, by...)
	if err != nil {
		g.t.Fatal(err)
	}
	return raw
}

// keys adds hand-overs and checkpoints in every form.
func (g *grid) keys() {
	w := g.world(failed(g.t))
	_, second := newKey(g.t, origin)
	_, third := newKey(g.t, origin)
	over := func(size int64, from, to checkpoint.Signer) []byte {
		raw, err := checkpoint.HandOver(w.at(size), from, to)
		if err != nil {
			g.t.Fatal(err)
		}
		return raw
	}
	by := func(s checkpoint.Signer, overs ...[]byte) []byte {
		c := w.content(4)
		c.Checkpoint, c.HandOvers = g.sign(w.at(4).Text(), s), overs
		return w.bundle(c)
	}
	text := func(raw []byte) string { s, _, _ := strings.Cut(string(raw), "\n\n"); return s + "\n" }
	first := over(2, g.key, second)
	for name, b := range map[string][]byte{
		"signed by the next key without hand-over": by(second), "handed over": by(second, first), "handed over twice": by(third, first, over(3, second, third)),
		"handed over in the wrong order": by(third, over(3, second, third), first), "handed over and back": by(g.key, first, over(3, second, g.key)),
		"signed by who gave it up": by(g.key, first), "handed over at this size, signed by the old key": by(g.key, over(4, g.key, second)),
		"given away twice": by(third, first, over(3, g.key, third)), "given away twice, no later": by(third, first, over(1, g.key, third)),
		"only the old key signed": by(second, g.sign(text(first), g.key)), "only the new key signed": by(second, g.sign(text(first), second)),
		"a hand-over of another origin":  by(second, g.sign(strings.Replace(text(first), origin, origin+"x", 1), g.key, second)),
		"a hand-over with more lines":    by(second, g.sign(text(first)+"more\n", g.key, second)),
		"a hand-over with hidden lines":  by(second, g.sign(text(first)+"\nmore\n", g.key, second)),
		"a hand-over of size 02":         by(second, g.sign(strings.Replace(text(first), "\n2\n", "\n02\n", 1), g.key, second)),
		"a hand-over of a loose head":    by(second, g.sign(regexp.MustCompile(`.=\n$`).ReplaceAllString(text(first), "x=\n"), g.key, second)),
		"a hand-over without a head":     by(second, g.sign(regexp.MustCompile(`.{4}=\n$`).ReplaceAllString(text(first), "\n"), g.key, second)),
		"a hand-over to no key":          by(second, g.sign(strings.Replace(text(first), second.Public, "x", 1), g.key, second)),
		"a hand-over to a key in error":  by(second, g.sign(strings.Replace(text(first), second.Public, second.Public+"AAAA", 1), g.key, second)),
		"a hand-over of what is nothing": by(second, []byte("x")),
	} {
		for who, key := range map[string]string{"first": g.key.Public, "second": second.Public, "third": third.Public, "no": ""} {
			g.add(name+", reader has "+who+" key", b, trust{key: key}, "")
		}
	}
	at := w.at(4)
	for name, text := range map[string]string{
		"of size 04": strings.Replace(at.Text(), "\n4\n", "\n04\n", 1), "of size +4": strings.Replace(at.Text(), "\n4\n", "\n+4\n", 1), "of size -4": strings.Replace(at.Text(), "\n4\n", "\n-4\n", 1),
		"of a huge size": strings.Replace(at.Text(), "\n4\n", "\n18446744073709551615\n", 1), "of over 64 bits": strings.Replace(at.Text(), "\n4\n", "\n99999999999999999999\n", 1),
		"of 2^62": strings.Replace(at.Text(), "\n4\n", "\n4611686018427387904\n", 1), "with an extension": at.Text() + "more\n", "with a hidden extension": at.Text() + "\nmore\n",
		"of another origin": "x" + at.Text(), "of no origin": strings.TrimPrefix(at.Text(), origin), "with a short head": origin + "\n4\nAAAA\n", "without a head": origin + "\n4\n",
		"with a loose head": regexp.MustCompile(`.=\n$`).ReplaceAllString(at.Text(), "x=\n"), "of 5": strings.Replace(at.Text(), "\n4\n", "\n5\n", 1), "of 3": strings.Replace(at.Text(), "\n4\n", "\n3\n", 1),
		"of 0": strings.Replace(at.Text(), "\n4\n", "\n0\n", 1), "of another head": checkpoint.Checkpoint{Origin: origin, Size: 4, Head: tlog.Hash{7}}.Text(),
		"of a long text": at.Text() + strings.Repeat("x", checkpoint.MaxBytes-len(at.Text())-150) + "\n", "of too long a text": at.Text() + strings.Repeat("x", checkpoint.MaxBytes) + "\n",
		"with a line separator": at.Text() + "\u2028\u2029\u007f<>&\n",
	} {
		g.replaceNote("a checkpoint "+name, w, string(g.sign(text, g.key)), g.mine())
	}
	g.signatures(w)
}

// replaceNote adds a bundle whose checkpoint is any text.
func (g *grid) replaceNote(name string, w *world, raw string, tr trust) {
	b := string(w.bundle(w.content(4)))
	old, now := spell(g.t, string(w.checkpoint(4))), spell(g.t, raw)
	changed := strings.Replace(b, old, now, 1)
	if changed == b && raw != string(w.checkpoint(4)) {
		g.t.Fatalf("%s: the checkpoint is not there", name)
	}
	g.add(name, []byte(changed), tr, "")
}

// spell returns a string as the lines about the tree have it.
func spell(t *testing.T, s string) string {
	b := string(canonical(t, s))
	return strings.NewReplacer("\u2028", `\u2028`, "\u2029", `\u2029`).Replace(b)
}

// signatures adds notes with cosignatures, strange signatures and many of them.
func (g *grid) signatures(w *world) {
	var witnesses []note.Signer
	var public []string
	for _, name := range []string{"witness.one", "witness.two"} {
		secret, s := newKey(g.t, name)
		co, err := fnote.NewSignerForCosignatureV1(secret)
		if err != nil {
			g.t.Fatal(err)
		}
		witnesses, public = append(witnesses, co), append(public, s.Public)
	}
	four, err := fnote.VKeyToCosignatureV1(public[1])
	if err != nil {
		g.t.Fatal(err)
	}
	cosigned := string(w.checkpoint(4, witnesses...))
	for name, of := range map[string][]string{"none": nil, "one": public[:1], "both": public, "the other, in its own form": {four}, "one twice": {public[0], public[0]}, "one in both forms": {four, public[1]}, "the store's own": {g.key.Public}} {
		g.replaceNote("cosigned, reader trusts "+name, w, cosigned, trust{key: g.key.Public, witnesses: of})
	}
	known := trust{key: g.key.Public, witnesses: public}
	text, sigs, _ := strings.Cut(cosigned, "\n\n")
	lines := strings.SplitAfter(sigs, "\n")
	lines = lines[:len(lines)-1]
	swap := func(line string) string { // one character of the signature
		i := len(line) - 20
		c := byte('A')
		if line[i] == c {
			c = 'B'
		}
		return line[:i] + string(c) + line[i+1:]
	}
	for name, sigs := range map[string]string{
		"bad one of a witness": lines[0] + swap(lines[1]) + lines[2], "bad one of the store": swap(lines[0]) + lines[1] + lines[2], "only witnesses": lines[1] + lines[2],
		"witness first": lines[1] + lines[0] + lines[2], "twice": lines[0] + lines[0] + lines[1], "twice, the second is bad": lines[0] + swap(lines[0]), "twice, the first is bad": swap(lines[0]) + lines[0],
		"none": "", "empty line": "\n" + lines[0], "no dash": strings.TrimPrefix(lines[0], "— ") + lines[0], "no name": "—  AAAAAAAA\n" + lines[0], "no base64": "— x *\n" + lines[0],
		"short one": "— x AAAA\n" + lines[0], "unknown one": "— x AAAAAAAA\n" + lines[0], "unknown loose one": "— x AAAAAAB=\n" + lines[0], "name with plus": "— x+y AAAAAAAA\n" + lines[0],
		"100": strings.Repeat("— x AAAAAAAA\n", 99) + lines[0], "101": strings.Repeat("— x AAAAAAAA\n", 100) + lines[0], "no end": strings.TrimSuffix(lines[0], "\n"),
		"space at the end": strings.TrimSuffix(lines[0], "\n") + " \n", "name with a space": "— x\u3000y AAAAAAAA\n" + lines[0], "name with a next line": "— x\u0085y AAAAAAAA\n" + lines[0], "tab": "— x\ty AAAAAAAA\n" + lines[0],
	} {
		g.replaceNote("signatures: "+name, w, text+"\n\n"+sigs, known)
	}
	g.replaceNote("a checkpoint that is empty", w, "", known)
	g.replaceNote("a checkpoint without an empty line", w, text+"\n"+sigs, known)
	_, other := newKey(g.t, origin)
	g.add("another key", w.bundle(w.content(4)), trust{key: other.Public}, "")
}

// damage adds a bundle with each line missing, repeated, and in another place; cut anywhere; and with a
// changed byte in every kind of place.
func (g *grid) damage() {
	w := g.world(rich(g.t), erased(g.t))
	c, at := w.content(w.size()-1), w.at(5)
	c.Against = &at
	whole := w.bundle(c)
	tr := trust{key: g.key.Public, old: w.checkpoint(5)}
	lines := slices.Collect(bytes.Lines(whole))
	join := func(lines [][]byte) []byte { return bytes.Join(lines, nil) }
	for i := range lines {
		g.add(fmt.Sprintf("line %d gone", i+1), join(slices.Delete(slices.Clone(lines), i, i+1)), tr, "")
		g.add(fmt.Sprintf("line %d twice", i+1), join(slices.Insert(slices.Clone(lines), i, lines[i])), tr, "")
		swapped := slices.Clone(lines)
		swapped[i], swapped[(i+1)%len(lines)] = swapped[(i+1)%len(lines)], swapped[i]
		g.add(fmt.Sprintf("line %d and the next swapped", i+1), join(swapped), tr, "")
		g.add(fmt.Sprintf("cut behind line %d", i+1), join(lines[:i+1]), tr, "")
		g.add(fmt.Sprintf("cut inside line %d", i+1), append(join(lines[:i]), lines[i][:len(lines[i])/2]...), tr, "")
		g.add(fmt.Sprintf("an empty line before line %d", i+1), join(slices.Insert(slices.Clone(lines), i, []byte("\n"))), tr, "")
		if bytes.HasPrefix(lines[i], []byte(`{"kind":"leaf"`)) { // the counts put right, so that no count tells
			head := regexp.MustCompile(`"leaves":\d+`).ReplaceAll(lines[0], fmt.Appendf(nil, `"leaves":%d`, w.size()-2))
			head = regexp.MustCompile(`"from":1,"to":\d+`).ReplaceAll(head, []byte(`"from":0,"to":0`))
			less := slices.Delete(slices.Clone(lines), i, i+1)
			less[0] = head
			g.add(fmt.Sprintf("leaf of line %d never there", i+1), join(less), tr, "")
			less = slices.Clone(less)
			less[0] = regexp.MustCompile(`"from":0,"to":0`).ReplaceAll(head, fmt.Appendf(nil, `"from":1,"to":%d`, w.size()-2))
			g.add(fmt.Sprintf("leaf of line %d never there, in a range", i+1), join(less), tr, "")
		}
	}
	for _, more := range []string{"x", "\n", " ", `{"kind":"leaf"}`, `{"kind":"end","traces":1}`, `{"kind":"end","traces":0}`, `{"kind":"end","traces":0} x`, "\xef\xbb\xbf"} {
		g.add(fmt.Sprintf("%q behind", more), append(bytes.Clone(whole), more...), tr, "")
		g.add(fmt.Sprintf("%q before", more), append([]byte(more), whole...), tr, "")
	}
	second := bytes.Index(whole, []byte(`{"kind":"entry"`)) // and where the second trace begins
	second += bytes.Index(whole[second:], []byte(`{"kind":"head"`))
	second += bytes.IndexByte(whole[second:], '\n') + 1
	first := append(bytes.Clone(whole[:second]), "{\"kind\":\"end\",\"traces\":1}\n"...)
	g.add("an end behind each trace", append(first, bytes.Replace(whole[second:], []byte(`"kind":"end","traces":2`), []byte(`"kind":"end","traces":1`), 1)...), tr, "refused")
	g.flips(whole, tr)
	for _, from := range []string{`"from":2,"to":8`, `"from":1,"to":99`, `"from":0,"to":5`, `"from":5,"to":4`, `"from":1,"to":18446744073709551615`, `"from":1,"to":18446744073709551616`, `"from":01,"to":8`, `"from":-1,"to":8`, `"to":8,"from":1`, `"from":1.0,"to":8`, `"from":1e0,"to":8`, `"from":"1","to":8`, `"from":null,"to":8`} {
		b := regexp.MustCompile(`"from":1,"to":\d+`).ReplaceAll(whole, []byte(from))
		g.add("first line with "+from, b, tr, "")
	}
	for _, of := range [][2]string{{`"proof":[`, `"proof":[null,`}, {`"proof":[`, `"proof": [`}, {`{"kind":"leaf",`, `{"kind":"leaf","more":1,`}, {`"version":"1"`, `"version":"2"`}, {`"version":"1",`, ``}, {`"about":[`, `"about":[1,`},
		{`"about":[`, `"about":["\ud800",`}, {`"about":[`, `"about":["\u0041",`}, {`"about":[`, `"about":["<&>\u2028",`}, {`"about":[`, "\"about\":[\"\u2028\","}, {`"about":[`, "\"about\":[\"\xff\","}, {`"about":[`, `"about":["\u0008",`}, {`"about":[`, `"about":["\b\u001f",`},
		{`"origin":"tgad/test"`, `"origin":""`}, {`"origin":"tgad/test"`, `"origin":"tgad/tess"`}, {`"index":1,`, `"index":2,`}, {`"index":1,`, `"index":0,`}, {`"kind":"prefix","size":5`, `"kind":"prefix","size":0`}, {`"kind":"prefix","size":5`, `"kind":"prefix","size":-5`},
		{`"kind":"prefix","size":5`, `"kind":"prefix","size":999`}, {`"leaves":`, `"leaves":1`}, {`"leaves":`, `"leaves":-`}, {`"traces":2`, `"traces":1`}, {`"traces":2`, `"traces":3`}, {`"traces":2`, `"traces":-2`}, {`"kind":"evidence"`, `"kind":"Evidence"`}} {
		b := bytes.Replace(whole, []byte(of[0]), []byte(of[1]), 1)
		if bytes.Equal(b, whole) {
			g.t.Fatalf("%s is not there", of[0])
		}
		for _, tr := range []trust{tr, {}} {
			g.add(fmt.Sprintf("%s made %s", of[0], of[1]), b, tr, "")
		}
	}
	proof := regexp.MustCompile(`"index":3,.*"proof":\[(.*)\]`).FindSubmatch(whole)[1]
	for _, n := range []int{128, 129} { // at the limit, and one past it
		hashes := `"proof":[` + strings.TrimSuffix(strings.Repeat(`"`+strings.Repeat("A", 43)+`=",`, n), ",") + `]`
		for kind, of := range map[string]*regexp.Regexp{"leaf": regexp.MustCompile(`("kind":"leaf".*)"proof":\[.*?\]`), "prefix": regexp.MustCompile(`("kind":"prefix".*)"proof":\[.*?\]`)} {
			g.add(fmt.Sprintf("%s with a proof of %d hashes", kind, n), of.ReplaceAll(whole, []byte("${1}"+hashes)), tr, "")
		}
	}
	g.add("a proof of one hash more", bytes.Replace(whole, proof, append(bytes.Clone(proof), proof[bytes.LastIndexByte(proof, ','):]...), 1), tr, "")
	g.add("no origin", bytes.Replace(whole, []byte(`"origin":"`+origin+`"`), []byte(`"origin":""`), 1), tr, refused)
	g.add("a line that is too long", bytes.Replace(whole, []byte(`"about":[`), []byte(`"about":["`+strings.Repeat("x", 256<<10)+`",`), 1), tr, "")
}

// token is a piece of JSON.
var tokens = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[-+0-9.eE]+|[a-z]+|.`)

// flips changes bytes of a token of each kind: in each member of each kind of line, the first byte and one
// in the middle.
func (g *grid) flips(whole []byte, tr trust) {
	seen, start := map[string]int{}, 0
	for line := range bytes.Lines(whole) {
		kind, name, n := "", "", 0
		for _, span := range tokens.FindAllIndex(line, -1) {
			text := string(line[span[0]:span[1]])
			if n++; n == 4 {
				kind = text
			}
			if strings.HasPrefix(text, `"`) && span[1] < len(line) && line[span[1]] == ':' {
				name = text
			}
			sign := fmt.Sprint(kind, name, text[:1] == `"`, text == name, len(text) == 1 && !strings.Contains("0123456789", text))
			if seen[sign]++; seen[sign] > 1 {
				continue
			}
			for i, at := range []int{span[0], (span[0] + span[1]) / 2} {
				if i == 1 && at == span[0] {
					continue
				}
				flipped := line[at] ^ []byte{1, 0x20, 0x80}[(len(g.cases))%3]
				g.cases = append(g.cases, tried{name: fmt.Sprintf("byte %d of %s in %.40q is %q", at, name, line, flipped), bundle: whole, at: start + at, byte: flipped, trust: tr})
			}
		}
		start += len(line)
	}
}

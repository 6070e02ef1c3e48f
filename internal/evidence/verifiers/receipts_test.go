package verifiers_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/evidence/bundle"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/runtime"
)

// receipt returns the receipt of a trace under the checkpoint of this size, 0 = under none.
func (w *world) receipt(x *trace, size int64) runtime.Receipt {
	r := runtime.Receipt{TraceID: x.id, Key: w.key.Public}
	if size > 0 {
		r.Checkpoint = string(w.checkpoint(size))
	}
	for _, l := range w.leaves {
		if l.TraceID != x.id {
			continue
		}
		at := runtime.ReceiptLeaf{Index: int64(l.Index), Leaf: l.Append(nil)}
		if int64(l.Index) > size {
			r.Pending++
		} else {
			proof, err := w.tree.Prove(l.Index, size)
			if err != nil {
				w.t.Fatal(err)
			}
			for i := range proof {
				at.Proof = append(at.Proof, proof[i][:])
			}
		}
		r.Leaves = append(r.Leaves, at)
	}
	return r
}

func written(t *testing.T, r runtime.Receipt) []byte {
	t.Helper()
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// receipts adds receipts: believed ones, and ones in which each part is changed.
func (g *grid) receipts() {
	mine, other := rich(g.t), failed(g.t)
	w := g.world(mine, other)
	n := w.size()
	for size := range n + 1 {
		want := bundle.NotCovered
		if w.receipt(mine, size).Pending == 0 {
			want = bundle.Proved
		}
		g.add(fmt.Sprintf("receipt under %d", size), written(g.t, w.receipt(mine, size)), g.mine(), want)
	}
	first := g.world(denied(g.t)) // in a tree of one leaf a proof is empty
	g.add("receipt under the first leaf alone", written(g.t, first.receipt(first.traces[0], 1)), g.mine(), bundle.NotCovered)
	last := len(w.receipt(mine, n).Leaves) - 1
	raw := written(g.t, w.receipt(mine, w.receipt(mine, n).Leaves[last].Index-1))
	g.add("receipt, no key", raw, trust{}, "")
	g.add("receipt, an old checkpoint", raw, trust{key: g.key.Public, old: w.checkpoint(2)}, refused)
	g.spelt(raw)
	g.flips(raw, g.mine())
	for name, change := range map[string]func(r *runtime.Receipt){
		"another's leaf":      func(r *runtime.Receipt) { r.Leaves[1] = w.receipt(other, n).Leaves[1] },
		"another's trace":     func(r *runtime.Receipt) { r.TraceID = other.id },
		"another's proof":     func(r *runtime.Receipt) { r.Leaves[0].Proof = r.Leaves[1].Proof },
		"the first gone":      func(r *runtime.Receipt) { r.Leaves = r.Leaves[1:] },
		"the last gone":       func(r *runtime.Receipt) { r.Leaves = r.Leaves[:last] },
		"one gone":            func(r *runtime.Receipt) { r.Leaves = slices.Delete(r.Leaves, 1, 2) },
		"the notes gone":      func(r *runtime.Receipt) { r.Leaves = slices.Delete(r.Leaves, last-1, last) },
		"one twice":           func(r *runtime.Receipt) { r.Leaves[1] = r.Leaves[0] },
		"none":                func(r *runtime.Receipt) { r.Leaves = []runtime.ReceiptLeaf{} },
		"null":                func(r *runtime.Receipt) { r.Leaves = nil },
		"two swapped":         func(r *runtime.Receipt) { r.Leaves[0], r.Leaves[1] = r.Leaves[1], r.Leaves[0] },
		"another index":       func(r *runtime.Receipt) { r.Leaves[0].Index++ },
		"a huge index":        func(r *runtime.Receipt) { r.Leaves[0].Index = 1<<53 + 2 },
		"no index":            func(r *runtime.Receipt) { r.Leaves[0].Index = 0 },
		"a long proof":        func(r *runtime.Receipt) { r.Leaves[0].Proof = slices.Repeat(r.Leaves[0].Proof, 100) },
		"a proof at limit":    func(r *runtime.Receipt) { r.Leaves[0].Proof = slices.Repeat(r.Leaves[0].Proof[:1], 128) },
		"a proof past it":     func(r *runtime.Receipt) { r.Leaves[0].Proof = slices.Repeat(r.Leaves[0].Proof[:1], 129) },
		"a short hash":        func(r *runtime.Receipt) { r.Leaves[0].Proof[0] = []byte{1} },
		"a short leaf":        func(r *runtime.Receipt) { r.Leaves[0].Leaf = r.Leaves[0].Leaf[:120] },
		"a leaf of format 2":  func(r *runtime.Receipt) { r.Leaves[0].Leaf[8] = 2 },
		"a proof gone":        func(r *runtime.Receipt) { r.Leaves[last].Proof = nil },
		"a proof gone, said":  func(r *runtime.Receipt) { r.Leaves[last].Proof, r.Pending = nil, 1 },
		"pending, not so":     func(r *runtime.Receipt) { r.Pending = 1 },
		"pending below none":  func(r *runtime.Receipt) { r.Pending = -1 },
		"no checkpoint":       func(r *runtime.Receipt) { r.Checkpoint = "" },
		"one that is none":    func(r *runtime.Receipt) { r.Checkpoint = "x" },
		"an older checkpoint": func(r *runtime.Receipt) { r.Checkpoint = string(w.checkpoint(n - 2)) },
		"an older checkpoint, said": func(r *runtime.Receipt) {
			at := r.Leaves[last].Index - 1
			r.Checkpoint, r.Pending = string(w.checkpoint(at)), 1
			for i := range r.Leaves[:last] {
				r.Leaves[i].Proof = w.receipt(mine, at).Leaves[i].Proof
			}
		},
		"another's key":     func(r *runtime.Receipt) { r.Key = "x" },
		"no key of its own": func(r *runtime.Receipt) { r.Key = "" },
		"another head": func(r *runtime.Receipt) {
			forged, err := checkpoint.Checkpoint{Origin: origin, Size: n, Head: tlog.Hash{1}}.Sign(g.key)
			if err != nil {
				g.t.Fatal(err)
			}
			r.Checkpoint = string(forged)
		},
	} {
		r := w.receipt(mine, n)
		change(&r)
		g.add("receipt, "+name, written(g.t, r), g.mine(), "")
		g.add("receipt, "+name+", no key", written(g.t, r), trust{}, "")
	}
	g.unexplained(mine)
	g.handedOver(w, mine)
}

// spelt adds other spellings of one receipt.
func (g *grid) spelt(raw []byte) {
	var indented bytes.Buffer
	if err := json.Indent(&indented, raw, "\t", "  "); err != nil {
		g.t.Fatal(err)
	}
	g.add("receipt with spaces", append([]byte("\n \t\r\n"), indented.Bytes()...), g.mine(), bundle.NotCovered)
	g.add("receipt in another order", canonical(g.t, parse(g.t, raw)), g.mine(), bundle.NotCovered)
	for _, of := range [][2]string{
		{`{"trace_id"`, `{"Trace_id"`}, {`{"trace_id"`, `{"more":1,"trace_id"`}, {`{"trace_id"`, `{"pending":1,"trace_id"`}, {`{"trace_id"`, `{"kind":"receipt","trace_id"`},
		{`{"trace_id"`, `{ "kind":"receipt","trace_id"`}, {`{"index"`, `{"more":1,"index"`}, {`{"index":1,`, `{"index":1.0,`}, {`{"index":1,`, `{"index":1e0,`}, {`{"index":1,`, `{"index":"1",`},
		{`{"index":1,`, `{"index":1.5,`}, {`{"index":1,`, `{"index":null,`}, {`{"index":1,`, `{`}, {`"pending":1`, `"pending":0`}, {`"pending":1`, `"pending":null`}, {`"pending":1`, `"hand_overs":[]`},
		{`"pending":1`, `"hand_overs":null,"pending":1`}, {`"pending":1`, `"hand_overs":[],"pending":1`}, {`"pending":1`, `"hand_overs":[""],"pending":1`}, {`"pending":1`, `"hand_overs":[1],"pending":1`},
		{`"pending":1`, `"hand_overs":["x"],"pending":1`}, {`"pending":1`, `"\u0070ending":1`}, {`"proof":[`, `"proof":[],"p":[`}, {`"proof":[`, `"proof":[null,`}, {`"proof":["`, `"proof":["\u002b`},
		{`"leaf":"A`, `"leaf":"\u0041`}, {`"leaf":"A`, `"leaf":"\n`}, {`==","proof"`, `=\n=","proof"`}, {`"leaves":[`, `"leaves":[null,`}, {`"leaves":[`, `"leaves":[[],`}, {`"key":"`, `"key":"\ud800`},
		{`"key":"`, "\"key\":\"\xff"}, {`"key":"`, `"key":1,"k":"`}, {`"checkpoint":"`, `"checkpoint":"","c":"`}, {`"checkpoint":"`, `"checkpoint":1,"c":"`}, {`}`, `},`},
	} {
		if !bytes.Contains(raw, []byte(of[0])) {
			g.t.Fatalf("a receipt has no %s", of[0])
		}
		g.add(fmt.Sprintf("receipt with %s", of[1]), bytes.Replace(raw, []byte(of[0]), []byte(of[1]), 1), g.mine(), "")
	}
	upper := regexp.MustCompile(`"trace_id":"[^"]*"`).ReplaceAllStringFunc(string(raw), func(s string) string { return `"trace_id"` + strings.ToUpper(s[len(`"trace_id"`):]) })
	g.add("receipt of a TRACE", []byte(upper), g.mine(), refused)
	for _, more := range []string{"{}", "x", "\x00", ",", "\xff", `{"kind":"end","traces":0}`} {
		g.add(fmt.Sprintf("receipt, %q behind", more), append(bytes.Clone(raw), more...), g.mine(), refused)
	}
	for n := range 20 {
		g.add("receipt that was cut", bytes.Clone(raw[:1+n*(len(raw)-1)/20]), g.mine(), refused)
	}
	space := bytes.Repeat([]byte(" "), bundle.MaxReceipt+1)
	g.add("receipt at the limit", append(bytes.Clone(raw), space[:bundle.MaxReceipt-len(raw)]...), g.mine(), bundle.NotCovered)
	g.add("receipt past the limit", append(bytes.Clone(raw), space[:bundle.MaxReceipt-len(raw)+1]...), g.mine(), refused)
	g.add("receipt behind many spaces", append(bytes.Clone(space[:511]), raw...), g.mine(), bundle.NotCovered)
	g.add("receipt behind too many", append(bytes.Clone(space[:512]), raw...), g.mine(), refused)
	deep := `{"trace_id":` + strings.Repeat(`[`, 200) + strings.Repeat(`]`, 200) + `}`
	for _, text := range []string{"{}", "[]", "null", " ", "{", `{"leaves":[]}`, `{"kind":"receipt"}`, deep} {
		g.add(fmt.Sprintf("no receipt: %.30q", text), []byte(text), g.mine(), refused)
	}
}

// unexplained adds appends of nothing, and appends that do not follow from the one before.
func (g *grid) unexplained(mine *trace) {
	for name, change := range map[string]func(*tree.Leaf){
		"nothing":           func(l *tree.Leaf) { l.Entries, l.Notes, l.FirstSeq, l.FirstNote = 0, 0, 0, 0 },
		"a note too many":   func(l *tree.Leaf) { l.FirstNote++ },
		"another head":      func(l *tree.Leaf) { l.HeadDigest[0]++ },
		"an entry as well":  func(l *tree.Leaf) { l.Entries, l.FirstSeq = 1, 5 },
		"an entry too many": func(l *tree.Leaf) { l.Entries, l.FirstSeq = 1, 6 },
		"another note head, by an entry": func(l *tree.Leaf) {
			l.Entries, l.FirstSeq, l.Notes, l.FirstNote = 1, 5, 0, 0
			l.NoteDigest[0]++
		},
	} {
		w := g.world(mine)
		l := w.leaves[len(w.leaves)-1]
		l.FirstNote += uint32(l.Notes)
		change(&l)
		w.append(l)
		g.add("receipt with an append of "+name, written(g.t, w.receipt(mine, w.size())), g.mine(), "")
	}
	w := g.world(traceOf(g.t, chaintest.New(chaintest.Options{Seed: 8, Entries: 1})))
	g.add("receipt of one append", written(g.t, w.receipt(w.traces[0], 1)), g.mine(), bundle.Proved)
	g.add("receipt of one append that is pending", written(g.t, w.receipt(w.traces[0], 0)), g.mine(), bundle.NotCovered)
}

// handedOver adds receipts under a later key.
func (g *grid) handedOver(w *world, mine *trace) {
	_, second := newKey(g.t, origin)
	_, third := newKey(g.t, origin)
	over, err := checkpoint.HandOver(w.at(2), g.key, second)
	if err != nil {
		g.t.Fatal(err)
	}
	r := w.receipt(mine, w.size())
	r.Checkpoint = string(g.sign(w.at(w.size()).Text(), second))
	g.elsewhere(r, over, second)
	for name, overs := range map[string][]string{"handed over": {string(over)}, "not handed over": nil, "twice": {string(over), string(over)}, "badly": {string(over[:len(over)-2])}} {
		r.HandOvers = overs
		for who, key := range map[string]string{"first": g.key.Public, "second": second.Public, "third": third.Public, "no": ""} {
			g.add("receipt, "+name+", reader has "+who+" key", written(g.t, r), trust{key: key}, "")
		}
	}
}

// elsewhere adds receipts of a store whose origin is not the name of its key. r is one under the second key.
func (g *grid) elsewhere(r runtime.Receipt, over []byte, second checkpoint.Signer) {
	moved := func(raw []byte, by ...note.Signer) string {
		text, _, _ := strings.Cut(string(raw), "\n\n")
		return string(g.sign(strings.Replace(text, origin, "elsewhere/"+origin, 1)+"\n", by...))
	}
	alone, both := moved([]byte(r.Checkpoint), g.key), moved([]byte(r.Checkpoint), second)
	overs := []string{moved(over, g.key, second)}
	pending := runtime.Receipt{TraceID: r.TraceID, Key: r.Key, HandOvers: overs}
	for i, l := range r.Leaves {
		l.Proof = nil
		pending.Leaves, pending.Pending = append(pending.Leaves, l), i+1
	}
	r.Checkpoint = alone
	g.add("receipt of another origin", written(g.t, r), g.mine(), bundle.Proved)
	g.add("receipt of another origin, no key", written(g.t, r), trust{}, bundle.OwnKey)
	r.Checkpoint, r.HandOvers = both, overs
	g.add("receipt of another origin, handed over", written(g.t, r), g.mine(), bundle.Proved)
	g.add("receipt of another origin, handed over, second key", written(g.t, r), trust{key: second.Public}, bundle.Proved)
	r.HandOvers = []string{string(over)}
	g.add("receipt of another origin than its hand-over", written(g.t, r), g.mine(), refused)
	g.add("receipt of another origin, pending", written(g.t, pending), g.mine(), bundle.NotCovered)
	pending.HandOvers = append(pending.HandOvers, string(over))
	g.add("receipt of two origins, pending", written(g.t, pending), g.mine(), refused)
}

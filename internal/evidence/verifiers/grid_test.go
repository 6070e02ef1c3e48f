package verifiers_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	fnote "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/tgad/tgad/internal/evidence/bundle"
	"github.com/tgad/tgad/internal/evidence/verifiers"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
)

// verdict is what a program says about a bundle.
type verdict struct {
	Verdict string `json:"verdict"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Damage  bool   `json:"damage"`

	Origin    string   `json:"origin"`
	Size      int64    `json:"size"`
	HandOvers int      `json:"hand_overs"`
	Cosigned  []string `json:"cosigned"`
	GrewFrom  int64    `json:"grew_from"`
	From      uint64   `json:"from"`
	To        uint64   `json:"to"`
	Leaves    int      `json:"leaves"`
	Entries   int      `json:"entries"`
	Notes     int      `json:"notes"`
	Documents int      `json:"documents"`
	Erased    int      `json:"erased"`
	Proved    []string `json:"proved"`
	NotProved []string `json:"not_proved"`
	Traces    [][]any  `json:"traces"`

	// of a receipt
	Trace   string `json:"trace"`
	Appends int    `json:"appends"`
	Pending int    `json:"pending"`
	Head    string `json:"head"`
}

const refused = "refused"

// ours is the verdict of package bundle.
func ours(t *testing.T, c *tried) verdict {
	t.Helper()
	b := bytes.Clone(c.bundle)
	if c.at >= 0 {
		b[c.at] = c.byte
	}
	var witnesses []note.Verifier
	for _, w := range c.witnesses {
		v, err := fnote.NewVerifierForCosignatureV1(w)
		if err != nil {
			t.Fatal(err)
		}
		witnesses = append(witnesses, v)
	}
	trust := bundle.Trust{Key: c.key, Witnesses: witnesses, Old: c.old}
	if bundle.IsReceipt(b[:min(len(b), 512)]) {
		return oursOfReceipt(b, trust)
	}
	r, err := bundle.Verify(bytes.NewReader(b), trust)
	if err != nil {
		return refusal(err)
	}
	v := verdict{
		Verdict: r.Verdict(), Origin: r.Origin, Size: r.Checkpoint.Size, HandOvers: r.HandOvers, GrewFrom: r.GrewFrom, From: r.From, To: r.To, Leaves: r.Leaves,
		Entries: r.Export.Entries, Notes: r.Export.Notes, Documents: r.Export.Documents, Erased: r.Export.Erased, Cosigned: []string{}, Traces: [][]any{},
	}
	for _, s := range r.Cosigned {
		v.Cosigned = append(v.Cosigned, s.Name)
	}
	for _, x := range r.Traces {
		v.Traces = append(v.Traces, []any{x.ID.String(), float64(x.Entries), float64(x.CoveredEntries), float64(x.Notes), float64(x.CoveredNotes), x.State.String()})
	}
	v.Proved, v.NotProved = r.Words()
	return v
}

func refusal(err error) verdict {
	return verdict{Verdict: refused, Code: string(tga.CodeOf(err)), Message: err.Error(), Damage: !bundle.IsUnanswered(err)}
}

func oursOfReceipt(b []byte, trust bundle.Trust) verdict {
	r, err := bundle.VerifyReceipt(b, trust)
	if err != nil {
		return refusal(err)
	}
	v := verdict{
		Verdict: r.Verdict(), Origin: r.Origin, Size: r.Checkpoint.Size, HandOvers: r.HandOvers, Cosigned: []string{}, Entries: int(r.Entries), Notes: int(r.Notes),
		Trace: r.TraceID.String(), Appends: r.Appends, Pending: r.Pending, Head: r.Head.String(),
	}
	proved, open := r.Words()
	v.Proved, v.NotProved = append([]string{}, proved...), open
	return v
}

// input is the cases as the two drivers read them. With want, each case has its verdict, and the driver
// stops at the first different one.
func input(t *testing.T, cases []tried, want []verdict) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	known := map[*byte]int{}
	for i := range cases {
		c := &cases[i]
		base, ok := known[&c.bundle[0]]
		if !ok {
			base = len(known)
			known[&c.bundle[0]] = base
			if err := e.Encode(map[string]any{"base": base, "bundle": base64.StdEncoding.EncodeToString(c.bundle)}); err != nil {
				t.Fatal(err)
			}
		}
		line := map[string]any{"base": base, "at": c.at, "byte": c.byte, "key": c.key, "witnesses": c.witnesses, "old": string(c.old), "name": c.name, "want": ""}
		if want != nil {
			line["want"] = want[i].Verdict
		}
		if err := e.Encode(line); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// program is a verifier that does not use tgad's code, and how it is run over many files.
type program struct {
	name, interpreter, driver string
	source                    []byte
}

var programs = []program{
	{"verify.py", "python3", "testdata/grid.py", verifiers.Python},
	{"verify.html", "node", "testdata/grid.mjs", verifiers.Page},
}

// find returns the path of the interpreter. Neither of them is needed to build or use tgad.
func (p *program) find(t *testing.T) string {
	t.Helper()
	return serial.Program(t, p.interpreter)
}

// run returns the program's verdicts on the cases, with this source.
func (p *program) run(t *testing.T, source, in []byte) ([]verdict, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), p.name)
	if err := os.WriteFile(file, source, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(p.find(t), p.driver, file)
	var stderr strings.Builder
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &stderr
	raw, err := cmd.Output()
	if err != nil && len(raw) == 0 {
		t.Logf("%s: %v\n%.2000s", p.name, err, stderr.String())
		return nil, err
	}
	var out []verdict
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var v verdict
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatalf("%s: %.200s: %v", p.name, lines.Text(), err)
		}
		if v.Verdict == "unable" {
			t.Skipf("%s: %s", p.interpreter, v.Message)
		}
		out = append(out, v)
	}
	return out, nil
}

var theGrid struct {
	once  sync.Once
	cases []tried
	want  []verdict
}

// allCases returns the grid, and the verdict of package bundle on each case.
func allCases(t *testing.T) ([]tried, []verdict) {
	t.Helper()
	theGrid.once.Do(func() {
		_, key := newKey(t, origin)
		g := &grid{t: t, key: key}
		g.good()
		g.keys()
		g.damage()
		g.oldCheckpoints()
		g.inconsistent()
		g.forged()
		g.sealed()
		g.receipts()
		for i := range g.cases {
			theGrid.want = append(theGrid.want, ours(t, &g.cases[i]))
		}
		theGrid.cases = g.cases
	})
	return theGrid.cases, theGrid.want
}

// older is verify.py on the PyPy of Debian 12, whose language is Python 3.9.
var older = program{"verify.py", "pypy3", "testdata/grid.py", verifiers.Python}

// TestVerdictsAreEqual: the three programs give one verdict on every bundle, refuse with the same code, and
// print the same sentences about those that they believe.
func TestVerdictsAreEqual(t *testing.T) {
	cases, want := allCases(t)
	count := map[string]int{}
	for i, c := range cases {
		count[want[i].Verdict]++
		if c.want != "" && want[i].Verdict != c.want {
			t.Errorf("%s: package bundle says %s, %s, want %s", c.name, want[i].Verdict, want[i].Message, c.want)
		}
	}
	t.Logf("%d bundles: %v", len(cases), count)
	in := input(t, cases, nil)
	for _, p := range append(slices.Clone(programs), older) {
		t.Run(p.name+" "+p.interpreter, func(t *testing.T) {
			if p.interpreter == older.interpreter {
				serial.Long(t)
			}
			t.Parallel()
			got, err := p.run(t, p.source, in)
			if err != nil || len(got) != len(cases) {
				t.Fatalf("%d of %d verdicts, %v", len(got), len(cases), err)
			}
			for i, g := range got {
				w := want[i]
				if w.Verdict == refused { // in words of its own
					g.Message = w.Message
				}
				if !reflect.DeepEqual(g, w) {
					t.Errorf("%s:\n got %+v\nwant %+v", cases[i].name, g, w)
				}
			}
		})
	}
}

package verifiers_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/evidence/verifiers"
)

var update = flag.Bool("update", false, "write the digests of the page's scripts and style into its policy")

// TestPageIsAlone: the policy of the page allows only its own scripts and style, by their digests, and the
// page contains nothing that could load more.
func TestPageIsAlone(t *testing.T) {
	digests := func(element string) (out string) {
		for _, m := range regexp.MustCompile(`(?s)<`+element+`[^>]*>(.*?)</`+element+`>`).FindAllSubmatch(verifiers.Page, -1) {
			sum := sha256.Sum256(m[1])
			out += " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
		}
		return out
	}
	want := "default-src 'none'; script-src" + digests("script") + "; style-src" + digests("style") + "; base-uri 'none'; form-action 'none'"
	policy := regexp.MustCompile(`(<meta http-equiv="Content-Security-Policy" content=")([^"]*)`)
	got := policy.FindSubmatch(verifiers.Page)
	if got == nil || string(got[2]) != want {
		t.Errorf("the policy is not that of the page's scripts and style: run go test ./internal/evidence/verifiers -run TestPageIsAlone -update")
		if *update {
			if err := os.WriteFile("verify.html", policy.ReplaceAll(verifiers.Page, []byte("${1}"+want)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if i := bytes.Index(verifiers.Page, []byte("<script")); bytes.Index(verifiers.Page, got[0]) > i {
		t.Error("a script stands before the policy")
	}
	for _, bad := range []string{
		`innerHTML`, `outerHTML`, `insertAdjacentHTML`, `document\.write`, `\beval\b`, `\bFunction\b`, `\bfetch\b`, `XMLHttpRequest`, `WebSocket`, `EventSource`, `sendBeacon`,
		`\bimport\b\s*[({"']`, `https?:`, `\bsrc=`, `\bhref=`, `\son[a-z]+=`, `setAttribute`, `localStorage`, `\burl\(`, `<(iframe|img|link|object|embed|form|base)\b`,
	} {
		if m := regexp.MustCompile(bad).Find(verifiers.Page); m != nil {
			t.Errorf("the page has %q", m)
		}
	}
}

// TestScriptIsAlone: the script uses only parts of Python's library that read and compute.
func TestScriptIsAlone(t *testing.T) {
	allowed := " argparse base64 decimal functools hashlib io json json.decoder json.encoder re sys "
	for _, m := range regexp.MustCompile(`(?m)^\s*(?:import|from) (\S+)`).FindAllSubmatch(verifiers.Python, -1) {
		if !strings.Contains(allowed, " "+string(m[1])+" ") {
			t.Errorf("the script imports %s", m[1])
		}
	}
	if m := regexp.MustCompile(`__import__|\beval\b|\bexec\b|"w"|'w'|"wb"`).Find(verifiers.Python); m != nil {
		t.Errorf("the script has %q", m)
	}
}

// shown is what a page shows: elements with their text.
type shown [][4]string

func (s shown) text() string {
	var b strings.Builder
	for _, e := range s {
		b.WriteString(e[3] + "\n")
	}
	return b.String()
}

func show(t *testing.T, bundle []byte, crypto bool, tr trust) shown {
	t.Helper()
	node := programs[1].find(t)
	in, err := json.Marshal(map[string]any{"bundle": bundle, "key": tr.key, "witnesses": strings.Join(tr.witnesses, "\n"), "old": string(tr.old), "crypto": crypto})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(node, "testdata/page.mjs", "verify.html")
	var stderr strings.Builder
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &stderr
	raw, err := cmd.Output()
	var out shown
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil || len(out) == 0 {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	return out
}

// TestPageShowsVerdictFirst: then what was proved and what was not, then the timeline. Words of the file are
// text. Nothing is shown of a file that is refused.
func TestPageShowsVerdictFirst(t *testing.T) {
	_, key := newKey(t, origin)
	hostile := `{"a":"<script>alert(1)</script>\u202e"}`
	x := traceOf(t, chaintest.New(chaintest.Options{Seed: 7, Notes: 1, Args: strings.ReplaceAll(hostile, `\u202e`, "\u202e")}))
	w := newWorld(t, key, x, erased(t))
	whole, part := w.bundle(w.content(w.size())), w.bundle(w.content(3))
	bad := bytes.Replace(whole, []byte(`alert(1)`), []byte(`alert(2)`), 1)
	mine := trust{key: key.Public}
	old := trust{key: key.Public, old: bytes.ReplaceAll(bytes.TrimSpace(w.checkpoint(w.size())), []byte("\n"), []byte("\r\n"))}
	for _, c := range []struct {
		name   string
		bundle []byte
		crypto bool
		trust
		first, class string
		has, hasNot  []string
	}{
		{"proved", whole, true, mine, "PROVED", "proved", []string{"payments/charge " + `{"a":"<script>alert(1)</script>\u202e"}`, "append 1, under the checkpoint that was signed by the store's key", "erased; its digest is ", "no witness that you trust"}, []string{"not covered"}},
		{"old", whole, true, old, "PROVED", "proved", []string{"The tree grew from your old checkpoint of 10 appends"}, nil},
		{"not covered", part, true, mine, "NOT ALL IS COVERED: some of the file came after the checkpoint", "part", []string{"not covered: nobody"}, nil},
		{"own key", whole, true, trust{}, "NOT PROVED: the file agrees with itself, but only it says whose key signed it", "part", []string{"a key that only the file vouches for", "Whose key that is."}, nil},
		{"receipt", written(t, w.receipt(x, w.size())), true, mine, "PROVED", "proved", []string{"The first 5 appends of trace " + x.id.String() + " are in it.", "What the entries say, which is in an evidence file"}, []string{"What happened"}},
		{"receipt, old", written(t, w.receipt(x, w.size())), true, old, "NO ANSWER", "part", []string{"a receipt does not say what its store grew from"}, nil},
		{"refused", bad, true, mine, "REFUSED: the file is not what it says", "refused", []string{"Nothing of the file is shown"}, []string{"alert", "Trace"}},
		{"later version", bytes.Replace(whole, []byte(`"version":"1"`), []byte(`"version":"2"`), 1), true, mine, "NO ANSWER", "part", []string{"this page reads 1"}, []string{"alert"}},
		{"no WebCrypto", whole, false, mine, "NOTHING WAS CHECKED", "part", []string{"no WebCrypto", "verify.py"}, []string{"alert"}},
		{"no key", whole, true, trust{key: "x"}, "NOTHING WAS CHECKED", "part", []string{"no public key"}, []string{"alert"}},
		{"no witness", whole, true, trust{witnesses: []string{"x"}}, "NOTHING WAS CHECKED", "part", []string{"no public key"}, []string{"alert"}},
		{"no file", nil, true, mine, "NOTHING WAS CHECKED", "part", []string{"Choose a file"}, nil},
	} {
		s := show(t, c.bundle, c.crypto, c.trust)
		if want := [4]string{"p", "verdict", c.class, c.first}; s[0] != want {
			t.Errorf("%s: the page shows first %q, want %q", c.name, s[0], want)
		}
		for _, has := range c.has {
			if !strings.Contains(s.text(), has) {
				t.Errorf("%s: the page does not show %q:\n%s", c.name, has, s.text())
			}
		}
		for _, not := range c.hasNot {
			if strings.Contains(s.text(), not) {
				t.Errorf("%s: the page shows %q:\n%s", c.name, not, s.text())
			}
		}
	}
}

// TestScriptExits: 0 proved, 3 damaged, 2 a wrong command line, 1 everything else.
func TestScriptExits(t *testing.T) {
	_, key := newKey(t, origin)
	_, other := newKey(t, origin)
	w := newWorld(t, key, failed(t), denied(t))
	dir := t.TempDir()
	file := func(name string, b []byte) string {
		path := dir + "/" + name
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	whole := w.bundle(w.content(w.size()))
	good, part := file("good", whole), file("part", w.bundle(w.content(3)))
	bad := file("bad\x1b[2J", bytes.Replace(whole, []byte("charge"), []byte("change"), 1))
	later := file("later", bytes.Replace(whole, []byte(`"version":"1"`), []byte(`"version":"2"`), 1))
	old, same := file("old", w.checkpoint(2)), file("same", w.checkpoint(w.size()))
	for _, c := range []struct {
		name string
		args []string
		exit int
		says string
	}{
		{"proved", []string{"--key", key.Public, good}, 0, ": PROVED\n"},
		{"two files", []string{"--key", key.Public, good, good}, 0, ": PROVED\n"},
		{"with an old checkpoint", []string{"--key", key.Public, "--checkpoint", same, good}, 0, "your old checkpoint of 7 appends"},
		{"damaged", []string{"--key", key.Public, bad}, 3, `bad\x1b[2J: REFUSED`},
		{"one of two is damaged", []string{"--key", key.Public, bad, good}, 3, ": PROVED\n"},
		{"another key", []string{"--key", other.Public, good}, 3, "PERMISSION_DENIED"},
		{"not covered", []string{"--key", key.Public, part}, 1, ": NOT ALL IS COVERED\n"},
		{"no key", []string{good}, 1, ": NOT PROVED"},
		{"no proof for an old checkpoint", []string{"--key", key.Public, "--checkpoint", old, good}, 1, "export it with that checkpoint"},
		{"later version", []string{"--key", key.Public, later}, 1, "FORMAT_TOO_NEW"},
		{"no such file", []string{"--key", key.Public, dir + "/none"}, 1, ""},
		{"no such checkpoint", []string{"--key", key.Public, "--checkpoint", dir + "/none", good}, 1, ""},
		{"no file", []string{"--key", key.Public}, 2, ""},
		{"no key of that kind", []string{"--key", "x", good}, 2, ""},
		{"no witness of that kind", []string{"--witness", "x", good}, 2, ""},
		{"a receipt", []string{"--key", key.Public, file("receipt", written(t, w.receipt(w.traces[0], w.size())))}, 0, ": PROVED\n"},
		{"a receipt, pending", []string{"--key", key.Public, file("pending", written(t, w.receipt(w.traces[0], 1)))}, 1, "Ask for it again."},
		{"a receipt, with an old checkpoint", []string{"--key", key.Public, "--checkpoint", old, dir + "/receipt"}, 1, "what its store grew from"},
		{"as JSON", []string{"--json", "--key", key.Public, good}, 0, `"verdict": "proved"`},
	} {
		cmd := exec.Command(programs[0].find(t), append([]string{"-B", "verify.py"}, c.args...)...)
		out, err := cmd.Output()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		if got := cmd.ProcessState.ExitCode(); got != c.exit || !strings.Contains(string(out), c.says) {
			t.Errorf("%s: exit %d, want %d with %q:\n%s", c.name, got, c.exit, c.says, out)
		}
	}
}

// TestLongNumbersAreReadAtOnce: the author of a file must not be able to make the auditor's page hang. A
// search for zeros at the end of a number that begins again at each zero would take a minute for these.
func TestLongNumbersAreReadAtOnce(t *testing.T) {
	_, key := newKey(t, origin)
	x := traceOf(t, chaintest.New(chaintest.Options{Seed: 7, Args: `{"a":1}`}))
	w := newWorld(t, key, x)
	long := []byte(`{"a":0.1` + strings.Repeat("0", 200_000) + `1}`)
	begun := time.Now()
	s := show(t, bytes.Replace(w.bundle(w.content(w.size())), []byte(`{"a":1}`), long, 1), true, trust{key: key.Public})
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("the page took %v", took)
	}
	if !strings.Contains(s.text(), "is not what its double prints as") {
		t.Errorf("the page shows %s", s.text())
	}
}

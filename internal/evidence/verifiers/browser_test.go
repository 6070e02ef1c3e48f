package verifiers_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/browser"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/evidence/verifiers"
	"github.com/tgad/tgad/internal/serial"
)

// check lets the page check a file, as a person would: it chooses the file, enters the key, and clicks.
func check(b *browser.Browser, page, file, key string) (verdict string, took time.Duration) {
	b.Helper()
	b.Open("file://" + page)
	root := b.Do("DOM.getDocument", nil)["root"].(map[string]any)["nodeId"]
	input := b.Do("DOM.querySelector", map[string]any{"nodeId": root, "selector": "#file"})["nodeId"]
	b.Do("DOM.setFileInputFiles", map[string]any{"nodeId": input, "files": []string{file}})
	began := time.Now()
	b.Value(fmt.Sprintf(`document.getElementById("key").value = %q; document.getElementById("check").click()`, key))
	b.Until(10*time.Minute, "the page comes to a verdict", `!document.getElementById("check").disabled && !!document.getElementById("verdict")`)
	return b.Value(`document.getElementById("verdict").textContent`).(string), time.Since(began)
}

// TestPageInABrowser: the page as an auditor opens it from a disk, with its own policy in force.
func TestPageInABrowser(t *testing.T) {
	serial.Long(t)
	dir := t.TempDir()
	write := func(name string, raw []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	page := write("verify.html", verifiers.Page)
	_, key := newKey(t, origin)
	x := traceOf(t, chaintest.New(chaintest.Options{Seed: 7, Notes: 1, Args: `{"a":"<script>document.title='hit'</script><img src=x onerror=\"document.title='hit'\">"}`}))
	w := newWorld(t, key, x, erased(t))
	whole := w.bundle(w.content(w.size()))
	b := browser.New(t)
	for _, c := range []struct {
		name, key, want string
		bundle          []byte
		traces          float64
	}{
		{"whole", key.Public, "PROVED", whole, 2},
		{"part", key.Public, "NOT ALL IS COVERED", w.bundle(w.content(3)), 2},
		{"no key", "", "NOT PROVED", whole, 2},
		{"changed", key.Public, "REFUSED", bytes.Replace(whole, []byte("onerror"), []byte("onError"), 1), 0},
		{"cut", key.Public, "REFUSED", whole[:len(whole)-30], 0},
		{"an end more", key.Public, "REFUSED", append(bytes.Clone(whole), `{"kind":"end","traces":0}`...), 0},
		{"no key at all", "x", "NOTHING WAS CHECKED", whole, 0},
	} {
		verdict, _ := check(b, page, write(c.name, c.bundle), c.key)
		if !strings.HasPrefix(verdict, c.want) {
			t.Errorf("%s: %s, want %s", c.name, verdict, c.want)
		}
		if got := b.Value(`document.querySelectorAll("h3").length`); got != c.traces {
			t.Errorf("%s: %v traces are shown, want %v", c.name, got, c.traces)
		}
		if got := b.Value(`document.title + document.querySelectorAll("script, img").length`); strings.Contains(got.(string), "hit") || !strings.HasSuffix(got.(string), "2") {
			t.Errorf("%s: the file became part of the page: %v", c.name, got)
		}
	}
	// A file as large as an audit of a year may be.
	var many []*trace
	for seed := range uint64(10_000) {
		many = append(many, traceOf(t, chaintest.New(chaintest.Options{Seed: 100 + seed, Notes: 1})))
	}
	w = newWorld(t, key, many...)
	large := w.bundle(w.content(w.size()))
	verdict, took := check(b, page, write("large", large), key.Public)
	if !strings.HasPrefix(verdict, "PROVED") || b.Value(`document.querySelectorAll("h3").length`) != 10_000.0 {
		t.Errorf("10,000 traces: %s", verdict)
	}
	t.Logf("%v for 10,000 traces, %d appends, %d MiB", took.Round(100*time.Millisecond), w.size(), len(large)>>20)
}

package verifiers_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/evidence/verifiers"
	"github.com/tgad/tgad/internal/serial"
)

// browser is a real one with one page, which is told what to do through a pair of pipes.
type browser struct {
	*testing.T
	in      io.Writer
	out     *bufio.Reader
	session string
	number  int
}

// newBrowser starts Chromium. One that is missing is a failure: who runs these tests wants them run.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Fatal("there is no chromium: apt-get install chromium")
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	// Without its sandbox, which root cannot have: the page is ours.
	cmd := exec.Command(path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	b := &browser{T: t, in: in, out: bufio.NewReaderSize(out, 1<<20)}
	t.Cleanup(func() {
		b.do("Browser.close", nil)
		if err := cmd.Wait(); err != nil {
			t.Log(err)
		}
		in.Close()
		out.Close()
	})
	target := b.do("Target.createTarget", map[string]any{"url": "about:blank"})
	b.session = b.do("Target.attachToTarget", map[string]any{"targetId": target["targetId"], "flatten": true})["sessionId"].(string)
	return b
}

// do has the browser do something, and returns what it answers.
func (b *browser) do(method string, params map[string]any) map[string]any {
	b.Helper()
	b.number++
	message := map[string]any{"id": b.number, "method": method}
	if params != nil {
		message["params"] = params
	}
	if b.session != "" && method != "Browser.close" {
		message["sessionId"] = b.session
	}
	raw, err := json.Marshal(message)
	if err == nil {
		_, err = b.in.Write(append(raw, 0))
	}
	for err == nil {
		var answer struct {
			ID     int
			Result map[string]any
			Error  *struct{ Message string }
		}
		if raw, err = b.out.ReadBytes(0); err != nil {
			break
		}
		if err = json.Unmarshal(raw[:len(raw)-1], &answer); err != nil || answer.ID != b.number {
			continue // an event
		}
		if answer.Error != nil {
			b.Fatalf("%s: %s", method, answer.Error.Message)
		}
		return answer.Result
	}
	if method != "Browser.close" { // it may be gone before it answers
		b.Fatalf("%s: %v", method, err)
	}
	return nil
}

// value computes an expression on the page.
func (b *browser) value(expression string) any {
	b.Helper()
	answer := b.do("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true})
	if e, failed := answer["exceptionDetails"]; failed {
		b.Fatalf("%s: %v", expression, e)
	}
	return answer["result"].(map[string]any)["value"]
}

// check has the page check a file, as a person would: it chooses the file, puts in the key, clicks.
func (b *browser) check(page, file, key string) (verdict string, took time.Duration) {
	b.Helper()
	b.do("Page.navigate", map[string]any{"url": "file://" + page})
	for end := time.Now().Add(time.Minute); b.value(`document.readyState + String(!!document.getElementById("check"))`) != "completetrue"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatal("the page does not load")
		}
	}
	root := b.do("DOM.getDocument", nil)["root"].(map[string]any)["nodeId"]
	input := b.do("DOM.querySelector", map[string]any{"nodeId": root, "selector": "#file"})["nodeId"]
	b.do("DOM.setFileInputFiles", map[string]any{"nodeId": input, "files": []string{file}})
	began := time.Now()
	b.value(fmt.Sprintf(`document.getElementById("key").value = %q; document.getElementById("check").click()`, key))
	for end := time.Now().Add(10 * time.Minute); b.value(`!document.getElementById("check").disabled && !!document.getElementById("verdict")`) != true; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatal("the page comes to no verdict")
		}
	}
	return b.value(`document.getElementById("verdict").textContent`).(string), time.Since(began)
}

// TestPageInABrowser: the page as an auditor opens it, from a disk, with its own policy in force.
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
	b := newBrowser(t)
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
		verdict, _ := b.check(page, write(c.name, c.bundle), c.key)
		if !strings.HasPrefix(verdict, c.want) {
			t.Errorf("%s: %s, want %s", c.name, verdict, c.want)
		}
		if got := b.value(`document.querySelectorAll("h3").length`); got != c.traces {
			t.Errorf("%s: %v traces are shown, want %v", c.name, got, c.traces)
		}
		if got := b.value(`document.title + document.querySelectorAll("script, img").length`); strings.Contains(got.(string), "hit") || !strings.HasSuffix(got.(string), "2") {
			t.Errorf("%s: the file became part of the page: %v", c.name, got)
		}
	}
	// One as large as an audit of a year may be.
	var many []*trace
	for seed := range uint64(10_000) {
		many = append(many, traceOf(t, chaintest.New(chaintest.Options{Seed: 100 + seed, Notes: 1})))
	}
	w = newWorld(t, key, many...)
	large := w.bundle(w.content(w.size()))
	verdict, took := b.check(page, write("large", large), key.Public)
	if !strings.HasPrefix(verdict, "PROVED") || b.value(`document.querySelectorAll("h3").length`) != 10_000.0 {
		t.Errorf("10,000 traces: %s", verdict)
	}
	t.Logf("%v for 10,000 traces, %d appends, %d MiB", took.Round(100*time.Millisecond), w.size(), len(large)>>20)
}

package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

var update = flag.Bool("update", false, "write what pages show of a run anew")

// The indexes of some recipes in the list.
const (
	mail  = 1
	push  = 3
	order = 4
	file  = 7
)

// recipes are the tools of docs/COOKBOOK.md, in the page's order.
var recipes = []struct {
	title, server, tool, licence string
	args                         func(w *kitchen, key string) string
	again                        bool // a second send adds nothing, so the tool may run twice
}{
	{"payment", "pay", "charge", "dedupe_key", func(*kitchen, string) string { return `{"amount":4200}` }, false},
	{"e-mail", "mail", "send", "park", func(*kitchen, string) string { return `{"to":"ann@example.com"}` }, false},
	{"e-mail, searched", "letters", "send", "probe", func(*kitchen, string) string { return `{"to":"ann@example.com"}` }, false},
	{"git push", "git", "push", "probe", func(w *kitchen, key string) string {
		return fmt.Sprintf(`{"branch":%q,"onto":%q,"commit":%q}`, key, w.onto, w.commit)
	}, false},
	{"SQL", "shop", "add_order", "probe", func(_ *kitchen, key string) string { return fmt.Sprintf(`{"item":%q,"quantity":3}`, key) }, false},
	{"shell, any command", "shell", "run", "park", func(_ *kitchen, key string) string { return fmt.Sprintf(`{"command":"echo %s >> lines"}`, key) }, false},
	{"shell, a copy", "shell", "publish", "dedupe_args", func(*kitchen, string) string { return `{}` }, true},
	{"file", "files", "put", "dedupe_args", func(_ *kitchen, key string) string { return fmt.Sprintf(`{"name":%q,"content":"one"}`, key) }, true},
	{"ticket", "tickets", "create", "probe", func(*kitchen, string) string { return `{"title":"the printer is on fire"}` }, false},
}

// TestCookbookThroughKills runs all configurations of docs/COOKBOOK.md in one daemon, which is killed with
// SIGKILL while each tool has a call: before it does anything, after it did everything, and after its answer
// is on disk. The effects are counted outside of tgad. The page states the results.
func TestCookbookThroughKills(t *testing.T) {
	w := newKitchen(t)
	w.p.start()
	var rows []string
	for _, point := range []string{before, after, recorded} {
		rows = append(rows, w.round(point)...)
	}
	w.settled()
	w.changed()
	if out, code := w.p.run("verify"); code != 0 {
		t.Errorf("verify: exit code %d\n%s", code, out)
	}
	// By recipe, in the page's order.
	var table strings.Builder
	table.WriteString("| recipe | licence | killed at | sent | done | the call | asked again |\n|---|---|---|---:|---:|---|---|\n")
	for i := range recipes {
		for round := range 3 {
			table.WriteString(rows[round*len(recipes)+i])
		}
	}
	w.compare(table.String())
}

// Points of a call at which the daemon is killed.
const (
	before   = "before"
	after    = "after"
	recorded = "recorded"
)

// round makes one call of each tool, kills the daemon at one point of all of them, and returns the result of
// each.
func (w *kitchen) round(point string) []string {
	w.t.Helper()
	if point != recorded {
		w.hold(point)
	}
	traces, ended := make([]tga.ID, len(recipes)), make(chan error, len(recipes))
	for i, r := range recipes {
		traces[i] = tga.ID(uuid.Must(uuid.NewV7()))
		w.traces[w.key(i, point)] = traces[i]
		req := runtime.Request{TraceID: traces[i], Server: r.server, Tool: r.tool, Key: w.key(i, point), Args: []byte(r.args(w, w.key(i, point)))}
		go func() {
			res, err := w.p.call(context.Background(), req)
			if err == nil && res.State != tga.Completed {
				err = fmt.Errorf("%s %s: %s %s", r.server, r.tool, res.State, res.ErrorMessage)
			}
			ended <- err
		}()
	}
	if point == recorded {
		for range recipes {
			if err := <-ended; err != nil {
				w.t.Fatal(err)
			}
		}
	} else if err := waitFor(func() error { return w.allAre(point) }); err != nil {
		w.t.Fatal(err)
	}
	w.p.end(syscall.SIGKILL)
	if point != recorded {
		for range recipes {
			if err := <-ended; err == nil {
				w.t.Errorf("%s: a call had its answer before the kill", point)
			}
		}
	}
	w.release()
	w.p.start()
	var rows []string
	for i, r := range recipes {
		key := w.key(i, point)
		became := w.became(traces[i])
		sent, done := w.sent(i, key), w.done(i, key)
		res, err := w.p.call(context.Background(), runtime.Request{Server: r.server, Tool: r.tool, Key: key, Args: []byte(r.args(w, key))})
		again := "the recorded answer"
		if errors.Is(err, tga.EffectInDoubt) {
			again = "`EFFECT_IN_DOUBT`"
		} else if err != nil || res.State != tga.Completed || !res.Replayed {
			w.t.Errorf("%s, killed %s, asked again: %+v, %v", r.title, point, res, err)
		}
		if w.sent(i, key) != sent || w.done(i, key) != done {
			w.t.Errorf("%s, killed %s: asking again sent it again", r.title, point)
		}
		switch doubt := strings.HasPrefix(became, "in doubt"); {
		case done > 1 && !r.again:
			w.t.Errorf("%s, killed %s: done %d times", r.title, point, done)
		case !doubt && done < 1:
			w.t.Errorf("%s, killed %s: completed, and nothing was done", r.title, point)
		case doubt && sent != 1, doubt != (err != nil):
			w.t.Errorf("%s, killed %s: %s, sent %d times; then %v", r.title, point, became, sent, err)
		}
		rows = append(rows, fmt.Sprintf("| %s | `%s` | %s | %d | %d | %s | %s |\n", r.title, r.licence, point, sent, done, became, again))
	}
	return rows
}

// became waits until a call has ended, or until only a person can end it: it is parked, or the tool was
// asked twice and could not tell.
func (w *kitchen) became(trace tga.ID) string {
	w.t.Helper()
	var said string
	err := waitFor(func() error {
		list, err := w.p.client.InDoubt(context.Background())
		if err != nil {
			return err
		}
		for _, d := range list {
			if d.TraceID != trace {
				continue
			}
			if d.Doubt.Licence == "park" || d.Doubt.Answer == "unknown" && d.Doubt.Probes > 1 {
				said = "in doubt"
				return nil
			}
			return fmt.Errorf("%s: %+v", trace, d.Doubt)
		}
		state, err := w.p.client.State(context.Background(), trace)
		if err == nil && state.Current != tga.Completed {
			err = fmt.Errorf("%s is %s", trace, state.Current)
		}
		said = "completed"
		return err
	})
	if err != nil {
		w.t.Error(err)
	}
	if out, _ := w.p.run("show", trace.String()); strings.Contains(out, "settled by probe") {
		said += ", as the tool says"
	}
	return said
}

// settled settles the mails in doubt as a person does: it sends the mail that was never sent, and not the
// other one.
func (w *kitchen) settled() {
	w.t.Helper()
	for point, outcome := range map[string]string{before: "not-run", after: "ran"} {
		key := w.key(mail, point)
		args := []string{"resolve", w.traces[key].String(), "--outcome", outcome, "--evidence", "the sent folder"}
		if outcome == "ran" {
			args = append(args, "--result", `{"accepted":true}`)
		}
		out, code := w.p.run(args...)
		if code != 0 {
			w.t.Errorf("resolve: exit code %d\n%s", code, out)
		}
		if res, err := w.p.call(context.Background(), runtime.Request{Server: "mail", Tool: "send", Key: key, Args: []byte(recipes[mail].args(w, key)), Retry: outcome == "not-run"}); err != nil || res.State != tga.Completed {
			w.t.Errorf("the mail killed %s, settled as %s: %+v, %v", point, outcome, res, err)
		}
		if n := w.done(mail, key); n != 1 {
			w.t.Errorf("the mail killed %s, settled as %s, was sent %d times", point, outcome, n)
		}
	}
}

// changed changes an uploaded file from outside: its record must not be served if confirmation is requested.
func (w *kitchen) changed() {
	w.t.Helper()
	key := w.key(file, recorded)
	req := runtime.Request{Server: "files", Tool: "put", Key: key, Args: []byte(recipes[file].args(w, key)), Replay: true}
	if res, err := w.p.call(context.Background(), req); err != nil || !res.Replayed {
		w.t.Errorf("the file as it was written: %+v, %v", res, err)
	}
	w.write("desk/store/"+key, "two")
	if res, err := w.p.call(context.Background(), req); !errors.Is(err, tga.ConfirmationMismatch) && res.ErrorCode != tga.ConfirmationMismatch {
		w.t.Errorf("the file that was changed: %+v, %v", res, err)
	}
}

// compare compares the table of the page with the results.
func (w *kitchen) compare(found string) {
	w.t.Helper()
	const name = "../../docs/COOKBOOK.md"
	raw, err := os.ReadFile(name)
	if err != nil {
		w.t.Fatal(err)
	}
	place := regexp.MustCompile(`(?s)(<!-- what a kill does: [^\n]* -->\n\n).*?(\n<!-- end -->)`)
	want := place.ReplaceAllString(string(raw), "${1}"+strings.ReplaceAll(found, "$", "$$")+"${2}")
	if *update && !w.t.Failed() {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			w.t.Fatal(err)
		}
	} else if want != string(raw) {
		w.t.Errorf("%s has another table: go test ./cmd/tgad -run TestCookbookThroughKills -update. Found:\n%s", name, found)
	}
}

// python returns the interpreter, and puts it first in PATH: there the python3 may be a script.
func python(t *testing.T) string {
	t.Helper()
	path := serial.Program(t, "python3")
	t.Setenv("PATH", filepath.Dir(path)+":"+os.Getenv("PATH"))
	return path
}

// kitchen is a daemon with all tools of the page, and the world outside that they act on.
type kitchen struct {
	t            *testing.T
	p            *process
	provider     *provider
	onto, commit string // of the pushes
	traces       map[string]tga.ID
}

// waiting is the tool server of the page. It waits where the test says so and notes its requests. It stands
// in front of the shipped program, so that the program itself has nothing for tests in it.
const waiting = `
import os, time
import cookbook

work, ask = cookbook.call, cookbook.answer

def answer(method, params):
    if method != "tools/call" or params["name"] in ("remote_head", "find_order"):
        return ask(method, params)
    name = params["name"] + "." + params["_meta"]["dev.tgad/idempotencyKey"]
    at("before", name)
    result = ask(method, params)
    at("after", name)
    return result

def at(point, name):
    file = os.open("../" + point + "." + name, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.write(file, b".")
    os.close(file)
    while os.path.exists("../hold." + point):
        time.sleep(0.005)
        if not os.path.exists("../hold." + point):
            os._exit(1)  # its daemon was killed

cookbook.answer = answer
cookbook.serve()
`

func newKitchen(t *testing.T) *kitchen {
	t.Helper()
	python(t)
	w := &kitchen{t: t, p: newProcess(t), provider: newProvider(t), traces: map[string]tga.ID{}}
	page, err := os.ReadFile("../../docs/COOKBOOK.md")
	if err != nil {
		t.Fatal(err)
	}
	var config strings.Builder
	for _, block := range fences.FindAllStringSubmatch(string(page), -1) {
		if block[1] == "toml" {
			config.WriteString(block[2])
		}
	}
	text := regexp.MustCompile(`https://[a-z.]+\.example`).ReplaceAllString(config.String(), w.provider.URL)
	text = regexp.MustCompile(`(max_in_flight|settle) = "[^"]+"`).ReplaceAllString(text, `$1 = "300ms"`)
	w.write("tgad.toml", text)
	w.write("pay.headers", "Authorization: Bearer secret\n")
	w.repository()
	kept, err := os.ReadFile("../../examples/cookbook/tools.py")
	if err != nil {
		t.Fatal(err)
	}
	w.write("desk/cookbook.py", string(kept))
	w.write("desk/tools.py", waiting)
	for _, dir := range []string{"desk/store", "desk/site"} {
		if err := os.MkdirAll(filepath.Join(w.p.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	w.write("desk/site/index.html", "<p>hello")
	w.shelf()
	return w
}

// inStock returns the stock of the item of each order.
const inStock = 100

func (w *kitchen) database() *sql.DB {
	w.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(w.p.dir, "desk", "shop.db"))
	if err != nil {
		w.t.Fatal(err)
	}
	return db
}

// shelf has some of each item that is going to be ordered.
func (w *kitchen) shelf() {
	w.t.Helper()
	db := w.database()
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE stock (item TEXT PRIMARY KEY, quantity INTEGER)"); err != nil {
		w.t.Fatal(err)
	}
	for _, point := range []string{before, after, recorded} {
		if _, err := db.Exec("INSERT INTO stock VALUES (?, ?)", w.key(order, point), inStock); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *kitchen) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.p.dir, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// repository makes a remote that notes each push, and a clone of it with a commit to push.
func (w *kitchen) repository() {
	w.t.Helper()
	git := func(args ...string) string {
		cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"}, args...)...)
		cmd.Dir = w.p.dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			w.t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q", "--bare", "origin.git")
	git("clone", "-q", "origin.git", "desk")
	git("-C", "desk", "commit", "-q", "--allow-empty", "-m", "one")
	w.onto = git("-C", "desk", "rev-parse", "HEAD")
	git("-C", "desk", "commit", "-q", "--allow-empty", "-m", "two")
	w.commit = git("-C", "desk", "rev-parse", "HEAD")
	for _, point := range []string{before, after, recorded} {
		git("-C", "desk", "push", "-q", "origin", w.onto+":refs/heads/"+w.key(push, point))
	}
	hook := filepath.Join(w.p.dir, "origin.git", "hooks", "post-receive")
	if err := os.WriteFile(hook, []byte("#!/bin/sh\ncat >> "+filepath.Join(w.p.dir, "pushes")+"\n"), 0o700); err != nil {
		w.t.Fatal(err)
	}
}

func (w *kitchen) key(recipe int, point string) string { return fmt.Sprintf("%s-%d", point, recipe) }

// hold lets every tool wait at a point from now on.
func (w *kitchen) hold(point string) {
	w.write("hold."+point, "")
	w.provider.hold(point)
}

func (w *kitchen) release() {
	w.provider.release()
	for _, point := range []string{before, after} {
		if err := os.Remove(filepath.Join(w.p.dir, "hold."+point)); err != nil && !errors.Is(err, os.ErrNotExist) {
			w.t.Fatal(err)
		}
	}
}

// came returns how often calls reached a point of their tool.
func (w *kitchen) came(recipe int, point, key string) int {
	r := recipes[recipe]
	if n, ok := w.provider.came(r.server, point, key); ok {
		return n
	}
	info, err := os.Stat(filepath.Join(w.p.dir, point+"."+r.tool+"."+key))
	if err != nil {
		return 0 // none came
	}
	return int(info.Size())
}

// allAre reports whether the call of each tool is at a point.
func (w *kitchen) allAre(point string) error {
	for i, r := range recipes {
		if w.came(i, point, w.key(i, point)) != 1 {
			return fmt.Errorf("the call of %s %s is not at the point %s", r.server, r.tool, point)
		}
	}
	return nil
}

func (w *kitchen) sent(recipe int, key string) int { return w.came(recipe, before, key) }

// done counts what was done under a key, in the world outside.
func (w *kitchen) done(recipe int, key string) int {
	w.t.Helper()
	count := func(file, line string) int {
		raw, err := os.ReadFile(filepath.Join(w.p.dir, file))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			w.t.Fatal(err)
		}
		return strings.Count(string(raw), line)
	}
	switch r := recipes[recipe]; r.tool {
	case "push":
		return count("pushes", "refs/heads/"+key+"\n")
	case "run":
		return count("desk/lines", key+"\n")
	case "add_order":
		db := w.database()
		defer db.Close()
		var n, left int
		if err := errors.Join(
			db.QueryRow("SELECT count(*) FROM orders WHERE item = ?", key).Scan(&n),
			db.QueryRow("SELECT quantity FROM stock WHERE item = ?", key).Scan(&left)); err != nil {
			w.t.Fatal(err)
		}
		if left != inStock-3*n {
			w.t.Errorf("%d orders of 3 pieces, and of %d there are %d left", n, inStock, left)
		}
		return n
	case "publish", "put":
		if _, err := os.Stat(filepath.Join(w.p.dir, "desk", map[string]string{"publish": "public/index.html", "put": "store/" + key}[r.tool])); err != nil && w.came(recipe, after, key) > 0 {
			w.t.Error(err)
		}
		return w.came(recipe, after, key)
	default:
		return w.provider.acts(r.server, key)
	}
}

package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/daemon"
	"github.com/tgad/tgad/internal/daemon/embed"
	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/runtime/workstate/hostdir"
	"github.com/tgad/tgad/schemas/tga"
)

// held is a store with one trace of each kind that the reading verbs show.
type held struct {
	t                     *testing.T
	data, config          string
	done, doubt, question string // traces
	state, call           string // a working state, and a boundary of it
}

// heldConfig is the configuration of these traces. No server answers at its address.
const heldConfig = `
[[server]]
id = "lost"
type = "http"
url = "ADDRESS"

[[server]]
id = "x"
type = "external"

[[server]]
id = "down"
type = "http"
url = "http://127.0.0.1:1"

[[rule]]
tool = "ask"
decision = "NEEDS_APPROVAL"

[[rule]]
decision = "APPROVE"
`

// serves runs a daemon for the store until the returned function is called.
func (h *held) serves(socket string) (stop func()) {
	h.t.Helper()
	conf, err := assemble.Parse("", []byte(h.config))
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- daemon.Run(ctx, daemon.Options{Data: h.data, Socket: socket, Config: conf, Logger: slog.New(slog.DiscardHandler), Ready: func() { close(ready) }})
	}()
	select {
	case <-ready:
	case err := <-ended:
		h.t.Fatal(err)
	}
	return func() {
		cancel()
		if err := <-ended; err != nil {
			h.t.Error(err)
		}
	}
}

func newHeld(t *testing.T) *held {
	t.Helper()
	dir, err := os.MkdirTemp("", "tgad-held") // the path of t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	hangsUp := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(hangsUp.Close)
	h := &held{t: t, data: filepath.Join(dir, "data"), config: strings.Replace(heldConfig, "ADDRESS", hangsUp.URL, 1)}
	if err := os.WriteFile(filepath.Join(dir, "tgad.toml"), []byte(h.config), 0o600); err != nil {
		t.Fatal(err)
	}
	h.keepState()
	defer h.serves(filepath.Join(dir, "s"))()
	c := client.New(filepath.Join(dir, "s"), client.Options{})
	defer c.Close()
	begin := func(tool string) runtime.Begun {
		b, err := c.Begin(t.Context(), runtime.BeginRequest{Request: runtime.Request{Server: "x", Tool: tool, Key: uuid.NewString(), Args: []byte(`{"n":1}`)}, BeginID: uuid.NewString()})
		if err != nil && !strings.HasPrefix(err.Error(), "ESCALATION_REQUIRED") {
			t.Fatal(err)
		}
		return b
	}
	done := begin("done")
	doubt, err := c.Call(t.Context(), runtime.Request{Server: "lost", Tool: "doubt", Key: uuid.NewString(), Args: []byte(`{"n":1}`)})
	if tga.CodeOf(err) != tga.EffectInDoubt {
		t.Fatalf("%+v %v", doubt, err)
	}
	if _, err := c.Finish(t.Context(), done.Result.TraceID, done.Permit, runtime.Finished{Reply: runtime.Reply{Status: "SUCCESS", Result: []byte(`1`)}}); err != nil {
		t.Fatal(err)
	}
	begin("ask")
	waits, err := c.Approvals(t.Context())
	if err != nil || len(waits) != 1 {
		t.Fatalf("%d questions, %v", len(waits), err)
	}
	h.done, h.doubt, h.question = done.Result.TraceID.String(), doubt.TraceID.String(), waits[0].TraceID.String()
	return h
}

// keepState makes the store with a working state in it.
func (h *held) keepState() {
	h.t.Helper()
	k := &keptState{h.t, filepath.Dir(h.data), "01936a8b-4c2d-7000-8000-0000000000b0"}
	k.write(k.at("work/file"), "0")
	k.use(k.at("work"), nil, func(s *workstate.State, _ *hostdir.Dir) {
		k.edit(s, k.at("work/file"), "1")
		h.state, h.call = k.id, s.List()[0].ID
	})
}

// says runs one command line in this process.
func says(args ...string) (code int, stdout, stderr string) {
	var out, errs strings.Builder
	code = run(args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

// reading are the verbs that change nothing, each with a text that it must show.
func (h *held) reading() [][]string {
	conf := filepath.Join(filepath.Dir(h.data), "tgad.toml")
	return [][]string{
		// the last word is looked for in the output
		{"ls", h.doubt}, {"ls", "--all", h.done}, {"ls", "--state", "PENDING", h.question},
		{"show", h.done, "COMPLETED"}, {"show", h.doubt, "EXECUTING"},
		{"tail", h.done}, {"tail", h.done, "tool_effect"},
		{"in-doubt", h.doubt}, {"approvals", h.question},
		{"export", h.done}, {"export", h.done, h.done},
		{"verify", "3 traces"}, {"verify", h.done, "1 traces"},
		{"state", "ls", h.state}, {"state", "show", h.state, h.call}, {"state", "show", h.state, h.call, "hostdir.Dir"},
		{"state", "diff", h.state, h.call, "--files", "M file"}, {"state", "rollback", h.state, h.call, "--plan", "back to before"},
		{"agent", "ls", "WAITS FOR"},
		{"rollback-plan", h.done, "--config", conf, "stands"},
	}
}

// TestReadingVerbsWorkWhoeverHasTheStore tries every reading verb on the store that --data names
// while a daemon has it, a shim has it, or nobody has it; and on stores that are frozen, missing,
// or not accessible to the user.
func TestReadingVerbsWorkWhoeverHasTheStore(t *testing.T) {
	t.Setenv("TGAD_SOCKET", "")
	h := newHeld(t)
	above := filepath.Dir(h.data)
	shim := func() (stop func()) {
		e, err := embed.Start(t.Context(), h.data, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return e.Close
	}
	frozen := filepath.Join(above, "frozen")
	if err := engine.Restore(t.Context(), h.data, frozen, engine.Options{}); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(above, "missing")
	for _, row := range []struct {
		name, data string
		holder     func() (stop func())
		code       int
		stderr     string
	}{
		{"daemon", h.data, func() func() { return h.serves(filepath.Join(above, "s")) }, 0, ""},
		{"shim", h.data, shim, 0, ""},
		{"nobody", h.data, nil, 0, ""},
		{"frozen", frozen, nil, 0, ""},
		{"missing", missing, nil, 1, "tgad: NOT_FOUND: "},
		{"closed", filepath.Join(above, "closed", "data"), func() func() { return closeDir(t, filepath.Join(above, "closed")) }, 1, "permission denied"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.holder != nil {
				defer row.holder()()
			}
			for _, verb := range h.reading() {
				args, want := append([]string{"--data", row.data}, verb[:len(verb)-1]...), verb[len(verb)-1]
				args[0], args[1], args[2] = args[2], args[0], args[1] // the verb first
				code, out, errs := says(args...)
				if code != row.code || row.code == 0 && !strings.Contains(out, want) || !strings.Contains(errs, row.stderr) {
					t.Errorf("%v: exit code %d, want %d, and %q\nstdout %s\nstderr %s", args, code, row.code, want, out, errs)
				}
			}
			for _, verb := range [][]string{{"call", "x", "done", "--key", "k"}, {"recover"}, {"compensate", h.done}, {"tail", "-f"}} {
				if row.name != "nobody" {
					break
				}
				// A verb that needs a daemon says so, and does not start one.
				if code, out, errs := says(append(verb, "--data", row.data)...); code != 1 || !strings.Contains(errs, "tgad serve") {
					t.Errorf("%v: exit code %d\nstdout %s\nstderr %s", verb, code, out, errs)
				}
			}
		})
	}
	for _, args := range [][]string{nil, {"--config", filepath.Join(above, "other.toml")}} {
		if err := os.WriteFile(filepath.Join(above, "other.toml"), []byte("[[server]]\nid = \"y\"\ntype = \"external\"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, errs := says(append([]string{"rollback-plan", h.done, "--data", h.data}, args...)...)
		if code != 1 || !strings.Contains(errs, `no tool server "x" is configured`) || !strings.Contains(errs, "--config") {
			t.Errorf("rollback-plan %v: exit code %d %s", args, code, errs)
		}
	}
	// A store whose files cannot be read cannot be opened by anybody.
	mark := filepath.Join(frozen, "WATERMARK")
	if err := os.Remove(mark); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(mark, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, verb := range [][]string{{"ls"}, {"verify"}, {"resolve", h.doubt, "--outcome", "ran", "--evidence", "e"}, {"serve"}} {
		if code, _, errs := says(append(verb, "--data", frozen)...); code != 5 || !strings.Contains(errs, "WATERMARK") {
			t.Errorf("%v: exit code %d %s", verb, code, errs)
		}
	}
	if _, err := os.Stat(missing); err == nil {
		t.Error("a reading verb made a directory")
	}
	if code, _, errs := says("ls", "--data", h.data, "--socket", "x"); code != 2 {
		t.Errorf("two places: %d %s", code, errs)
	}
}

// closeDir makes a directory that this thread's user cannot enter. Root can enter every one,
// so the thread gives that up until the test's goroutine ends, and the thread with it.
func closeDir(t *testing.T, dir string) (open func()) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	withoutRoot(t)
	return func() {}
}

// TestNoVerbHoldsWhatItReadsFor: after a reading verb, and after a daemon, the store is free, and no file in
// it names a socket.
func TestNoVerbHoldsWhatItReadsFor(t *testing.T) {
	h := newHeld(t)
	if _, ok := daemon.SocketOf(h.data); ok {
		t.Error("the daemon ended, and the store names its socket")
	}
	for range 2 {
		if code, _, errs := says("ls", "--data", h.data); code != 0 {
			t.Fatal(errs)
		}
	}
	// A daemon that was killed leaves its file, and by now its socket may belong to another daemon.
	other := newHeld(t)
	socket := filepath.Join(filepath.Dir(other.data), "s")
	defer other.serves(socket)()
	if err := os.WriteFile(filepath.Join(h.data, engine.SocketName), []byte(socket+"\n1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := says("ls", "--all", "--data", h.data); code != 0 || !strings.Contains(out, h.done) {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if got, ok := daemon.SocketOf(other.data); !ok || got != socket {
		t.Errorf("the store names %q, %v", got, ok)
	}
	if err := os.WriteFile(filepath.Join(other.data, engine.SocketName), []byte(socket+"\n1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, ok := daemon.SocketOf(other.data); ok {
		t.Errorf("%q is believed, and the store's holder did not write it", got)
	}
}

// TestSettlingWithoutADaemonTouchesNothingElse: without a daemon a settling verb opens the store itself. It
// knows no tool server then, so it continues no other call.
func TestSettlingWithoutADaemonTouchesNothingElse(t *testing.T) {
	h := newHeld(t)
	_, before, _ := says("export", "--data", h.data, h.question)
	if code, out, errs := says("resolve", h.doubt, "--outcome", "ran", "--evidence", "seen", "--data", h.data); code != 0 || !strings.Contains(out, "COMPLETED") {
		t.Fatalf("%d %s%s", code, out, errs)
	}
	if _, after, _ := says("export", "--data", h.data, h.question); after != before || after == "" {
		t.Errorf("the question was\n%s and is\n%s", before, after)
	}
	if code, out, errs := says("backup", filepath.Join(filepath.Dir(h.data), "copy"), "--data", h.data); code != 0 {
		t.Errorf("%d %s%s", code, out, errs)
	}
}

// TestRefusedCallsNameNoTraceThatIsNot: a refusal names a trace only if the trace exists.
func TestRefusedCallsNameNoTraceThatIsNot(t *testing.T) {
	h := newHeld(t)
	socket := filepath.Join(filepath.Dir(h.data), "s")
	defer h.serves(socket)()
	for _, args := range [][]string{
		{"x", "done"}, // no key
		{"x", "done", `{"a":1,"a":2}`, "--key", "k1"}, // not strict
		{"x", "/done", "--key", "k2"},                 // no name
		{"none", "done", "--key", "k3"},               // no server
		{"down", "ask", "--key", "k4"},                // waits for a person
		{"x", "done", "--key", "k5"},                  // nobody here sends to an external server
		{"x", "done", `{"n":2}`, "--key", "k5"},       // a conflict
		{"x", "done", "--key", strings.Repeat("k", 256)},
		{"x", "done", "--key", "k6", "--namespace", strings.Repeat("n", 300)},
	} {
		code, out, errs := says(append([]string{"call", "--socket", socket}, args...)...)
		if code == 0 {
			t.Errorf("%v: %s", args, out)
		}
		for line := range strings.Lines(errs) {
			if id, ok := strings.CutPrefix(strings.TrimSpace(line), "trace "); ok {
				if code, _, shown := says("show", "--socket", socket, strings.TrimSpace(id)); code != 0 {
					t.Errorf("%v: %s\nshow: %s", args, errs, shown)
				}
			}
		}
	}
}

// TestShellCompletesTracesAndWords: the ids come from the store, whichever process has it open.
func TestShellCompletesTracesAndWords(t *testing.T) {
	t.Setenv("TGAD_SOCKET", "")
	h := newHeld(t)
	t.Setenv("TGAD_DATA", h.data)
	all := []string{h.done, h.doubt, h.question}
	for _, row := range []struct {
		args []string
		want []string
	}{
		{[]string{"show", ""}, all},
		{[]string{"show", "--data", h.data, ""}, all},
		{[]string{"show", h.done, ""}, nil},
		{[]string{"show", "x"}, nil},
		{[]string{"verify", ""}, all},
		{[]string{"export", h.done, ""}, []string{h.doubt, h.question}},
		{[]string{"resolve", ""}, []string{h.doubt}},
		{[]string{"abandon", h.doubt[:20]}, []string{h.doubt}},
		{[]string{"approve", ""}, []string{h.question}},
		{[]string{"recover", ""}, []string{h.doubt, h.question}},
		{[]string{"ls", "--state", ""}, []string{"PENDING", "AUTHORIZED", "EXECUTING", "COMPLETED", "FAILED", "DENIED"}},
		{[]string{"resolve", "--outcome", ""}, []string{"ran", "failed", "not-run"}},
		{[]string{"call", "--risk", ""}, []string{"READ", "WRITE", "HIGH_RISK"}},
	} {
		_, out, _ := says(append([]string{"__complete"}, row.args...)...)
		var got []string
		for line := range strings.Lines(out) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			if !strings.HasPrefix(word, ":") {
				got = append(got, word)
			}
		}
		slices.Sort(got)
		slices.Sort(row.want)
		if !slices.Equal(got, row.want) {
			t.Errorf("%v: %q, want %q", row.args, got, row.want)
		}
	}
}

package killtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/killtest/adapter"
	"github.com/tgad/tgad/internal/killtest/engines"
)

// TestMain runs this binary as an adapter if a test has started it as one.
func TestMain(m *testing.M) {
	if name := os.Getenv("KILLTEST_ADAPTER"); name != "" {
		if e, ok := planted[name]; ok {
			adapter.Main(e)
		}
		if e, ok := engines.Named()[name]; ok {
			adapter.Main(e)
		}
		os.Exit(hostile(name))
	}
	os.Exit(m.Run())
}

// adapterNamed is the command of an adapter of this binary.
func adapterNamed(t *testing.T, name string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	env, err := exec.LookPath("env")
	if err != nil {
		t.Fatal(err)
	}
	return []string{env, "KILLTEST_ADAPTER=" + name, self}
}

func runNamed(t *testing.T, name string, calls int, dedupes bool) (*Result, error) {
	t.Helper()
	return Run(context.Background(), Options{
		Command: adapterNamed(t, name), Calls: calls, Dedupes: dedupes, Seed: 7, Dir: t.TempDir(), Patience: time.Minute,
	})
}

// planted are engines with one fault each.
var planted = map[string]adapter.Engine{
	"doubles":  book("doubles", func(b *books) { b.twice = true }),
	"loses":    book("loses", func(b *books) { b.forgets = true }),
	"lies":     book("lies", func(b *books) { b.denies = true }),
	"invents":  book("invents", func(b *books) { b.invents = true }),
	"memory":   book("memory", func(b *books) { b.memory = map[string]adapter.Answer{} }),
	"careful":  book("careful", func(*books) {}),
	"children": book("children", func(b *books) { b.children = true }),
	"leaves":   book("leaves", func(b *books) { b.children, b.leaves = true, true }),
	"servers":  serving,
}

// books is an engine that is right except for its fault: it writes down that it is about to charge, and
// afterwards the result.
type books struct {
	dir                                               string
	world                                             adapter.World
	twice, forgets, denies, invents, children, leaves bool
	memory                                            map[string]adapter.Answer // where it keeps what it should write to disk
}

func book(name string, plant func(*books)) adapter.Engine {
	return adapter.Engine{Name: name, Start: func(_ context.Context, dir string, world adapter.World) (adapter.Worker, error) {
		b := &books{dir: dir, world: world}
		plant(b)
		return b, nil
	}}
}

func (b *books) Call(ctx context.Context, key string, amount int) (adapter.Answer, error) {
	if a, err := b.read(key); err != nil || a.Outcome != adapter.Unknown {
		return a, err
	}
	if b.memory != nil {
		_, err := adapter.Charge(ctx, b.world, key, amount)
		b.memory[key] = adapter.Answer{Outcome: adapter.Completed}
		return b.memory[key], err
	}
	if b.invents {
		return b.write(key, adapter.Completed)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "child")); b.children && os.IsNotExist(err) { // one in a run
		child := exec.Command("sleep", "3600")
		child.Stdout = os.Stdout // the harness sees that it ended
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: b.leaves}
		if err := child.Start(); err != nil {
			return adapter.Answer{}, err
		}
		pid := []byte(fmt.Sprint(child.Process.Pid))
		if err := os.WriteFile(filepath.Join(b.dir, "child"), pid, 0o600); err != nil {
			return adapter.Answer{}, err
		}
	}
	if _, err := b.write(key, adapter.InDoubt); err != nil {
		return adapter.Answer{}, err
	}
	if _, err := adapter.Charge(ctx, b.world, key, amount); err != nil {
		return adapter.Answer{}, err
	}
	if b.twice {
		if _, err := adapter.Charge(ctx, b.world, key, amount); err != nil {
			return adapter.Answer{}, err
		}
	}
	if b.denies {
		return b.write(key, adapter.Failed)
	}
	return b.write(key, adapter.Completed)
}

func (b *books) Status(_ context.Context, key string) (adapter.Answer, error) {
	if b.forgets {
		return adapter.Answer{Outcome: adapter.Unknown}, nil
	}
	if a, ok := b.memory[key]; ok {
		return a, nil
	}
	return b.read(key)
}

func (b *books) read(key string) (adapter.Answer, error) {
	raw, err := os.ReadFile(filepath.Join(b.dir, key))
	if os.IsNotExist(err) {
		return adapter.Answer{Outcome: adapter.Unknown}, nil
	}
	return adapter.Answer{Outcome: adapter.Outcome(raw)}, err
}

func (b *books) write(key string, o adapter.Outcome) (adapter.Answer, error) {
	at := filepath.Join(b.dir, key)
	if err := os.WriteFile(at+".new", []byte(o), 0o600); err != nil {
		return adapter.Answer{}, err
	}
	return adapter.Answer{Outcome: o}, os.Rename(at+".new", at)
}

// serving keeps its books in a process that is not killed: a file represents it.
var serving = func() adapter.Engine {
	e := book("servers", func(*books) {})
	e.Servers = func(_ context.Context, dir string) (func() error, error) {
		at := filepath.Join(dir, "server")
		return func() error { return os.Rename(at, at+".stopped") }, os.WriteFile(at, nil, 0o600)
	}
	return e
}()

// hostile are adapters that do not speak the protocol.
func hostile(name string) int {
	lines := adapter.NewLines(os.Stdin)
	say := func(text string) { fmt.Println(text) }
	for i := 1; ; i++ {
		line, err := lines.Next()
		if err != nil {
			return 0
		}
		ok := fmt.Sprintf(`{"id":1,"engine":%q}`, name)
		switch {
		case bytes.Contains(line, []byte(`"op":"serve"`)):
			say(ok) // each process numbers its requests from 1
		case name == "exits":
			fmt.Fprintln(os.Stderr, "out of order\x1b[2J")
			return 3
		case name == "silent":
			time.Sleep(time.Hour)
		case name == "garbage":
			say("\x00\x1b[2J not json")
		case name == "half a line":
			fmt.Print(`{"id":1,"eng`)
			return 0
		case name == "another id":
			say(`{"id":2,"engine":"x"}`)
		case name == "nameless":
			say(`{"id":1}`)
		case name == "refuses":
			say(`{"id":1,"error":"no licence key\u001b[2J"}`)
		case name == "longest line":
			say(padded(adapter.MaxLine))
		case name == "longer line":
			say(padded(adapter.MaxLine + 1))
		case i == 1:
			say(ok)
		case name == "no outcome":
			say(`{"id":2}`)
		case name == "strange outcome":
			say(`{"id":2,"outcome":"probably"}`)
		case name == "unknown call":
			say(`{"id":2,"outcome":"unknown"}`)
		case name == "of before":
			say(`{"id":2,"error":"op \"load\" is none of serve, start, call and status"}`)
		case name == "idle":
			say(`{"id":2,"loaded":{"calls":0,"ms":1,"p50_us":1,"p99_us":1}}`)
		}
	}
}

// padded returns an answer to start of n bytes.
func padded(n int) string {
	text := `{"id":1,"engine":"` + "%s" + `"}`
	return fmt.Sprintf(text, strings.Repeat("e", n-len(text)+2))
}

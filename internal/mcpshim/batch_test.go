package mcpshim

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBatchIsTakenApartAndAnsweredWhole(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.handshake()
	h.write(`[{"jsonrpc":"2.0","id":1,"method":"echo","params":{"n":9007199254740993}},` +
		`{"jsonrpc":"2.0","method":"notifications/x"},` +
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"charge","arguments":{}}},` +
		`{"jsonrpc":"2.0","id":3,"method":"ping","Method":"tools/call"}, 7,` +
		`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"charge","arguments":{"a":1,"a":2}}}]`)
	var all []json.RawMessage
	line := h.readLine()
	if err := json.Unmarshal([]byte(line), &all); err != nil || len(all) != 5 {
		t.Fatalf("got %s, %v", line, err)
	}
	has(t, line, `"n":9007199254740993`, `"text":"ok"`, `"id":3,"error"`, `"id":null,"error"`, "/params/arguments/a")
	if n := len(w.effects()); n != 1 {
		t.Errorf("%d effects", n)
	}
	for _, bad := range []string{`[]`, `[`, `[` + strings.Repeat(`{},`, maxBatch) + `{}]`} {
		h.write(bad)
		has(t, h.readLine(), `"id":null,"error"`)
	}
}

func TestBookSharesAndSurvives(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book")
	a, err := openBook(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := openBook(path)
	if err != nil {
		t.Fatal(err)
	}
	set := func(b *book, name, value string) {
		t.Helper()
		if err := b.change(name, func(string) string { return value }); err != nil {
			t.Fatal(err)
		}
	}
	is := func(b *book, name, want string) {
		t.Helper()
		if got, err := b.get(name); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", name, got, err, want)
		}
	}
	set(a, "x y\n", "1")
	is(b, "x y\n", "1")
	set(b, "x y\n", "2")
	is(a, "x y\n", "2")
	// A line that a crash cut short says nothing, and spoils no other.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("eHl6 MTI"); err != nil {
		t.Fatal(err)
	}
	is(a, "x y\n", "2")
	set(b, "z", "3")
	is(a, "z", "3")
	set(a, "z", "")
	c, err := openBook(path)
	if err != nil {
		t.Fatal(err)
	}
	is(c, "x y\n", "2")
	is(c, "z", "")
	is(c, "xyz", "")
}

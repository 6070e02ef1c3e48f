package mcpfront

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
)

func TestLongMessagesStream(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	h.Call("1", "charge", `{"warm":1}`)
	go func() {
		for i := range 5 {
			fmt.Fprintf(h.In, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"charge","arguments":{"mib":10,"i":%d}}}`+"\n", 10+i, i)
		}
	}()
	for range 5 {
		line := h.ReadLine()
		if n := len(line); n < 10<<20 || n > 10<<20+200 {
			t.Fatalf("%d bytes: %.200s", n, line)
		}
	}
	// The answer is recorded whole and served whole.
	if got := h.Call("20", "charge", `{"mib":10,"i":1}`, `{"dev.tgad/idempotencyKey":"k"}`); len(got) < 10<<20 {
		t.Errorf("%d bytes", len(got))
	}
	if got := h.Call("21", "charge", `{"mib":10,"i":1}`, `{"dev.tgad/idempotencyKey":"k"}`); len(got) < 10<<20 || !strings.Contains(got, "replayed") {
		t.Errorf("%d bytes", len(got))
	}
	// An answer that is too long to keep still arrives, and only its digest is recorded.
	if got := h.Call("22", "charge", `{"mib":12}`, `{"dev.tgad/idempotencyKey":"l"}`); len(got) < 12<<20 {
		t.Errorf("%d bytes: %.300s", len(got), got)
	}
	fronttest.Has(t, h.Call("23", "charge", `{"mib":12}`, `{"dev.tgad/idempotencyKey":"l"}`), "too long to be kept", "LIMIT_EXCEEDED")
	if n := len(w.Effects()); n != 8 {
		t.Errorf("%d effects", n)
	}
}

// TestBadMessageBehindBlanksIsDropped: a client may read a message of the tool server's that does not pass, and take it for an answer that
// was recorded. That holds too if blanks or a byte order mark stand before it. Other noise passes.
func TestBadMessageBehindBlanksIsDropped(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	for _, blanks := range []string{"", " ", `\t`, `\r`, ` \r`, `\ufeff`, "hello "} {
		h.Ask("1", "say", `{"line":"`+blanks+`{\"result\":{},\"Result\":{},\"id\":1}"}`)
		if got := strings.Join(h.Said, "\n"); strings.Contains(got, "Result") != (blanks == "hello ") {
			t.Errorf("behind %q: the client hears %q", blanks, got)
		}
	}
}

// TestBadFramesFromEitherSide: after 10,000 lines of noise and malformed messages from each side
// the shim still works, and none of them was sent ungoverned.
func TestBadFramesFromEitherSide(t *testing.T) {
	const lines = 10_000
	rnd := rand.New(rand.NewPCG(1, 2))
	bits := []string{
		`{"jsonrpc":"2.0"`, `"id":1`, `"id":"x"`, `"id":null`, `"method":"tools/call"`, `"Method":"tools/call"`, `"method":"ping"`,
		`"method":"notifications/cancelled"`, `"params":{"requestId":1}`, `"params":{"name":"charge","arguments":{"a":1,"a":2}}`,
		`"params":{"name":"charge","arguments":{"n":9007199254740993}}`, `"params":null`, `"params":[]`, `"result":{}`, `"error":{}`, `"error":7`,
		`}`, `{`, `[`, `]`, `,`, `:`, `"`, `\`, "\x00", "\xff\xfe", `\ud800`, ` `, "\t", `1e999`, `"params":{"name":"charge"}`, `[[[[[[[[`,
	}
	noise := func() string {
		var b strings.Builder
		for range rnd.IntN(8) {
			b.WriteString(bits[rnd.IntN(len(bits))])
			if rnd.IntN(3) > 0 {
				b.WriteByte(',')
			}
		}
		switch rnd.IntN(10) {
		case 0:
			b.WriteString(strings.Repeat("x", rnd.IntN(100_000)))
		case 1, 2, 3:
			b.WriteByte('}')
		}
		return strings.ReplaceAll(b.String(), "\n", " ")
	}
	t.Run("client", func(t *testing.T) {
		w := newWorld(t)
		h := w.start()
		h.Handshake()
		var all strings.Builder
		governed := 0
		for range lines {
			line := noise()
			all.WriteString(line + "\n")
			if f := frames.NewFrame([]byte(line)); f.Bad == "" && f.Method == "tools/call" {
				governed++
			}
		}
		go func() {
			io.WriteString(h.In, all.String())
			h.Write(`{"jsonrpc":"2.0","id":"last","method":"echo","params":{"z":1}}`)
		}()
		fronttest.Has(t, h.Answer(`"last"`), `"z":1`)
		for _, e := range w.Effects() {
			fronttest.Has(t, e.Line, `"dev.tgad/traceId"`)
		}
		t.Logf("%d lines, %d of them tools/call, %d effects", lines, governed, len(w.Effects()))
	})
	t.Run("server", func(t *testing.T) {
		w := newWorld(t)
		path := w.Dir + "/noise"
		var all strings.Builder
		for range lines {
			all.WriteString(strings.ReplaceAll(noise(), "\x00", "") + "\n")
		}
		if err := os.WriteFile(path, []byte(all.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		w.opts.Command = []string{"/bin/sh", "-c", `cat "$0"; exec "$1"`, path, fronttest.FakeProgram()}
		h := w.start()
		h.Write(`{"jsonrpc":"2.0","id":"last","method":"echo","params":{"z":1}}`)
		var got string
		for got == "" {
			if line := h.ReadLine(); strings.Contains(line, `"z":1`) {
				got = line
			}
		}
		fronttest.Has(t, h.Call("5", "charge", `{}`), `"ok"`)
	})
}

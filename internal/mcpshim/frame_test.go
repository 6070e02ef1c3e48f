package mcpshim

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/tgad/tgad/runtime/mcp/mcpraw"
)

func TestAmbiguousMessagesDoNotPass(t *testing.T) {
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","METHOD":"tools/call"}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","\u006dethod":"tools/call"}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","Params":{}}`,
		`{"jsonrpc":"2.0","id":1,"id":2,"result":{}}`,
		`{"jsonrpc":"2.0","id":{},"method":"ping"}`,
		`{"jsonrpc":"2.0","id":true,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":01,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":1,"method":7}`,
		`{"jsonrpc":"2.0","id":1,"method":""}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping"} {}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping"`,
		`{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("m", 300) + `"}`,
		`{"jsonrpc":"2.0","id":1}`,
		`{"jsonrpc":,"id":1,"method":"ping"}`,
		`"ping"`, `7`, `nil`, `{`, `{]`, `{"a"}`, `{"a":}`, `{,}`,
	} {
		if f := newFrame([]byte(line)); f.Bad == "" {
			t.Errorf("%s passes as %+v", line, f.Envelope)
		}
	}
	for line, want := range map[string]mcpraw.Envelope{
		`{"jsonrpc":"2.0","id":1,"method":"tools\/call","params":{"a":1}}`: {Method: "tools/call", RawID: []byte("1")},
		` { "method" : "x" , "id" : "a" , "params" : [ 1 , {"id":2} ] } `:  {Method: "x", RawID: []byte(`"a"`)},
		`{"\u0069d":3,"method":"x"}`:                                       {Method: "x", RawID: []byte("3")},
		`{"jsonrpc":"2.0","method":"notifications/x","id":null}`:           {Method: "notifications/x"},
		`{"result":{"id":9,"method":"y"},"jsonrpc":"2.0","id":5}`:          {RawID: []byte("5")},
		`{"id":-1.5e3,"error":{"code":1,"message":"\"}"},"jsonrpc":"2.0"}`: {RawID: []byte("-1.5e3")},
	} {
		f := newFrame([]byte(line))
		if f.Bad != "" || f.Method != want.Method || !bytes.Equal(f.RawID, want.RawID) {
			t.Errorf("%s: %+v (%s)", line, f.Envelope, f.Bad)
		}
		for _, s := range []mcpraw.Span{f.ID, f.Params, f.Result, f.Fault} {
			if b, err := f.bytes(s, 1<<20); err != nil || s.Present() && bytes.TrimSpace(b)[0] != b[0] {
				t.Errorf("%s: span %v is %q, %v", line, s, b, err)
			}
		}
	}
}

func TestLongMessagesStream(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.handshake()
	h.call("1", "charge", `{"warm":1}`)
	go func() {
		for i := range 5 {
			fmt.Fprintf(h.in, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"charge","arguments":{"mib":10,"i":%d}}}`+"\n", 10+i, i)
		}
	}()
	for range 5 {
		line := h.readLine()
		if n := len(line); n < 10<<20 || n > 10<<20+200 {
			t.Fatalf("%d bytes: %.200s", n, line)
		}
	}
	// Recorded whole, and served whole.
	if got := h.call("20", "charge", `{"mib":10,"i":1}`, `{"dev.tgad/idempotencyKey":"k"}`); len(got) < 10<<20 {
		t.Errorf("%d bytes", len(got))
	}
	if got := h.call("21", "charge", `{"mib":10,"i":1}`, `{"dev.tgad/idempotencyKey":"k"}`); len(got) < 10<<20 || !strings.Contains(got, "replayed") {
		t.Errorf("%d bytes", len(got))
	}
	// Longer than what is kept: it still arrives, and is recorded by its digest.
	if got := h.call("22", "charge", `{"mib":12}`, `{"dev.tgad/idempotencyKey":"l"}`); len(got) < 12<<20 {
		t.Errorf("%d bytes: %.300s", len(got), got)
	}
	has(t, h.call("23", "charge", `{"mib":12}`, `{"dev.tgad/idempotencyKey":"l"}`), "too long to be kept", "LIMIT_EXCEEDED")
	if n := len(w.effects()); n != 8 {
		t.Errorf("%d effects", n)
	}
}

// TestLongMessageTakesLittleMemory: what passes is not held.
func TestLongMessageTakesLittleMemory(t *testing.T) {
	r, wr := io.Pipe()
	const size = 200 << 20
	go func() {
		io.WriteString(wr, `{"jsonrpc":"2.0","result":"`)
		chunk := bytes.Repeat([]byte("x"), 1<<20)
		for range size >> 20 {
			wr.Write(chunk)
		}
		io.WriteString(wr, "\",\"id\":77}\n")
		wr.Close()
	}()
	in := newFrames(r, 0)
	in.dir = t.TempDir()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f, err := in.next()
	if err != nil {
		t.Fatal(err)
	}
	n, err := f.WriteTo(io.Discard)
	runtime.ReadMemStats(&after)
	if err != nil || n != size+37 || string(f.RawID) != "77" {
		t.Errorf("%d bytes, id %q, %v", n, f.RawID, err)
	}
	if grew := after.TotalAlloc - before.TotalAlloc; grew > 8<<20 {
		t.Errorf("%d bytes were allocated for a message of %d", grew, size)
	}
	f.close()
	if left, _ := os.ReadDir(in.dir); len(left) != 0 {
		t.Errorf("%d files are left", len(left))
	}
}

func TestFrameLimit(t *testing.T) {
	line := func(n int) string { return `{"id":5,"method":"` + strings.Repeat("m", n-20) + `"}` }
	for n, pass := range map[int]bool{100: true, 101: false} {
		in := newFrames(strings.NewReader(line(n)+"\n"+`{"id":6,"method":"x"}`+"\n"), 100)
		f, err := in.next()
		if err != nil || (f.Bad == "") != pass || string(f.RawID) != "5" || f.size != int64(n) {
			t.Errorf("%d bytes: %+v, %v", n, f, err)
		}
		if f, err = in.next(); err != nil || f.Method != "x" {
			t.Errorf("the message after it: %+v, %v", f, err)
		}
	}
}

// TestBadFramesFromEitherSide: 10,000 lines of noise and half-right messages from each
// side leave the shim working, and none of them is sent ungoverned.
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
		h.handshake()
		var all strings.Builder
		governed := 0
		for range lines {
			line := noise()
			all.WriteString(line + "\n")
			if f := newFrame([]byte(line)); f.Bad == "" && f.Method == "tools/call" {
				governed++
			}
		}
		go func() {
			io.WriteString(h.in, all.String())
			h.write(`{"jsonrpc":"2.0","id":"last","method":"echo","params":{"z":1}}`)
		}()
		has(t, h.answer(`"last"`), `"z":1`)
		for _, e := range w.effects() {
			has(t, e.Line, `"dev.tgad/traceId"`)
		}
		t.Logf("%d lines, %d of them tools/call, %d effects", lines, governed, len(w.effects()))
	})
	t.Run("server", func(t *testing.T) {
		w := newWorld(t)
		path := w.dir + "/noise"
		var all strings.Builder
		for range lines {
			all.WriteString(strings.ReplaceAll(noise(), "\x00", "") + "\n")
		}
		if err := os.WriteFile(path, []byte(all.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		w.opts.Command = []string{"/bin/sh", "-c", `cat "$0"; exec "$1"`, path, os.Args[0]}
		h := w.start()
		h.write(`{"jsonrpc":"2.0","id":"last","method":"echo","params":{"z":1}}`)
		var got string
		for got == "" {
			if line := h.readLine(); strings.Contains(line, `"z":1`) {
				got = line
			}
		}
		has(t, h.call("5", "charge", `{}`), `"ok"`)
	})
}

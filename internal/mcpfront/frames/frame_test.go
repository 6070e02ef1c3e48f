package frames

import (
	"bytes"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/mcpraw"
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
		`{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}`,
		`{"jsonrpc":"2.0","method":"ping","id":1,"error":{}}`,
		`{"jsonrpc":,"id":1,"method":"ping"}`,
		`"ping"`, `7`, `nil`, `{`, `{]`, `{"a"}`, `{"a":}`, `{,}`,
	} {
		if f := NewFrame([]byte(line)); f.Bad == "" {
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
		f := NewFrame([]byte(line))
		if f.Bad != "" || f.Method != want.Method || !bytes.Equal(f.RawID, want.RawID) {
			t.Errorf("%s: %+v (%s)", line, f.Envelope, f.Bad)
		}
		for _, s := range []mcpraw.Span{f.ID, f.Params, f.Result, f.Fault} {
			if b, err := f.Bytes(s, 1<<20); err != nil || s.Present() && bytes.TrimSpace(b)[0] != b[0] {
				t.Errorf("%s: span %v is %q, %v", line, s, b, err)
			}
		}
	}
}

// TestIdsAreComparedAsNumbers: a peer may write a numeric id in another form, and its answer is still found.
func TestIdsAreComparedAsNumbers(t *testing.T) {
	for asked, answered := range map[string]string{"7": "7.0", "-0": "0", "-0.0": "0", "1e3": "1000.0", `"\u0061"`: `"a"`} {
		if KeyOf([]byte(asked)) != KeyOf([]byte(answered)) {
			t.Errorf("%s is not %s", asked, answered)
		}
	}
	for one, other := range map[string]string{"7": `"7"`, "9007199254740993": "9007199254740992", "0": `"0"`} {
		if KeyOf([]byte(one)) == KeyOf([]byte(other)) {
			t.Errorf("%s is %s", one, other)
		}
	}
}

// TestLongMessageTakesLittleMemory: a long message that passes is not kept in memory.
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
	in := NewFrames(r, 0)
	in.Dir = t.TempDir()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f, err := in.Next()
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
	f.Close()
	if left, _ := os.ReadDir(in.Dir); len(left) != 0 {
		t.Errorf("%d files are left", len(left))
	}
}

func TestFrameLimit(t *testing.T) {
	line := func(n int) string { return `{"id":5,"method":"` + strings.Repeat("m", n-20) + `"}` }
	for n, pass := range map[int]bool{100: true, 101: false} {
		in := NewFrames(strings.NewReader(line(n)+"\n"+`{"id":6,"method":"x"}`+"\n"), 100)
		f, err := in.Next()
		if err != nil || (f.Bad == "") != pass || string(f.RawID) != "5" || f.Size != int64(n) {
			t.Errorf("%d bytes: %+v, %v", n, f, err)
		}
		if f, err = in.Next(); err != nil || f.Method != "x" {
			t.Errorf("the message after it: %+v, %v", f, err)
		}
	}
}

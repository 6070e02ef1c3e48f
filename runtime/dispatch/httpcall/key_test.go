package httpcall

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// readKey reads a key back as docs/PROTOCOL.md tells authors of tool servers to.
func readKey(t *testing.T, text string) string {
	t.Helper()
	inner, ok := strings.CutPrefix(text, `%"`)
	if !ok {
		return text
	}
	inner, ok = strings.CutSuffix(inner, `"`)
	if !ok {
		t.Fatalf("%q does not end as it should", text)
	}
	var b []byte
	for i := 0; i < len(inner); i++ {
		if inner[i] != '%' {
			b = append(b, inner[i])
			continue
		}
		n, err := strconv.ParseUint(inner[i+1:i+3], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		b, i = append(b, byte(n)), i+2
	}
	return string(b)
}

var keys = []string{
	"order-1", "a b", `say "x"`, "100%", "k", // as they are
	"é1", "é1 ", " k", "k ", "\tk", "k\r\nX: y", "k\x7f", "\x00", "😀", `%"`, `%"k"`, `%"%c3%a91"`, `%""`, strings.Repeat("é", 255),
}

func TestKeyTextIsReversible(t *testing.T) {
	seen := map[string]string{}
	for _, key := range keys {
		text := KeyText(key)
		if got := readKey(t, text); got != key {
			t.Errorf("%q stands as %q and reads as %q", key, text, got)
		}
		if other, ok := seen[text]; ok {
			t.Errorf("%q and %q both stand as %q", key, other, text)
		}
		seen[text] = key
	}
	// The example of RFC 9651 §3.3.8 for its form.
	if got := KeyText("füü"); got != `%"f%c3%bc%c3%bc"` {
		t.Error(got)
	}
}

// TestEveryKeyArrives sends each key and reads it where it arrives.
func TestEveryKeyArrives(t *testing.T) {
	var got []string
	w := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = append(r.Header.Values("Idempotency-Key"), r.Header.Values("X-Own")...)
	}))
	defer w.Close()
	s := newServer(t, w.URL, Options{KeyHeader: func(string) string { return "X-Own" }})
	for _, key := range keys {
		call := aCall(1)
		call.Key = key
		if reply, err := s.Dispatch(context.Background(), call); err != nil || reply.Status != tga.StatusSuccess {
			t.Errorf("%q: %+v, %v", key, reply, err)
		}
		if len(got) != 2 || readKey(t, got[0]) != key || readKey(t, got[1]) != key {
			t.Errorf("%q arrived as %q", key, got)
		}
	}
}

// TestOneSpellingOfAName: nothing but the exact name leads to a tool, with paths and
// without.
func TestOneSpellingOfAName(t *testing.T) {
	paths := map[string]string{"pay": "v2/pay", "refund_all": "refund_all"}
	for _, c := range []struct {
		paths map[string]string
		tool  string
		want  tga.Code
	}{
		{nil, "refund_all", ""}, {nil, "v2/pay", ""},
		{nil, "/refund_all", tga.ValidationError}, {nil, "//refund_all", tga.ValidationError}, {nil, "refund_all/", tga.ValidationError},
		{nil, "x/../refund_all", tga.ValidationError}, {nil, "v2//pay", tga.ValidationError}, {nil, "v2%2fpay", tga.ValidationError},
		{paths, "pay", ""}, {paths, "refund_all", ""},
		{paths, "v2/pay", tga.NotFound}, {paths, "Pay", tga.NotFound}, {paths, "charge", tga.NotFound}, {paths, "/pay", tga.ValidationError},
	} {
		s := newServer(t, "http://127.0.0.1:1/api", Options{Paths: c.paths})
		for _, remote := range []bool{false, true} {
			if err := s.Check(context.Background(), runtime.Call{Tool: c.tool, Remote: remote}); tga.CodeOf(err) != c.want {
				t.Errorf("%v, %q: %v, want %q", c.paths, c.tool, err, c.want)
			}
		}
	}
	if _, err := New("http://h", Options{Paths: map[string]string{"/pay": "pay"}}); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("a path of /pay: %v", err)
	}
}

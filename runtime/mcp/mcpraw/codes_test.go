package mcpraw

import (
	"fmt"
	"strings"
	"testing"
)

// TestEveryCode walks the codes that JSON-RPC keeps for itself, and some beside them: what
// each means for a first attempt at a call, and what is said of a doubt.
func TestEveryCode(t *testing.T) {
	const lost = "the server does not know what happened: "
	want := map[int]struct {
		meaning Meaning
		why     string
	}{
		-32700: {IsRefusal, ""}, -32600: {IsRefusal, ""}, -32601: {IsRefusal, ""}, -32602: {IsRefusal, ""},
		-32020: {IsRefusal, ""}, -32021: {IsRefusal, ""}, -32022: {IsRefusal, ""},
		-32000: {IsDoubt, lost}, -32001: {IsDoubt, lost}, -32042: {IsDoubt, "it is not a final effect: "},
	}
	for code := -32800; code < -31900; code++ {
		a := ReadFault(fmt.Appendf(nil, `{"code":%d,"message":"words"}`, code), 1)
		said := fmt.Sprintf("JSON-RPC error %d: words", code)
		if w := want[code]; a.Meaning != w.meaning || a.Why != w.why+said || !strings.HasSuffix(a.Reply.ErrorMessage, said) {
			t.Errorf("%d: %+v, want %+v", code, a, w)
		}
	}
}

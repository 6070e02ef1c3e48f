package mcpraw

import "testing"

// TestEveryCode walks the codes that JSON-RPC reserves, and some others.
func TestEveryCode(t *testing.T) {
	type row struct {
		meaning Meaning
		why     string
		status  int
	}
	const lost = "the server does not know what happened: "
	want := map[int64]row{
		-32700: {IsRefusal, "", 200}, -32600: {IsRefusal, "", 200}, -32601: {IsRefusal, "", 404}, -32602: {IsRefusal, "", 200},
		-32020: {IsRefusal, "", 400}, -32021: {IsRefusal, "", 400}, -32022: {IsRefusal, "", 400},
		-32000: {IsDoubt, lost, 200}, -32001: {IsDoubt, lost, 200}, -32042: {WantsURL, "a person must open a URL first: ", 200},
	}
	for code := int64(-32800); code < -31900; code++ {
		w, ok := want[code]
		if !ok {
			w = row{IsEffect, "", 200}
		}
		meaning, why := MeaningOf(code)
		if got := (row{meaning, why, StatusOf(code)}); got != w {
			t.Errorf("%d: %+v, want %+v", code, got, w)
		}
	}
}

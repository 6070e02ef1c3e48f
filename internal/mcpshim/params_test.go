package mcpshim

import "testing"

// TestTheToolServerGetsCanonicalArguments: what was digested is what is sent; every other
// byte of the params stays as the client wrote it.
func TestTheToolServerGetsCanonicalArguments(t *testing.T) {
	p, err := parseCall([]byte(`{ "name":"charge", "arguments":{"b":1.0,"a":-0} , "x":1.0 }`))
	if err != nil {
		t.Fatal(err)
	}
	const args = `{"a":0,"b":1}`
	for tool, want := range map[Tool]string{
		{}:                            args,
		{KeyArgument: "/idempotency"}: `{"idempotency":"k","a":0,"b":1}`,
	} {
		got := string(p.govern([]byte(args), "k", "t", 1, tool))
		if full := `{"_meta":{"dev.tgad/traceId":"t","dev.tgad/attempt":1,"dev.tgad/idempotencyKey":"k"}, "name":"charge", "arguments":` + want + ` , "x":1.0 }`; got != full {
			t.Errorf("got  %s\nwant %s", got, full)
		}
	}
}

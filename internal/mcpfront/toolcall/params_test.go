package toolcall

import (
	"testing"

	"github.com/tgad/tgad/runtime"
)

// TestTheToolServerGetsCanonicalArguments: the arguments are sent as the bytes that were digested. Every
// other byte of the params stays as the client wrote it.
func TestTheToolServerGetsCanonicalArguments(t *testing.T) {
	p, err := Parse([]byte(`{ "name":"charge", "arguments":{"b":1.0,"a":-0} , "x":1.0 }`))
	if err != nil {
		t.Fatal(err)
	}
	const args = `{"a":0,"b":1}`
	for tool, want := range map[Tool]string{
		{}:                            args,
		{KeyArgument: "/idempotency"}: `{"idempotency":"k","a":0,"b":1}`,
	} {
		got := string(p.Govern([]byte(args), "k", "t", 1, tool, runtime.SpanContext{}))
		if full := `{"_meta":{"dev.tgad/traceId":"t","dev.tgad/attempt":1,"dev.tgad/idempotencyKey":"k"}, "name":"charge", "arguments":` + want + ` , "x":1.0 }`; got != full {
			t.Errorf("got  %s\nwant %s", got, full)
		}
	}
}

// TestSpanOfTheSendReplacesTheClients: in `_meta` the span of the send replaces the client's. Without a span of the send
// the client's passes.
func TestSpanOfTheSendReplacesTheClients(t *testing.T) {
	p, err := Parse([]byte(`{"name":"charge","_meta":{"traceparent":"theirs","x":1,"baggage":"b=1"}}`))
	if err != nil {
		t.Fatal(err)
	}
	const ours = `{"name":"charge","_meta":{"dev.tgad/traceId":"t","dev.tgad/attempt":1,"dev.tgad/idempotencyKey":"k"`
	for sc, want := range map[runtime.SpanContext]string{
		{}:                                    ours + `,"traceparent":"theirs","x":1,"baggage":"b=1"}}`,
		{Traceparent: "mine"}:                 ours + `,"traceparent":"mine","x":1}}`,
		{Traceparent: "mine", Baggage: "c=2"}: ours + `,"traceparent":"mine","baggage":"c=2","x":1}}`,
	} {
		if got := string(p.Govern([]byte(`{}`), "k", "t", 1, Tool{}, sc)); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

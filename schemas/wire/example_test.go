package wire_test

import (
	"fmt"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// A message is read as the daemon reads it: an unknown member is refused, with its place.
func ExampleDecode() {
	var m wire.CallRequest
	err := wire.Decode([]byte(`{"tool_server":"payments","tool_name":"charge","idempotency_key":"order-7","args":{"amount": 1.0}}`), &m)
	fmt.Printf("%s/%s %s %v\n", m.ToolServer, m.ToolName, m.Args, err)

	err = wire.Decode([]byte(`{"tool_server":"payments","tool_name":"charge","idempotencyKey":"order-7"}`), &m)
	fmt.Println(tga.CodeOf(err), err.(*tga.Error).Pointer)
	// Output:
	// payments/charge {"amount": 1.0} <nil>
	// VALIDATION_ERROR /idempotencyKey
}

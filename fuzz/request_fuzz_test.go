package fuzz

import (
	"reflect"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// messages are the bodies that the daemon reads.
var messages = []any{
	wire.CallRequest{}, wire.BeginRequest{}, wire.FinishRequest{}, wire.NotSentRequest{}, wire.DecideRequest{},
	wire.ResolveRequest{}, wire.AbandonRequest{}, wire.AppendRequest{}, wire.BatchRequest{}, wire.LeaseRequest{},
	wire.CheckpointRequest{}, wire.BackupRequest{}, wire.SealRequest{}, wire.UnfreezeRequest{}, wire.VerifyRequest{},
}

// FuzzRequest: a body is refused with a code of the gate or of the decoder; otherwise it is a message that
// stays the same when it is written and read again.
func FuzzRequest(f *testing.F) { fuzzRequest(f) }

func fuzzRequest(f fuzzer) {
	for i, m := range messages {
		f.Add(uint8(i), wire.Append(nil, m))
		f.Add(uint8(i), []byte(`{"server":"s","tool":"t","args":{"a":[1,{}]},"key":"k","meta":{"a":1},"ttl":"1s","deadline":"2026-01-15T19:00:00.000Z"}`))
		f.Add(uint8(i), []byte(`{"trace_id":"01936a8b-4c2d-7000-8000-000000000001","artifacts":[{"artifact":{}}],"items":[{}],"reason":"r"}`))
	}
	for i, s := range texts {
		f.Add(uint8(i), []byte(s))
	}
	type body struct {
		which uint8
		raw   []byte
	}
	check := bounded(func(t *testing.T, b body) {
		if err := tga.Gate(b.raw, tga.Limits{}); err != nil {
			mustBeOurs(t, b.raw, err)
			return
		}
		typ := reflect.TypeOf(messages[int(b.which)%len(messages)])
		m := reflect.New(typ)
		if err := wire.Decode(b.raw, m.Interface()); err != nil {
			mustBeOurs(t, b.raw, err)
			return
		}
		text := wire.Append(nil, m.Elem().Interface())
		again := reflect.New(typ)
		if err := wire.Decode(text, again.Interface()); err != nil {
			t.Fatalf("%q is a %s, written as %q: %v", b.raw, typ.Name(), text, err)
		}
		if second := wire.Append(nil, again.Elem().Interface()); string(second) != string(text) {
			t.Fatalf("%q is a %s, written as %q and then as %q", b.raw, typ.Name(), text, second)
		}
	})
	f.Fuzz(func(t *testing.T, which uint8, raw []byte) { check(t, body{which, raw}) })
}

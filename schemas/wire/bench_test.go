package wire

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// exchange is a call of 1 KiB and its answer.
func exchange() (CallRequest, Call) {
	id := tga.ID{1, 2, 3, 4, 5, 6, 0x70, 8, 0x80, 10}
	req := CallRequest{
		TraceID: id, ToolServer: "payments", ToolName: "charge", IdempotencyKey: "order-1234",
		Args:   json.RawMessage(`{"amount":4200,"currency":"EUR","note":"` + strings.Repeat("thanks for the fish ", 48) + `"}`),
		Intent: "pay the invoice of the fishmonger", Meta: tga.Meta{"model": "m", "turn": tga.Number("3")},
	}
	answer := Call{
		TraceID: id, State: "COMPLETED", Seq: 4, EntryDigest: tga.Digest{1, 2, 3}, ToolCallID: id, IdempotencyKey: "order-1234",
		Attempts: 1, Status: "success", OutcomeClass: "success", Result: json.RawMessage(`{"paid":true}`), Summary: "paid",
	}
	return req, answer
}

// BenchmarkMessage measures each side of an exchange over the socket separately.
func BenchmarkMessage(b *testing.B) {
	req, answer := exchange()
	asked, answered := Append(nil, req), Append(nil, answer)
	b.Run("append request", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Append(nil, req)
		}
	})
	b.Run("decode request", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var m CallRequest
			if err := Decode(asked, &m); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("append answer", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Append(nil, answer)
		}
	})
	b.Run("decode answer", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var m Call
			if err := DecodeAnswer(answered, &m); err != nil {
				b.Fatal(err)
			}
		}
	})
}

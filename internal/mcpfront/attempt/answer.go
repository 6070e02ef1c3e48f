package attempt

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"

	"github.com/tgad/tgad/internal/mcpanswer"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// answer is a parsed answer of a tool server to a call.
type answer struct {
	mcpanswer.Answer
	value []byte // the result or error member; nil if it is too long to keep
	fault bool   // value is the error member
}

// ReadAnswer reads the answer to an attempt. keep is the longest answer, in bytes, that is
// recorded whole.
func ReadAnswer(f *frames.Frame, attempt uint32, keep int64) (answer, error) {
	at := f.Result
	switch null := func(s mcpraw.Span) bool {
		b, err := f.Bytes(s, keep)
		return err == nil && string(b) == "null"
	}; {
	case !f.Result.Present(), f.Fault.Present() && null(f.Result): // JSON-RPC 1.0 has both members, of which one is null
		at = f.Fault
	case f.Fault.Present() && !null(f.Fault):
		return answer{Answer: mcpanswer.Answer{Meaning: mcpraw.IsDoubt, Why: "it has both a result and an error"}}, nil
	}
	value, err := f.Bytes(at, keep)
	if err != nil {
		return tooLong(f, at, keep)
	}
	a := answer{value: value, fault: at == f.Fault}
	if a.fault {
		a.Answer = mcpanswer.ReadFault(value, attempt)
	} else {
		a.Answer = mcpanswer.ReadResult(value)
	}
	// ResultBytes and ResultDigest stay empty: the log refuses them beside a result. They are
	// for an answer that is too long to keep.
	a.Reply.Result = value
	return a, nil
}

// tooLong reads an answer that is too long to keep: only its length and digest are recorded.
// The client still gets it whole.
func tooLong(f *frames.Frame, s mcpraw.Span, keep int64) (a answer, err error) {
	a.fault = s == f.Fault
	var whole bool
	if a.Reply, whole, err = LongReply(f, s, keep); err == nil && !whole {
		a.Meaning, a.Why = mcpraw.IsDoubt, fmt.Sprintf("it has %d bytes, over what passes", f.Size)
	}
	return a, err
}

// LongReply is the reply for a part of a message that is too long to keep: only its length and digest are recorded. whole is false
// if the message was not kept.
func LongReply(f *frames.Frame, s mcpraw.Span, keep int64) (r runtime.Reply, whole bool, err error) {
	h := sha256.New()
	n, err := io.Copy(h, f.Reader(s))
	if err != nil {
		return r, false, tga.Errorf(tga.StoreUnavailable, "read a spilled message: %w", err)
	}
	return mcpanswer.Truncated(n, tga.Digest(h.Sum(nil)), keep), n == s.To-s.From, nil
}

// isFault reports whether the recorded answer of a call is an error member and not a result. A call with an error has failed. A
// result of tools/call that failed has isError, and most have content; an error has a code. A result may have a code too.
func isFault(r runtime.Result) bool {
	var code struct {
		Code *int64 `json:"code"`
	}
	return r.Status != tga.StatusSuccess && mcpraw.At(r.Value, "/content") == nil && mcpraw.At(r.Value, "/isError") == nil &&
		mcpraw.At(r.Value, "/code") != nil && json.Unmarshal(r.Value, &code) == nil && code.Code != nil
}

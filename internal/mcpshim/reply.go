package mcpshim

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// meaning is what an answer to tools/call says about the call.
type meaning uint8

const (
	isEffect  meaning = iota // the tool has run, or failed: record it
	isRefusal                // the server did not take the call
	isDoubt                  // it does not say what happened
	wantsMore                // input_required: the call goes on with another message
	isTask                   // the call goes on as a task
)

// faultCodes says what a JSON-RPC error code means. A code that is not here is the
// tool's own failure.
var faultCodes = map[int64]meaning{
	-32700: isRefusal, // parse error
	-32600: isRefusal, // invalid request
	-32601: isRefusal, // no such method
	-32602: isRefusal, // no such tool, or bad arguments
	-32020: isRefusal, // 2026-07-28: a header contradicts the body
	-32021: isRefusal, // 2026-07-28: a client capability is missing
	-32022: isRefusal, // 2026-07-28: protocol revision not supported

	// Made up by SDKs on the client's side and passed on by servers that are proxies.
	-32000: isDoubt, // connection closed
	-32001: isDoubt, // request timed out

	-32042: isDoubt, // the server wants a person to open a URL first
}

// resultTypes are the types of a result that are not "complete".
var resultTypes = map[string]meaning{
	"input_required": wantsMore,
	"task":           isTask,
}

// answer is a tool server's answer to a call, read.
type answer struct {
	meaning meaning
	reply   runtime.Reply // for isEffect and isRefusal
	value   []byte        // the result or error member; nil where it is too long to keep
	fault   bool          // it is the error member
	why     string        // for isDoubt
	task    string        // for isTask
}

// Longest texts that an effect may carry (docs/FORMAT.md).
const maxMessage = 200

// readAnswer reads the answer to an attempt. keep is the longest one that is recorded
// whole.
//
// From the second attempt on, a refusal says that this attempt did nothing, and nothing
// of an earlier one that may have run; a failure likewise. Neither is then an effect.
func readAnswer(f *frame, attempt uint32, keep int64) (answer, error) {
	switch {
	case f.result.present() && f.fault.present():
		return answer{meaning: isDoubt, why: "it has both a result and an error"}, nil
	case f.result.present():
		return readResult(f, keep)
	}
	a := answer{fault: true}
	var err error
	if a.value, err = f.bytes(f.fault, keep); err != nil {
		return tooLong(f, f.fault, keep)
	}
	var fault struct {
		Code    int64  `json:"code"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(a.value, &fault); err != nil {
		return answer{meaning: isDoubt, why: "its error member is not one of JSON-RPC"}, nil
	}
	said := clipRunes(fmt.Sprintf("JSON-RPC error %d: %s", fault.Code, fault.Message), maxMessage)
	a.reply = whole(a.value)
	a.reply.Status, a.reply.ErrorCode, a.reply.ErrorMessage = tga.StatusFailure, string(tga.ToolError), said
	a.meaning, a.why = faultCodes[fault.Code], said
	switch {
	case a.meaning == isRefusal:
		a.reply.ErrorCode, a.reply.Class = string(tga.ValidationError), ledger.ClassPermanent
	case a.meaning == isEffect && attempt > 1:
		a.meaning = isDoubt
	}
	return a, nil
}

func readResult(f *frame, keep int64) (answer, error) {
	value, err := f.bytes(f.result, keep)
	if err != nil {
		return tooLong(f, f.result, keep)
	}
	all, err := members(value)
	if err != nil {
		return answer{meaning: isDoubt, why: "its result is no JSON object"}, nil
	}
	a := answer{value: value, reply: whole(value)}
	a.reply.Status = tga.StatusSuccess
	var failed bool
	for _, m := range all {
		v := value[m.from:m.to]
		switch m.name {
		case "isError":
			if err := json.Unmarshal(v, &failed); err != nil {
				return answer{meaning: isDoubt, why: "its isError is no boolean"}, nil
			}
		case "resultType":
			kind := scalarText(v)
			if known, ok := resultTypes[kind]; ok {
				a.meaning = known
			} else if kind != "complete" {
				return answer{meaning: isDoubt, why: "its resultType is " + clip(kind, 40)}, nil
			}
		case "taskId":
			a.task = scalarText(v)
		case "task":
			// Revision 2025-11-25 has the task in a member of its own and no resultType.
			if id := scalarText(at(v, "/taskId")); id != "" && at(value, "/content") == nil {
				a.meaning, a.task = isTask, id
			}
		}
	}
	if a.meaning == isTask && a.task == "" {
		return answer{meaning: isDoubt, why: "it is a task without a taskId"}, nil
	}
	if failed {
		a.reply.Status, a.reply.ErrorCode = tga.StatusFailure, string(tga.ToolError)
		a.reply.ErrorMessage = clipRunes(firstText(at(value, "/content")), maxMessage)
	}
	return a, nil
}

// whole is a reply of which every byte is kept. Length and digest are for one that is
// not; beside a result the log refuses them.
func whole(value []byte) runtime.Reply { return runtime.Reply{Result: value} }

// tooLong is an answer of which length and digest are recorded. It still goes to the
// client whole.
func tooLong(f *frame, s span, keep int64) (answer, error) {
	h := sha256.New()
	n, err := io.Copy(h, f.reader(s))
	if err != nil {
		return answer{}, tga.Errorf(tga.StoreUnavailable, "read a spilled message: %w", err)
	}
	if n != s.to-s.from {
		return answer{meaning: isDoubt, why: fmt.Sprintf("it has %d bytes, over what passes", f.size)}, nil
	}
	r := runtime.Reply{
		Status: tga.StatusError, Truncated: true, ResultBytes: n,
		ErrorCode:    string(tga.LimitExceeded),
		ErrorMessage: fmt.Sprintf("answer of %d bytes is over the limit of %d", n, keep),
	}
	h.Sum(r.ResultDigest[:0])
	return answer{reply: r, fault: s == f.fault}, nil
}

// firstText returns the first text of a result's content, for people.
func firstText(content []byte) string {
	var blocks []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(content, &blocks) != nil {
		return "" // content of another form
	}
	for _, b := range blocks {
		if b.Type == "text" {
			return b.Text
		}
	}
	return ""
}

// isFault reports whether a recorded answer is an error member and not a result. A
// result of tools/call has content, an error has a code.
func isFault(value []byte) bool {
	var code struct {
		Code *int64 `json:"code"`
	}
	return at(value, "/content") == nil && at(value, "/code") != nil && json.Unmarshal(value, &code) == nil && code.Code != nil
}

// clipRunes returns the first n characters of s, as valid UTF-8.
func clipRunes(s string, n int) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	for i := range s {
		if n--; n < 0 {
			return s[:i]
		}
	}
	return s
}

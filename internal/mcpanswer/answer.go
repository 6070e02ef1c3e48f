// Package mcpanswer decides what a tool server's answer to tools/call means for the record of
// the call. All transports to an MCP tool server use it.
//
// # Invariants
//
//	final  only a final result is an effect  [ReadResult]  TestAnswers
package mcpanswer

import (
	"encoding/json"
	"fmt"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// resultTypes are the known types of a result that is not final.
var resultTypes = map[string]mcpraw.Meaning{
	"input_required": mcpraw.WantsInput,
	"task":           mcpraw.IsTask,
}

// MaxMessage is the longest error message of an effect, in characters (docs/FORMAT.md).
const MaxMessage = 200

// Answer is a parsed answer of a tool server to tools/call.
type Answer struct {
	Meaning mcpraw.Meaning
	// Reply is what is recorded of the answer, without the answer's bytes, if Meaning is mcpraw.IsEffect or mcpraw.IsRefusal.
	Reply runtime.Reply
	Why   string // for a refusal the server's words; for another answer that is no effect, why it is none
	Task  string // the task's id if Meaning is mcpraw.IsTask
}

func doubt(format string, args ...any) Answer {
	return Answer{Meaning: mcpraw.IsDoubt, Why: fmt.Sprintf(format, args...)}
}

// ReadFault reads the error member of an answer to an attempt.
//
// From the second attempt on, a refusal says only that this attempt did nothing, while an earlier
// one may have run: then the caller must not record the refusal. For the same reason a failure
// from the second attempt on is a doubt.
func ReadFault(value []byte, attempt uint32) Answer {
	var fault struct {
		Code    int64  `json:"code"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(value, &fault); err != nil {
		return doubt("its error member is not one of JSON-RPC")
	}
	said := clip.Runes(fmt.Sprintf("JSON-RPC error %d: %s", fault.Code, fault.Message), MaxMessage)
	meaning, why := mcpraw.MeaningOf(fault.Code)
	a := Answer{Meaning: meaning, Why: why + said}
	a.Reply.Status, a.Reply.ErrorCode, a.Reply.ErrorMessage = tga.StatusFailure, string(tga.ToolError), said
	switch {
	case a.Meaning == mcpraw.IsRefusal:
		a.Reply.ErrorCode, a.Reply.Class = string(tga.ValidationError), ledger.ClassPermanent
	case a.Meaning == mcpraw.IsEffect && attempt > 1:
		return doubt("this attempt failed, and an earlier one may have run: %s", said)
	}
	return a
}

// ReadResult reads the result member of an answer.
func ReadResult(value []byte) Answer {
	// Members, because encoding/json would take "iserror" for isError.
	all, err := mcpraw.Members(value)
	if err != nil {
		return doubt("its result is no JSON object: %s", clip.Bytes(string(value), 40))
	}
	var a Answer
	a.Reply.Status = tga.StatusSuccess
	failed, last := false, ""
	for _, m := range all {
		v := value[m.From:m.To]
		switch m.Name {
		case "isError":
			if json.Unmarshal(v, &failed) != nil {
				return doubt("its isError is no boolean")
			}
		case "resultType":
			// 2026-07-28 has results that end the request but not the call. The tool may act
			// later, so to record such a result as the effect would end the call too early.
			if kind := mcpraw.ScalarText(v); kind != "complete" {
				known, ok := resultTypes[kind]
				if !ok {
					return doubt("it is not a final effect: resultType is %q", clip.Runes(kind, MaxMessage))
				}
				a.Meaning, last = known, kind
			}
		case "taskId":
			a.Task = mcpraw.ScalarText(v)
		case "task":
			// Revision 2025-11-25 has no resultType: the task is in the member task.
			if id := mcpraw.ScalarText(mcpraw.At(v, "/taskId")); id != "" && mcpraw.At(value, "/content") == nil {
				a.Meaning, a.Task, last = mcpraw.IsTask, id, "task"
			}
		}
	}
	if a.Meaning != mcpraw.IsEffect {
		a.Why = fmt.Sprintf("it is not a final effect: resultType is %q", last)
	}
	if a.Meaning == mcpraw.IsTask && a.Task == "" {
		return doubt("%s, and it has no taskId", a.Why)
	}
	if failed {
		a.Reply.Status, a.Reply.ErrorCode = tga.StatusFailure, string(tga.ToolError)
		a.Reply.ErrorMessage = clip.Runes(firstText(mcpraw.At(value, "/content")), MaxMessage)
	}
	return a
}

// Truncated is the reply for an answer that is too long: only its length and digest are kept.
func Truncated(bytes int64, digest tga.Digest, limit int64) runtime.Reply {
	return runtime.Reply{
		Status: tga.StatusError, Truncated: true, ResultBytes: bytes, ResultDigest: digest,
		ErrorCode:    string(tga.LimitExceeded),
		ErrorMessage: fmt.Sprintf("answer of %d bytes is over the limit of %d", bytes, limit),
	}
}

// firstText returns the first text of a result's content, for people. It returns "" for content
// of another form.
func firstText(content []byte) string {
	var blocks []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(content, &blocks) != nil {
		return ""
	}
	for _, b := range blocks {
		if b.Type == "text" {
			return b.Text
		}
	}
	return ""
}

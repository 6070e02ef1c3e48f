package mcpcheck

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Forms of an answer.
const (
	AnswerResult = "result" // the result of tools/call as it is
	AnswerText   = "text"   // its first text, which is JSON
)

// Rule holds for an answer of which every check holds: a result, or with Failed an
// error of the tool.
type Rule struct {
	Failed bool           `toml:"failed"`
	Checks []verify.Check `toml:"check"`
}

// question is a tool and how it is asked.
type question struct {
	caller       runtime.Dispatcher
	server, tool string
	arguments    *verify.Args
	form         string
}

func newQuestion(caller runtime.Dispatcher, server, tool, form string, arguments map[string]string, names verify.Names) (question, error) {
	q := question{caller: caller, server: server, tool: tool, form: form}
	if caller == nil {
		return q, verify.Invalid("server", "%q: there is nothing to call it with", server)
	}
	switch q.form {
	case "":
		q.form = AnswerResult
	case AnswerResult, AnswerText:
	default:
		return q, verify.Invalid("answer", "%.20q: want %s or %s", form, AnswerResult, AnswerText)
	}
	var err error
	q.arguments, err = verify.ParseArgs("arguments", arguments, names)
	return q, err
}

func validate(key string, rules []Rule, names verify.Names) error {
	for i, r := range rules {
		if len(r.Checks) == 0 {
			return verify.Invalid(fmt.Sprintf("%s.%d", key, i), "it asks nothing: want check")
		}
		if err := verify.ValidateAll(fmt.Sprintf("%s.%d.check", key, i), r.Checks, names); err != nil {
			return err
		}
	}
	return nil
}

// answer is what a tool answered.
type answer struct {
	raw    []byte     // the whole result, nil where it was too long
	doc    verify.Doc // what rules look at; nil where it is no such thing
	failed bool
	why    string // doc is nil
}

// ask calls the tool once. An error of the call is transient: repeating the question does
// no harm, because the tool only reads.
func (q *question) ask(ctx context.Context, trace tga.ID, s verify.Subject) (a answer, source string, err error) {
	source = "tool " + q.tool + " on " + q.server
	args, err := q.arguments.Build(s)
	if err != nil {
		return a, source, err
	}
	source += " " + string(args)
	// Each question has a key of its own. A server that deduplicates by the key would
	// otherwise repeat its first answer.
	id, err := uuid.NewV7()
	if err != nil {
		return a, source, err
	}
	reply, err := q.caller.Dispatch(ctx, runtime.Call{
		TraceID: trace, ToolCallID: tga.ID(id), Attempt: 1,
		Server: q.server, Tool: q.tool, Args: args, Key: "ask-" + id.String(),
	})
	if err != nil {
		return a, source, verify.Transient(err)
	}
	a = answer{raw: reply.Result, failed: reply.Status != tga.StatusSuccess}
	switch {
	case reply.Truncated || len(reply.Result) > verify.MaxBody:
		a.why = fmt.Sprintf("answer is over %d bytes", verify.MaxBody)
		a.raw = nil
	case reply.Status != tga.StatusSuccess && reply.Status != tga.StatusFailure:
		a.why = "the server refused the question"
	default:
		form := q.form
		if a.failed {
			form = AnswerResult // an error's text is for people
		}
		if a.doc, err = read(reply.Result, form); err != nil {
			a.why = err.Error()
		}
	}
	return a, source, nil
}

// read returns what rules look at.
func read(result []byte, form string) (verify.Doc, error) {
	doc, err := verify.ParseDoc(result)
	if err != nil || form == AnswerResult {
		return doc, err
	}
	content, ok, err := doc.Lookup("/content")
	if err != nil || !ok {
		return nil, fmt.Errorf("answer has no content")
	}
	var blocks []json.RawMessage
	if err := json.Unmarshal(content, &blocks); err != nil {
		return nil, fmt.Errorf("content of the answer is no array")
	}
	for _, b := range blocks {
		kind, _, errKind := verify.Doc(b).Lookup("/type")
		text, ok, errText := verify.Doc(b).Lookup("/text")
		if errKind != nil || errText != nil {
			return nil, fmt.Errorf("content of the answer names a member twice")
		}
		if chars, isText := text.Text(); ok && isText && kind.Is("text") {
			return verify.ParseDoc([]byte(chars))
		}
	}
	return nil, fmt.Errorf("content of the answer has no text")
}

// one reports whether one of the rules holds. An error says why the answer cannot be
// judged.
func (a *answer) one(rules []Rule, s verify.Subject) (bool, error) {
	for _, r := range rules {
		if r.Failed != a.failed || a.doc == nil {
			continue
		}
		truth, err := verify.All(r.Checks, a.doc, s)
		if truth == verify.Holds || err != nil {
			return err == nil, err
		}
	}
	return false, nil
}

func (a *answer) evidence(source, why string) runtime.Evidence {
	return verify.Evidence(source, map[string]any{"why": why, "failed": a.failed}, a.raw, nil)
}

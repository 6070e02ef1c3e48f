package toolcall

import (
	"encoding/json"
	"strings"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

const (
	// voteState begins the requestState of the shim's question for a vote; voteID names the question.
	voteState, voteID = "tgad approval ", "tgad-approval"
	// maxShown is how much of a call's arguments people are shown, in characters.
	maxShown = 600
)

// Shown is the part of a call's arguments that people are shown.
func Shown(args []byte) string { return clip.Runes(string(args), maxShown) }

// Vote is the vote of a person at the client.
type Vote struct {
	Approve bool
	Words   string
}

// ReadVote reads the result of an elicitation. It returns nil if that says neither yes nor no.
func ReadVote(result []byte) *Vote {
	var r struct {
		Action  string
		Content struct {
			Approve *bool
			Reason  string
		}
	}
	if json.Unmarshal(result, &r) != nil {
		return nil
	}
	v := &Vote{Words: "decided by the person at the MCP client"}
	if r.Content.Reason != "" {
		v.Words += ": " + clip.Runes(r.Content.Reason, 800)
	}
	switch {
	case r.Action == "accept" && r.Content.Approve != nil:
		v.Approve = *r.Content.Approve
	case r.Action != "decline":
		return nil
	}
	return v
}

// Form makes the params of an elicitation with one required member. agreed is the revision of the client's
// handshake, "" if there was none.
func (p *Params) Form(agreed mcpraw.Revision, words, properties, required string) []byte {
	b := []byte(`{"mode":"form",`)
	if !p.Revision().Stateless() && !agreed.ModalQuestions() {
		b = []byte(`{`) // earlier revisions have no member mode
	}
	b = tga.AppendString(append(b, `"message":`...), words)
	return append(b, `,"requestedSchema":{"type":"object","properties":{`+properties+`},"required":["`+required+`"]}}`...)
}

// AskVote makes a result that asks the person for a vote, for a client without a handshake.
func AskVote(question []byte, trace tga.ID) []byte {
	return inputRequired(voteID, question, voteState+trace.String())
}

// AskAgain makes a result that asks the person whether a call runs again, for a client without a handshake.
func AskAgain(question []byte, trace tga.ID) []byte {
	return inputRequired(againID, question, againState+trace.String())
}

// inputRequired makes a result of type input_required with one question.
func inputRequired(id string, question []byte, state string) []byte {
	b := append([]byte(`{"resultType":"input_required","inputRequests":{"`+id+`":{"method":"elicitation/create","params":`), question...)
	b = tga.AppendString(append(b, `}},"requestState":`...), state)
	return append(b, '}')
}

// InRequest reports whether the client can be asked in the answer to a request.
func (p *Params) InRequest() bool {
	return p.Revision().Stateless() && mcpraw.AsksByForm(p.MetaValue(say.MetaCapabilities))
}

// AsksInRequest is [Params.InRequest] for the client of any message.
func AsksInRequest(f *frames.Frame) bool {
	if !f.Params.Present() {
		return false
	}
	params, err := f.Bytes(f.Params, MaxParams)
	return err == nil && mcpraw.RevisionOf(params).Stateless() &&
		mcpraw.AsksByForm(mcpraw.At(params, "/_meta/"+tga.EscapeToken(say.MetaCapabilities)))
}

// againState begins the requestState of the question of [AskAgain]; againID names the question.
const againState, againID = "tgad again ", "tgad-run-again"

// SaysAgain reads the result of the elicitation. Only an explicit yes counts as yes.
func SaysAgain(result []byte) bool {
	var r struct {
		Action  string
		Content struct {
			RunAgain bool `json:"run_again"`
		}
	}
	return json.Unmarshal(result, &r) == nil && r.Action == "accept" && r.Content.RunAgain
}

// word is the answer of the client's person that a message brings.
type word struct {
	Given bool // the message answers a question of the shim
	Vote  *Vote
	On    tga.ID // the trace of the vote
	Again tga.ID // trace of the call that the person wants to run again; zero = none
}

// TakeWord removes from a call the members by which a client answers a question of the shim, and
// returns the answer. The tool server does not see these members.
func (p *Params) TakeWord() (w word, err error) {
	said := mcpraw.ScalarText(mcpraw.At(p.Raw, "/requestState"))
	name, approval := strings.CutPrefix(said, voteState)
	name, again := strings.CutPrefix(name, againState)
	if !approval && !again {
		return w, nil
	}
	trace, err := tga.ParseID(name)
	if err != nil {
		return w, tga.Errorf(tga.ValidationError, "it is not what the client was given").At("/params/requestState")
	}
	w.Given = true
	if approval {
		w.Vote, w.On = ReadVote(mcpraw.At(p.Raw, "/inputResponses/"+voteID)), trace
	} else if SaysAgain(mcpraw.At(p.Raw, "/inputResponses/"+againID)) {
		w.Again = trace
	}
	raw, err := WithoutInput(p.Raw)
	if err != nil {
		return w, err
	}
	plain, err := Parse(raw)
	if err != nil {
		return w, err
	}
	*p = *plain
	return w, nil
}

// WithoutInput returns the params of a call without inputResponses and requestState.
func WithoutInput(params []byte) ([]byte, error) {
	all, err := mcpraw.Members(params, "name", "arguments", "_meta", "inputResponses", "requestState", "task")
	if err != nil {
		return nil, Under("/params", err)
	}
	raw := []byte{'{'}
	for _, m := range all {
		if m.Name == "requestState" || m.Name == "inputResponses" {
			continue
		}
		if len(raw) > 1 {
			raw = append(raw, ',')
		}
		raw = append(raw, params[m.Start:m.To]...)
	}
	return append(raw, '}'), nil
}

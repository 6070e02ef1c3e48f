package main

import (
	"encoding/json"

	"github.com/tgad/tgad/schemas/tga"
)

type chainFile struct {
	Description string       `json:"description"`
	KnownAnswer knownAnswer  `json:"known_answer"`
	Traces      []chainTrace `json:"traces"`
}

type knownAnswer struct {
	Description string          `json:"description"`
	Entry       json.RawMessage `json:"entry"`
	Preimage    string          `json:"preimage"`
}

type chainTrace struct {
	Name       string            `json:"name"`
	Documents  []chainDocument   `json:"documents"`
	Artifacts  []json.RawMessage `json:"artifacts"`
	Entries    []json.RawMessage `json:"entries"`
	Preimages  []string          `json:"entry_preimages"`
	Notes      []json.RawMessage `json:"notes"`
	State      json.RawMessage   `json:"state"`
	Checkpoint json.RawMessage   `json:"checkpoint"`
}

type chainDocument struct {
	Sequence int    `json:"sequence_number"`
	Pointer  string `json:"pointer"`
	Text     string `json:"text"`
}

func (t *trace) chain(name string, documents ...chainDocument) chainTrace {
	c := chainTrace{Name: name, Documents: append([]chainDocument{}, documents...),
		Artifacts: rawArtifacts(t.artifacts), Entries: rawEntries(t.entries), Notes: rawNotes(t.notes)}
	for _, e := range t.entries {
		c.Preimages = append(c.Preimages, string(e.AppendPreimage(nil)))
	}
	s, cp := t.state(), t.checkpoint()
	c.State, c.Checkpoint = s.AppendCanonical(nil), cp.AppendCanonical(nil)
	return c
}

// unusualArgs has the cases in which canonicalisers often differ: key order by UTF-16, number
// forms, escapes.
const unusualArgs = `{"amount":12.50,"currency":"EUR","note":"Größe \u20ac \"q\" \\ \/ \t\u001f\u007f","😀":1e21,"\ufb33":1e-7,"a":{"B":[1,-0,9007199254740991],"A":null}}`

func goldenChain() chainFile {
	first := tga.LogEntry{
		TraceID: must(tga.ParseID("01936a8b-4c2d-7000-8000-000000000001")), Seq: 1, TS: baseTS,
		From: tga.Pending, To: tga.Pending, Type: tga.RequestType,
		ArtifactID: must(tga.ParseID("01936a8b-4c2d-7000-8000-000000000001")),
	}
	for i := range first.ArtifactDigest {
		first.ArtifactDigest[i] = 0xaa
	}
	first.Seal()

	const charged = `{"charge_id":"ch_1","amount":12.50}`
	const refused = `{"error":"card refused"}`
	success := newTrace(1).request(unusualArgs).decide(tga.Approve).call("").
		effect(tga.Outcome{Status: tga.StatusSuccess, Summary: "charged", ExternalRefs: []tga.ExternalRef{{Kind: "doc_id", ID: "ch_1"}}}, "side_effect_committed", charged)
	failure := newTrace(2).request(`{"amount":1,"currency":"EUR"}`).decide(tga.Approve).call(tga.AttemptApart).
		note(tga.NoteAttempt, `{"attempt":1,"epoch":"4294967297","executor":"runtime"}`).
		note(tga.NoteNotSent, `{"attempt":1,"reason":"dial refused"}`).
		note(tga.NoteAttempt, `{"attempt":2,"epoch":"4294967297","executor":"runtime"}`).
		effect(tga.Outcome{Status: tga.StatusFailure, Error: &tga.OutcomeError{Code: "TOOL_ERROR", Message: "card refused"}}, "permanent_failure", refused)
	denied := newTrace(3).request(`{}`).decide(tga.Deny)
	open := newTrace(4).request(`{}`)

	return chainFile{
		Description: "Whole traces with every digest. _digest is SHA-256 of the artifact's canonical form (RFC 8785) without _digest; " +
			"entry_digest, note_digest and state_digest likewise without themselves; checkpoint_digest is that of checkpoint_state alone; " +
			"entry_preimages are the very bytes an entry_digest covers; documents are what document_hashes bind, byte for byte.",
		KnownAnswer: knownAnswer{"an entry whose artifact does not matter", first.AppendCanonical(nil), string(first.AppendPreimage(nil))},
		Traces: []chainTrace{
			success.chain("success", chainDocument{4, tga.PointerResult, charged}),
			failure.chain("failure_with_notes", chainDocument{4, tga.PointerResult, refused}),
			denied.chain("denied"),
			open.chain("pending"),
		},
	}
}

package tga

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"
)

// The known answer fixes the entry's canonical form for other implementations.
func TestEntryDigestKnownAnswer(t *testing.T) {
	e := LogEntry{TraceID: testID(1), ArtifactID: testID(1), Seq: 1, TS: 1768503600000, From: Pending, To: Pending, Type: RequestType}
	for i := range e.ArtifactDigest {
		e.ArtifactDigest[i] = 0xaa
	}
	e.Seal()
	const want = "404a19cc687b8874b853d0b9b7dd1e289ccd3cbe21efae9665d1be57fcd53c1c"
	if e.Digest.String() != want {
		t.Errorf("entry digest %v, want %s\npreimage %s", e.Digest, want, e.AppendPreimage(nil))
	}
}

func sampleEntry() LogEntry {
	e := LogEntry{TraceID: testID(1), Seq: 3, Prev: Sum([]byte("p")), TS: testTS, From: Authorized, To: Executing, Type: CallType,
		ArtifactID: testID(3), ArtifactDigest: Sum([]byte("a")), ToolCallID: testID(3), IdempotencyKey: "k\"\\\u0007é\U0001f600"}
	e.Seal()
	return e
}

func sampleNote() Note {
	n := Note{TraceID: testID(1), Number: 2, Prev: Sum([]byte("n")), HeadDigest: Sum([]byte("h")), TS: testTS, Kind: NoteAttempt,
		Who: "runtime", Body: []byte(`{"attempt":1,"epoch":"4294967297"}`)}
	n.Seal()
	return n
}

func sampleState() ExecutionState {
	s := ExecutionState{TraceID: testID(1), PlanID: testID(2), Current: Executing, LastSeq: 3, LastDigest: Sum([]byte("e"))}
	s.Seal()
	return s
}

func sampleCheckpoint() Checkpoint {
	c := Checkpoint{TraceID: testID(1), Seq: 3, TS: testTS,
		State: CheckpointState{TraceID: testID(1), PlanID: testID(2), Current: Executing, LastSeq: 3, LastDigest: Sum([]byte("e"))}}
	c.Seal()
	return c
}

// record is one of the objects that are not artifacts.
type record struct {
	name      string
	canonical []byte
	decode    func([]byte) (any, error)
	want      any
	digest    string // member
}

func records() []record {
	e, n, s, c := sampleEntry(), sampleNote(), sampleState(), sampleCheckpoint()
	return []record{
		{"entry", e.AppendCanonical(nil), func(b []byte) (any, error) { return deref(DecodeLogEntry(b)) }, e, "entry_digest"},
		{"note", n.AppendCanonical(nil), func(b []byte) (any, error) { return deref(DecodeNote(b)) }, n, "note_digest"},
		{"state", s.AppendCanonical(nil), func(b []byte) (any, error) { return deref(DecodeExecutionState(b)) }, s, "state_digest"},
		{"checkpoint", c.AppendCanonical(nil), func(b []byte) (any, error) { return deref(DecodeCheckpoint(b)) }, c, "checkpoint_digest"},
	}
}

func deref[T any](v *T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return *v, nil
}

func TestRecordsReadBackAndAreCanonical(t *testing.T) {
	for _, r := range records() {
		if want, err := jcs.Transform(r.canonical); err != nil || !bytes.Equal(want, r.canonical) {
			t.Errorf("%s: ours %s, jcs %s (%v)", r.name, r.canonical, want, err)
		}
		got, err := r.decode(r.canonical)
		if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", r.want) {
			t.Errorf("%s: %+v (%v), want %+v", r.name, got, err, r.want)
		}
	}
}

func TestRecordsAreClosedAndComplete(t *testing.T) {
	for _, r := range records() {
		m := tree(t, r.canonical)
		for name := range tree(t, r.canonical) {
			old := m[name]
			delete(m, name)
			_, err := r.decode(marshal(t, m))
			switch name {
			case "tool_call_id":
				refused(t, r.name+" without "+name, err, MissingToolCallID, "/tool_call_id")
			case "idempotency_key":
				refused(t, r.name+" without "+name, err, StateChecksumMismatch, "/entry_digest")
			default:
				refused(t, r.name+" without "+name, err, SchemaViolation, "/"+name)
			}
			m[strings.ToUpper(name)] = old
			if _, err := r.decode(marshal(t, m)); !errors.Is(err, SchemaViolation) && !errors.Is(err, MissingToolCallID) {
				t.Errorf("%s with %s in capitals: %v", r.name, name, err)
			}
			delete(m, strings.ToUpper(name))
			m[name] = old
		}
		m["zzz"] = nil
		_, err := r.decode(marshal(t, m))
		refused(t, r.name+" with an unknown member", err, SchemaViolation, "/zzz")

		repeated := bytes.Replace(r.canonical, []byte(`"trace_id":`), []byte(`"trace_id":null,"trace_id":`), 1)
		_, err = r.decode(repeated)
		pointer := "/trace_id"
		if r.name == "checkpoint" {
			pointer = "/checkpoint_state/trace_id" // the first of the two
		}
		refused(t, r.name+" with a repeated member", err, ValidationError, pointer)
	}
}

func TestRecordDigestsAreRecomputed(t *testing.T) {
	for _, r := range records() {
		m := tree(t, r.canonical)
		m[r.digest] = Sum([]byte("another")).String()
		_, err := r.decode(marshal(t, m))
		refused(t, r.name, err, StateChecksumMismatch, "/"+r.digest)
		var e *Error
		if errors.As(err, &e) && (e.Where != "given" || e.GotDigest != Sum([]byte("another")) || e.HTTPStatus() != 409) {
			t.Errorf("%s: %+v", r.name, e)
		}
	}
}

func TestPreimagesAreWhatDigestsCover(t *testing.T) {
	e := sampleEntry()
	got, err := DecodeEntryPreimage(e.AppendPreimage(nil))
	if err != nil || *got != e || got.Digest != Sum(e.AppendPreimage(nil)) {
		t.Errorf("entry: %+v (%v), want %+v", got, err, e)
	}
	e.ToolCallID, e.IdempotencyKey, e.Type, e.From, e.To = ID{}, "", DecisionType, Pending, Denied
	e.Seal()
	preimage := e.AppendPreimage(nil)
	if !bytes.Contains(preimage, []byte(`"idempotency_key":null`)) || !bytes.Contains(preimage, []byte(`"tool_call_id":null`)) {
		t.Errorf("absent members are not null: %s", preimage)
	}
	if got, err := DecodeEntryPreimage(preimage); err != nil || *got != e {
		t.Errorf("entry: %+v (%v), want %+v", got, err, e)
	}
	n := sampleNote()
	if got, err := DecodeNotePreimage(n.AppendPreimage(nil)); err != nil || fmt.Sprintf("%+v", *got) != fmt.Sprintf("%+v", n) {
		t.Errorf("note: %+v (%v), want %+v", got, err, n)
	}

	for name, bad := range map[string][]byte{
		"space":         append(bytes.Clone(preimage), ' '),
		"other order":   bytes.Replace(preimage, []byte(`"from_state":"PENDING","idempotency_key":null`), []byte(`"idempotency_key":null,"from_state":"PENDING"`), 1),
		"left-out null": bytes.Replace(preimage, []byte(`"tool_call_id":null,`), nil, 1),
		"with digest":   e.AppendCanonical(nil),
		"1.0":           bytes.Replace(preimage, []byte(`"sequence_number":3`), []byte(`"sequence_number":3.0`), 1),
		"cut":           preimage[:len(preimage)-1],
	} {
		_, err := DecodeEntryPreimage(bad)
		var fault *Error
		if !errors.As(err, &fault) || fault.Where != "stored" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// null and a missing member give one entry, with one digest.
func TestAbsentOptionalMembersAreNull(t *testing.T) {
	e := sampleEntry()
	e.ToolCallID, e.IdempotencyKey, e.Type, e.From, e.To = ID{}, "", DecisionType, Pending, Denied
	e.Seal()
	m := tree(t, e.AppendCanonical(nil))
	delete(m, "tool_call_id")
	delete(m, "idempotency_key")
	if got, err := DecodeLogEntry(marshal(t, m)); err != nil || *got != e {
		t.Errorf("%+v (%v), want %+v", got, err, e)
	}
}

func TestToolEntriesNeedAToolCallID(t *testing.T) {
	for _, kind := range allTypes {
		e := sampleEntry()
		e.Type, e.ToolCallID = kind, ID{}
		e.Seal()
		for name, decode := range map[string]func() (*LogEntry, error){
			"given":  func() (*LogEntry, error) { return DecodeLogEntry(e.AppendCanonical(nil)) },
			"stored": func() (*LogEntry, error) { return DecodeEntryPreimage(e.AppendPreimage(nil)) },
		} {
			_, err := decode()
			if kind == CallType || kind == EffectType {
				refused(t, name+" "+kind.String(), err, MissingToolCallID, "/tool_call_id")
			} else if err != nil {
				t.Errorf("%s %s: %v", name, kind, err)
			}
		}
	}
}

func TestNumbersOfRecordsHaveBounds(t *testing.T) {
	replace := func(b []byte, old, value string) []byte { return bytes.Replace(b, []byte(old), []byte(value), 1) }
	e, n := sampleEntry(), sampleNote()
	for _, c := range []struct {
		raw     []byte
		decode  func([]byte) (any, error)
		code    Code
		pointer string
	}{
		{replace(e.AppendCanonical(nil), `number":3`, `number":0`), records()[0].decode, SchemaViolation, "/sequence_number"},
		{replace(e.AppendCanonical(nil), `number":3`, `number":9007199254740991`), records()[0].decode, StateChecksumMismatch, "/entry_digest"},
		{replace(e.AppendCanonical(nil), `number":3`, `number":9007199254740992`), records()[0].decode, SchemaViolation, "/sequence_number"},
		{replace(e.AppendCanonical(nil), `number":3`, `number":1e21`), records()[0].decode, SchemaViolation, "/sequence_number"},
		{replace(n.AppendCanonical(nil), `number":2`, `number":0`), records()[1].decode, SchemaViolation, "/note_number"},
		{replace(n.AppendCanonical(nil), `number":2`, `number":4294967295`), records()[1].decode, StateChecksumMismatch, "/note_digest"},
		{replace(n.AppendCanonical(nil), `number":2`, `number":4294967296`), records()[1].decode, SchemaViolation, "/note_number"},
	} {
		_, err := c.decode(c.raw)
		refused(t, string(c.raw), err, c.code, c.pointer)
	}
}

// A checkpoint is about one trace and one sequence, and its digest covers only its state.
func TestCheckpointAgreesWithItsState(t *testing.T) {
	c := sampleCheckpoint()
	c.Seq = 4
	_, err := DecodeCheckpoint(c.AppendCanonical(nil))
	refused(t, "another sequence", err, SchemaViolation, "/checkpoint_sequence_number")
	c = sampleCheckpoint()
	c.TraceID = testID(9)
	_, err = DecodeCheckpoint(c.AppendCanonical(nil))
	refused(t, "another trace", err, SchemaViolation, "/trace_id")
	c = sampleCheckpoint()
	c.TS++
	if _, err = DecodeCheckpoint(c.AppendCanonical(nil)); err != nil {
		t.Errorf("another ts changes the digest: %v", err)
	}
	const preimage = `{"current_state":"EXECUTING","last_entry_digest":"3f79bb7b435b05321651daefd374cdc681dc06faa65e374e38337b88ca046dea","last_sequence_number":3,"plan_id":"01936a8b-4c2d-7000-8000-000000000002","trace_id":"01936a8b-4c2d-7000-8000-000000000001"}`
	if c.Digest != Sum([]byte(preimage)) {
		t.Errorf("digest %v is not that of %s", c.Digest, preimage)
	}
}

func TestEmptyTraceHasOneState(t *testing.T) {
	empty := ExecutionState{TraceID: testID(1), PlanID: testID(2)}
	empty.Seal()
	got, err := DecodeExecutionState(empty.AppendCanonical(nil))
	if err != nil || got.Current != Pending || got.LastSeq != 0 {
		t.Errorf("empty trace: %+v (%v)", got, err)
	}
	for pointer, s := range map[string]ExecutionState{
		"/last_sequence_number": {TraceID: testID(1), PlanID: testID(2), Current: Executing},
		"/last_entry_digest":    {TraceID: testID(1), PlanID: testID(2), Current: Executing, LastSeq: 3},
	} {
		s.Seal()
		_, err := DecodeExecutionState(s.AppendCanonical(nil))
		refused(t, pointer, err, SchemaViolation, pointer)
		c := Checkpoint{TraceID: s.TraceID, Seq: s.LastSeq, State: CheckpointState{s.TraceID, s.PlanID, s.Current, s.LastSeq, s.LastDigest}}
		c.Seal()
		_, err = DecodeCheckpoint(c.AppendCanonical(nil))
		refused(t, pointer, err, SchemaViolation, "/checkpoint_state"+pointer)
	}
}

func TestNoteMembers(t *testing.T) {
	for _, c := range []struct {
		change  func(*Note)
		pointer string // "" = accepted
	}{
		{func(n *Note) { n.Kind = "vote2_x" }, ""},
		{func(n *Note) { n.Kind = NoteKind(strings.Repeat("k", 64)) }, ""},
		{func(n *Note) { n.Kind = NoteKind(strings.Repeat("k", 65)) }, "/kind"},
		{func(n *Note) { n.Kind = "" }, "/kind"},
		{func(n *Note) { n.Kind = "Vote" }, "/kind"},
		{func(n *Note) { n.Kind = "1st" }, "/kind"},
		{func(n *Note) { n.Kind = "_x" }, "/kind"},
		{func(n *Note) { n.Who = strings.Repeat("é", 255) }, ""},
		{func(n *Note) { n.Who = strings.Repeat("é", 256) }, "/who"},
		{func(n *Note) { n.Who = "" }, "/who"},
		{func(n *Note) { n.Body = []byte(`[]`) }, "/body"},
		{func(n *Note) { n.Body = []byte(`null`) }, "/body"},
		{func(n *Note) { n.Body = nil }, ""}, // stands for {}
		{func(n *Note) { n.Number = 0 }, "/note_number"},
	} {
		n := sampleNote()
		c.change(&n)
		n.Seal()
		if _, err := DecodeNote(n.AppendCanonical(nil)); c.pointer == "" {
			if err != nil {
				t.Errorf("%+v: %v", n, err)
			}
		} else {
			refused(t, string(n.AppendCanonical(nil)), err, SchemaViolation, c.pointer)
		}
	}
}

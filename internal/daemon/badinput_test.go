package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

var commits = regexp.MustCompile(`(?m)^tgad_(commits_total|appends_total|log_cursor|notes_total) .*$`)

// everything is what the store holds and how often it was written: log, open traces and
// the store's own counters.
func (b *bench) everything() string {
	b.t.Helper()
	raw, err := b.client.Metrics(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return string(b.content()) + string(bytes.Join(commits.FindAll(raw, -1), []byte("\n")))
}

// with changes one member of a JSON object.
func with(t *testing.T, raw []byte, name, value string) string {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatal(err)
	}
	m[name] = json.RawMessage(value)
	out, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestBadInputChangesNothing makes requests that must be refused, each with its code and its pointer.
// Afterwards the store has the same content and the same number of commits.
func TestBadInputChangesNothing(t *testing.T) {
	b := start(t, "[limits]\nrequest_bytes = \"256KiB\"\nartifact_bytes = \"64KiB\"\nbatch_items = 2\n")
	ctx := t.Context()
	first, err := b.client.Call(ctx, charge("taken"))
	if err != nil {
		t.Fatal(err)
	}
	c := mintChain(t, "raw-1", nil)
	lease, err := b.client.Lease(ctx, c.trace, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	done, err := b.client.Append(ctx, c.trace, appending(lease.Lease, c.request))
	if err != nil {
		t.Fatal(err)
	}
	other := mintChain(t, "raw-2", nil)

	call := func(members string) string {
		return `{"tool_server":"pay","tool_name":"charge","idempotency_key":"new"` + members + `}`
	}
	add := func(lease string, artifacts ...string) string {
		for i := range artifacts {
			artifacts[i] = `{"artifact":` + artifacts[i] + `}`
		}
		return fmt.Sprintf(`{"lease":%q,"artifacts":[%s]}`, lease, strings.Join(artifacts, ","))
	}
	request, decision := string(c.request.Canonical), string(c.decision.Canonical)
	entries := "/v1/traces/" + c.trace.String() + "/entries"
	expecting := func(seq uint64, digest tga.Digest) string {
		return fmt.Sprintf(`{"lease":%q,"expect":{"sequence_number":%d,"entry_digest":"%s"},"artifacts":[{"artifact":%s}]}`, lease.Lease, seq, digest, decision)
	}
	entry := func(name, value string) string {
		made := tga.LogEntry{
			TraceID: c.trace, Seq: 2, Prev: done.Head.Digest, TS: tga.MillisOf(time.Now()), From: tga.Pending, To: tga.Authorized,
			Type: tga.DecisionType, ArtifactID: c.decision.ID, ArtifactDigest: c.decision.Digest,
		}
		switch name {
		case "sequence_number":
			made.Seq = 3
		case "prev_entry_digest":
			made.Prev = tga.Sum([]byte("another"))
		case "from_state":
			made.From, made.To = tga.Authorized, tga.Executing
		}
		made.Seal()
		raw := string(made.AppendCanonical(nil))
		if value != "" {
			raw = with(t, []byte(raw), name, value)
		}
		return fmt.Sprintf(`{"lease":%q,"artifacts":[{"artifact":%s,"entry":%s}]}`, lease.Lease, decision, raw)
	}
	zeros := strings.Repeat("0", 64)
	unlinked := &tga.Artifact{
		Type: tga.DecisionType, ID: newID(), TraceID: c.trace, PlanID: c.decision.PlanID, TS: c.decision.TS,
		Decision: &tga.SupervisorDecision{
			RequestID: c.request.ID, RequestDigest: tga.Sum([]byte("another")), Decision: tga.Approve, Rationale: "of another request",
		},
	}
	if err := unlinked.Seal(); err != nil {
		t.Fatal(err)
	}

	for _, x := range []struct {
		name, method, path, body string
		header                   []string
		status                   int
		code                     tga.Code
		pointer                  string
	}{
		{name: "unknown path", method: "POST", path: "/v1/nothing", body: "{}", status: 404, code: tga.NotFound},
		{name: "unclean path", method: "POST", path: "/v1//tool-calls", body: call(""), status: 404, code: tga.NotFound},
		{name: "unclean path, escaped", method: "POST", path: "/v1/%2e%2e/v1/tool-calls", body: call(""), status: 404, code: tga.NotFound},
		{name: "slashes, escaped", method: "POST", path: "/v1%2F%2Ftool-calls", body: call(""), status: 404, code: tga.NotFound},
		{name: "slash at the end", method: "POST", path: "/v1/tool-calls/", body: call(""), status: 404, code: tga.NotFound},
		{name: "no path", method: "POST", path: "/", body: call(""), status: 404, code: tga.NotFound},
		{name: "wrong method", method: "PUT", path: "/v1/tool-calls", body: call(""), status: 405, code: tga.ValidationError},
		{name: "another host", method: "POST", path: "/v1/tool-calls", body: call(""), header: []string{"Host", "localhost"}, status: 421, code: tga.ValidationError},
		{name: "no client name", method: "POST", path: "/v1/tool-calls", body: call(""), header: []string{"Tgad-Client", ""}, status: 422, code: tga.ValidationError},
		{name: "long client name", method: "POST", path: "/v1/tool-calls", body: call(""), header: []string{"Tgad-Client", strings.Repeat("x", 129)}, status: 422, code: tga.ValidationError},
		{name: "bad timeout", method: "POST", path: "/v1/tool-calls", body: call(""), header: []string{"Tgad-Timeout", "soon"}, status: 422, code: tga.ValidationError},
		{name: "negative timeout", method: "POST", path: "/v1/tool-calls", body: call(""), header: []string{"Tgad-Timeout", "-1s"}, status: 422, code: tga.ValidationError},

		{name: "empty body", method: "POST", path: "/v1/tool-calls", status: 422, code: tga.ValidationError, pointer: "/tool_server"},
		{name: "no JSON", method: "POST", path: "/v1/tool-calls", body: "tool=charge", status: 422, code: tga.ValidationError},
		{name: "cut off", method: "POST", path: "/v1/tool-calls", body: call("")[:20], status: 422, code: tga.ValidationError},
		{name: "two texts", method: "POST", path: "/v1/tool-calls", body: call("") + call(""), status: 422, code: tga.ValidationError},
		{name: "an array", method: "POST", path: "/v1/tool-calls", body: "[]", status: 422, code: tga.ValidationError},
		{name: "null", method: "POST", path: "/v1/tool-calls", body: "null", status: 422, code: tga.ValidationError},
		{name: "bad UTF-8", method: "POST", path: "/v1/tool-calls", body: call(`,"intent":"` + "\xff" + `"`), status: 422, code: tga.ValidationError, pointer: "/intent"},
		{name: "lone surrogate", method: "POST", path: "/v1/tool-calls", body: call(`,"intent":"\ud800 is half of one"`), status: 422, code: tga.ValidationError, pointer: "/intent"},
		{name: "member twice", method: "POST", path: "/v1/tool-calls", body: call(`,"tool_name":"balance"`), status: 422, code: tga.ValidationError, pointer: "/tool_name"},
		{name: "member twice in args", method: "POST", path: "/v1/tool-calls", body: call(`,"args":{"amount":1,"amount":1000}`), status: 422, code: tga.ValidationError, pointer: "/args/amount"},
		{name: "member in another case", method: "POST", path: "/v1/tool-calls", body: call(`,"Tool_Name":"balance"`), status: 422, code: tga.ValidationError, pointer: "/Tool_Name"},
		{name: "unknown member", method: "POST", path: "/v1/tool-calls", body: call(`,"licence":"read_only"`), status: 422, code: tga.ValidationError, pointer: "/licence"},
		{name: "unsafe number", method: "POST", path: "/v1/tool-calls", body: call(`,"args":{"amount":9007199254740993}`), status: 422, code: tga.ValidationError, pointer: "/args/amount"},
		{name: "deep", method: "POST", path: "/v1/tool-calls", body: call(`,"args":{"a":` + strings.Repeat("[", 128) + strings.Repeat("]", 128) + `}`), status: 413, code: tga.LimitExceeded},
		{name: "very deep", method: "POST", path: "/v1/tool-calls", body: strings.Repeat("[", 100_000), status: 413, code: tga.LimitExceeded},
		{name: "too long", method: "POST", path: "/v1/tool-calls", body: call(`,"args":{"a":"` + strings.Repeat("x", 256<<10) + `"}`), status: 413, code: tga.LimitExceeded},
		{name: "args too long", method: "POST", path: "/v1/tool-calls", body: call(`,"args":{"a":"` + strings.Repeat("x", 64<<10) + `"}`), status: 413, code: tga.LimitExceeded},
		{name: "args an array", method: "POST", path: "/v1/tool-calls", body: call(`,"args":[1]`), status: 422, code: tga.SchemaViolation},
		{name: "wrong type", method: "POST", path: "/v1/tool-calls", body: call(`,"retry":"yes"`), status: 422, code: tga.ValidationError, pointer: "/retry"},
		{name: "null member", method: "POST", path: "/v1/tool-calls", body: call(`,"intent":null`), status: 422, code: tga.ValidationError, pointer: "/intent"},
		{name: "trace id of version 4", method: "POST", path: "/v1/tool-calls", body: call(`,"trace_id":"01936a8b-4c2d-4000-8000-000000000001"`), status: 422, code: tga.ValidationError, pointer: "/trace_id"},
		{name: "trace id in upper case", method: "POST", path: "/v1/tool-calls", body: call(`,"trace_id":"01936A8B-4C2D-7000-8000-000000000001"`), status: 422, code: tga.ValidationError, pointer: "/trace_id"},
		{name: "tool name with a space", method: "POST", path: "/v1/tool-calls", body: `{"tool_server":"pay","tool_name":"charge it","idempotency_key":"new"}`, status: 422, code: tga.SchemaViolation},
		{name: "short intent", method: "POST", path: "/v1/tool-calls", body: call(`,"intent":"short"`), status: 422, code: tga.SchemaViolation},
		{name: "risk unknown", method: "POST", path: "/v1/tool-calls", body: call(`,"risk_level":"NONE"`), status: 422, code: tga.SchemaViolation},
		{name: "meta of tgad's own", method: "POST", path: "/v1/tool-calls", body: call(`,"meta":{"namespace":"other"}`), status: 422, code: tga.ValidationError, pointer: "/meta/namespace"},
		{name: "meta not scalar", method: "POST", path: "/v1/tool-calls", body: call(`,"meta":{"a":{}}`), status: 422, code: tga.ValidationError, pointer: "/meta/a"},
		{name: "no key", method: "POST", path: "/v1/tool-calls", body: `{"tool_server":"pay","tool_name":"charge"}`, status: 400, code: tga.IdempotencyKeyRequired},
		{name: "key that is empty", method: "POST", path: "/v1/tool-calls", body: `{"tool_server":"pay","tool_name":"charge","idempotency_key":""}`, status: 422, code: tga.ValidationError, pointer: "/idempotency_key"},
		{name: "key with other args", method: "POST", path: "/v1/tool-calls", body: `{"tool_server":"pay","tool_name":"charge","idempotency_key":"taken","args":{"amount":6}}`, status: 422, code: tga.IdempotencyKeyConflict},
		{name: "trace of another call", method: "POST", path: "/v1/tool-calls", body: call(`,"trace_id":"` + first.TraceID.String() + `"`), status: 409, code: tga.StateInvalidTransition},

		{name: "begin without id", method: "POST", path: "/v1/begin", body: call(""), status: 422, code: tga.ValidationError, pointer: "/begin_id"},
		{name: "finish of no trace", method: "POST", path: "/v1/traces/" + newID().String() + "/finish", body: `{"permit":"` + zeros[:32] + `","status":"SUCCESS"}`, status: 404, code: tga.NotFound},
		{name: "finish with a permit of nobody", method: "POST", path: "/v1/traces/" + first.TraceID.String() + "/finish", body: `{"permit":"` + zeros[:32] + `","status":"SUCCESS"}`, status: 403, code: tga.PermissionDenied},
		{name: "finish with no permit's form", method: "POST", path: "/v1/traces/" + first.TraceID.String() + "/finish", body: `{"permit":"x","status":"SUCCESS"}`, status: 422, code: tga.ValidationError, pointer: "/permit"},
		{name: "finish with two results", method: "POST", path: "/v1/traces/" + first.TraceID.String() + "/finish", body: `{"permit":"` + zeros[:32] + `","status":"SUCCESS","result":1,"result_base64":"Mg=="}`, status: 422, code: tga.ValidationError, pointer: "/result"},
		{name: "finish with a digest and no length", method: "POST", path: "/v1/traces/" + first.TraceID.String() + "/finish", body: `{"permit":"` + zeros[:32] + `","status":"SUCCESS","result_digest":"` + strings.Repeat("a", 64) + `"}`, status: 422, code: tga.ValidationError, pointer: "/result_digest"},
		{name: "resolve of a finished trace", method: "POST", path: "/v1/traces/" + first.TraceID.String() + "/resolve", body: `{"status":"SUCCESS","evidence":"seen"}`, status: 409, code: tga.StateInvalidTransition},
		{name: "resolve without evidence", method: "POST", path: "/v1/traces/" + first.TraceID.String() + "/resolve", body: `{"status":"SUCCESS"}`, status: 422, code: tga.ValidationError, pointer: "/evidence"},
		{name: "decide where nothing waits", method: "POST", path: "/v1/traces/" + first.TraceID.String() + "/decide", body: `{"approve":true,"rationale":"long enough to be one"}`, status: 409, code: tga.StateInvalidTransition},
		{name: "decide without a reason", method: "POST", path: "/v1/traces/" + first.TraceID.String() + "/decide", body: `{"approve":true,"rationale":"no"}`, status: 422, code: tga.ValidationError, pointer: "/rationale"},

		{name: "decide in another's name", method: "POST", path: "/v1/traces/" + first.TraceID.String() + "/decide", body: `{"approve":true,"rationale":"long enough to be one","who":"ann"}`, status: 422, code: tga.ValidationError, pointer: "/who"},
		{name: "submitter of the caller's choice", method: "POST", path: "/v1/tool-calls", body: call(`,"submitter":"ann"`), status: 422, code: tga.ValidationError, pointer: "/submitter"},
		{name: "submitter in meta", method: "POST", path: "/v1/tool-calls", body: call(`,"meta":{"submitter":"ann"}`), status: 422, code: tga.ValidationError, pointer: "/meta/submitter"},
		{name: "replay of another type", method: "POST", path: "/v1/tool-calls", body: call(`,"replay":1`), status: 422, code: tga.ValidationError, pointer: "/replay"},
		{name: "scope with NUL", method: "POST", path: "/v1/tool-calls", body: `{"tool_server":"pay","tool_name":"charge","scope":"a\u0000b"}`, status: 422, code: tga.ValidationError},
		{name: "step without a scope", method: "POST", path: "/v1/tool-calls", body: `{"tool_server":"pay","tool_name":"charge","step":"s"}`, status: 400, code: tga.IdempotencyKeyRequired},
		{name: "finish with half a change", method: "POST", path: "/v1/traces/" + first.TraceID.String() + "/finish", body: `{"permit":"` + zeros[:32] + `","status":"SUCCESS","changes":[{"resource_type":"a","resource_id":"b"}]}`, status: 422, code: tga.ValidationError, pointer: "/changes/0/operation"},
		{name: "finish with more than a change", method: "POST", path: "/v1/traces/" + first.TraceID.String() + "/finish", body: `{"permit":"` + zeros[:32] + `","status":"SUCCESS","changes":[{"resource_type":"a","resource_id":"b","operation":"c","x":1}]}`, status: 422, code: tga.ValidationError, pointer: "/changes/0/x"},
		{name: "give up without a permit", method: "POST", path: "/v1/traces/" + first.TraceID.String() + "/give-up", body: `{}`, status: 422, code: tga.ValidationError, pointer: "/permit"},
		{name: "give up with no permit's form", method: "POST", path: "/v1/traces/" + first.TraceID.String() + "/give-up", body: `{"permit":"x"}`, status: 422, code: tga.ValidationError, pointer: "/permit"},
		{name: "give up with a permit of nobody", method: "POST", path: "/v1/traces/" + first.TraceID.String() + "/give-up", body: `{"permit":"` + zeros[:32] + `"}`, status: 403, code: tga.PermissionDenied},
		{name: "delivered of no trace", method: "POST", path: "/v1/traces/" + newID().String() + "/delivered", status: 404, code: tga.NotFound},
		{name: "delivered with a member", method: "POST", path: "/v1/traces/" + first.TraceID.String() + "/delivered", body: `{"at":1}`, status: 422, code: tga.ValidationError, pointer: "/at"},
		{name: "compensate of no trace", method: "POST", path: "/v1/traces/" + newID().String() + "/compensate", status: 404, code: tga.NotFound},
		{name: "compensate by a call of the caller's choice", method: "POST", path: "/v1/traces/" + first.TraceID.String() + "/compensate", body: `{"tool_name":"refund"}`, status: 422, code: tga.ValidationError, pointer: "/tool_name"},
		{name: "compensate without an inverse", method: "POST", path: "/v1/traces/" + first.TraceID.String() + "/compensate", status: 404, code: tga.NotFound},
		{name: "compensate of an open trace", method: "POST", path: "/v1/traces/" + c.trace.String() + "/compensate", status: 409, code: tga.StateInvalidTransition},
		{name: "keep without a name", method: "POST", path: "/v1/keep", body: `{"tool_server":"s","name":""}`, status: 422, code: tga.ValidationError, pointer: "/name"},
		{name: "attachments of no kind", method: "GET", path: "/v1/attachments", status: 422, code: tga.ValidationError, pointer: "/kind"},
		{name: "attachments of a kind that is not shown", method: "GET", path: "/v1/attachments?kind=approval", status: 422, code: tga.ValidationError, pointer: "/kind"},
		{name: "attachments by half a byte", method: "GET", path: "/v1/attachments?kind=blob&prefix=0", status: 422, code: tga.ValidationError, pointer: "/prefix"},
		{name: "kept of no tool server", method: "GET", path: "/v1/kept", status: 422, code: tga.ValidationError, pointer: "/tool_server"},
		{name: "plan of nothing", method: "GET", path: "/v1/rollback-plan", status: 422, code: tga.ValidationError, pointer: "/trace"},
		{name: "plan of no id", method: "GET", path: "/v1/rollback-plan?trace=one", status: 422, code: tga.ValidationError, pointer: "/trace"},
		{name: "plan of no trace", method: "GET", path: "/v1/rollback-plan?trace=" + newID().String(), status: 404, code: tga.NotFound},
		{name: "evidence of no digest", method: "GET", path: "/v1/evidence/" + zeros[:63], status: 422, code: tga.ValidationError, pointer: "/digest"},
		{name: "evidence that is not there", method: "GET", path: "/v1/evidence/" + zeros, status: 404, code: tga.NotFound},
		{name: "evidence of no trace's form", method: "GET", path: "/v1/evidence/" + zeros + "?trace=one", status: 422, code: tga.ValidationError, pointer: "/trace"},
		{name: "evidence that the trace does not name", method: "GET", path: "/v1/evidence/" + zeros + "?trace=" + first.TraceID.String(), status: 404, code: tga.NotFound},

		{name: "trace id in the path", method: "POST", path: "/v1/traces/one/entries", body: add(lease.Lease, decision), status: 422, code: tga.ValidationError, pointer: "/id"},
		{name: "append of nothing", method: "POST", path: entries, body: `{"artifacts":[]}`, status: 422, code: tga.ValidationError, pointer: "/artifacts"},
		{name: "append without lease", method: "POST", path: entries, body: strings.Replace(add("", decision), `"lease":"",`, "", 1), status: 423, code: tga.StateLockAcquireFailed},
		{name: "append with no lease's token", method: "POST", path: entries, body: add(zeros[:32], decision), status: 423, code: tga.StateLockAcquireFailed},
		{name: "append with another trace's lease", method: "POST", path: "/v1/traces/" + other.trace.String() + "/entries", body: add(lease.Lease, string(other.request.Canonical)), status: 423, code: tga.StateLockAcquireFailed},
		{name: "artifact with a wrong digest", method: "POST", path: entries, body: add(lease.Lease, with(t, c.decision.Canonical, "_digest", `"`+zeros+`"`)), status: 409, code: tga.StateChecksumMismatch, pointer: "/artifacts/0/artifact/_digest"},
		{name: "artifact that was changed", method: "POST", path: entries, body: add(lease.Lease, with(t, c.decision.Canonical, "rationale", `"another rationale"`)), status: 409, code: tga.StateChecksumMismatch, pointer: "/artifacts/0/artifact/_digest"},
		{name: "artifact with an unknown member", method: "POST", path: entries, body: add(lease.Lease, with(t, c.decision.Canonical, "extra", `1`)), status: 422, code: tga.SchemaViolation, pointer: "/artifacts/0/artifact/extra"},
		{name: "artifact of another trace", method: "POST", path: entries, body: add(lease.Lease, string(other.decision.Canonical)), status: 422, code: tga.SchemaViolation},
		{name: "genesis again", method: "POST", path: entries, body: add(lease.Lease, with(t, c.request.Canonical, "intent", `"another intention"`)), status: 409, code: tga.StateChecksumMismatch},
		{name: "a step left out", method: "POST", path: entries, body: add(lease.Lease, string(c.call.Canonical)), status: 409, code: tga.StateInvalidTransition},
		{name: "a wrong head's number", method: "POST", path: entries, body: expecting(4, done.Head.Digest), status: 409, code: tga.StateSequenceGap},
		{name: "a wrong head's digest", method: "POST", path: entries, body: expecting(1, tga.Sum(nil)), status: 409, code: tga.StateChecksumMismatch},
		{name: "entry with a gap", method: "POST", path: entries, body: entry("sequence_number", ""), status: 409, code: tga.StateSequenceGap},
		{name: "entry with another link", method: "POST", path: entries, body: entry("prev_entry_digest", ""), status: 409, code: tga.StateChecksumMismatch},
		{name: "entry from another state", method: "POST", path: entries, body: entry("from_state", ""), status: 409, code: tga.StateInvalidTransition},
		{name: "entry that was changed", method: "POST", path: entries, body: entry("ts", `"2026-01-15T19:00:00.000Z"`), status: 409, code: tga.StateChecksumMismatch, pointer: "/artifacts/0/entry/entry_digest"},
		{name: "genesis and more again", method: "POST", path: entries, body: add(lease.Lease, request, decision), status: 409, code: tga.StateInvalidTransition},
		{name: "decision about another request", method: "POST", path: entries, body: add(lease.Lease, string(unlinked.Canonical)), status: 409, code: tga.StateChecksumMismatch},
		{name: "batch of none", method: "POST", path: "/v1/entries:batch", body: `{"items":[]}`, status: 422, code: tga.ValidationError, pointer: "/items"},

		{name: "lease renewed that is not held", method: "POST", path: "/v1/traces/" + c.trace.String() + "/lease:renew", body: `{"lease":"` + zeros[:32] + `"}`, status: 423, code: tga.StateLockAcquireFailed},
		{name: "lease taken that is held", method: "POST", path: "/v1/traces/" + c.trace.String() + "/lease", body: `{}`, status: 423, code: tga.StateLockAcquireFailed},
		{name: "checkpoint of a held trace", method: "POST", path: "/v1/traces/" + c.trace.String() + "/checkpoint", body: `{}`, status: 423, code: tga.StateLockAcquireFailed},
		{name: "backup to a relative path", method: "POST", path: "/v1/backup", body: `{"dir":"backup"}`, status: 422, code: tga.ValidationError, pointer: "/dir"},
		{name: "backup over something", method: "POST", path: "/v1/backup", body: `{"dir":"` + b.data + `"}`},

		{name: "cursor past the end", method: "GET", path: "/v1/log?after=999", status: 422, code: tga.ValidationError, pointer: "/after"},
		{name: "cursor of no number", method: "GET", path: "/v1/log?after=x", status: 422, code: tga.ValidationError, pointer: "/after"},
		{name: "follow of no flag", method: "GET", path: "/v1/log?follow=yes", status: 422, code: tga.ValidationError, pointer: "/follow"},
		{name: "state unknown", method: "GET", path: "/v1/traces?state=DONE", status: 422, code: tga.ValidationError, pointer: "/state"},
		{name: "document unknown", method: "GET", path: "/v1/traces/" + first.TraceID.String() + "/documents?pointer=/other", status: 404, code: tga.NotFound},
		{name: "document with no pointer", method: "GET", path: "/v1/traces/" + first.TraceID.String() + "/documents?pointer=result", status: 422, code: tga.ValidationError, pointer: "/pointer"},
		{name: "document without pointer", method: "GET", path: "/v1/traces/" + first.TraceID.String() + "/documents", status: 422, code: tga.ValidationError, pointer: "/pointer"},
	} {
		t.Run(x.name, func(t *testing.T) {
			b.t = t
			before := b.everything()
			status, header, raw := b.raw(x.method, x.path, x.body, x.header...)
			var p wire.Problem
			if err := json.Unmarshal(raw, &p); err != nil || header.Get("Content-Type") != wire.ProblemType {
				t.Fatalf("%d %s: %s", status, header.Get("Content-Type"), raw)
			}
			if x.status == 0 {
				x.status, x.code = status, p.Code // any refusal will do
			}
			if status < 400 || status != x.status || p.Status != status || p.Code != x.code || x.pointer != "" && p.Pointer != x.pointer {
				t.Errorf("%d %s at %q (%s), want %d %s at %q", status, p.Code, p.Pointer, p.Detail, x.status, x.code, x.pointer)
			}
			// The title is the code's alone: it must not guess which of its causes this is.
			if info, ok := p.Code.Info(); !ok || p.Title != info.Title || strings.Contains(p.Title, "JSON") {
				t.Errorf("title %q, want %q", p.Title, info.Title)
			}
			if after := b.everything(); after != before {
				t.Errorf("the store changed:\n%s\n%s", before, after)
			}
		})
	}
	if n := b.tool.sends("new"); n != 0 {
		t.Errorf("%d sends of refused calls", n)
	}
}

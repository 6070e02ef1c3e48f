package daemon

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// trial is a value that a test gives a member of a request.
type trial struct {
	value   string // JSON
	atBound bool   // the last value before a bound, or a long text where there is no bound
}

func text(of string, n int) string { return `"` + strings.Repeat(of, n) + `"` }

// resolved is a schema of the document, its $ref followed.
func (d *document) resolved(s map[string]any) map[string]any {
	for s["$ref"] != nil {
		s = d.at(strings.Split(strings.TrimPrefix(s["$ref"].(string), "#/"), "/")...)
	}
	return s
}

// numberOf reads a bound of a schema, -1 if it has none.
func numberOf(s map[string]any, name string) int {
	switch n := s[name].(type) {
	case int:
		return n
	case json.Number:
		if i, err := n.Int64(); err == nil {
			return int(i)
		}
	}
	return -1
}

// trials derives values from the schema of a member: those at each bound, one past it, and those of other types.
func (d *document) trials(s map[string]any) []trial {
	s = d.resolved(s)
	all := []trial{{"null", false}, {"true", false}, {"1.5", false}, {"-1", false}, {`"x"`, false}, {`"A_B"`, false}, {"[]", false}, {"{}", false}, {"[1]", false}}
	switch s["type"] {
	case "string":
		long, short := numberOf(s, "maxLength"), numberOf(s, "minLength")
		plain := s["enum"] == nil && s["pattern"] == nil && s["contentEncoding"] == nil
		if long < 0 {
			all = append(all, trial{text("x", 4000), plain}, trial{text("é", 3), plain}, trial{text("A", 200), plain})
		} else {
			all = append(all, trial{text("x", long), true}, trial{text("x", long+1), false})
		}
		if short > 0 {
			all = append(all, trial{text("x", short), true}, trial{text("x", short-1), false})
		}
	case "integer":
		most, least := numberOf(s, "maximum"), max(numberOf(s, "minimum"), 0)
		all = append(all, trial{fmt.Sprint(least), true}, trial{fmt.Sprint(least - 1), false}, trial{"1e300", false})
		if most >= 0 {
			all = append(all, trial{fmt.Sprint(most), true}, trial{fmt.Sprint(most + 1), false})
		}
	case "object":
		properties, _ := s["properties"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			for _, t := range d.trials(properties[name].(map[string]any)) {
				m := d.minimal(s)
				m[name] = json.RawMessage(t.value)
				all = append(all, trial{string(mustJSON(m)), t.atBound})
			}
		}
	case "array":
		items := s["items"].(map[string]any)
		if most := numberOf(s, "maxItems"); most >= 0 && most < 2000 {
			one := string(d.example(items))
			all = append(all, trial{"[" + one + strings.Repeat(","+one, most) + "]", false})
		}
		if d.resolved(items)["type"] == "object" {
			for _, t := range d.trials(items) {
				all = append(all, trial{"[" + t.value + "]", t.atBound})
			}
		}
	}
	return all
}

func mustJSON(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

// minimal has the required members of an object.
func (d *document) minimal(s map[string]any) map[string]json.RawMessage {
	m := map[string]json.RawMessage{}
	required, _ := s["required"].([]any)
	for _, name := range required {
		m[name.(string)] = d.example(s["properties"].(map[string]any)[name.(string)].(map[string]any))
	}
	return m
}

// example is a value that a schema takes.
func (d *document) example(s map[string]any) json.RawMessage {
	if s = d.resolved(s); s["enum"] != nil {
		return mustJSON(s["enum"].([]any)[0])
	}
	switch pattern, _ := s["pattern"].(string); {
	case strings.Contains(pattern, "-7["):
		return mustJSON(newID().String())
	case s["type"] == "object":
		return mustJSON(d.minimal(s))
	}
	return json.RawMessage(`"an example"`)
}

// bounded is a request schema, and how the test makes a request that the daemon takes: its path and its members.
type boundedRequest struct {
	schema string
	ask    func(n int) (path string, members map[string]string)
}

// requestsOfBounds are requests that change nothing that the next one needs.
func requestsOfBounds(b *bench) []boundedRequest {
	fixed := func(path string, members map[string]string) func(int) (string, map[string]string) {
		return func(int) (string, map[string]string) { return path, maps.Clone(members) }
	}
	begun := func(n int) (string, string) {
		g, err := b.client.Begin(b.t.Context(), runtime.BeginRequest{Request: runtime.Request{Server: "remote", Tool: "charge", Key: fmt.Sprint("k", n)}, BeginID: fmt.Sprint("b", n)})
		if err != nil || g.Standing != runtime.BeginSend {
			b.t.Fatalf("begin: %+v %v", g, err)
		}
		return "/v1/traces/" + g.Result.TraceID.String(), g.Permit.String()
	}
	reported := func(verb string) func(int) (string, map[string]string) {
		return func(n int) (string, map[string]string) {
			path, permit := begun(n)
			return path + verb, map[string]string{"permit": text(permit, 1), "status": `"SUCCESS"`, "result_digest": text("a", 64), "result_bytes": "7"}
		}
	}
	short := func(verb string) func(int) (string, map[string]string) {
		return func(n int) (string, map[string]string) {
			path, permit := begun(n)
			return path + verb, map[string]string{"permit": text(permit, 1)}
		}
	}
	inDoubt := func(verb string, members map[string]string) func(int) (string, map[string]string) {
		return func(n int) (string, map[string]string) {
			path, permit := begun(n)
			if status, _, raw := b.raw("POST", path+"/give-up", `{"permit":"`+permit+`"}`); status != 200 {
				b.t.Fatalf("give up: %s", raw)
			}
			return path + verb, maps.Clone(members)
		}
	}
	call := func(n int) map[string]string {
		return map[string]string{"tool_server": `"remote"`, "tool_name": `"charge"`, "idempotency_key": text(fmt.Sprint("c", n), 1)}
	}
	token := text("0", 32)
	return []boundedRequest{
		{"BeginRequest", func(n int) (string, map[string]string) {
			m := call(n)
			m["begin_id"] = text(fmt.Sprint("c", n), 1)
			return "/v1/begin", m
		}},
		{"CallRequest", func(n int) (string, map[string]string) {
			m := call(n)
			m["tool_server"] = `"pay"`
			return "/v1/tool-calls", m
		}},
		{"FinishRequest", reported("/finish")},
		{"NotSentRequest", short("/not-sent")},
		{"GiveUpRequest", short("/give-up")},
		{"ResolveRequest", inDoubt("/resolve", map[string]string{"status": `"SUCCESS"`, "evidence": "1", "result_digest": text("a", 64), "result_bytes": "7"})},
		{"AbandonRequest", inDoubt("/abandon", nil)},
		{"RelicenseRequest", inDoubt("/relicense", map[string]string{"reason": `"because"`, "dry_run": "true"})},
		{"DecideRequest", inDoubt("/decide", map[string]string{"approve": "true", "rationale": `"long enough to be one"`})},
		{"KeepRequest", fixed("/v1/keep", map[string]string{"tool_server": `"remote"`, "name": `"n"`, "value_base64": `"YQ=="`})},
		{"LeaseRequest", fixed("/v1/traces/"+newID().String()+"/lease:release", map[string]string{"lease": token})},
		{"CheckpointRequest", inDoubt("/checkpoint", map[string]string{"lease": token})},
		{"ExportRequest", fixed("/v1/export", map[string]string{"trace_ids": "[" + string(mustJSON(newID())) + "]"})},
		{"VerifyRequest", fixed("/v1/verify", map[string]string{"trace_id": string(mustJSON(newID()))})},
		{"SealRequest", fixed("/v1/seal", map[string]string{"before": `"2020-01-01T00:00:00.000Z"`})},
		{"NotifyRequest", fixed("/v1/notify", nil)},
		{"BackupRequest", fixed("/v1/backup", map[string]string{"dir": `"/nonexistent/x"`})},
	}
}

// refusedForm says whether an answer refuses a request for its form.
func refusedForm(t *testing.T, status int, raw []byte) bool {
	t.Helper()
	var p wire.Problem
	if status < 300 {
		return false
	}
	if err := json.Unmarshal(raw, &p); err != nil || status == 500 {
		t.Errorf("%d %s", status, raw)
	}
	return p.Code == tga.ValidationError || p.Code == tga.SchemaViolation || p.Code == tga.LimitExceeded
}

// TestBoundsOfTheDocumentAreTheDaemons gives each member of each request the values at the bounds of its schema, and
// past them. The daemon refuses what the document refuses, and takes what stands at a bound of the document.
func TestBoundsOfTheDocumentAreTheDaemons(t *testing.T) {
	b, d := start(t, "[[tool]]\nserver = \"remote\"\nname = \"charge\"\nclient_licence = true\n"), openDocument(t)
	n := 0
	for _, r := range requestsOfBounds(b) {
		schema := d.at("components", "schemas", r.schema)
		properties := schema["properties"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			for _, v := range d.trials(properties[name].(map[string]any)) {
				n++
				path, members := r.ask(n)
				body := map[string]json.RawMessage{}
				for member, value := range members {
					body[member] = json.RawMessage(value)
				}
				switch body[name] = json.RawMessage(v.value); name {
				case "licence_max_in_flight_ms":
					body["licence"] = json.RawMessage(`"probe"`)
				case "licence_window_ms":
					v.atBound = false // it must be over its margin
				}
				raw := mustJSON(body)
				takes := d.validate(raw, "components", "schemas", r.schema) == nil
				status, _, answer := b.raw("POST", path, string(raw))
				if refused := refusedForm(t, status, answer); !takes && !refused || takes && v.atBound && refused {
					t.Errorf("%s.%s %.100s: the document takes it: %v; the daemon: %d %.200s", r.schema, name, v.value, takes, status, answer)
				}
			}
		}
	}
	if n < 1000 {
		t.Errorf("only %d requests were made", n)
	}
}

// TestParametersOfTheDocumentAreTheDaemons: the daemon refuses a parameter of a query that the document refuses.
func TestParametersOfTheDocumentAreTheDaemons(t *testing.T) {
	b, d := start(t, ""), openDocument(t)
	res, err := b.client.Call(t.Context(), charge("k"))
	if err != nil {
		t.Fatal(err)
	}
	walked := 0
	for _, r := range routes {
		op := d.at("paths", documented(r.path), strings.ToLower(r.method))
		parameters, _ := op["parameters"].([]any)
		for i, given := range parameters {
			place := []string{"paths", documented(r.path), strings.ToLower(r.method), "parameters", fmt.Sprint(i)}
			if ref, ok := given.(map[string]any)["$ref"].(string); ok {
				place = strings.Split(strings.TrimPrefix(ref, "#/"), "/")
			}
			p := d.resolved(given.(map[string]any))
			if p["in"] != "query" || !strings.HasPrefix(r.path, "/v1/") {
				continue
			}
			s := d.resolved(p["schema"].(map[string]any))
			for _, v := range []string{"x", "1.5", "-1", "true", "9007199254740993"} {
				value := text(v, 1)
				if s["type"] == "integer" && v != "x" {
					value = v
				}
				if s["type"] == "array" {
					value = "[" + value + "]"
				}
				if d.validate([]byte(value), append(place, "schema")...) == nil {
					continue // the answer may be a stream that does not end
				}
				path := strings.NewReplacer("{id}", res.TraceID.String(), "{digest}", strings.Repeat("a", 64)).Replace(r.path)
				query := url.Values{p["name"].(string): {v}}
				if p["name"] == "changes" {
					query.Set("follow", "1")
				}
				walked++
				if status, _, raw := b.raw(r.method, path+"?"+query.Encode(), ""); !refusedForm(t, status, raw) {
					t.Errorf("%s %s?%s: the document refuses it, the daemon: %d %.200s", r.method, path, query.Encode(), status, raw)
				}
			}
		}
	}
	if walked < 30 {
		t.Errorf("only %d parameters were walked", walked)
	}
}

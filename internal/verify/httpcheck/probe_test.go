package httpcheck

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

func base64Lines(raw []byte) string {
	s, lines := base64.StdEncoding.EncodeToString(raw), ""
	for ; len(s) > 64; s = s[64:] {
		lines += s[:64] + "\n"
	}
	return lines + s + "\n"
}

var call = runtime.Call{
	TraceID: tga.ID{1}, ToolCallID: tga.ID{2}, Server: "payments", Tool: "charge", Key: "order/1",
	Args: []byte(`{"amount":12.50,"customer":{"id":"c 1"},"lines":[1]}`),
}

// The rules for a server that answers {"key":…,"state":done|failed|unknown,"response":…}.
func rules(url string) ProberConfig {
	key := verify.Check{Pointer: "/key", Field: "key"}
	state := func(s string) Rule {
		return Rule{Checks: []verify.Check{key, {Pointer: "/state", Equals: &s}}}
	}
	return ProberConfig{
		URL: url + "/calls/{key}", Patience: soon,
		Ran:    []Rule{state("done"), state("failed")},
		NotRan: []Rule{state("unknown"), {Status: []int{404}}},
		Reply:  Reply{Result: "/response", Summary: "/message", Failure: []Rule{state("failed")}},
	}
}

func mustProber(t *testing.T, c ProberConfig) runtime.Prober {
	t.Helper()
	p, err := NewProber(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAnswers(t *testing.T) {
	const ran, not, unknown = ledger.ProbeRan, ledger.ProbeNotRan, ledger.ProbeUnknown
	done := `{"key":"order/1","state":"done","response": {"id": 9007199254740993},"message":"paid"}`
	for _, test := range []struct {
		name   string
		world  []http.HandlerFunc
		want   ledger.ProbeAnswer
		status string
		result string
		failed bool
		asked  int32
	}{
		{"ran", []http.HandlerFunc{says(200, done)}, ran, tga.StatusSuccess, `{"id": 9007199254740993}`, false, 1},
		{"ran and failed", []http.HandlerFunc{says(200, `{"key":"order/1","state":"failed","response":null}`)}, ran, tga.StatusFailure, `null`, false, 1},
		{"did not run", []http.HandlerFunc{says(200, `{"key":"order/1","state":"unknown"}`)}, not, "", "", false, 1},
		{"never heard of", []http.HandlerFunc{says(404, "")}, not, "", "", false, 1},
		{"still under way", []http.HandlerFunc{says(200, `{"key":"order/1","state":"pending"}`)}, unknown, "", "", false, 1},
		{"about another key", []http.HandlerFunc{says(200, strings.Replace(done, "order/1", "order/2", 1))}, unknown, "", "", false, 1},
		{"done, in a status of trouble", []http.HandlerFunc{says(409, done)}, unknown, "", "", false, 1},
		{"a page of a proxy", []http.HandlerFunc{says(200, "<html>")}, unknown, "", "", false, 1},
		{"both at once", []http.HandlerFunc{says(200, `{"key":"order/1","state":"done","state":"unknown","response":1}`)}, unknown, "", "", false, 1},
		{"ran, and the result is not there", []http.HandlerFunc{says(200, `{"key":"order/1","state":"done"}`)}, unknown, "", "", false, 1},
		{"an answer that is too long", []http.HandlerFunc{says(200, strings.Replace(done, "paid", strings.Repeat("p", verify.MaxBody), 1))}, unknown, "", "", false, 1},
		{"not allowed", []http.HandlerFunc{says(401, "")}, unknown, "", "", false, 1},
		{"redirected", []http.HandlerFunc{says(302, done, "Location: /")}, unknown, "", "", false, 1},
		{"busy, then ran", []http.HandlerFunc{says(503, done), says(200, done)}, ran, tga.StatusSuccess, `{"id": 9007199254740993}`, false, 2},
		{"busy for too long", []http.HandlerFunc{says(500, done)}, unknown, "", "", true, 2},
		{"breaks off, then did not run", []http.HandlerFunc{diesInside, says(404, "")}, not, "", "", false, 2},
		{"dies", []http.HandlerFunc{dies}, unknown, "", "", true, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := serve(t, test.world...)
			got, err := mustProber(t, rules(w.URL)).Probe(t.Context(), call)
			if got.Answer != test.want || (err != nil) != test.failed || got.Fenced || w.asked.Load() != test.asked {
				t.Fatalf("got %+v, %v after %d", got, err, w.asked.Load())
			}
			if got.Reply.Status != test.status || string(got.Reply.Result) != test.result {
				t.Errorf("reply %+v", got.Reply)
			}
			if !json.Valid(got.Evidence.Detail) || len(got.Evidence.Detail) > verify.MaxEvidence || !strings.Contains(got.Evidence.Source, "GET "+w.URL+"/calls/order%2F1") {
				t.Errorf("evidence %+v", got.Evidence)
			}
		})
	}
}

// TestContradictionIsUnknown: a rule of each side matches.
func TestContradictionIsUnknown(t *testing.T) {
	w := serve(t, says(200, `{}`))
	c := ProberConfig{URL: w.URL + "/{key}", Ran: []Rule{{Status: []int{200}}}, NotRan: []Rule{{Status: []int{200}}}, Patience: soon}
	if got, err := mustProber(t, c).Probe(t.Context(), call); got.Answer != ledger.ProbeUnknown || err != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	// If no pointer selects a part, the whole body is the result.
	c.NotRan = nil
	if got, err := mustProber(t, c).Probe(t.Context(), call); got.Answer != ledger.ProbeRan || string(got.Reply.Result) != "{}" || err != nil {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestResultAtTheLimit: a part of an effect is not recorded as the whole.
func TestResultAtTheLimit(t *testing.T) {
	for size, want := range map[int]ledger.ProbeAnswer{verify.MaxBody: ledger.ProbeRan, verify.MaxBody + 1: ledger.ProbeUnknown} {
		w := serve(t, says(200, strings.Repeat("x", size)))
		c := ProberConfig{URL: w.URL + "/{key}", Ran: []Rule{{Status: []int{200}}}, Patience: soon}
		got, err := mustProber(t, c).Probe(t.Context(), call)
		if got.Answer != want || err != nil || len(got.Evidence.Detail) > verify.MaxEvidence || want == ledger.ProbeRan && len(got.Reply.Result) != size {
			t.Errorf("%d bytes: got %v with %d, %v", size, got.Answer, len(got.Reply.Result), err)
		}
	}
}

func TestQuestionOfAProbe(t *testing.T) {
	w := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(rw, `{"asked":%q,"err":"%v"}`, r.Method+" "+r.RequestURI+" "+string(body)+" "+r.Header.Get("Content-Type"), err)
	})
	c := ProberConfig{
		URL: w.URL + "/{server}/{tool}/{key}?c={/customer/id}&t={trace_id}&l={/lines/0}", Method: "POST",
		Body: map[string]string{"key": "key", "amount": "/amount", "who": "/customer", "claim": "=true", "note": "/note?"},
		Ran:  []Rule{{Status: []int{200}}}, Patience: soon,
	}
	got, err := mustProber(t, c).Probe(t.Context(), call)
	want := `{"asked":"POST /payments/charge/order%2F1?c=c+1&t=` + call.TraceID.String() + `&l=1 {\"amount\":12.5,\"claim\":true,\"key\":\"order/1\",\"who\":{\"id\":\"c 1\"}} application/json","err":"<nil>"}`
	if err != nil || string(got.Reply.Result) != want {
		t.Errorf("got %s, %v\nwant %s", got.Reply.Result, err, want)
	}
	// A question cannot use a value that the call does not have.
	for _, change := range []func(*ProberConfig){
		func(c *ProberConfig) { c.URL = w.URL + "/{/none}" },
		func(c *ProberConfig) { c.URL = w.URL + "/{/customer}" },
		func(c *ProberConfig) { c.Body = map[string]string{"x": "/none", "key": "key"} },
	} {
		bad, before := c, w.asked.Load()
		change(&bad)
		if got, err := mustProber(t, bad).Probe(t.Context(), call); got.Answer != ledger.ProbeUnknown || tga.CodeOf(err) != tga.ValidationError || w.asked.Load() != before {
			t.Errorf("got %+v, %v", got, err)
		}
	}
}

// ledgerServer is a provider that acts at most once for each key, lets a key be claimed, and shows what it
// did only after the given number of questions.
type ledgerServer struct {
	mu      sync.Mutex
	done    map[string]string // key: body of the call
	claimed map[string]bool
	lag     int
}

// set changes the state of the server from outside.
func (s *ledgerServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *ledgerServer) act(r *http.Request) bool {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	if s.claimed[key] {
		return false
	}
	s.done[key] = string(body)
	return true
}

func (s *ledgerServer) show(rw http.ResponseWriter, r *http.Request) {
	var asked struct {
		Key   string
		Claim bool
	}
	if r.Method == http.MethodGet {
		asked.Key = strings.TrimPrefix(r.URL.Path, "/calls/")
	} else if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		rw.WriteHeader(400)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	state := "unknown"
	if s.lag--; s.done[asked.Key] != "" && s.lag < 0 {
		state = "done"
	} else if asked.Claim {
		s.claimed[asked.Key] = true
	}
	json.NewEncoder(rw).Encode(map[string]any{"key": asked.Key, "state": state, "response": s.done[asked.Key]})
}

// TestLostAcknowledgement: the server acts, and breaks off before it answers. The probe finds the effect,
// although it shows late.
func TestLostAcknowledgement(t *testing.T) {
	s := &ledgerServer{done: map[string]string{}, claimed: map[string]bool{}, lag: 3}
	w := serve(t, lost(func(r *http.Request) { s.act(r) }), s.show)
	req, err := http.NewRequestWithContext(t.Context(), "POST", w.URL, bytes.NewReader(call.Args))
	if err != nil {
		t.Fatal(err)
	}
	req.GetBody = nil
	req.Header.Set("Idempotency-Key", call.Key)
	tr := &http.Transport{DisableKeepAlives: true}
	if resp, err := tr.RoundTrip(req); err == nil {
		resp.Body.Close()
		t.Fatal("the acknowledgement arrived")
	}
	c := rules(w.URL)
	c.Patience = settling(3)
	if got, err := mustProber(t, c).Probe(t.Context(), call); got.Answer != ledger.ProbeNotRan || err != nil {
		t.Errorf("within a settling time that is too short: got %+v, %v", got, err)
	}
	s.set(func() { s.lag = 3 })
	c.Patience = settling(4)
	got, err := mustProber(t, c).Probe(t.Context(), call)
	var result string
	if err != nil || got.Answer != ledger.ProbeRan || json.Unmarshal(got.Reply.Result, &result) != nil || result != string(call.Args) {
		t.Errorf("got %+v, %v", got, err)
	}
	s.set(func() {
		if len(s.done) != 1 {
			t.Errorf("the server acted on %d keys", len(s.done))
		}
	})
}

// TestManyAtOnce: one prober asks about many calls, and each answer belongs to its call.
func TestManyAtOnce(t *testing.T) {
	s := &ledgerServer{done: map[string]string{}, claimed: map[string]bool{}}
	w := serve(t, s.show)
	for i := range 64 {
		if i%2 == 0 {
			s.done[fmt.Sprint("k", i)] = fmt.Sprint("r", i)
		}
	}
	p := mustProber(t, rules(w.URL))
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			call := call
			call.Key = fmt.Sprint("k", i)
			got, err := p.Probe(t.Context(), call)
			want := [...]ledger.ProbeAnswer{ledger.ProbeRan, ledger.ProbeNotRan}[i%2]
			if err != nil || got.Answer != want || want == ledger.ProbeRan && string(got.Reply.Result) != fmt.Sprintf("\"r%d\"", i) {
				t.Errorf("%d: got %+v, %v", i, got, err)
			}
		})
	}
	all.Wait()
}

// TestFences: if a server that claims keys says "did not run", that is final: it refuses a later attempt.
func TestFences(t *testing.T) {
	s := &ledgerServer{done: map[string]string{}, claimed: map[string]bool{}}
	w := serve(t, s.show)
	c := rules(w.URL)
	c.URL, c.Method, c.Fences = w.URL+"/claim", "POST", true
	c.Body = map[string]string{"key": "key", "claim": "=true"}
	got, err := mustProber(t, c).Probe(t.Context(), call)
	if err != nil || got.Answer != ledger.ProbeNotRan || !got.Fenced {
		t.Fatalf("got %+v, %v", got, err)
	}
	req, err := http.NewRequest("POST", w.URL, bytes.NewReader(call.Args))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", call.Key)
	if s.act(req) {
		t.Error("the attempt ran after the answer that it did not")
	}
	// An effect that exists is not fenced: nothing is to be sent.
	s.set(func() { s.claimed, s.done = map[string]bool{}, map[string]string{call.Key: "x"} })
	if got, err := mustProber(t, c).Probe(t.Context(), call); err != nil || got.Answer != ledger.ProbeRan || got.Fenced {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestProberConfigIsChecked(t *testing.T) {
	good := func() ProberConfig {
		return ProberConfig{URL: "http://h/{key}", Ran: []Rule{{Status: []int{200}}}}
	}
	for _, test := range []struct {
		change func(*ProberConfig)
		key    string
	}{
		{func(c *ProberConfig) {}, ""},
		{func(c *ProberConfig) { c.Method = "PUT" }, "method"},
		{func(c *ProberConfig) { c.URL = "http://h/" }, "url"},
		{func(c *ProberConfig) { c.URL = "http://h/{server}/{tool}" }, "url"},
		{func(c *ProberConfig) { c.URL = "http://h/{/order/id}" }, ""},
		{func(c *ProberConfig) { c.URL = "http://h/{version}" }, "url"},
		{func(c *ProberConfig) { c.Fences = true }, "fences"},
		{func(c *ProberConfig) { c.Fences, c.Method = true, "POST" }, ""},
		{func(c *ProberConfig) { c.Body = map[string]string{"k": "key"} }, "body"},
		{func(c *ProberConfig) { c.Method, c.Body = "POST", map[string]string{"k": "etag"} }, "body.k"},
		{func(c *ProberConfig) { c.URL, c.Method, c.Body = "http://h/", "POST", map[string]string{"k": "key"} }, ""},
		{func(c *ProberConfig) { c.Ran = nil }, "ran"},
		{func(c *ProberConfig) { c.Ran = []Rule{{}} }, "ran.0"},
		{func(c *ProberConfig) { c.NotRan = []Rule{{Status: []int{0}}} }, "not_ran.0.status"},
		{func(c *ProberConfig) { c.NotRan = []Rule{{Checks: []verify.Check{{Pointer: "x"}}}} }, "not_ran.0.check.0.pointer"},
		{func(c *ProberConfig) { c.Reply.Failure = []Rule{{Checks: []verify.Check{{Field: "etag"}}}} }, "reply.failure.0.check.0.field"},
		{func(c *ProberConfig) { c.Reply.Result = "x" }, "reply.result"},
		{func(c *ProberConfig) { c.Reply.Summary = "/~" }, "reply.summary"},
		{func(c *ProberConfig) { c.Settle = -1 }, "settle"},
		{func(c *ProberConfig) { c.HeadersFile = "/nonexistent" }, "headers_file"},
	} {
		c := good()
		test.change(&c)
		p, err := NewProber(c)
		wantKey(t, p != nil, err, test.key)
	}
}

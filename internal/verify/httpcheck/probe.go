package httpcheck

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/internal/verify/internal/web"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
)

// ProberConfig describes a prober; see the package's comment.
type ProberConfig struct {
	URL         string            `toml:"url"`
	Method      string            `toml:"method"`
	HeadersFile string            `toml:"headers_file"`
	CAFile      string            `toml:"ca_file"`
	Body        map[string]string `toml:"body"`
	Fences      bool              `toml:"fences"`
	Ran         []Rule            `toml:"ran"`
	NotRan      []Rule            `toml:"not_ran"`
	Reply       Reply             `toml:"reply"`
	verify.Patience
}

// Rule holds for an answer with one of the statuses, of which every check holds.
type Rule struct {
	Status []int          `toml:"status"` // none = 200 to 299
	Checks []verify.Check `toml:"check"`
}

// Reply says what is recorded of a call that ran.
type Reply struct {
	Result  string `toml:"result"`  // JSON Pointer; "" = the whole body
	Summary string `toml:"summary"` // JSON Pointer; "" = none
	Failure []Rule `toml:"failure"` // one holds: the tool reported an error
}

// inquiry asks for one call.
type inquiry struct {
	ProberConfig
	url    *verify.URL
	body   *verify.Args
	client *web.Client
}

// NewProber makes a prober of a URL, VALIDATION_ERROR where the configuration is wrong.
// It contacts nobody.
func NewProber(c ProberConfig) (runtime.Prober, error) {
	q := &inquiry{ProberConfig: c}
	if q.Method == "" {
		q.Method = http.MethodGet
	}
	switch {
	case q.Method != http.MethodGet && q.Method != http.MethodPost:
		return nil, verify.Invalid("method", "%.20q: want GET or POST", c.Method)
	case q.Method == http.MethodGet && len(c.Body) > 0:
		return nil, verify.Invalid("body", "a GET has none")
	case q.Method == http.MethodGet && c.Fences:
		return nil, verify.Invalid("fences", "a cache may answer a GET: want method POST")
	case len(c.Ran) == 0 && len(c.NotRan) == 0:
		return nil, verify.Invalid("ran", "without a rule every answer is unknown")
	}
	for _, list := range [...]struct {
		key   string
		rules []Rule
	}{{"ran", c.Ran}, {"not_ran", c.NotRan}, {"reply.failure", c.Reply.Failure}} {
		for i, r := range list.rules {
			at := fmt.Sprintf("%s.%d", list.key, i)
			if len(r.Status) == 0 && len(r.Checks) == 0 {
				return nil, verify.Invalid(at, "it asks nothing: want status or check")
			}
			if err := statuses(at+".status", r.Status); err != nil {
				return nil, err
			}
			if err := verify.ValidateAll(at+".check", r.Checks, verify.CallNames); err != nil {
				return nil, err
			}
		}
	}
	if err := verify.CheckPointers(c.Reply.Result, c.Reply.Summary); err != nil {
		return nil, err
	}
	patience, err := c.Complete()
	if err != nil {
		return nil, err
	}
	if q.url, err = verify.ParseURL("url", c.URL, verify.CallNames); err != nil {
		return nil, err
	}
	if q.body, err = verify.ParseArgs("body", c.Body, verify.CallNames); err != nil {
		return nil, err
	}
	if !verify.NamesCall(append(q.url.Names(), q.body.Names()...)) {
		return nil, verify.Invalid("url", "neither it nor the body names key, trace_id, tool_call_id or an argument")
	}
	if q.client, err = client(c.HeadersFile, c.CAFile); err != nil {
		return nil, err
	}
	return verify.NewProber(q.ask, patience), nil
}

func (q *inquiry) ask(ctx context.Context, call runtime.Call) (runtime.Probed, error) {
	subject := verify.OfCall(call)
	url, err := q.url.Expand(subject)
	if err != nil {
		return runtime.Probed{}, err
	}
	var body []byte
	if q.Method == http.MethodPost {
		if body, err = q.body.Build(subject); err != nil {
			return runtime.Probed{}, err
		}
	}
	a, err := q.client.Ask(ctx, q.Method, url, body)
	if err != nil {
		return runtime.Probed{Evidence: q.client.Evidence(q.Method, url, nil, "no answer")}, err
	}
	p, why := q.judge(a, subject)
	p.Evidence = q.client.Evidence(q.Method, url, a, why)
	if p.Answer == ledger.ProbeUnknown && a.Busy() {
		return p, verify.Transient(fmt.Errorf("%s %s: %s", q.Method, url, a.Text()))
	}
	return p, nil
}

// judge says what an answer means and why.
func (q *inquiry) judge(a *web.Answer, s verify.Subject) (runtime.Probed, string) {
	ran, err := one(q.Ran, a, s)
	if err != nil {
		return runtime.Probed{}, "ran: " + err.Error()
	}
	notRan, err := one(q.NotRan, a, s)
	if err != nil {
		return runtime.Probed{}, "not_ran: " + err.Error()
	}
	return verify.Answered(ran, notRan, q.Fences, func() (runtime.Reply, error) { return q.reply(a, s) })
}

// one reports whether one of the rules holds. An error says why the answer cannot be
// judged. Then the rules of the other kind prove nothing either.
func one(rules []Rule, a *web.Answer, s verify.Subject) (bool, error) {
	for _, r := range rules {
		if len(r.Status) > 0 && !slices.Contains(r.Status, a.Status) || len(r.Status) == 0 && !a.Success() {
			continue
		}
		if len(r.Checks) == 0 {
			return true, nil
		}
		doc, err := a.Doc()
		if err != nil {
			return false, err
		}
		truth, err := verify.All(r.Checks, doc, s)
		if truth == verify.Holds || err != nil {
			return err == nil, err
		}
	}
	return false, nil
}

// reply makes the reply that is recorded. An answer that was cut gives none, because the
// missing end may change its meaning.
func (q *inquiry) reply(a *web.Answer, s verify.Subject) (runtime.Reply, error) {
	if a.Cut {
		return runtime.Reply{}, fmt.Errorf("answer is over %d bytes", verify.MaxBody)
	}
	failed, err := one(q.Reply.Failure, a, s)
	if err != nil {
		return runtime.Reply{}, err
	}
	said := verify.Said{Result: q.Reply.Result, Summary: q.Reply.Summary, Failed: failed}
	return said.Reply(a.Body, q.client.Hide)
}

package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/runtime/dispatch/httpcall"
	"github.com/tgad/tgad/schemas/tga"
)

// meaning is how a refusal is classified.
type meaning struct {
	code      tga.Code
	permanent bool // the same request will be refused again
}

// statuses say what an HTTP status means. The first row that matches counts.
var statuses = [...]struct {
	from, to int
	meaning
}{
	{300, 399, meaning{tga.LLMError, true}}, // redirects are not followed
	{401, 401, meaning{tga.LLMError, true}}, // the key is wrong, not the message
	{402, 402, meaning{tga.QuotaExceeded, true}},
	{403, 403, meaning{tga.LLMError, true}},
	{407, 407, meaning{tga.LLMError, true}},
	{408, 408, meaning{tga.LLMTimeout, false}},
	{409, 409, meaning{tga.LLMError, false}}, // a request with the same key is being answered
	{425, 425, meaning{tga.LLMError, false}},
	{429, 429, meaning{tga.RateLimited, false}},
	{400, 499, meaning{tga.ValidationError, true}},
	{504, 504, meaning{tga.LLMTimeout, false}},
	{0, 999, meaning{tga.LLMError, false}}, // 5xx and unknown statuses
}

// kinds say what an error's type or code means. They take precedence over the status: both
// providers use one status for several things, and an error within a stream has none.
var kinds = map[string]meaning{
	"insufficient_quota":         {tga.QuotaExceeded, true},
	"billing_hard_limit_reached": {tga.QuotaExceeded, true},
	"billing_error":              {tga.QuotaExceeded, true},
	"content_filter":             {tga.ContentFiltered, true},
	"content_policy_violation":   {tga.ContentFiltered, true},
	"rate_limit_exceeded":        {tga.RateLimited, false},
	"rate_limit_error":           {tga.RateLimited, false},
	"timeout_error":              {tga.LLMTimeout, false},
	"authentication_error":       {tga.LLMError, true},
	"permission_error":           {tga.LLMError, true},
	"invalid_api_key":            {tga.LLMError, true},
	"not_found_error":            {tga.ValidationError, true},
	"request_too_large":          {tga.ValidationError, true},
	"context_length_exceeded":    {tga.ValidationError, true},
	"invalid_request_error":      {tga.ValidationError, true},
	"api_error":                  {tga.LLMError, false},
	"overloaded_error":           {tga.LLMError, false},
	"server_error":               {tga.LLMError, false},
}

// mostSaid bounds how much of a refusal is read.
const mostSaid = 64 << 10

// fault is an error in the form of both APIs.
type fault struct {
	Type    string `json:"type"`
	Code    any    `json:"code"` // a string or absent; some servers send a number
	Message string `json:"message"`
}

// refused makes a failure of an answer whose status is not 200.
func (x *exchange) refused(resp *http.Response) error {
	var body struct {
		Error fault `json:"error"`
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, mostSaid))
	if err = errors.Join(err, resp.Body.Close()); err == nil {
		// A body that is not JSON, such as a proxy's page, says no more than the status.
		if json.Unmarshal(raw, &body) != nil {
			body.Error = fault{}
		}
	} // a refusal whose body broke off is still a refusal
	f := x.fault(resp.StatusCode, body.Error)
	f.RetryAfter = httpcall.RetryAfter(resp.Header, x.opts.Now())
	return f
}

// fault makes a failure of an error. Status 0 is an error within a stream.
func (x *exchange) fault(status int, e fault) *turn.Failure {
	what, said := "error in the answer", e.Message
	if status != 0 {
		what = "HTTP " + strconv.Itoa(status)
	}
	if said == "" {
		said = http.StatusText(status)
	}
	code, _ := e.Code.(string)
	var m meaning
	known := false
	for _, kind := range [...]string{code, e.Type} {
		// OpenAI gives every 4xx this type, so the status says more.
		if !known && (status == 0 || kind != "invalid_request_error") {
			m, known = kinds[kind]
		}
	}
	for i := 0; !known; i++ {
		known = status >= statuses[i].from && status <= statuses[i].to
		m = statuses[i].meaning
	}
	f := &turn.Failure{
		Code: m.code, Message: x.hide(what + ": " + said), Permanent: m.permanent,
		Details: map[string]any{},
		Err:     fmt.Errorf("%s", x.hide(what+": "+said)),
	}
	for name, value := range map[string]string{"type": e.Type, "code": code} {
		if value != "" {
			f.Details[name] = x.hide(value)
		}
	}
	if status != 0 {
		f.Details["status"] = status
	}
	return f
}

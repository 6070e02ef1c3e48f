package daemon

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// statusError gives an error another HTTP status than its code has.
type statusError struct {
	error
	status int
}

func (e statusError) Unwrap() error { return e.error }

// tooMany refuses what there are too many of at once: LIMIT_EXCEEDED, and 429, for it
// may be asked again.
func tooMany(format string, args ...any) error {
	return statusError{tga.Errorf(tga.LimitExceeded, format, args...), http.StatusTooManyRequests}
}

// callError is an error with what is known of the call it is about.
type callError struct {
	error
	call wire.Call
}

func (e callError) Unwrap() error { return e.error }

// errNobodyWaits ends a request whose client is gone: there is no answer to write.
var errNobodyWaits = errors.New("the client is gone")

// problemOf makes the problem document of an error.
func problemOf(err error) wire.Problem {
	if tga.CodeOf(err) == "" {
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			err = tga.Errorf(tga.ToolTimeout, "no answer in time: %w", err)
		case errors.Is(err, context.Canceled):
			err = tga.Errorf(tga.StoreUnavailable, "the daemon stops: %w", err)
		}
	}
	p := wire.ProblemOf(err)
	info, ok := p.Code.Info()
	if !ok {
		// A tool's own code, in a cause; or the daemon's failure.
		info = tga.CodeInfo{HTTPStatus: http.StatusInternalServerError, Title: "Not one of the daemon's codes"}
	}
	p.Title, p.Status, p.Retryable = info.Title, info.HTTPStatus, info.Retryable
	if p.Code == tga.StateChecksumMismatch && p.Where == "stored" {
		p.Status = http.StatusInternalServerError // our bytes are at fault, not the caller's
	}
	var other statusError
	if errors.As(err, &other) {
		p.Status = other.status
		p.Retryable = p.Retryable || other.status == http.StatusTooManyRequests || other.status == http.StatusServiceUnavailable
	}
	var c callError
	if errors.As(err, &c) && !c.call.TraceID.IsZero() {
		p.Call = &c.call
		if p.TraceID.IsZero() {
			p.TraceID = c.call.TraceID
		}
	}
	return p
}

// refuse answers with a problem document.
func (q *request) refuse(err error) {
	p := q.known(problemOf(err))
	h := q.w.Header()
	h.Set("Content-Type", wire.ProblemType)
	if p.Retryable {
		h.Set("Retry-After", strconv.FormatInt(max((p.RetryAfterMS+999)/1000, 1), 10))
	}
	q.status = p.Status
	q.write(p.Status, wire.Append(nil, p))
}

// known takes the trace out of a problem where the peer cannot ask about it: a call that was
// refused before anything was written has none. One of another namespace is no other than
// one that is not there. Where the path names the trace, the client gets back what it said.
func (q *request) known(p wire.Problem) wire.Problem {
	if p.TraceID.IsZero() || q.r.PathValue("id") != "" {
		return p
	}
	if _, err := q.trace(p.TraceID); errors.Is(err, tga.NotFound) {
		p.TraceID = tga.ID{}
	}
	return p
}

// write writes a whole answer. That the client does not take it is the client's affair:
// what was done is done and can be asked for.
func (q *request) write(status int, body []byte) {
	q.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	q.w.WriteHeader(status)
	if q.r.Method == http.MethodHead {
		return
	}
	if _, err := q.w.Write(body); err != nil {
		q.d.log.Debug("answer not delivered", "path", q.r.URL.Path, "error", err)
	}
}

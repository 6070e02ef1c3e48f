package daemon

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// statusError gives an error another HTTP status than its code has.
type statusError struct {
	error
	status int
}

func (e statusError) Unwrap() error { return e.error }

// tooMany refuses a request because too many of something exist at the moment: LIMIT_EXCEEDED with
// status 429, because the client may repeat it.
func tooMany(format string, args ...any) error {
	return statusError{tga.Errorf(tga.LimitExceeded, format, args...), http.StatusTooManyRequests}
}

// callError is an error with the state of the call that it is about.
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
		// It is a tool's own code, in a cause, or a failure of the daemon without a code.
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

// known removes the trace id from a problem if the peer gets NOT_FOUND for that trace. A call that
// was refused before anything was written has no trace, and a trace of another namespace must look
// the same to the peer. If the path names the trace, the id stays: the client sent it.
func (q *request) known(p wire.Problem) wire.Problem {
	if p.TraceID.IsZero() || q.r.PathValue("id") != "" {
		return p
	}
	if _, err := q.trace(p.TraceID); errors.Is(err, tga.NotFound) {
		p.TraceID = tga.ID{}
	}
	return p
}

// write writes a whole answer. If the client does not receive it, nothing is lost: the request was
// carried out, and the client can ask for the result again.
func (q *request) write(status int, body []byte) {
	_ = bound(q.w) // if the connection fails, so does the write
	q.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	q.w.WriteHeader(status)
	if q.r.Method == http.MethodHead {
		return
	}
	if _, err := (bounded{q.w}).Write(body); err != nil {
		q.d.log.Debug("answer not delivered", "path", q.r.URL.Path, "error", err)
	}
}

// bound bounds how long the client may take to read what is written next. A client that does not read would otherwise
// hold the connection, and the memory of the answer, for as long as it likes. net/http removes the bound after the answer.
// A writer without a connection has none.
func bound(w http.ResponseWriter) error {
	err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(lineTime))
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// boundedPart is how many bytes of an answer a client must take within lineTime.
const boundedPart = 256 << 10

// bounded writes an answer in parts, each with a bound of its own: a long answer takes a slow client long.
type bounded struct{ http.ResponseWriter }

// Write implements [http.ResponseWriter].
func (b bounded) Write(p []byte) (n int, err error) {
	for err == nil && n < len(p) {
		if err = bound(b.ResponseWriter); err == nil {
			var more int
			more, err = b.ResponseWriter.Write(p[n:min(len(p), n+boundedPart)])
			n += more
		}
	}
	return n, err
}

// Unwrap is for [http.ResponseController].
func (b bounded) Unwrap() http.ResponseWriter { return b.ResponseWriter }

package mcpraw

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// refusals are the statuses by which an MCP endpoint says that it did not accept the message. After
// any other error status the call is in doubt: a proxy may send it whatever the endpoint did.
var refusals = map[int]bool{
	http.StatusBadRequest:            true,
	http.StatusUnauthorized:          true,
	http.StatusForbidden:             true,
	http.StatusNotFound:              true,
	http.StatusMethodNotAllowed:      true,
	http.StatusNotAcceptable:         true,
	http.StatusRequestEntityTooLarge: true,
	http.StatusUnsupportedMediaType:  true,
	http.StatusTooManyRequests:       true,
}

// Refused reports whether a status says that the message was not accepted. If the body is an answer to the message,
// the caller must go by the answer and not by the status.
func Refused(status int) bool { return refusals[status] }

// EndsSession reports whether the refusal of a message that names a session says that the server does not know the session. The protocol's
// status for that is 404. Servers that are made with the official SDKs, and have been started again, answer 400 and speak of the session,
// or of a server that is not initialized. Whoever does not begin another session then is refused for ever.
func EndsSession(status int, said []byte) bool {
	words := bytes.ToLower(said)
	return status == http.StatusNotFound ||
		status == http.StatusBadRequest && (bytes.Contains(words, []byte("session")) || bytes.Contains(words, []byte("not initialized")))
}

// MaxRefusal is how much of the body of a refusal is read, in bytes.
const MaxRefusal = 64 << 10

// ReadRefusal reads the body that came with a status that refuses. It fails if the body was cut off, or is JSON and too
// long: then the body may be an answer to the message that cannot be read, and the status proves nothing.
func ReadRefusal(body io.Reader) ([]byte, error) {
	said, err := io.ReadAll(io.LimitReader(body, MaxRefusal+1))
	if err != nil {
		return nil, fmt.Errorf("its body was cut off: %w", err)
	}
	if len(said) > MaxRefusal {
		if start := bytes.TrimSpace(said); len(start) == 0 || start[0] == '{' || start[0] == '[' {
			return nil, fmt.Errorf("its body has more than %d bytes", MaxRefusal)
		}
		said = said[:MaxRefusal] // not JSON: a page for people
	}
	return said, nil
}

const (
	dialTimeout = 10 * time.Second
	maxSSEField = 1 << 10 // how much of a field other than data is kept
)

// Transport writes each request at most once. Use it without http.Client, which would follow
// redirects.
type Transport struct{ *http.Transport }

// RoundTrip asks for an answer that is not compressed: its bytes are kept as they come. A request that says nothing of it lets the
// server compress as it likes.
func (t Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Header.Get("Accept-Encoding") == "" {
		req.Header.Set("Accept-Encoding", "identity")
	}
	return t.Transport.RoundTrip(req)
}

// NewTransport makes a [Transport].
func NewTransport() Transport {
	var only1 http.Protocols
	only1.SetHTTP1(true)
	return Transport{&http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: dialTimeout,
		// One connection for each message. A server may close a kept connection just when a call
		// is written to it; the call would be in doubt although the server never read it.
		DisableKeepAlives:  true,
		DisableCompression: true, // the answer's bytes are kept as the server sent them
		Protocols:          &only1,
	}}
}

var sseData = []byte("data:")

// EventReader returns a reader of the lines of a stream of server-sent events. A byte order mark before the first line is not part
// of the line.
func EventReader(body io.Reader) *bufio.Reader {
	in := bufio.NewReaderSize(body, 64<<10)
	const mark = "\ufeff"
	// An error of Peek comes again with the next read. Discard has none: Peek has buffered the bytes.
	if start, _ := in.Peek(len(mark)); string(start) == mark {
		_, _ = in.Discard(len(mark))
	}
	return in
}

// ReadEventLine reads one line of a stream of server-sent events, which ends in LF or CR LF. It
// passes the value of a data field to add, in parts and without the line end, and calls first
// before the first part. It passes any other line that is not empty, and not very long, to other,
// which may be nil. It reports whether the line was empty, which ends an event.
func ReadEventLine(in *bufio.Reader, first func() error, add func([]byte) error, other func([]byte)) (empty bool, err error) {
	var field []byte // the line's start
	data, whole := false, true
	for {
		part, err := in.ReadSlice('\n')
		if whole = whole && len(field) < maxSSEField; !data && whole {
			field = append(field, part...)
			if rest, ok := bytes.CutPrefix(field, sseData); ok {
				data = true
				part = bytes.TrimPrefix(rest, []byte(" "))
				if err := first(); err != nil {
					return false, err
				}
			}
		}
		if data {
			if err == nil {
				part = bytes.TrimRight(part, "\r\n")
			}
			if err := add(part); err != nil {
				return false, err
			}
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if data || err != nil {
			return false, err
		}
		line := bytes.TrimRight(field, "\r\n")
		if len(line) > 0 && whole && other != nil {
			other(line)
		}
		return len(line) == 0, nil
	}
}

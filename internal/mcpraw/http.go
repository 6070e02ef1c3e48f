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

// refusals are the statuses by which an MCP endpoint says that it did not take the
// message. Any other is doubt: behind a proxy it may stand for anything.
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

// Refused reports whether a status says that the message was not taken. The body may say more: an answer to the
// message in it decides, whatever the status is.
func Refused(status int) bool { return refusals[status] }

// MaxRefusal bounds what is read of the body of a refusal.
const MaxRefusal = 64 << 10

// ReadRefusal reads the body that came with a status that refuses. An error says that it may be an answer to the
// message which cannot be read: it was cut off, or is JSON and too long. Then the status decides nothing.
func ReadRefusal(body io.Reader) ([]byte, error) {
	said, err := io.ReadAll(io.LimitReader(body, MaxRefusal+1))
	if err != nil {
		return nil, fmt.Errorf("its body was cut off: %w", err)
	}
	if len(said) > MaxRefusal {
		if start := bytes.TrimSpace(said); len(start) == 0 || start[0] == '{' || start[0] == '[' {
			return nil, fmt.Errorf("its body has more than %d bytes", MaxRefusal)
		}
		said = said[:MaxRefusal] // a page for people
	}
	return said, nil
}

const (
	dialTimeout = 10 * time.Second
	maxSSEField = 1 << 10 // of a field that is not data
)

// NewTransport makes a transport that writes each request at most once. It is used
// without http.Client, which would follow redirects.
func NewTransport() *http.Transport {
	var only1 http.Protocols
	only1.SetHTTP1(true)
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: dialTimeout,
		// A connection a message: on a kept one, a server that closes it while a call is
		// on its way leaves a call in doubt that was never read.
		DisableKeepAlives:  true,
		DisableCompression: true, // the answer's bytes are kept as sent
		Protocols:          &only1,
	}
}

var sseData = []byte("data:")

// ReadEventLine reads one line of a stream of server-sent events and gives the value of
// a data field to add, in parts, without its line end. It reports whether the line was
// empty, which ends an event. A line ends in LF or CR LF. first is called before the
// first part.
func ReadEventLine(in *bufio.Reader, first func() error, add func([]byte) error) (empty bool, err error) {
	var field []byte // the line's start
	data := false
	for {
		part, err := in.ReadSlice('\n')
		if !data && len(field) < maxSSEField {
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
		return !data && err == nil && len(bytes.TrimRight(field, "\r\n")) == 0, err
	}
}

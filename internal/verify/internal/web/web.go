// Package web asks HTTP servers: one request, no redirect, no proxy, no connection that
// outlives it, an answer of bounded length.
//
// # Invariants
//
//	once     a redirect is an answer and is not followed         [Client.Ask]  httpcheck.TestRedirectIsNotFollowed
//	fresh    caches on the way are told to ask the server itself [Client.Ask]  TestRequestOnTheWire
//	bounded  at most verify.MaxBody bytes of a body are read     [Client.Ask]  httpcheck.TestAnswerAtTheLimit
package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/runtime"
)

// Client asks servers. It keeps no connection: there is nothing to close.
type Client struct {
	header    http.Header
	hide      verify.Secrets
	transport *http.Transport
}

// New makes a client that sends header with each request. Its evidence does not contain
// the texts in hide. caFile names PEM certificates to trust in place of the system's;
// "" = the system's.
func New(header http.Header, hide verify.Secrets, caFile string) (*Client, error) {
	config, err := verify.Trusting(caFile)
	if err != nil {
		return nil, err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &Client{header: header, hide: hide, transport: &http.Transport{
		Proxy:                  nil,
		TLSClientConfig:        config,
		DisableKeepAlives:      true,
		DisableCompression:     true, // an ETag is that of the bytes that came; a small answer must not unpack to a large one
		Protocols:              protocols,
		MaxResponseHeaderBytes: 64 << 10,
	}}, nil
}

// Answer is what a server answered.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte // at most verify.MaxBody bytes
	Cut    bool   // the body was longer
}

// Ask sends one request and reads the answer. If nobody answered, or the answer broke off,
// the error is transient. Errors do not contain the headers.
func (c *Client) Ask(ctx context.Context, method, url string, body []byte) (*Answer, error) {
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, content)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, url, err)
	}
	req.Header = c.header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	set := func(name, value string) {
		if req.Header.Get(name) == "" {
			req.Header.Set(name, value)
		}
	}
	set("User-Agent", "tgad")
	set("Cache-Control", "no-cache")
	if body != nil {
		set("Content-Type", "application/json")
	}
	// RoundTrip instead of an http.Client: it follows no redirect and keeps no cookie.
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return nil, verify.Transient(fmt.Errorf("%s %s: %w", method, url, err))
	}
	kept, err := io.ReadAll(io.LimitReader(resp.Body, verify.MaxBody+1))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, verify.Transient(fmt.Errorf("%s %s: the answer broke off after %d bytes: %w", method, url, len(kept), err))
	}
	a := &Answer{Status: resp.StatusCode, Header: resp.Header, Body: kept}
	if len(kept) > verify.MaxBody {
		a.Body, a.Cut = kept[:verify.MaxBody], true
	}
	return a, nil
}

// Text returns the status with its text, such as "404 Not Found".
func (a *Answer) Text() string {
	if t := http.StatusText(a.Status); t != "" {
		return fmt.Sprintf("%d %s", a.Status, t)
	}
	return fmt.Sprint(a.Status)
}

// busy are the statuses after which the same request may soon succeed.
var busy = []int{
	http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
	http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

// Busy reports whether the same question may soon be answered.
func (a *Answer) Busy() bool { return slices.Contains(busy, a.Status) }

// Success reports a status of 200 to 299.
func (a *Answer) Success() bool { return a.Status >= 200 && a.Status <= 299 }

// Doc is the body as JSON, an error where it is none or was cut.
func (a *Answer) Doc() (verify.Doc, error) {
	if a.Cut {
		return nil, fmt.Errorf("answer is over %d bytes", verify.MaxBody)
	}
	return verify.ParseDoc(a.Body)
}

// Evidence keeps what was asked and answered; why says what followed from it.
func (c *Client) Evidence(method, url string, a *Answer, why string) runtime.Evidence {
	source := method + " " + url
	if a == nil {
		return verify.Evidence(source, map[string]any{"why": why}, nil, c.hide)
	}
	members := map[string]any{"status": a.Status, "why": why}
	if a.Cut {
		members["over_bytes"] = verify.MaxBody
	}
	for name, header := range map[string]string{
		"etag": "ETag", "last_modified": "Last-Modified", "content_type": "Content-Type", "date": "Date",
	} {
		if v := a.Header.Get(header); v != "" {
			members[name] = v
		}
	}
	return verify.Evidence(source, members, a.Body, c.hide)
}

// Hide hides the client's secrets in a text.
func (c *Client) Hide(text string) string { return c.hide.Hide(text) }

// SameETag compares two ETags weakly (RFC 9110 §8.8.3.2). The quotes may be missing,
// because a tool's answer may give the text without them.
func SameETag(a, b string) bool {
	opaque := func(s string) string { return strings.Trim(strings.TrimPrefix(strings.TrimSpace(s), "W/"), `"`) }
	return opaque(a) == opaque(b)
}

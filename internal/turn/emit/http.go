package emit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// DefaultHTTPTimeout bounds one request unless told otherwise.
const DefaultHTTPTimeout = 5 * time.Second

// HTTPOptions say how events are posted.
type HTTPOptions struct {
	Header  http.Header   // sent with every event, such as Authorization; never logged
	Timeout time.Duration // of one event; 0 = 5 s
	// Transport sends the requests. Nil means a transport of the sink's own, which uses the
	// environment's proxy.
	Transport http.RoundTripper
}

// HTTP posts each event to a URL in structured mode. A 2xx answer accepts the event; any other
// outcome is a failure, and the event is not sent again. Redirects are not followed, so the
// headers reach only the host that they are meant for.
func HTTP(to string, o HTTPOptions) (Sink, error) {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, tga.Errorf(tga.ValidationError, "events can't be posted to %q: want an http or https URL", redacted(to))
	}
	o.Timeout = cmp.Or(o.Timeout, DefaultHTTPTimeout)
	if o.Timeout < 0 {
		return nil, tga.Errorf(tga.ValidationError, "the time-out %v is negative", o.Timeout)
	}
	s := &poster{url: u.String(), header: o.Header.Clone()}
	if o.Transport == nil {
		own := http.DefaultTransport.(*http.Transport).Clone()
		o.Transport, s.idle = own, own
	}
	s.client = &http.Client{
		Transport:     o.Transport,
		Timeout:       o.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s, nil
}

// redacted removes the password from a URL that is shown.
func redacted(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "(no URL)"
	}
	return u.Redacted()
}

type poster struct {
	url    string
	header http.Header
	client *http.Client
	idle   *http.Transport
}

// contentType is the media type of structured mode (CloudEvents 1.0, HTTP binding §3.2).
const contentType = "application/cloudevents+json; charset=UTF-8"

// mostAnswer bounds what is read of an answer. Reading it lets the connection be reused.
const mostAnswer = 4 << 10

func (s *poster) Write(ctx context.Context, e Event) (err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(e.JSON))
	if err != nil {
		return err
	}
	for name, values := range s.header {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := s.client.Do(req)
	if err != nil {
		// The URL may hold a credential.
		var of *url.Error
		if errors.As(err, &of) {
			return of.Err
		}
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if _, err := io.CopyN(io.Discard, resp.Body, mostAnswer); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("the sink answered %d", resp.StatusCode)
	}
	return nil
}

func (s *poster) Close() error {
	if s.idle != nil {
		s.idle.CloseIdleConnections()
	}
	return nil
}

package model

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/tgad/tgad/internal/secretfile"
	"github.com/tgad/tgad/schemas/tga"
)

// Defaults of [Options].
const (
	DefaultMaxAnswer = 16 << 20
	DefaultMaxTokens = 4096
)

// Options configure a model. The zero value asks the provider itself, without a key.
type Options struct {
	// BaseURL is the address of the API, including the version; "" = the provider's own.
	BaseURL string
	// Key returns the API key. It is called before each question, so that the key can be changed.
	// Nil sends no key.
	Key Key
	// Header is sent with each request. It cannot override the headers that this package sets
	// itself.
	Header http.Header
	// Stream asks for a stream even if the question has no OnDelta.
	Stream bool
	// MaxAnswer bounds an answer, in bytes of its body; 0 = DefaultMaxAnswer.
	MaxAnswer int64
	// MaxTokens bounds an answer if the question does not, for an API that requires a bound
	// (Anthropic's); 0 = DefaultMaxTokens.
	MaxTokens int64
	// TLS is used for https. NextProtos is ignored: there is no HTTP/2.
	TLS *tls.Config
	// Dial connects; nil means TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Now is the clock; nil means the system's.
	Now func() time.Time
}

// Key returns an API key, which is visible ASCII. Its error must not contain the key.
type Key func() (string, error)

// KeyFile reads the key from a file of secrets ([secretfile.Read]) and trims space around it.
func KeyFile(path string) Key {
	return func() (string, error) {
		raw, err := secretfile.Read(path)
		return string(bytes.TrimSpace(raw)), err
	}
}

// KeyEnv reads the key from a variable of the environment.
func KeyEnv(name string) Key {
	return func() (string, error) {
		key := strings.TrimSpace(os.Getenv(name))
		if key == "" {
			return "", fmt.Errorf("the environment has no %s", name)
		}
		return key, nil
	}
}

// resolve checks options and sets the defaults.
func (o Options) resolve(provider string) (Options, *url.URL, error) {
	o.BaseURL = cmp.Or(o.BaseURL, provider)
	base, err := url.Parse(o.BaseURL)
	if err != nil {
		return o, nil, tga.Errorf(tga.ValidationError, "model url: %w", err)
	}
	if base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.Fragment != "" {
		return o, nil, tga.Errorf(tga.ValidationError, "model url %q: want http(s)://host/path", base.Redacted())
	}
	if base.User != nil {
		return o, nil, tga.Errorf(tga.ValidationError, "model url %q: credentials belong in a key", base.Redacted())
	}
	if o.MaxAnswer < 0 || o.MaxTokens < 0 {
		return o, nil, tga.Errorf(tga.ValidationError, "model limits of %d bytes, %d tokens: want none negative", o.MaxAnswer, o.MaxTokens)
	}
	o.MaxAnswer = cmp.Or(o.MaxAnswer, DefaultMaxAnswer)
	o.MaxTokens = cmp.Or(o.MaxTokens, DefaultMaxTokens)
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, base, nil
}

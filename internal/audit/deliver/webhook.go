package deliver

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tgad/tgad/internal/secretfile"
)

// Webhook is a sink that posts each batch, signed as Standard Webhooks says. A batch is taken if the
// answer has a status of 200 to 299. For messages of another kind there is [Webhook.Post].
type Webhook struct {
	ID          string // prefix of the ids of messages
	URL         string
	SecretFile  string // see [Secrets]; read for each message
	HeadersFile string // further headers, "" is none; read for each message
	Format      string
	Clock       func() time.Time
	client      *http.Client
}

// NewWebhook makes a webhook that verifies servers with conf; nil means with the system's certificates.
func NewWebhook(w Webhook, conf *tls.Config) *Webhook {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: conf, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: time.Minute}
	w.client = &http.Client{
		Transport: transport,
		// A redirect would send the records, and headers with secrets, elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &w
}

// Close implements [Sink].
func (w *Webhook) Close() error {
	w.client.CloseIdleConnections()
	return nil
}

// Put implements [Sink].
func (w *Webhook) Put(ctx context.Context, b *Batch) error {
	kind, body := w.body(b)
	return w.Post(ctx, fmt.Sprintf("%s-%d-%d", w.ID, b.After, b.Last), kind, body)
}

// Post posts a signed message with an id. It returns nil once the receiver has taken it. It may be called
// by several goroutines.
func (w *Webhook) Post(ctx context.Context, id, kind string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return withoutURL(err)
	}
	headers, err := secretfile.Headers(w.HeadersFile)
	if err != nil {
		return err
	}
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	secrets, err := Secrets(w.SecretFile)
	if err != nil {
		return err
	}
	at := strconv.FormatInt(w.Clock().Unix(), 10)
	req.Header.Set("Content-Type", kind)
	req.Header.Set("User-Agent", "tgad")
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", at)
	req.Header.Set("Webhook-Signature", sign(secrets, id, at, body))
	resp, err := w.client.Do(req)
	if err != nil {
		return withoutURL(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the receiver answered HTTP %d", resp.StatusCode)
	}
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	return err
}

// withoutURL removes the URL from an error, because its query may contain a secret.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// body is the content type and the body of a batch.
func (w *Webhook) body(b *Batch) (kind string, body []byte) {
	if w.Format == "cef" {
		return "text/plain; charset=utf-8", bytes.Join(b.Lines, nil)
	}
	if kind = "application/json"; w.Format == "cloudevents" {
		kind = "application/cloudevents-batch+json"
	}
	body = append(body, '[')
	for i, line := range b.Lines {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, line[:len(line)-1]...)
	}
	return kind, append(body, ']')
}

// secretPrefix marks a secret of Standard Webhooks.
const secretPrefix = "whsec_"

// Secrets reads a file of keys, one a line: "whsec_" and 24 to 64 bytes in base64. Every key signs every
// message, so that a receiver can change from one key to the next.
func Secrets(path string) (keys [][]byte, err error) {
	raw, err := secretfile.Read(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(raw)) {
		text := strings.TrimSpace(line)
		if text == "" {
			continue
		}
		coded, ok := strings.CutPrefix(text, secretPrefix)
		key, err := base64.StdEncoding.DecodeString(coded)
		if !ok || err != nil || len(key) < 24 || len(key) > 64 {
			return nil, fmt.Errorf("%s: want lines of %sBASE64, of 24 to 64 bytes each", path, secretPrefix)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// sign makes the signatures of a message, "v1,BASE64" each.
func sign(keys [][]byte, id, at string, body []byte) string {
	var all []string
	for _, key := range keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + at + "."))
		mac.Write(body)
		all = append(all, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(all, " ")
}

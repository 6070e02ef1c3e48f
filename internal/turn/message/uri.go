package message

import (
	"encoding/base64"
	"mime"
	"net/url"
	"strings"
)

// Schemes of a part's URI that stand for a file which only one provider has: the rest of the URI
// is the file's id there.
const (
	OpenAIFile    = "openai-file:"
	AnthropicFile = "anthropic-file:"
)

// web returns a string that is an http or https address. Nothing is fetched here, but the
// provider would fetch it, so other schemes such as file: are refused.
func (p place) web() (string, error) {
	s, err := p.need()
	if err != nil {
		return "", err
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", p.wrong("want an address that starts with http:// or https://")
	}
	return s, nil
}

// mediaType returns the type of a MIME string in lower case, without parameters.
func (p place) mediaType() (string, error) {
	s, err := p.need()
	if err != nil {
		return "", err
	}
	kind, _, err := mime.ParseMediaType(s)
	if err != nil || !strings.Contains(kind, "/") {
		return "", p.wrong("want a MIME type")
	}
	return kind, nil
}

// bytes decodes a string of base64 (RFC 4648 §4).
func (p place) bytes() ([]byte, error) {
	s, err := p.need()
	if err != nil {
		return nil, err
	}
	data, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil {
		return nil, p.wrong("want base64")
	}
	return data, nil
}

// data decodes a data: URL (RFC 2397).
func (p place) data() (kind string, data []byte, err error) {
	s, err := p.need()
	if err != nil {
		return "", nil, err
	}
	head, body, ok := strings.Cut(strings.TrimPrefix(s, "data:"), ",")
	if !ok || !isData(s) {
		return "", nil, p.wrong("want a data: address")
	}
	head, encoded := strings.CutSuffix(head, ";base64")
	if head == "" || strings.HasPrefix(head, ";") {
		head = "text/plain" + head // the default of the RFC
	}
	if kind, _, err = mime.ParseMediaType(head); err != nil || !strings.Contains(kind, "/") {
		return "", nil, p.wrong("the data: address has no MIME type")
	}
	if encoded {
		if data, err = base64.StdEncoding.Strict().DecodeString(body); err != nil {
			return "", nil, p.wrong("the data: address is not base64")
		}
		return kind, data, nil
	}
	if body, err = url.PathUnescape(body); err != nil {
		return "", nil, p.wrong("the data: address has a bad escape")
	}
	return kind, []byte(body), nil
}

func isData(s string) bool { return strings.HasPrefix(s, "data:") }

// image refuses a MIME type that is not an image's.
func (p place) image(kind string) error {
	if !strings.HasPrefix(kind, "image/") {
		return p.wrong("an image of type %.80q", kind)
	}
	return nil
}

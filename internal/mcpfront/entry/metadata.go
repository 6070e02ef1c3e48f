//go:build unix

package entry

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/subject"
	"github.com/tgad/tgad/internal/mcpraw"
)

// A client that is answered 401 looks for documents that say where to get a token (MCP,
// authorization: RFC 9728, RFC 8414 and OpenID Connect discovery). It asks the endpoint that it
// knows, which is the shim. The shim fetches these documents, and nothing else below
// /.well-known, from the tool server without any credentials, and passes them unchanged. They
// name the tool server's own URL as the resource, because the token is for the tool server.

var metadataPlaces = []string{
	"/.well-known/oauth-protected-resource",
	"/.well-known/oauth-authorization-server",
	"/.well-known/openid-configuration",
}

// Limits of a metadata document.
const (
	maxMetadata  = 1 << 20
	metadataWait = 10 * time.Second
)

// metadataOf says which document a path names. The suffix is the path of the resource or issuer
// that the document is about, "" for the host's own document.
func metadataOf(path string) (place, suffix string, ok bool) {
	for _, place := range metadataPlaces {
		if suffix, ok := strings.CutPrefix(path, place); ok && (suffix == "" || suffix[0] == '/') {
			return place, strings.TrimSuffix(suffix, "/"), true
		}
	}
	return "", "", false
}

// metadataAt is the URL of the document that a path names. It is "" if the path names none, or if several tool servers
// have one, because then it is not known which one the client wants.
func metadataAt(from []subject.Source, path string) (where string) {
	place, suffix, ok := metadataOf(path)
	if !ok {
		return ""
	}
	for _, s := range from {
		if s.Header != subject.Authorization {
			continue // clients of this tool server get their token elsewhere
		}
		at, err := metadataURL(s.URL, place, suffix)
		if err != nil || where != "" && at != where {
			return ""
		}
		where = at
	}
	return where
}

// metadataURL is the URL of a document at the tool server. It replaces the shim's own path by
// the path of the tool server.
func metadataURL(endpoint, place, suffix string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", err
	}
	at := url.URL{Scheme: u.Scheme, Host: u.Host, Path: place}
	if suffix != "" {
		at.Path += strings.TrimSuffix(u.Path, "/")
	}
	return at.String(), nil
}

// metadata fetches the document at a URL and passes it to the client.
func (f *Front) metadata(w http.ResponseWriter, r *http.Request, where string) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", "GET")
		http.Error(w, "no such method", http.StatusMethodNotAllowed)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), metadataWait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	var resp *http.Response
	if err == nil {
		req.Header.Set("Accept", "application/json")
		rt := mcpraw.NewTransport()
		defer rt.CloseIdleConnections()
		resp, err = rt.RoundTrip(req)
	}
	if err != nil {
		f.o.Log.Info("a document about authorization cannot be had from the tool server", "error", err)
		http.Error(w, "the tool server cannot be asked", http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxMetadata+1))
	if err != nil || len(raw) > maxMetadata {
		http.Error(w, "the tool server's document is too long, or was cut", http.StatusBadGateway)
		return
	}
	for _, name := range []string{"Content-Type", "Cache-Control"} {
		if v := resp.Header.Get(name); v != "" {
			w.Header().Set(name, v)
		}
	}
	w.WriteHeader(resp.StatusCode)
	if _, err := w.Write(raw); err != nil {
		f.o.Log.Debug("a document about authorization was not delivered", "error", err)
	}
}

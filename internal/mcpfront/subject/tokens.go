package subject

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

// Values of the configuration that say where the clients of a gateway send their credentials for a tool server.
const (
	InAuthorization = "authorization" // in the header Authorization, which the gateway then does not use itself
	InHeader        = "header"        // in a header for this tool server alone
)

// Authorization is the HTTP header for credentials.
const Authorization = "Authorization"

// HeaderPrefix begins the headers with credentials for one tool server.
const HeaderPrefix = "Tgad-Authorization-"

// HeaderOf is the header in which clients send their credentials for a tool server, "" if they send none. It replaces
// characters of the server id that a header name cannot have, or that proxies drop, by "-".
func HeaderOf(where, server string) string {
	switch where {
	case InAuthorization:
		return Authorization
	case InHeader:
		return textproto.CanonicalMIMEHeaderKey(HeaderPrefix + strings.Map(func(r rune) rune {
			if strings.ContainsRune("/._", r) {
				return '-'
			}
			return r
		}, server))
	}
	return ""
}

// Source says for one tool server in which header its clients' credentials come, and to which URL they go. The zero
// Source is that of a tool server that gets none.
type Source struct{ Header, URL string }

// party is the receiver of the credentials: the origin of the URL.
func (s Source) party() string {
	u, err := url.Parse(s.URL)
	if err != nil {
		return s.URL
	}
	port := u.Port()
	switch {
	case port == "" && u.Scheme == "https":
		port = "443"
	case port == "":
		port = "80"
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + " " + port
}

// Check refuses tool servers if two of them would get the same credentials and are not the same party. It returns the
// tool server that is wrong.
func Check(all map[string]Source) (server string, err error) {
	first := map[string]string{}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		s := all[id]
		other, taken := first[s.Header]
		switch {
		case s.Header == "":
		case !taken:
			first[s.Header] = id
		case s.Header != Authorization:
			return id, fmt.Errorf("the clients' credentials for it and for server %q would both be in the header %s", other, s.Header)
		case s.party() != all[other].party():
			return id, fmt.Errorf("it and server %q would get the same Authorization, and are not of the same origin: want %q for one of them at least", other, InHeader)
		}
	}
	return "", nil
}

// Token has the credentials that a client has sent for one party.
type Token struct{ header, party, value string }

// String keeps the credentials out of logs and errors.
func (t Token) String() string { return "credentials in " + t.header }

// Tokens are the credentials that a client has sent along with a request.
type Tokens []Token

// Take reads the credentials from the headers of a request. The error is VALIDATION_ERROR if a header occurs twice.
func Take(h http.Header, from []Source) (all Tokens, err error) {
	for _, s := range from {
		if s.Header == "" {
			continue
		}
		said := h.Values(s.Header)
		if len(said) > 1 {
			return nil, tga.Errorf(tga.ValidationError, "%s occurs twice", s.Header)
		}
		if t := (Token{header: s.Header, party: s.party()}); len(said) == 1 && said[0] != "" {
			if t.value = said[0]; all.For(s) == "" {
				all = append(all, t)
			}
		}
	}
	return all, nil
}

// For returns the credentials for one tool server, "" if the client has sent none. Credentials that were sent for one
// party are never returned for another, even if a new configuration takes them from the same header.
func (all Tokens) For(s Source) string {
	for _, t := range all {
		if t.header == s.Header && t.party == s.party() {
			return t.value
		}
	}
	return ""
}

// Mark differs for clients that have sent different credentials, and is "" for clients that have sent none. It is a
// digest, so the time of a comparison reveals nothing about the credentials.
func (all Tokens) Mark() string {
	if len(all) == 0 {
		return ""
	}
	var lines []string
	for _, t := range all {
		lines = append(lines, t.header+"\n"+t.party+"\n"+t.value) // none of them has a line end
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n\n")))
	return hex.EncodeToString(sum[:])
}

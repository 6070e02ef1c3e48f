//go:build unix

package mcpshim

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/schemas/tga"
)

// Stdio serves one client on in and out until in ends or ctx does.
func (g *Gate) Stdio(ctx context.Context, in io.Reader, out io.Writer) error {
	f, err := g.fan(stdout{frames.NewSink(out)}, whose{})
	if err != nil {
		return err
	}
	defer f.release()
	s := g.all[0].Shim
	w := wired{p: f, busy: f.underway, first: func() {}, most: s.opts.MaxFrameBytes, grace: s.grace, quit: s.quit, log: g.log}
	for _, m := range f.members {
		w.all = append(w.all, m.conv)
	}
	err, kept := w.serve(ctx, s.opts.State, in)
	if kept != nil {
		return kept
	}
	return err
}

// underway is how many of the client's requests the fan itself has not answered.
func (f *fan) underway() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, a := range f.asked {
		if a.m == nil && f.streams[key] == nil {
			n++
		}
	}
	return n
}

// lobby is an endpoint over HTTP for the gate's clients.
func (g *Gate) lobby(life context.Context) lobby {
	f := newFront(g.all[0].Shim, life)
	f.meet = g.meet
	for _, b := range g.all {
		b.Shim.reap = f.reap
	}
	return f
}

// Door is one endpoint over HTTP for the clients of several gates. A client is let in at the gate of
// its identity, and what it has there (sessions, tool servers, keys) is of that gate alone.
type Door struct {
	// Who is the identity of a request by its Authorization header, and by the certificate that the client has shown,
	// nil where there is none; "" is nobody's.
	Who   func(authorization string, cert *x509.Certificate) string
	Gates map[string]*Gate
	Watch Watch
	// TLS, where it is set, is spoken with the clients. Then they may be on other machines.
	TLS    *tls.Config
	Logger *slog.Logger // nil means nothing is said
}

func (d *Door) log() *slog.Logger {
	if d.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return d.Logger
}

// Listen serves streamable HTTP on an address as [Shim.Listen] does.
func (d *Door) Listen(ctx context.Context, address string) error {
	if d.TLS == nil {
		l, err := ListenOn(address)
		if err != nil {
			return err
		}
		return serve(ctx, l, d.log(), d.lobby)
	}
	if strings.HasPrefix(address, "unix:") {
		return tga.Errorf(tga.ValidationError, "listen on %q: a socket of this machine needs no TLS", address)
	}
	l, err := listenAt(address)
	if err != nil {
		return err
	}
	return serve(ctx, tls.NewListener(l, d.TLS), d.log(), d.lobby)
}

type hall struct {
	who     func(string, *x509.Certificate) string
	watch   Watch
	lobbies map[string]lobby
}

func (d *Door) lobby(life context.Context) lobby {
	h := &hall{who: d.Who, watch: d.Watch.deaf(), lobbies: map[string]lobby{}}
	for name, g := range d.Gates {
		h.lobbies[name] = g.lobby(life)
	}
	return h
}

func (h *hall) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var to lobby
	var cert *x509.Certificate
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		cert = r.TLS.PeerCertificates[0]
	}
	if said := r.Header.Values("Authorization"); len(said) == 1 {
		to = h.lobbies[h.who(said[0], cert)]
	} else if len(said) == 0 {
		to = h.lobbies[h.who("", cert)]
	}
	if to == nil {
		h.watch.Refused(RefusedIdentity)
		w.Header().Set("WWW-Authenticate", `Bearer realm="tgad gateway"`)
		http.Error(w, "this gateway knows its clients, by an API key or a token in Authorization: Bearer …, or by a certificate", http.StatusUnauthorized)
		return
	}
	to.ServeHTTP(w, r)
}

func (h *hall) expire(now time.Time) {
	for _, l := range h.lobbies {
		l.expire(now)
	}
}

func (h *hall) wait() {
	for _, l := range h.lobbies {
		l.wait()
	}
}

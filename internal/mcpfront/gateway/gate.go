//go:build unix

package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/entry"
	"github.com/tgad/tgad/internal/mcpfront/subject"
	"github.com/tgad/tgad/schemas/tga"
)

// Stdio serves one client on in and out until in ends or ctx does.
func (g *Gate) Stdio(ctx context.Context, in io.Reader, out io.Writer) error {
	f, err := g.fan(entry.NewStdout(out), entry.Whose{})
	if err != nil {
		return err
	}
	defer f.Release()
	err, kept := g.now.Load().all[0].Shim.Lines(ctx, in, f, g.log)
	return cmp.Or(kept, err)
}

// Note notes at once the delivery of every answer that the client was given.
func (f *fan) Note() {
	var all sync.WaitGroup
	for _, m := range f.members() {
		all.Go(m.Note)
	}
	all.Wait()
}

// Ready does not wait: the fan handles messages before a tool server has started.
func (f *fan) Ready() {}

// Underway is the number of the client's requests that have no answer yet, or an answer whose delivery is not noted.
func (f *fan) Underway() int {
	n := f.unanswered()
	for _, m := range f.members() {
		n += m.Conversation.Underway()
	}
	return n
}

// unanswered is the number of the client's requests that the fan itself has to answer and has not.
func (f *fan) unanswered() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, a := range f.asked {
		if a.m == nil && f.streams[key] == nil {
			n++
		}
	}
	return n
}

// lobby makes an endpoint over HTTP for the gate's clients.
func (g *Gate) lobby(life context.Context) entry.Lobby {
	all := g.now.Load().all
	f := all[0].Shim.Front(life, g.meet, g.credentials)
	g.reap = f.Reap
	for _, b := range all {
		b.Shim.Reap = f.Reap
	}
	return f
}

// credentials returns the headers from which the tool servers get their clients' credentials.
func (g *Gate) credentials() (all []subject.Source) {
	for _, b := range g.now.Load().all {
		all = append(all, b.Shim.Credentials())
	}
	return all
}

// Door is one endpoint over HTTP for the clients of several gates. It leads a client to the gate of its
// identity. The sessions, tool servers and keys of a gate are not shared with other gates.
type Door struct {
	// Who returns the identity of a request by its Authorization header and by the client's certificate, which is nil if
	// the client has shown none. "" means that the request has no known identity.
	Who func(authorization string, cert *x509.Certificate) string
	// Passes says that Authorization is not for the door: Who does not get it, and a gate may take credentials for a tool
	// server from it. Otherwise the door removes the header.
	Passes bool
	Gates  map[string]*Gate
	Watch  Watch
	// TLS, if set, is used with the clients. Then clients may be on other machines.
	TLS    *tls.Config
	Logger *slog.Logger // nil discards all records

	mu   sync.Mutex
	hall *hall // nil until the door listens
}

func (d *Door) log() *slog.Logger {
	return cmp.Or(d.Logger, slog.New(slog.DiscardHandler))
}

// Listen serves streamable HTTP on an address as [mcpfront.Shim.Listen] does.
func (d *Door) Listen(ctx context.Context, address string) error {
	if d.TLS == nil {
		l, err := entry.ListenOn(address)
		if err != nil {
			return err
		}
		return entry.Serve(ctx, l, d.log(), d.lobby)
	}
	if strings.HasPrefix(address, "unix:") {
		return tga.Errorf(tga.ValidationError, "listen on %q: a socket of this machine needs no TLS", address)
	}
	l, err := entry.ListenAt(address)
	if err != nil {
		return err
	}
	return entry.Serve(ctx, tls.NewListener(l, d.TLS), d.log(), d.lobby)
}

// hall leads requests over HTTP to the lobby of their identity. Its doors are replaced as a whole.
type hall struct {
	life  context.Context
	watch Watch
	now   atomic.Pointer[doors]

	mu   sync.Mutex
	gone []entry.Lobby // lobbies of identities that were removed
}

type doors struct {
	who     func(string, *x509.Certificate) string
	passes  bool
	lobbies map[string]entry.Lobby
}

func (d *Door) lobby(life context.Context) entry.Lobby {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hall = &hall{life: life, watch: d.Watch.deaf()}
	d.hall.now.Store(&doors{d.Who, d.Passes, d.hall.lobbies(d.Gates)})
	return d.hall
}

// lobbies returns the lobbies of gates. It keeps those that exist already.
func (h *hall) lobbies(gates map[string]*Gate) map[string]entry.Lobby {
	all := map[string]entry.Lobby{}
	for name, g := range gates {
		if now := h.now.Load(); now != nil && now.lobbies[name] != nil {
			all[name] = now.lobbies[name]
		} else {
			all[name] = g.lobby(h.life)
		}
	}
	return all
}

// Take changes the identities of the door: who and passes are as [Door.Who] and [Door.Passes], and gates has a gate for
// each identity. A gate whose name exists already stays. The conversations of a removed identity end once nothing is
// under way in them.
func (d *Door) Take(who func(string, *x509.Certificate) string, passes bool, gates map[string]*Gate) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Who, d.Passes, d.Gates = who, passes, gates
	if d.hall == nil {
		return
	}
	was := d.hall.now.Load()
	now := &doors{who, passes, d.hall.lobbies(gates)}
	d.hall.now.Store(now)
	d.hall.mu.Lock()
	defer d.hall.mu.Unlock()
	for name, l := range was.lobbies {
		if f, ok := l.(*entry.Front); ok && now.lobbies[name] == nil {
			d.hall.gone = append(d.hall.gone, l)
			f.Retire(d.log().With("identity", name))
		}
	}
}

// each returns the current lobbies and those that are ending.
func (h *hall) each() (all []entry.Lobby) {
	for _, l := range h.now.Load().lobbies {
		all = append(all, l)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return append(all, h.gone...)
}

func (h *hall) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := h.now.Load()
	var to entry.Lobby
	var cert *x509.Certificate
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		cert = r.TLS.PeerCertificates[0]
	}
	if said := r.Header.Values(subject.Authorization); len(said) == 0 || now.passes {
		to = now.lobbies[now.who("", cert)]
	} else if len(said) == 1 {
		to = now.lobbies[now.who(said[0], cert)]
	}
	if to == nil {
		h.watch.Refused(RefusedIdentity)
		w.Header().Set("WWW-Authenticate", `Bearer realm="tgad gateway"`)
		http.Error(w, "this gateway knows its clients, by an API key or a token in Authorization: Bearer …, or by a certificate", http.StatusUnauthorized)
		return
	}
	if name := now.misplaced(r.Header); name != "" {
		h.watch.Refused(RefusedInvalid)
		http.Error(w, name+" contains a key or token for this gateway, which is not sent to a tool server", http.StatusBadRequest)
		return
	}
	if !now.passes {
		// The gate's configuration may be newer than now by a moment, and would use the header.
		r.Header.Del(subject.Authorization)
	}
	to.ServeHTTP(w, r)
}

// misplaced returns a header for a tool server that contains the key or token of an identity, "" if there is none.
func (d *doors) misplaced(h http.Header) string {
	for name, said := range h {
		if strings.HasPrefix(name, subject.HeaderPrefix) && slices.ContainsFunc(said, func(s string) bool { return d.who(s, nil) != "" }) {
			return name
		}
	}
	return ""
}

func (h *hall) Expire(now time.Time) {
	for _, l := range h.each() {
		l.Expire(now)
	}
}

func (h *hall) Wait() {
	for _, l := range h.each() {
		l.Wait()
	}
}

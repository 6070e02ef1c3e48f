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

// Note has the log know at once of every answer that the client was given.
func (f *fan) Note() {
	var all sync.WaitGroup
	for _, m := range f.members() {
		all.Go(m.Note)
	}
	all.Wait()
}

// Ready does not wait: the fan takes messages before a tool server is there.
func (f *fan) Ready() {}

// Underway is how many of the client's requests have no answer yet, or one that is not noted.
func (f *fan) Underway() int {
	n := f.unanswered()
	for _, m := range f.members() {
		n += m.Conversation.Underway()
	}
	return n
}

// unanswered is how many of the client's requests the fan itself has not answered.
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

// lobby is an endpoint over HTTP for the gate's clients.
func (g *Gate) lobby(life context.Context) entry.Lobby {
	all := g.now.Load().all
	f := all[0].Shim.Front(life, g.meet, g.credentials)
	g.reap = f.Reap
	for _, b := range all {
		b.Shim.Reap = f.Reap
	}
	return f
}

// credentials says where the credentials come from that the tool servers get.
func (g *Gate) credentials() (all []subject.Source) {
	for _, b := range g.now.Load().all {
		all = append(all, b.Shim.Credentials())
	}
	return all
}

// Door is one endpoint over HTTP for the clients of several gates. A client is let in at the gate of
// its identity, and what it has there (sessions, tool servers, keys) is of that gate alone.
type Door struct {
	// Who is the identity of a request by its Authorization header, and by the certificate that the client has shown,
	// nil where there is none; "" is nobody's.
	Who func(authorization string, cert *x509.Certificate) string
	// Passes says that Authorization is not for the door: Who is not told it, and a gate may take from it what is for a
	// tool server. Else it ends here.
	Passes bool
	Gates  map[string]*Gate
	Watch  Watch
	// TLS, where it is set, is spoken with the clients. Then they may be on other machines.
	TLS    *tls.Config
	Logger *slog.Logger // nil means nothing is said

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

// hall is where clients over HTTP come in. Who is let in where is changed as a whole.
type hall struct {
	life  context.Context
	watch Watch
	now   atomic.Pointer[doors]

	mu   sync.Mutex
	gone []entry.Lobby // of identities that are known no more
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

// lobbies are those of gates; those that are there stay.
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

// Take has other clients let in: who says who is which identity, passes is as [Door.Passes], and gates has one for each.
// A gate that there is already under its name stays. Conversations of an identity that is there no more end once nothing
// is under way in them.
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

// each are the lobbies that are there, and those that come to their end.
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
		http.Error(w, name+" has what says to this gateway who its client is: no tool server gets that", http.StatusBadRequest)
		return
	}
	if !now.passes {
		// Also where the gate's configuration is newer by a moment, and would take it.
		r.Header.Del(subject.Authorization)
	}
	to.ServeHTTP(w, r)
}

// misplaced is a header for a tool server that has an identity's key or token in it, "" where there is none.
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

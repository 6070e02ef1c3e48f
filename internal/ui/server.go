package ui

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/tgad/tgad/internal/listen"
	"github.com/tgad/tgad/internal/report"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

//go:embed assets/ui.js assets/verify.js assets/icon.svg assets/htmx.min.js assets/sse.min.js
var assets embed.FS

// Log is the log that the view shows. [client.Client] and [logfile.File] implement it.
type Log interface {
	Ready(ctx context.Context) error
	InDoubt(ctx context.Context) ([]wire.OpenTrace, error)
	Approvals(ctx context.Context) ([]wire.Approval, error)
	Request(ctx context.Context, id tga.ID) (*tga.Artifact, error)
	Traces(ctx context.Context, q wire.TracesQuery) iter.Seq2[wire.OpenTrace, error]
	Trace(ctx context.Context, id tga.ID) (wire.Timeline, error)
	Document(ctx context.Context, trace tga.ID, pointer string) ([]byte, tga.Digest, error)
}

// Daemon is a daemon that can change the store. [client.Client] implements it.
type Daemon interface {
	Changes(ctx context.Context) iter.Seq2[string, error]
	Resolve(ctx context.Context, trace tga.ID, r runtime.Resolution) (runtime.Result, error)
	Abandon(ctx context.Context, trace tga.ID, reason string) (runtime.Result, error)
	Decide(ctx context.Context, trace tga.ID, vote wire.DecideRequest) (runtime.Result, error)
	Relicense(ctx context.Context, trace tga.ID, m wire.RelicenseRequest) (wire.Relicensed, error)
	Metrics(ctx context.Context) ([]byte, error)
	Proofs() client.Proofs
	Verify(ctx context.Context, trace tga.ID) (wire.Verified, error)
}

// Options configure a [Server]. The zero value is ready to use.
type Options struct {
	ReadOnly bool         // no actions: the store is at rest
	About    *About       // is on each page; nil = none
	Proxy    *Proxy       // the view serves the visitors of this proxy; nil = it serves one person
	Logger   *slog.Logger // nil discards
	Version  string
}

// About describes a file, on each page.
type About struct {
	Words             string
	Proved, NotProved []string // of an evidence file
	Fault             error    // what is wrong with the file
}

// Server is the view. It serves one person, or the visitors of a proxy.
type Server struct {
	log   Log
	do    Daemon                   // nil if there are no actions
	kept  runtime.AttachmentReader // turns and working states; nil for a file, which has none
	opts  Options
	mux   *http.ServeMux
	cross *http.CrossOriginProtection

	mu      sync.Mutex
	link    string // the login token; "" once it was used
	session string // "" before the login
	key     string // the token of the session's actions; behind a proxy, the key for the tokens of visitors
	seen    look   // the last look at the page of the store
	checked *checked
}

// New makes the view of a log.
func New(log Log, o Options) *Server {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	s := &Server{log: log, opts: o, mux: http.NewServeMux(), cross: http.NewCrossOriginProtection(), link: rand.Text()}
	if s.do, _ = log.(Daemon); s.do == nil {
		s.opts.ReadOnly = true
	}
	if o.Proxy != nil {
		s.link, s.key = "", rand.Text()
	}
	s.mux.HandleFunc("GET /login", s.login)
	s.mux.HandleFunc("GET /assets/{name}", s.asset)
	s.mux.HandleFunc("GET /{$}", s.inbox)
	s.mux.HandleFunc("GET /traces", s.traces)
	s.mux.HandleFunc("GET /traces/{id}", s.trace)
	s.mux.HandleFunc("GET /traces/{id}/raw", s.raw)
	s.mux.HandleFunc("GET /traces/{id}/document", s.document)
	s.mux.HandleFunc("GET /doubts", s.doubts)
	if s.kept, _ = log.(runtime.AttachmentReader); s.kept != nil {
		s.mux.HandleFunc("GET /turns", s.turns)
		s.mux.HandleFunc("GET /turns/{id}", s.turn)
		s.mux.HandleFunc("GET /states", s.states)
		s.mux.HandleFunc("GET /states/{id}/{number}", s.state)
	}
	if s.do != nil {
		s.mux.HandleFunc("GET /live", s.live)
		s.mux.HandleFunc("GET /store", s.store)
		s.mux.HandleFunc("POST /store/verify", s.verify)
		s.mux.HandleFunc("POST /traces/{id}/{verb}", s.act)
		s.mux.HandleFunc("POST /doubts/{verb}", s.settle)
	}
	return s
}

// Login is the path of the link that begins a session. It works once.
func (s *Server) Login() string { return "/login?token=" + s.link }

// Listen listens on a loopback address; any other is refused with VALIDATION_ERROR.
func Listen(address string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().IsLoopback() {
		return nil, tga.Errorf(tga.ValidationError, "listen on %q: want 127.0.0.1:PORT or [::1]:PORT, port 0 for any: the view is for one person on this machine", address)
	}
	return net.Listen("tcp", address)
}

// Serve answers until ctx ends, and closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler: s, ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	closed := make(chan error, 1)
	defer context.AfterFunc(ctx, func() { closed <- srv.Close() })()
	if err := listen.HTTP(srv, l); ctx.Err() == nil {
		return err
	}
	return <-closed // Close also ends the event streams of open pages
}

// policy lets a page load only from this server, and forbids to show it in a frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// maxForm limits the body of an action, and maxForms the body of an action on up to maxRows calls, in bytes.
const (
	maxForm  = 64 << 10
	maxForms = 1 << 20
)

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range map[string]string{
		"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
	} {
		w.Header().Set(name, value)
	}
	if !s.here(r.Host) {
		http.Error(w, words.foreignHost, http.StatusMisdirectedRequest)
		return
	}
	if err := s.cross.Check(r); err != nil {
		http.Error(w, words.foreignSite, http.StatusForbidden)
		return
	}
	v, ok := s.visitor(r)
	if r.URL.Path != "/login" && !ok {
		http.Error(w, words.noSession, http.StatusUnauthorized)
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), visitorKey{}, v))
	most := int64(maxForm)
	if strings.HasPrefix(r.URL.Path, "/doubts/") {
		most = maxForms
	}
	r.Body = http.MaxBytesReader(w, r.Body, most)
	s.mux.ServeHTTP(w, r)
}

// cookie is the name of the session's cookie. Browsers ignore the port of a cookie, so the name contains it.
func cookie(r *http.Request) string {
	port := "80"
	if at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		port = fmt.Sprint(at.Port)
	}
	return "tgad_" + port
}

func same(a, b string) bool {
	return a != "" && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}

// login begins the session, for the first request with the token of the link.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	ok := same(s.link, r.URL.Query().Get("token"))
	if ok {
		s.link, s.session, s.key = "", rand.Text(), rand.Text()
	}
	session := s.session
	s.mu.Unlock()
	if !ok {
		http.Error(w, words.usedLink, http.StatusUnauthorized)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: cookie(r), Value: session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	// Do not redirect: after a link from another site, the browser would not send the cookie.
	w.Header().Set("Refresh", "0; url=/")
	s.page(w, r, http.StatusOK, words.welcome, h.A(h.Href("/"), h.Text(words.goOn)))
}

var types = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

func (s *Server) asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	b, err := assets.ReadFile("assets/" + name)
	if name == "ui.css" {
		b, err = []byte(report.Style), nil
	}
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", types[path.Ext(name)])
	s.write(w, b)
}

// write writes a body. An error means that the browser is gone, and is only logged.
func (s *Server) write(w http.ResponseWriter, body []byte) {
	if _, err := w.Write(body); err != nil {
		s.opts.Logger.Debug("an answer did not arrive", "error", err)
	}
}

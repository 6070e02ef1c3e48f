package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/audit/deliver"
	"github.com/tgad/tgad/internal/backup"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/evidence"
	"github.com/tgad/tgad/internal/search"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// Daemon serves one store.
type Daemon struct {
	log     *slog.Logger
	uid     uint32 // of this process
	version string
	clock   func() time.Time

	db    Store
	can   powers // of the store
	rt    *runtime.Runtime
	tools *assemble.Live
	// keeper signs checkpoints and makes proofs; nil if the configuration has no key for evidence.
	keeper   *evidence.Keeper
	resting  func() (*evidence.Keeper, error) // the keeper of a store that is open for reading only
	audits   []*deliver.Delivery
	lists    search.Lists // the index of lists; nil if the configuration asks for none
	unfollow func() error // stops the keeper, the deliveries and the index

	life       context.Context // of calls: ends when draining is over
	end        context.CancelFunc
	reads      context.Context // of metrics: ends just before the store is closed
	endReads   context.CancelFunc
	drain      chan struct{} // closed when draining begins: streams end
	ready      atomic.Bool   // every open trace is classified
	classified chan struct{} // closed when ready
	atRest     bool          // the store is open for reading only, see [Reader]
	doubted    chan struct{} // holds one element if the store may have stopped
	timers     sync.WaitGroup
	traces     bool                  // calls make spans
	flush      func(context.Context) // sends the spans that are not sent yet
	sent       sentMetrics           // the metrics that are sent to a collector

	turnedAway atomic.Uint64 // connections that were refused
	gate       *gatekeeper
	reloads    reloads
	retaining  retaining
	chores     chores
	people     people
	backups    *backup.Keeper // nil where the store has no files that this process writes
	short      bool           // the disk is below its low-water mark; only the goroutine of watch uses it

	inFlight  *places // calls per namespace, also those whose client is gone
	bodies    *budget
	followers *places
	leases    *leaseTable
	metrics   *metrics
	events    *events // refusals and doubts, counted
	timings   *timings
	doubts    paced // calls in doubt, for the metrics
	pending   paced // approvals, likewise
	open      paced // open traces, likewise
	mux       *http.ServeMux
}

// request is one HTTP exchange.
type request struct {
	d      *Daemon
	w      http.ResponseWriter
	r      *http.Request
	peer   peer
	body   []byte // checked by the gate; nil = no body
	share  *share // what the body takes of the budget for bodies
	status int    // that was written; 0 = none yet

	refused bool // the body was refused before it was read to its end

	route *route
	began time.Time
	seen  bool // the metrics have counted this request
}

// route is one row of the API. schemas/wire/openapi.yaml has the same rows.
type route struct {
	method, path string
	// verbs lists the verbs that permit this route: the peer needs one of them. An empty list
	// permits every peer. A peer without any verb is turned away when it connects (gatekeeper).
	verbs  []config.Verb
	from   when
	handle func(*request) (any, error)
}

// as turns a method of one kind of request into a route's handle.
func as[T ~struct{ *request }](handle func(T) (any, error)) func(*request) (any, error) {
	return func(q *request) (any, error) { return handle(T{q}) }
}

// when is the moment from which on a route answers.
type when uint8

const (
	whenReady when = iota // once the open traces are classified
	whenOpen              // once the store is open
	atRest                // once the store is open, also in a [Reader]
)

var (
	mayRead   = []config.Verb{config.Read}
	mayAppend = []config.Verb{config.Append}
	mayDecide = []config.Verb{config.Decide}
	mayAdmin  = []config.Verb{config.Admin}
	// [submitting.mayAppendRaw] checks an append again, by the artifacts in it.
	mayAppendOrDecide = []config.Verb{config.Append, config.Decide}
	mayReadOrAdmin    = []config.Verb{config.Read, config.Admin}
)

// routes is the whole API.
var routes = []route{
	{"POST", "/v1/tool-calls", mayAppend, whenReady, (*request).toolCall},
	{"POST", "/v1/begin", mayAppend, whenReady, (*request).begin},
	{"POST", "/v1/traces/{id}/finish", mayAppend, whenReady, (*request).finish},
	{"POST", "/v1/traces/{id}/not-sent", mayAppend, whenReady, (*request).notSent},
	{"POST", "/v1/traces/{id}/give-up", mayAppend, whenReady, (*request).giveUp},
	{"POST", "/v1/traces/{id}/recover", mayAppend, whenReady, (*request).recover},
	{"POST", "/v1/traces/{id}/delivered", mayAppend, whenReady, (*request).delivered},
	{"POST", "/v1/keep", mayAppend, whenReady, (*request).keep},
	{"GET", "/v1/kept", mayAppend, whenReady, (*request).kept},

	{"GET", "/v1/traces", mayRead, atRest, as(listing.traces)},
	{"GET", "/v1/traces/{id}", mayRead, atRest, (*request).timeline},
	{"GET", "/v1/traces/{id}/state", mayRead, atRest, (*request).state},
	{"GET", "/v1/traces/{id}/entries", mayRead, atRest, (*request).entries},
	{"GET", "/v1/traces/{id}/documents", mayRead, atRest, (*request).document},
	{"GET", "/v1/traces/{id}/checkpoint", mayRead, atRest, (*request).latestCheckpoint},
	{"GET", "/v1/traces/{id}/receipt", mayRead, atRest, as(proving.receipt)},
	{"GET", "/v1/checkpoint", mayRead, atRest, as(proving.checkpoint)},
	{"GET", "/checkpoint", mayRead, atRest, as(proving.signedNote)}, // these two are C2SP tlog-tiles
	{"GET", "/tile/{level}/{number...}", mayRead, atRest, as(proving.tile)},
	{"POST", "/v1/bundle", mayRead, atRest, as(proving.bundle)},
	{"GET", "/v1/log", mayRead, atRest, (*request).logLines},
	{"GET", "/v1/in-doubt", mayRead, atRest, (*request).inDoubt},
	{"GET", "/v1/approvals", mayRead, atRest, (*request).approvals},
	{"GET", "/v1/evidence/{digest}", mayRead, atRest, (*request).evidence},
	{"GET", "/v1/rollback-plan", mayRead, atRest, (*request).rollbackPlan},

	{"POST", "/v1/traces/{id}/entries", mayAppendOrDecide, whenReady, as(submitting.appendOne)},
	{"POST", "/v1/entries:batch", mayAppendOrDecide, whenReady, as(submitting.appendMany)},
	{"POST", "/v1/traces/{id}/lease", mayAppendOrDecide, whenReady, as(leasing.acquire)},
	{"POST", "/v1/traces/{id}/lease:renew", mayAppendOrDecide, whenReady, as(leasing.renew)},
	{"POST", "/v1/traces/{id}/lease:release", mayAppendOrDecide, whenReady, as(leasing.release)},
	{"POST", "/v1/traces/{id}/checkpoint", mayAppend, whenReady, as(leasing.checkpoint)},

	{"POST", "/v1/traces/{id}/decide", mayDecide, whenReady, (*request).decide},
	{"POST", "/v1/traces/{id}/resolve", mayAdmin, whenReady, (*request).resolve},
	{"POST", "/v1/traces/{id}/abandon", mayAdmin, whenReady, (*request).abandon},
	{"POST", "/v1/traces/{id}/relicense", mayAdmin, whenReady, as(operating.relicense)},
	{"POST", "/v1/traces/{id}/compensate", mayAdmin, whenReady, (*request).compensate},
	{"POST", "/v1/recover", mayAdmin, whenReady, as(operating.recoverAll)},
	{"POST", "/v1/export", mayRead, atRest, (*request).export},
	{"POST", "/v1/verify", mayReadOrAdmin, atRest, as(operating.verify)},
	{"GET", "/v1/attachments", mayAdmin, atRest, as(operating.attachments)},
	{"GET", "/v1/working", mayAdmin, whenOpen, as(operating.working)},
	{"POST", "/v1/backup", mayAdmin, whenOpen, as(operating.backup)},
	{"POST", "/v1/seal", mayAdmin, whenReady, as(operating.seal)},
	{"POST", "/v1/erase", mayAdmin, whenReady, as(operating.erase)},
	{"POST", "/v1/retention", mayAdmin, whenReady, as(operating.retain)},
	{"POST", "/v1/unfreeze", mayAdmin, whenOpen, as(operating.unfreeze)},
	{"POST", "/v1/end-quarantine", mayAdmin, whenReady, as(operating.endQuarantine)},
	{"POST", "/v1/notify", mayAdmin, whenOpen, as(operating.notify)},
	{"POST", "/v1/reload", mayAdmin, whenOpen, as(operating.reload)},

	{"GET", "/livez", nil, whenOpen, (*request).isLive},
	{"GET", "/healthz", nil, whenOpen, (*request).healthy},
	{"GET", "/readyz", nil, whenOpen, (*request).isReady},
	{"GET", "/metrics", mayRead, whenOpen, (*request).showMetrics},
	{"GET", "/debug/pprof/{name}", mayAdmin, whenOpen, as(operating.profile)},
	{"GET", "/openapi.yaml", nil, whenOpen, (*request).openapi},
}

// conf is the current configuration.
func (d *Daemon) conf() *config.Config { return d.tools.Config() }

// roleOf is the role of a peer by the current configuration.
func (d *Daemon) roleOf(uid, gid uint32) config.Role { return d.conf().RoleOf(uid, gid, d.uid) }

// newMux makes a mux from the route table. It finds the path first, and then the method.
func (d *Daemon) newMux() *http.ServeMux {
	byPath := map[string]map[string]*route{}
	for i := range routes {
		r := &routes[i]
		if byPath[r.path] == nil {
			byPath[r.path] = map[string]*route{}
		}
		byPath[r.path][r.method] = r
	}
	mux := http.NewServeMux()
	for pattern, methods := range byPath {
		var allow []string
		for m := range methods {
			allow = append(allow, m)
		}
		slices.Sort(allow)
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			q := &request{d: d, w: w, r: r}
			rt := methods[r.Method]
			if rt == nil {
				w.Header().Set("Allow", strings.Join(allow, ", "))
				q.refuse(statusError{tga.Errorf(tga.ValidationError, "%s is no method of %s", r.Method, r.URL.Path), http.StatusMethodNotAllowed})
				return
			}
			d.serve(q, rt)
		})
	}
	mux.HandleFunc("/", d.noRoute)
	return mux
}

// noRoute answers for every path that is not in the table.
func (d *Daemon) noRoute(w http.ResponseWriter, r *http.Request) {
	(&request{d: d, w: w, r: r}).refuse(tga.Errorf(tga.NotFound, "there is no %.200s", r.URL.Path))
}

// ServeHTTP finds the route. It refuses an unclean path and one that is not absolute (such as *)
// itself: the mux would answer the first with a redirect, which some clients follow without
// their body, and the second in plain text.
func (d *Daemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Server", "tgad/"+d.version)
	if r.ContentLength != 0 {
		// The body has its time from here on, also if the request is refused: net/http reads the rest of a body before it
		// writes an answer, so without the bound a client that does not send it would hold the connection for ever.
		if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(d.conf().Limits.BodyTimeout.D)); err != nil {
			(&request{d: d, w: w, r: r}).refuse(tga.Errorf(tga.StoreUnavailable, "bound the time of the body: %w", err))
			return
		}
	}
	if refusal := connectionOf(r.Context()).refusal; refusal != nil {
		w.Header().Set("Connection", "close")
		(&request{d: d, w: w, r: r}).refuse(refusal)
		return
	}
	if path.Clean(r.URL.Path) != r.URL.Path || !path.IsAbs(r.URL.Path) {
		d.noRoute(w, r)
		return
	}
	d.mux.ServeHTTP(w, r)
}

// serve checks the peer and its request, calls the route's handle, and writes the answer.
func (d *Daemon) serve(q *request, rt *route) {
	q.route, q.began = rt, time.Now()
	defer q.observe()
	q.share = &share{of: d.bodies, uid: connectionOf(q.r.Context()).peer.uid}
	q.share.hold()
	defer func() { q.share.release() }()
	err := d.admit(q, rt)
	if err == nil {
		err = q.grew()
	}
	var answer any
	if err == nil {
		answer, err = rt.handle(q)
	}
	switch {
	case errors.Is(err, errNobodyWaits):
		if !q.seen { // wait.letGo has set the status of a request that it ended
			q.status = statusNobodyWaits
		}
	case err != nil && q.status != 0:
		// The status is sent already. The last line of the stream says why it ends.
		q.lastLine(err)
	case err != nil:
		if errors.Is(err, tga.StoreUnavailable) {
			d.suspect()
		}
		if q.refused {
			q.refuseBody(err)
			return
		}
		q.refuse(err)
	case answer != nil:
		q.answer(answer)
	}
}

// observe counts the request in the metrics, once: when it is answered, or when the daemon
// notices that the client is gone, whichever comes first.
func (q *request) observe() {
	if !q.seen {
		q.seen = true
		q.d.metrics.observe(q.route, q.status, time.Since(q.began))
	}
}

// statusNobodyWaits stands in the metrics for a request whose client went away.
const statusNobodyWaits = 499

// admit refuses a request before its route looks at it.
func (d *Daemon) admit(q *request, rt *route) error {
	q.peer = connectionOf(q.r.Context()).peer
	// Look the role up for each request: the configuration may have taken a verb away since
	// the peer connected.
	if q.peer.role = d.roleOf(q.peer.uid, q.peer.gid); q.peer.barred() != nil {
		return q.peer.barred()
	}
	if !q.peer.all() { // the runtime must act in the peer's namespace only
		q.r = q.r.WithContext(runtime.InNamespace(q.r.Context(), q.peer.role.Namespace))
	}
	// These two checks stop requests that somebody forges through a proxy. Such a request
	// names another host, and cannot have the header Tgad-Client.
	if q.r.Host != wire.Host {
		return statusError{tga.Errorf(tga.ValidationError, "the Host is %.80q: want %q", q.r.Host, wire.Host), http.StatusMisdirectedRequest}
	}
	if name := q.r.Header.Get(wire.HeaderClient); strings.HasPrefix(rt.path, "/v1/") && (name == "" || len(name) > maxClientName) {
		return tga.Errorf(tga.ValidationError, "the header %s is required: who asks, in 1 to %d bytes", wire.HeaderClient, maxClientName)
	}
	if err := q.parameters(rt); err != nil {
		return err
	}
	if len(rt.verbs) > 0 && !slices.ContainsFunc(rt.verbs, q.peer.role.Has) {
		return tga.Errorf(tga.PermissionDenied, "%s may not %s %s: it takes the verb %s", q.peer.name(), rt.method, rt.path, verbsText(rt.verbs))
	}
	if err := d.lacks(rt.path); err != nil {
		return err
	}
	if d.atRest && rt.from != atRest {
		return tga.Errorf(tga.StoreUnavailable, "no process has the store, and %s takes one: start tgad serve", rt.path)
	}
	if rt.from == whenReady && !d.ready.Load() {
		return tga.Errorf(tga.StoreUnavailable, "the daemon is still looking at the open traces")
	}
	if d.stopping() {
		q.w.Header().Set("Connection", "close")
		if rt.from == whenReady {
			return tga.Errorf(tga.StoreUnavailable, "the daemon stops")
		}
	}
	if q.r.ContentLength == 0 {
		return nil
	}
	return q.readBody()
}

func (d *Daemon) stopping() bool {
	select {
	case <-d.drain:
		return true
	default:
		return false
	}
}

func verbsText(verbs []config.Verb) string {
	var words []string
	for _, v := range verbs {
		words = append(words, string(v))
	}
	return strings.Join(words, " or ")
}

// exact is an answer of exact bytes, in place of a message that is encoded.
type exact struct {
	kind string // Content-Type
	body []byte
}

// answer writes a route's answer: a message, or exact bytes.
func (q *request) answer(a any) {
	q.status = http.StatusOK
	e, ok := a.(exact)
	if !ok {
		e = exact{"application/json", wire.Append(nil, a)}
	}
	q.w.Header().Set("Content-Type", e.kind)
	q.write(http.StatusOK, e.body)
}

package daemon

import (
	"iter"

	"github.com/tgad/tgad/internal/search"
	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
	"github.com/tgad/tgad/wal/chain"
)

// listing is a request for those traces of a store that the peer may see.
type listing struct{ *request }

// lister answers one such request.
type lister struct {
	*request
	want  wire.TracesQuery
	state tga.State    // the parsed want.State; None = any
	class ledger.Class // the parsed want.Class; ClassNone = any
}

// lookedPerPage limits how many traces are looked at for a page, as a multiple of the page's
// length. If few traces match, the page ends early, so one request does not read a whole store. It
// ends behind a trace that the peer may see, since the next page begins with that trace's id. If the
// peer may see none of so many, the request goes on, and counts as a stream from then on.
const lookedPerPage = 64

// traces lists a page of the open traces, or of all: by id, or, from the index of lists, the newest first.
func (of listing) traces() (any, error) {
	q := &lister{request: of.request}
	if err := q.read(); err != nil {
		return nil, err
	}
	page := wire.Traces{Traces: []wire.OpenTrace{}}
	list := q.byID()
	if q.want.Newest {
		switch {
		case q.d.lists != nil:
		case q.d.atRest:
			return nil, tga.Errorf(tga.ValidationError, "a store that no daemon serves has no index of lists: list it by id").At("/newest")
		default:
			return nil, tga.Errorf(tga.ValidationError, "the store has no index of lists: set list_index in [store]").At("/newest")
		}
		list = q.byAge()
	}
	looked, most := 0, q.d.conf().Limits.Page*lookedPerPage
	var last search.Mark
	for l, err := range list {
		if err != nil {
			return nil, err
		}
		if len(page.Traces) == q.d.conf().Limits.Page || looked >= most && !last.Trace.IsZero() {
			page.Next = last.Trace
			if q.want.Newest {
				page.Before = last.Since
			}
			break
		}
		if looked++; looked == most && last.Trace.IsZero() {
			leave, err := q.takeFollower()
			if err != nil {
				return nil, err
			}
			defer leave()
		}
		if !q.mayList(&l.Listed) {
			continue
		}
		last = search.Mark{Since: l.at, Trace: l.TraceID}
		if ok, err := q.matches(&l); err != nil {
			return nil, err
		} else if ok {
			page.Traces = append(page.Traces, q.describe(l.Listed))
		}
	}
	return page, nil
}

// read reads the query parameters.
func (q *lister) read() (err error) {
	values, w := q.r.URL.Query(), &q.want
	if text := values.Get("after"); text != "" {
		if w.After, err = tga.ParseID(text); err != nil {
			return err.(*tga.Error).At("/after")
		}
	}
	if w.State = values.Get("state"); w.State != "" {
		if q.state, err = tga.ParseState(w.State); err != nil {
			return err.(*tga.Error).At("/state")
		}
	}
	if w.Class = values.Get("class"); w.Class != "" {
		if q.class, err = ledger.ParseClass(w.Class); err != nil {
			return err.(*tga.Error).At("/class")
		}
	}
	for name, at := range map[string]*tga.Millis{"since": &w.Since, "until": &w.Until, "before": &w.Before} {
		if text := values.Get(name); text != "" {
			if *at, err = tga.ParseMillis(text); err != nil {
				return err.(*tga.Error).At("/" + name)
			}
		}
	}
	w.Namespace, w.Server, w.Tool, w.Key, w.Text = values.Get("namespace"), values.Get("server"), values.Get("tool"), values.Get("key"), values.Get("text")
	if w.All, err = q.flag("all"); err != nil {
		return err
	}
	if w.Newest, err = q.flag("newest"); err != nil {
		return err
	}
	if (w.Before != 0) != (w.Newest && !w.After.IsZero()) {
		return tga.Errorf(tga.ValidationError, "before stands beside newest=1 and after, and there alone: both are of the page before").At("/before")
	}
	return nil
}

// found is a trace of a list.
type found struct {
	chain.Listed
	at    tga.Millis   // since when it is in its state, by the index of lists; 0 in a list by id
	trace *chain.Trace // nil if it was not read yet
}

// byID yields the traces after an id, from the open index or from the list of all traces.
func (q *lister) byID() iter.Seq2[found, error] {
	return func(yield func(found, error) bool) {
		list := q.d.db.Traces(q.r.Context(), q.want.After)
		if !q.want.All {
			list = q.openTraces(q.want.After)
		}
		for l, err := range list {
			if err == nil && !q.want.All && q.mayMatch(&l.Listing) {
				q.look(&l)
			}
			if !yield(found{Listed: l}, err) || err != nil {
				return
			}
		}
	}
}

// byAge yields the traces that the index of lists has, the newest first. It reads each from the log.
func (q *lister) byAge() iter.Seq2[found, error] {
	return func(yield func(found, error) bool) {
		w := &q.want
		ask := search.Query{
			Namespace: w.Namespace, Server: w.Server, Tool: w.Tool, Key: w.Key, Class: q.class, Since: w.Since, Until: w.Until,
			After: search.Mark{Since: w.Before, Trace: w.After}, Limit: q.d.conf().Limits.Page + 1,
		}
		switch {
		case q.state != tga.None:
			ask.States = []tga.State{q.state}
		case !w.All:
			ask.States = openStates
		}
		if !q.peer.all() && ask.Namespace == "" {
			ask.Namespace = q.peer.role.Namespace
		}
		for {
			marks, err := q.d.lists.Find(q.r.Context(), ask)
			if err != nil {
				yield(found{}, err)
				return
			}
			traces, err := q.loads(marks)
			if err != nil {
				yield(found{}, err)
				return
			}
			for _, m := range marks {
				l := found{at: m.Since}
				l.TraceID = m.Trace
				switch t, err := traces(m.Trace); {
				case err == nil:
					l.Listing, l.trace = t.Listing(), t
				case tga.CodeOf(err) == tga.StoreUnavailable || q.r.Context().Err() != nil:
					yield(found{}, err)
					return
				default:
					l.Err = err
				}
				if !yield(l, nil) {
					return
				}
			}
			if len(marks) < ask.Limit {
				return
			}
			ask.After = marks[len(marks)-1]
		}
	}
}

// loads returns a function that reads the traces of a page. In a database it reads all of them with one query, and past
// this process's cache: another process may have erased a trace that the cache still has.
func (q *lister) loads(marks []search.Mark) (func(tga.ID) (*chain.Trace, error), error) {
	one := func(id tga.ID) (*chain.Trace, error) { return q.d.db.Load(q.r.Context(), id) }
	if q.d.can.listing == nil {
		return one, nil
	}
	ids, read := make([]tga.ID, len(marks)), make(map[tga.ID]*chain.Trace, len(marks))
	for i, m := range marks {
		ids[i] = m.Trace
	}
	if err := q.d.can.listing.Read(q.r.Context(), ids, func(t *chain.Trace) { read[t.ID] = t }); err != nil {
		return nil, err
	}
	return func(id tga.ID) (*chain.Trace, error) {
		if t := read[id]; t != nil {
			return t, nil
		}
		return one(id) // returns the error that says why it cannot be read
	}, nil
}

// openStates are the states that are not terminal.
var openStates = []tga.State{tga.Pending, tga.Authorized, tga.Executing}

// openTraces yields what the open index says of the open traces after an id.
func (q *lister) openTraces(after tga.ID) iter.Seq2[chain.Listed, error] {
	return func(yield func(chain.Listed, error) bool) {
		for o, err := range q.d.db.OpenTraces(q.r.Context()) {
			if err == nil && string(o.TraceID[:]) <= string(after[:]) {
				continue
			}
			if !yield(chain.Listed{Listing: chain.Listing{OpenTrace: o}}, err) || err != nil {
				return
			}
		}
	}
}

// look reads from the trace what a list shows and the open index does not have.
func (q *lister) look(l *chain.Listed) {
	t, err := q.d.db.Load(q.r.Context(), l.TraceID)
	if err != nil {
		l.Err = err
		return
	}
	open := l.OpenTrace // keep the state that the open index had
	l.Listing = t.Listing()
	l.OpenTrace = open
}

// mayMatch says whether the trace can match the request, as far as the open index shows.
func (q *lister) mayMatch(l *chain.Listing) bool {
	open := q.want
	open.Server, open.Tool, open.Key = "", "", "" // the open index does not have these
	return q.peer.sees(l.Namespace) && story.Matches(&open, story.Listed(*l))
}

// matches says whether a trace matches the request. A trace that cannot be read
// matches unless the request has a condition that only its content could answer.
func (q *lister) matches(l *found) (bool, error) {
	if !story.Matches(&q.want, story.Listed(l.Listing)) {
		return false, nil
	}
	if q.class == ledger.ClassNone && q.want.Text == "" {
		return true, nil
	}
	t := l.trace
	if t == nil {
		var err error
		if t, err = q.d.db.Load(q.r.Context(), l.TraceID); err != nil {
			if tga.CodeOf(err) == tga.StoreUnavailable || q.r.Context().Err() != nil {
				return false, err
			}
			return false, nil
		}
	}
	return story.Within(&q.want, t.Request, t.Effect), nil
}

// mayList says whether the peer may see a trace in a list. The namespace of a trace that cannot be
// read comes from the open index, or else from its first entry.
func (q *lister) mayList(l *chain.Listed) bool {
	if l.Err != nil && l.Namespace == "" {
		return q.ownGenesis(l.TraceID)
	}
	return q.peer.sees(l.Namespace)
}

// describe makes the row of a trace. The row of a trace that cannot be read has the reason.
func (q *lister) describe(l chain.Listed) wire.OpenTrace {
	m := story.Listed(l.Listing)
	m.Held = q.d.db.Holder(l.TraceID) == ledger.HolderAlive
	if l.Err != nil {
		p := problemOf(l.Err)
		m.Problem = &p
	}
	return m
}

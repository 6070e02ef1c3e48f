package daemon

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/notice"
	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// people sends notices of what waits for people, to the receivers that the current configuration names.
type people struct {
	find string // the flags by which a command finds the daemon

	// service is the current one. Calls read it without mu, which is held while a service ends: that may
	// wait for receivers.
	service atomic.Pointer[notice.Service]

	mu   sync.Mutex
	ctx  context.Context // nil before the daemon serves, and after it
	stop func()          // ends the running service; nil = none runs
}

// openPeople makes the service. It sends nothing before the daemon serves.
func (d *Daemon) openPeople(o Options) error {
	service, err := d.tellers(o.Config)
	d.people.service.Store(service)
	return err
}

// tellers makes the service that a configuration describes, and refuses one that it cannot make.
func (d *Daemon) tellers(c *config.Config) (*notice.Service, error) {
	var all []notice.Receiver
	switch {
	case d.atRest:
	case d.can.duty == nil && len(c.Notify) > 0:
		return nil, tga.Errorf(tga.ValidationError, "[[notify]] tells of what waits in one store, and a fleet has several: set [store] namespace, in a daemon for each")
	default:
		var err error
		if all, err = assemble.Notify(c, d.can.duty, d.clock, d.log); err != nil {
			return nil, err
		}
	}
	return notice.New(waiting{d}, all, d.clock, d.log), nil
}

// tellPeople runs the service until the daemon drains or stop is called.
func (d *Daemon) tellPeople(socket string) (stop func()) {
	p := &d.people
	if path, err := filepath.Abs(socket); err == nil {
		socket = path // a relative path would be right only in the daemon's working directory
	}
	p.find = "--socket " + clip.ShellWord(socket)
	ctx, end := d.untilDrain()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ctx = ctx
	d.runTellers()
	return func() {
		end()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stop()
		p.ctx = nil
	}
}

// runTellers starts the current service. The caller holds p.mu.
func (d *Daemon) runTellers() {
	ctx, end := context.WithCancel(d.people.ctx)
	service, ended := d.people.service.Load(), make(chan struct{})
	go func() {
		defer close(ended)
		if !d.awaitClassified(ctx) {
			return
		}
		if err := service.Run(ctx); err != nil {
			d.log.Warn("a receiver of notices was not closed", "error", err)
		}
	}()
	d.people.stop = func() {
		end()
		<-ended
	}
}

// replaceTellers replaces the service, and starts the new one if the old one was running.
func (d *Daemon) replaceTellers(next *notice.Service) {
	p := &d.people
	p.mu.Lock()
	defer p.mu.Unlock()
	p.service.Store(next)
	if p.ctx != nil {
		p.stop()
		d.runTellers()
	}
}

// waiting reads what waits for people in a daemon's store. It reads all namespaces: only the operator's configuration
// decides who gets notices.
type waiting struct{ d *Daemon }

// Waiting implements [notice.World].
func (w waiting) Waiting(ctx context.Context) (all []notice.Matter, err error) {
	open, err := w.d.rt.Classify(ctx)
	if err != nil {
		return nil, err
	}
	asked, err := w.d.rt.Approvals(ctx)
	var unread runtime.UnreadApprovals
	if !errors.As(err, &unread) && err != nil {
		return nil, err
	}
	if why := w.d.db.Stats().Frozen; why != "" {
		all = append(all, notice.Matter{Kind: config.OnFrozen, Cause: why})
	}
	byTrace := make(map[tga.ID]*runtime.Classified, len(open))
	for i := range open {
		c := &open[i]
		byTrace[c.TraceID] = c
		m := notice.Matter{TraceID: c.TraceID, Namespace: c.Namespace, Server: c.Server, Tool: c.Tool, Key: c.Key, Since: c.Since, Known: c}
		switch {
		case c.Err != nil:
			m.Kind, m.Cause = config.OnQuarantined, c.Err.Error()
		case c.InDoubt:
			m.Kind, m.Since, m.Attempts = config.OnDoubt, c.Record.Attempts.Newest, c.Record.Attempts.Count
		default:
			continue
		}
		all = append(all, m)
	}
	for _, u := range unread {
		if byTrace[u.TraceID] == nil { // an open trace that cannot be read has a notice already
			all = append(all, notice.Matter{Kind: config.OnApproval, TraceID: u.TraceID, Cause: u.Error()})
		}
	}
	for _, a := range asked {
		m := notice.Matter{Kind: config.OnApproval, TraceID: a.TraceID, Since: a.Since, Expires: a.Expires, Cause: a.Why, About: a.About().String(), Known: a.About()}
		if c := byTrace[a.TraceID]; c != nil {
			m.Namespace, m.Server, m.Tool, m.Key = c.Namespace, c.Server, c.Tool, c.Key
		} else if err := w.asked(ctx, &m); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// asked describes a finished trace whose record people are asked about. If the trace cannot be read, the notice says
// so, and the notices of other traces are still sent.
func (w waiting) asked(ctx context.Context, m *notice.Matter) error {
	err := w.describe(ctx, m)
	if err == nil || tga.CodeOf(err) == tga.StoreUnavailable || ctx.Err() != nil {
		return err
	}
	m.Cause = err.Error()
	return nil
}

// describe fills in whose call a matter is about.
func (w waiting) describe(ctx context.Context, m *notice.Matter) error {
	t, err := w.d.db.Load(ctx, m.TraceID)
	if err != nil {
		return err
	}
	m.Namespace, m.State = t.Namespace, t.Head.State.String()
	if t.Request != nil {
		p := t.Request.Request.Proposal
		m.Server, m.Tool, m.Key = p.ToolServer, p.ToolName, story.Key(t)
	}
	switch {
	case t.Effect != nil && t.Effect.Meta.String(tga.MetaResolver) != "":
		m.Cause = "settled by " + t.Effect.Meta.String(tga.MetaResolver)
	case t.Decision != nil && m.Kind == config.OnApproval && t.Decision.Meta.String(runtime.MetaApprovers) != "":
		m.Cause = "decided by " + t.Decision.Meta.String(runtime.MetaApprovers)
	}
	return nil
}

// Complete implements [notice.World].
func (w waiting) Complete(ctx context.Context, m *notice.Matter) error {
	find := w.d.people.find
	switch m.Kind {
	case config.OnFrozen:
		m.Commands = []string{"tgad verify " + find}
	case config.OnQuarantined:
		m.Commands = []string{story.Verb(find, "verify", m.TraceID)}
	case config.OnApproval:
		about, _ := m.Known.(tga.Digest)
		m.Commands = []string{story.Verb(find, "show", m.TraceID), story.ApprovalVerb(find, m.TraceID, about), story.Verb(find, "deny", m.TraceID, "--rationale 'why it may not run'")}
	case config.OnDoubt:
		m.Commands = story.DoubtVerbs(find, m.TraceID, m.Attempts)
		t, err := w.d.db.Load(ctx, m.TraceID)
		if err != nil {
			return err
		}
		if c, ok := m.Known.(*runtime.Classified); ok && t.Call != nil {
			licence, _ := w.d.next(t, *c)
			m.Licence = licence.Kind.String()
		}
		m.Cause = runtime.DoubtCause(t)
	}
	return nil
}

// Fate implements [notice.World].
func (w waiting) Fate(ctx context.Context, m *notice.Matter) (notice.Fate, error) {
	if m.Kind == config.OnFrozen {
		return notice.Settled, nil
	}
	err := w.describe(ctx, m)
	switch {
	case errors.Is(err, tga.NotFound):
		return notice.Settled, nil // the trace was erased, or is of another store
	case err != nil:
		return notice.Open, err
	case m.Kind == config.OnApproval && m.State == tga.Pending.String():
		return notice.Replaced, nil
	case m.Kind == config.OnDoubt && m.State == tga.Executing.String():
		return notice.Open, nil // the call is being sent again
	}
	return notice.Settled, nil
}

// Lists implements [notice.World].
func (w waiting) Lists() []string {
	return []string{"tgad in-doubt " + w.d.people.find, "tgad approvals " + w.d.people.find}
}

// notify lists the receivers of notices, and with Test sends each a notice that says it is a test.
func (q operating) notify() (any, error) {
	var m wire.NotifyRequest
	if err := q.decode(&m); err != nil {
		return nil, err
	}
	if err := q.everything("tell people"); err != nil {
		return nil, err
	}
	return run(q.request, "", func(ctx context.Context) (wire.Notified, error) {
		service := q.d.people.service.Load()
		var failed []error
		if m.Test {
			failed = service.Test(ctx, q.peer.name())
		}
		all := wire.Notified{Receivers: []wire.NotifyReceiver{}}
		for i, s := range service.Stats() {
			r := wire.NotifyReceiver{ID: s.ID, Type: s.Type, Taken: s.Taken, Failures: s.Failures, Last: s.Last, LateMS: int64(s.Late * 1000), Trouble: s.Trouble}
			if m.Test && failed[i] != nil {
				r.Failed = failed[i].Error()
			}
			all.Receivers = append(all.Receivers, r)
		}
		return all, nil
	})
}

package daemon

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/notice"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// reloads is what a daemon knows of its reloads.
type reloads struct {
	again func() (*config.Config, error) // [Options.Reload]

	turn    sync.Mutex   // one after the other
	read    atomic.Int64 // when the configuration that holds was read, in milliseconds since 1970
	refused atomic.Bool  // the newest one was

	mu    sync.Mutex
	roles chan struct{} // closed when the roles are others, and made anew
}

// init says when the first configuration was read, and how it is read again.
func (r *reloads) init(now time.Time, again func() (*config.Config, error)) {
	r.again, r.roles = again, make(chan struct{})
	r.read.Store(now.UnixMilli())
}

// rolesChange returns a channel that is closed when peers may have other roles.
func (r *reloads) rolesChange() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.roles
}

func (r *reloads) changeRoles() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.roles)
	r.roles = make(chan struct{})
}

// reloading is the name under which reloads are counted beside the namespaces' calls: a daemon
// that drains begins none, and waits for one that is under way.
const reloading = "\x00reload"

// reload reads the configuration again and lets it hold. All of it begins to hold, or nothing
// does. It returns the keys whose values are others now.
func (d *Daemon) reload() (changed []string, err error) {
	d.reloads.turn.Lock()
	defer d.reloads.turn.Unlock()
	changed, err = d.takeConfig()
	if d.reloads.refused.Store(err != nil); err != nil {
		d.log.Error("the configuration that holds stays: the new one was refused", "error", err)
	} else {
		d.log.Info("a new configuration holds", "changed", changed)
	}
	return changed, err
}

func (d *Daemon) takeConfig() (changed []string, err error) {
	if err := d.inFlight.take(reloading, reloading); err != nil {
		return nil, err
	}
	defer d.inFlight.leave(reloading)
	if d.reloads.again == nil {
		return nil, tga.Errorf(tga.ValidationError, "the daemon was started without a file of configuration: there is none to read again")
	}
	read := d.clock()
	was := d.conf()
	c, err := d.reloads.again()
	if err != nil {
		return nil, err
	}
	if err := c.MayFollow(was); err != nil {
		return nil, err
	}
	var tellers *notice.Service
	if !reflect.DeepEqual(was.Notify, c.Notify) {
		if tellers, err = d.tellers(c); err != nil {
			return nil, err
		}
	}
	// The stricter of both until all else is there: a rule that is laxer now was meant to stand
	// beside the demands of its own file.
	d.rt.Demand(was.Approval.Self && c.Approval.Self, was.Capability.Required || c.Capability.Required)
	if err := d.tools.Take(c); err != nil {
		d.rt.Demand(was.Approval.Self, was.Capability.Required)
		return nil, err
	}
	d.rt.Demand(c.Approval.Self, c.Capability.Required)
	d.reloads.read.Store(read.UnixMilli())
	d.adapt(was, c)
	if tellers != nil {
		d.replaceTellers(tellers)
	}
	d.suggestNow(d.life)
	return c.Changes(was), nil
}

// hintTime is how long trusted servers are waited for before a daemon is ready, or a reload answers. Another value in a test.
var hintTime = 10 * time.Second

// suggest asks those trusted servers for their hints that have not been asked.
func (d *Daemon) suggest(ctx context.Context) error {
	if !d.tools.Trusts() {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, hintTime, fmt.Errorf("no answer within %s", hintTime))
	defer cancel()
	return d.tools.Suggest(ctx)
}

// suggestNow asks them, unless the daemon drains first. One that cannot be asked now is asked later, and suggests nothing
// until then.
func (d *Daemon) suggestNow(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	until, stop := d.untilDrain()
	defer stop()
	defer context.AfterFunc(until, cancel)()
	if err := d.suggest(ctx); err != nil {
		d.log.Warn("trusted servers that were not asked suggest nothing until they are", "error", err)
		d.chores.hints.owe()
	}
}

// adapt brings what keeps a value of its own up to the configuration that holds.
func (d *Daemon) adapt(was, now *config.Config) {
	d.inFlight.bound(now.Limits.InFlight)
	d.followers.bound(now.Limits.Followers)
	d.gate.bound(now.Limits.Connections, now.Limits.UIDConnections)
	if !reflect.DeepEqual(was.Roles, now.Roles) {
		d.reloads.changeRoles()
	}
}

// heedHangups reloads for each signal until stop is called.
func (d *Daemon) heedHangups(hangup <-chan os.Signal) (stop func()) {
	over, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		for {
			select {
			case <-over:
				return
			case <-hangup:
				if _, err := d.reload(); err != nil {
					continue // the log has it
				}
			}
		}
	}()
	return func() {
		close(over)
		<-gone
	}
}

// reload has the daemon read its configuration again.
func (q operating) reload() (any, error) {
	if err := q.decode(&struct{}{}); err != nil {
		return nil, err
	}
	if err := q.everything("reload the configuration"); err != nil {
		return nil, err
	}
	changed, err := q.d.reload()
	return wire.Reloaded{Changed: append([]string{}, changed...)}, err
}

// stillSees refuses to go on with a stream whose peer may see less than when it began.
func (q *request) stillSees() error {
	now := q.d.roleOf(q.peer.uid, q.peer.gid)
	if !now.Has(config.Read) || now.Namespace != q.peer.role.Namespace {
		return tga.Errorf(tga.PermissionDenied, "the roles are others now: %s may not read on", q.peer.name())
	}
	return nil
}

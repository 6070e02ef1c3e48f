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

// reloads is the state of a daemon's reloads.
type reloads struct {
	again func() (*config.Config, error) // [Options.Reload]

	turn    sync.Mutex   // held during a reload: there is one at a time
	read    atomic.Int64 // when the current configuration was read, in milliseconds since 1970
	refused atomic.Bool  // the newest reload was refused

	mu    sync.Mutex
	roles chan struct{} // closed when the roles change; then a new one takes its place
}

// init sets when the first configuration was read, and how to read it again.
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

// reloading is the name under which [Daemon.inFlight] counts reloads, in place of a namespace. So a
// daemon that drains begins no reload, and waits for one that is under way.
const reloading = "\x00reload"

// reload reads the configuration again and applies it: all of it, or nothing. It returns the keys
// whose values have changed.
func (d *Daemon) reload() (changed []string, err error) {
	d.reloads.turn.Lock()
	defer d.reloads.turn.Unlock()
	changed, err = d.takeConfig()
	if d.reloads.refused.Store(err != nil); err != nil {
		d.log.Error("the new configuration was refused, the current one stays", "error", err)
	} else {
		d.log.Info("configuration reloaded", "changed", changed)
	}
	return changed, err
}

func (d *Daemon) takeConfig() (changed []string, err error) {
	if err := d.inFlight.takeOver(reloading); err != nil {
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
	// Until the rest of the new configuration is applied, demand what the stricter of the two
	// demands. A rule that is laxer now may rely on a demand of its own file.
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

// hintTime is how long a start or a reload waits for the hints of trusted servers. Tests set another value.
var hintTime = 10 * time.Second

// suggest asks the trusted servers that were not asked yet for their hints.
func (d *Daemon) suggest(ctx context.Context) error {
	if !d.tools.Trusts() {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, hintTime, fmt.Errorf("no answer within %s", hintTime))
	defer cancel()
	return d.tools.Suggest(ctx)
}

// suggestNow calls suggest, and stops when the daemon drains. A server that cannot be asked now is asked later, by a chore.
// Until then the daemon has no hints of it.
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

// adapt applies a new configuration to the parts that have copies of its values.
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
					continue // reload has logged it
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

// stillSees ends a stream whose peer has lost the verb read or has another namespace since it began.
func (q *request) stillSees() error {
	now := q.d.roleOf(q.peer.uid, q.peer.gid)
	if !now.Has(config.Read) || now.Namespace != q.peer.role.Namespace {
		return tga.Errorf(tga.PermissionDenied, "the roles have changed: %s may no longer read this stream", q.peer.name())
	}
	return nil
}

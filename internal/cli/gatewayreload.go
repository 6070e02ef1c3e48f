//go:build unix

package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/mcpfront"
	"github.com/tgad/tgad/internal/mcpfront/gateway"
	"github.com/tgad/tgad/internal/mcpfront/names"
	"github.com/tgad/tgad/internal/mcpfront/subject"
	"github.com/tgad/tgad/schemas/tga"
)

// On SIGHUP a gateway, and a shim with a configuration file, reads its file again. Either the whole file takes effect
// or nothing of it. Everything that can fail is made first: shims, gates, places for conversations. Then the
// gateway's own log takes its part of the file. Meanwhile the gates apply the stricter of both configurations. The
// steps after that cannot fail.

// shimOf names a shim of a gateway.
type shimOf struct{ identity, server string }

// madeShim is a shim and what it was made with.
type madeShim struct {
	shim *mcpfront.Shim
	with mcpfront.Options
}

// plan is what a gateway will consist of under a configuration.
type plan struct {
	who    func(string, *x509.Certificate) string
	passes bool // Authorization is for a tool server
	gates  map[string]gatePlan
	shims  map[shimOf]madeShim
	made   []*mcpfront.Shim // those of the shims that are new
}

type gatePlan struct {
	behind []gateway.Behind
	o      gateway.GateOptions
}

// drop closes the new shims of a plan that is given up. It adds their errors to err.
func (p *plan) drop(err error) error {
	for _, s := range p.made {
		err = errors.Join(err, s.Close())
	}
	return err
}

// plan makes the parts that a configuration asks for. Existing shims whose options are the same are reused.
func (g *gatewayCommand) plan(ctx context.Context, conf *config.Config) (*plan, error) {
	p := &plan{passes: conf.PassesAuthorization(), gates: map[string]gatePlan{}, shims: map[shimOf]madeShim{}}
	var err error
	if p.who, err = who(conf); err != nil {
		return nil, err
	}
	people := conf.Gateway.Identities
	if len(people) == 0 {
		people = []config.Identity{{}}
	}
	for i := range people {
		if of := &people[i]; g.as == "" || of.Name == g.as {
			if err := g.planGate(ctx, conf, of, p); err != nil {
				return nil, p.drop(err)
			}
		}
	}
	return p, nil
}

// planGate adds the gate of one identity to the plan, with its shims.
func (g *gatewayCommand) planGate(ctx context.Context, conf *config.Config, of *config.Identity, p *plan) error {
	made := gatePlan{o: gateway.GateOptions{Lists: names.Lists{Allow: of.Allow, Deny: of.Deny}, Resources: of.Resources, Logger: g.logger(), Watch: g.metrics.watch(of.Name)}}
	for _, q := range of.Limits {
		made.o.Quotas = append(made.o.Quotas, gateway.Quota{Tool: q.Tool, Calls: q.Calls, Per: q.Per.D})
	}
	for _, server := range conf.BehindGateway() {
		o, err := g.options(ctx, conf, g.client, server, of.Space())
		if err != nil {
			return err
		}
		if conf.Gateway.Observes() {
			o.Observe = g.metrics.saw(of.Name, server.ID)
		}
		name := shimOf{of.Name, server.ID}
		s, ok := g.shims[name]
		if !ok || !sameShim(s.with, o) {
			if s.shim, err = mcpfront.New(o); err != nil {
				return err
			}
			s.with, p.made = o, append(p.made, s.shim)
		}
		p.shims[name] = s
		made.behind = append(made.behind, gateway.Behind{Shim: s.shim, Names: server.Names(), Resources: server.Resources})
	}
	state, err := g.remembers()
	if err != nil {
		return err
	}
	secret, err := subject.ReadSecret(state)
	if err != nil {
		return err
	}
	made.o.Tasks = names.Tasks{Of: of.Name, Seal: func(text string) string { return secret.Seal(gateway.SealOfTasks, text) }}
	p.gates[of.Name] = made
	return nil
}

// sameShim reports whether shims made with a and with b would behave the same. The functions among the options are not
// compared: they look everything up in the current configuration.
func sameShim(a, b mcpfront.Options) bool {
	if a.Workspace != b.Workspace {
		return false
	}
	for _, o := range []*mcpfront.Options{&a, &b} {
		o.Log, o.Look, o.Tools, o.Observe, o.Tracer, o.Workspace, o.Stderr, o.Logger = nil, nil, nil, nil, nil, nil, nil, nil
	}
	return reflect.DeepEqual(a, b)
}

// reload reads the configuration again and puts it into effect. It returns the keys whose values changed.
func (g *gatewayCommand) reload(ctx context.Context) (changed []string, err error) {
	conf, err := g.read()
	if err != nil {
		return nil, err
	}
	was := g.now.Load()
	changed, err = conf.MayFollowAt(config.Behind, was, (*config.Server).SpeaksMCP)
	if err == nil {
		err = g.fits(conf)
	}
	if err != nil {
		return nil, err
	}
	p, err := g.plan(ctx, conf)
	if err != nil {
		return nil, err
	}
	gates, changes, err := g.prepare(p)
	drop := func(err error) ([]string, error) {
		for _, c := range changes {
			c.Drop()
		}
		return nil, p.drop(err)
	}
	if err != nil {
		return drop(err)
	}
	for _, c := range changes {
		c.Stricter()
	}
	if changed, err = g.takeLog(config.Behind, was, conf, changed); err != nil {
		return drop(err)
	}
	g.now.Store(conf)
	for _, c := range changes {
		c.Make()
	}
	g.door.Take(p.who, p.passes, gates)
	g.leave(ctx, p)
	return changed, nil
}

// prepare prepares a change for each existing gate, and makes the gates of new identities.
func (g *gatewayCommand) prepare(p *plan) (gates map[string]*gateway.Gate, changes []*gateway.Change, err error) {
	gates = map[string]*gateway.Gate{}
	for _, name := range slices.Sorted(maps.Keys(p.gates)) {
		of := p.gates[name]
		if gates[name] = g.door.Gates[name]; gates[name] == nil {
			if gates[name], err = gateway.NewGate(of.behind, of.o); err != nil {
				return nil, changes, err
			}
			continue
		}
		c, err := gates[name].Prepare(of.behind, of.o)
		if err != nil {
			return nil, changes, err
		}
		changes = append(changes, c)
	}
	return gates, changes, nil
}

// leave retires the shims that the new configuration does not have. Each closes once no call is under way in it.
func (g *gatewayCommand) leave(ctx context.Context, p *plan) {
	for name, s := range g.shims {
		if p.shims[name].shim == s.shim {
			continue
		}
		g.leaving.Go(func() {
			if err := s.shim.Retire(ctx); err != nil {
				g.logger().Error("a tool server would not go", "tool_server", name.server, "error", err)
			}
		})
	}
	g.shims = p.shims
}

// drift returns what a configuration says to do when a server's tools do not have their pinned definitions.
func drift(conf *config.Config, server string) string {
	for i := range conf.Servers {
		if conf.Servers[i].ID == server {
			return conf.Servers[i].Drift
		}
	}
	return ""
}

// takeLog gives the process's own log, if it has one, its part of a new configuration. It returns known, the keys whose
// change is known already, and the changed keys that only the log reads.
func (m *mcp) takeLog(r config.Reader, was, conf *config.Config, known []string) (changed []string, err error) {
	if m.own == nil {
		return known, nil
	}
	now, before := m.ofLog(conf), m.ofLog(was)
	own, err := m.own.Reload(now)
	if err != nil {
		return nil, err
	}
	for _, key := range now.Changes(before) {
		if config.ReloadOf(config.Daemon, key) == config.ReloadApplies && config.ReloadOf(r, key) == config.ReloadUnread && !slices.Contains(known, key) {
			changed = append(changed, key)
		}
	}
	if !own && len(changed) > 0 {
		m.Lines(m.level, false).Warn("the log is in another process, whose rules hold until this one takes it over", "changed", changed)
	}
	return append(known, changed...), nil
}

// reload reads the shim's file again and puts into effect what it says about the shim's server.
func (m *mcp) reload(server string) (changed []string, err error) {
	if m.file == "" {
		return nil, tga.Errorf(tga.ValidationError, "there is no --config, and so no file to read again")
	}
	conf, err := assemble.Load(m.file)
	if err != nil {
		return nil, err
	}
	was := m.now.Load()
	changed, err = conf.MayFollowAt(config.Shim, was, func(s *config.Server) bool { return s.ID == server })
	if err != nil {
		return nil, err
	}
	if changed, err = m.takeLog(config.Shim, was, conf, changed); err != nil {
		return nil, err
	}
	m.now.Store(conf)
	return changed, nil
}

// heed reloads on each SIGHUP and logs the result. It logs at a level that is shown by default, because the sender of a
// signal gets no other answer.
func (m *mcp) heed(caught chan os.Signal, log *slog.Logger, reload func() ([]string, error)) (stop func()) {
	return heedHangups(caught, func() {
		changed, err := reload()
		if m.reloaded != nil {
			m.reloaded(err == nil)
		}
		if err != nil {
			log.Error("the new configuration was refused, the current one stays", "error", err)
			return
		}
		log.Warn("configuration reloaded", "changed", changed)
	})
}

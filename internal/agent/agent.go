// Package agent puts an agent together for the command: a store, the tool servers and
// models of a configuration, manifests, and a runner over them.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/turn"
	"github.com/tgad/tgad/runtime/turn/emit"
	"github.com/tgad/tgad/runtime/turn/emit/otlp"
	"github.com/tgad/tgad/runtime/turn/manifest"
	"github.com/tgad/tgad/runtime/turn/tools"
	"github.com/tgad/tgad/schemas/tga"
)

// Options say what an agent is put together of.
type Options struct {
	Data      string // the store's directory; no other process may have it open
	Config    *config.Config
	Manifests []string // files, or directories of them; the first is the one that runs
	Observe   func(turn.Progress)
	Warn      func(text string) // told of what keeps telemetry from being sent; nil discards
	Logger    *slog.Logger      // nil discards
	Clock     func() time.Time
}

// Host is a runner and what it stands on.
type Host struct {
	*turn.Runner
	Agent string // name of the first manifest's agent

	db      *engine.DB
	tools   *config.Tools
	emitter *emit.Emitter
	otlp    *otlp.Providers // nil where the environment asks for none
}

// Open opens the store and puts the runner together. No tool server and no model is
// contacted, and nothing that a crash cut off goes on yet.
func Open(o Options) (_ *Host, err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	agents, err := ReadAll(o.Manifests)
	if err != nil {
		return nil, err
	}
	h := &Host{Agent: agents[0].Name}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close(context.Background()))
		}
	}()
	if h.db, err = engine.Open(o.Data, engine.Options{
		CacheBytes: o.Config.Store.CacheBytes.N, MemTableBytes: uint64(o.Config.Store.MemTableBytes.N),
		LowWaterBytes: uint64(o.Config.Store.LowWaterBytes.N), Logger: o.Logger,
		Clock: o.Clock,
	}); err != nil {
		return nil, err
	}
	var resolver *tools.Resolver // is there before any server is contacted
	if h.tools, err = o.Config.Build(config.BuildOptions{
		Store: o.Data, Logger: o.Logger, Clock: o.Clock,
		OnToolsChanged: func(server string) { resolver.Invalidate(server) },
	}); err != nil {
		return nil, err
	}
	models, err := o.Config.BuildModels()
	if err != nil {
		return nil, err
	}
	rules, err := o.Config.Supervisor()
	if err != nil {
		return nil, err
	}
	resolver, err = tools.New(tools.Options{
		Servers: h.tools.Listers(), Clock: o.Clock,
		Delegate: func(name string) (string, bool) {
			for _, a := range agents {
				if a.Name == name || a.ID == name {
					return a.Name, true
				}
			}
			return "", false
		},
	})
	if err != nil {
		return nil, err
	}
	sinks, err := o.Config.Sinks()
	if err != nil {
		return nil, err
	}
	telemetry := emit.Options{Logger: o.Logger, Sinks: sinks}
	if h.otlp = otlp.FromEnvironment(context.Background(), otlp.Options{Warn: o.Warn}); h.otlp != nil {
		telemetry.Tracer, telemetry.Meter = h.otlp.Tracer, h.otlp.Meter
	}
	if h.emitter, err = emit.New(telemetry); err != nil {
		return nil, err
	}
	options := h.tools.Options()
	options.Clock = o.Clock
	h.Runner, err = turn.New(h.db, h.tools, supervisor{rules, o.Config}, turn.Options{
		Runtime: options, Agents: agents, Models: models, ModelLicence: o.Config.ModelLicence(), Resolver: resolver,
		Emitters: []turn.Emitter{h.emitter}, Instance: o.Config.Agent.Instance, Observe: o.Observe, Logger: o.Logger,
	})
	return h, err
}

// Close ends what Open began. It waits for events that are still to be sent, until ctx
// ends, and then for a collector of spans and metrics, [otlp.FlushTimeout] at most.
func (h *Host) Close(ctx context.Context) error {
	var all []error
	if h.emitter != nil {
		all = append(all, h.emitter.Close(ctx))
	}
	h.otlp.Close(context.WithoutCancel(ctx)) // a slow receiver of events takes nothing of its time
	if h.tools != nil {
		all = append(all, h.tools.Close())
	}
	if h.db != nil {
		all = append(all, h.db.Close())
	}
	return errors.Join(all...)
}

// supervisor decides by the rules, but for questions to models: a model that the operator
// has configured may be asked, unless a rule names it.
type supervisor struct {
	runtime.Rules
	config *config.Config
}

func (s supervisor) Decide(ctx context.Context, request *tga.Artifact) (runtime.Verdict, error) {
	server := request.Request.Proposal.ToolServer
	for _, m := range s.config.Models {
		if server != turn.ModelServer(m.Provider) {
			continue
		}
		for _, r := range s.config.Rules {
			if r.Server == server {
				return s.Rules.Decide(ctx, request)
			}
		}
		return runtime.Verdict{Decision: tga.Approve, Rationale: "the configuration names this model", PolicyHash: s.PolicyHash}, nil
	}
	return s.Rules.Decide(ctx, request)
}

// ReadAll reads the agents of manifests: files, and the .yaml, .yml and .json files of
// directories.
func ReadAll(paths []string) ([]*turn.Agent, error) {
	var files []string
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return nil, tga.Errorf(tga.NotFound, "manifest: %w", err)
		}
		if !info.IsDir() {
			files = append(files, p)
			continue
		}
		for _, pattern := range []string{"*.yaml", "*.yml", "*.json"} {
			found, err := filepath.Glob(filepath.Join(p, pattern))
			if err != nil {
				return nil, err
			}
			files = append(files, found...)
		}
	}
	if len(files) == 0 {
		return nil, tga.Errorf(tga.NotFound, "there is no manifest in %q", paths)
	}
	var agents []*turn.Agent
	for _, f := range files {
		a, _, err := Read(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		agents = append(agents, a)
	}
	return agents, nil
}

// Read reads one manifest; placeholders in it get their values from the environment.
func Read(file string) (*turn.Agent, manifest.Report, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, manifest.Report{}, tga.Errorf(tga.NotFound, "manifest: %w", err)
	}
	return manifest.Reader{Getenv: manifest.Environment}.Read(raw)
}

// Package agent builds an agent for the command: a store, the tool servers and models of a
// configuration, manifests, and a runner over them.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/keyring"
	"github.com/tgad/tgad/internal/optional"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/emit"
	"github.com/tgad/tgad/internal/turn/manifest"
	"github.com/tgad/tgad/internal/turn/tools"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Options say from what an agent is built.
type Options struct {
	Data      string // the store's directory; no other process may have it open
	Config    *config.Config
	Manifests []string // files, or directories of files; the first agent is the one that runs
	Observe   func(turn.Progress)
	// Unenforced are JSON Pointers of restrictions in manifests that may be left unenforced. Any
	// other restriction that cannot be enforced makes Open refuse the manifest.
	Unenforced []string
	// Model is the model of the agent that runs, and of other agents whose manifests name none:
	// "provider/model", or "model" if the manifest names the provider or the configuration has
	// only one.
	Model string
	// Warn is called with what a person should know about the manifests, and with what keeps
	// telemetry from being sent. Nil discards.
	Warn   func(text string)
	Logger *slog.Logger // nil discards
	Clock  func() time.Time
}

// Host is a runner and everything that it uses.
type Host struct {
	*turn.Runner
	Agent string // name of the first manifest's agent

	db      *engine.DB
	ring    *keyring.Ring // nil: none
	tools   *assemble.Tools
	emitter *emit.Emitter
	flush   func(context.Context) // sends the remaining spans and metrics, and ends their providers
	places  *workspaces
}

// Open opens the store and builds the runner. It contacts no tool server and no model, and does
// not yet go on with what a crash cut off.
func Open(o Options) (_ *Host, err error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	agents, err := Reading{Unenforced: o.Unenforced, Workspaces: o.Config.AgentWorkspaces(), Warn: o.Warn}.ReadAll(o.Manifests)
	if err != nil {
		return nil, err
	}
	if err := o.models(agents); err != nil {
		return nil, err
	}
	h := &Host{Agent: agents[0].Name}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close(context.Background()))
		}
	}()
	engineOptions := assemble.StoreOptions(o.Config)
	engineOptions.Clock, engineOptions.Logger = o.Clock, o.Logger
	if h.ring, err = assemble.Keyring(o.Config, o.Data); err != nil {
		return nil, err
	}
	if h.ring != nil {
		engineOptions.Keyring = h.ring
	}
	if h.db, err = engine.Open(o.Data, engineOptions); err != nil {
		return nil, err
	}
	resolver, err := h.reachTools(o, agents)
	if err != nil {
		return nil, err
	}
	models, err := assemble.Models(o.Config)
	if err != nil {
		return nil, err
	}
	rules, err := o.Config.Supervisor()
	if err != nil {
		return nil, err
	}
	if err := h.reportTo(o); err != nil {
		return nil, err
	}
	var store runtime.Store
	if store, h.places, err = openWorkspaces(context.Background(), h.db, o.Data, agents, o.Logger); err != nil {
		return nil, err
	}
	h.Runner, err = turn.New(store, h.places.transact(h.tools), supervisor{rules, o.Config}, turn.Options{
		Runtime: h.runtimeOptions(o.Clock), Agents: agents, Models: models, ModelLicence: o.Config.ModelLicence(), Resolver: resolver,
		MaxDepth: o.Config.Agent.MaxDepth, MaxDelegations: o.Config.Agent.MaxDelegations,
		Emitters: []turn.Emitter{h.emitter}, Instance: o.Config.Agent.Instance, Observe: o.Observe, Logger: o.Logger,
	})
	return h, err
}

// TurnOf is [turn.Of] on the store.
func (h *Host) TurnOf(ctx context.Context, id tga.ID) (tga.ID, error) { return turn.Of(ctx, h.db, id) }

// reachTools builds the dispatchers of the tool servers, including the agents' own state, and the
// resolver that finds an agent's tools there.
func (h *Host) reachTools(o Options, agents []*turn.Agent) (resolver *tools.Resolver, err error) {
	if h.tools, err = assemble.Build(o.Config, assemble.Options{
		Store: o.Data, Logger: o.Logger, Clock: o.Clock,
		OnToolsChanged: func(server string) { resolver.Invalidate(server) }, // no server is contacted before resolver is set
	}); err != nil {
		return nil, err
	}
	if h.tools.Router[tools.StateServer] != nil {
		return nil, tga.Errorf(tga.ValidationError, "the configuration has a tool server with the name %s, which is reserved for the agents' own state", tools.StateServer)
	}
	listers := h.tools.Listers()
	h.tools.Router[tools.StateServer], listers[tools.StateServer] = tools.State(), tools.State()
	resolver, err = tools.New(tools.Options{
		Servers: listers, Clock: o.Clock,
		Delegate: func(name string) (string, bool) {
			for _, a := range agents {
				if a.Name == name || a.ID == name {
					return a.Name, true
				}
			}
			return "", false
		},
	})
	return resolver, err
}

// reportTo opens the outputs of telemetry.
func (h *Host) reportTo(o Options) error {
	sinks, err := assemble.Sinks(o.Config)
	if err != nil {
		return err
	}
	telemetry := emit.Options{Logger: o.Logger, Sinks: sinks}
	h.flush = optional.Telemetry(context.Background(), &telemetry, nil, o.Warn)
	h.emitter, err = emit.New(telemetry)
	return err
}

// runtimeOptions returns the runtime options of the tool servers. The policy of a tool of the
// agents' own state follows from the tool and cannot be configured.
func (h *Host) runtimeOptions(clock func() time.Time) runtime.Options {
	options := h.tools.Options()
	options.Clock = clock
	configured := options.Policy
	options.Policy = func(server, tool string) runtime.Policy {
		if server == tools.StateServer {
			return tools.StatePolicy(tool)
		}
		return configured(server, tool)
	}
	return options
}

// models ensures that each agent has a model, of a provider that is configured.
func (o Options) models(agents []*turn.Agent) error {
	providers := make([]string, 0, len(o.Config.Models))
	for _, m := range o.Config.Models {
		providers = append(providers, m.Provider)
	}
	for i, a := range agents {
		m := &a.Model
		if o.Model != "" && (i == 0 || m.Model == "") {
			m.Model = o.Model
			for _, p := range providers { // a model's own name may have a slash
				if rest, ok := strings.CutPrefix(o.Model, p+"/"); ok {
					m.Provider, m.Model = p, rest
				}
			}
		}
		if m.Provider == "" && len(providers) == 1 {
			m.Provider = providers[0]
		}
		if m.Model == "" {
			return tga.Errorf(tga.ValidationError, "the manifest of agent %q names no model: give it one with --model PROVIDER/MODEL; configured providers: %s", a.Name, cmp.Or(strings.Join(providers, ", "), "none")).At("/spec/llm/model")
		}
	}
	return nil
}

// Close ends everything that Open started. It waits until ctx ends for events that are still to
// be sent, and then for a collector of spans and metrics.
func (h *Host) Close(ctx context.Context) error {
	var all []error
	if h.emitter != nil {
		all = append(all, h.emitter.Close(ctx))
	}
	if h.flush != nil {
		h.flush(context.WithoutCancel(ctx)) // a slow receiver of events does not shorten this flush
	}
	if h.tools != nil {
		all = append(all, h.tools.Close())
	}
	all = append(all, h.places.close())
	if h.db != nil {
		all = append(all, h.db.Close())
	}
	if h.ring != nil {
		all = append(all, h.ring.Close())
	}
	return errors.Join(all...)
}

// supervisor decides by the rules, except for questions to models: a model that the operator has
// configured may be asked, unless a rule names it.
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

// Reading says how manifests are read.
type Reading struct {
	// Unenforced are JSON Pointers of restrictions that the agents are run without: see
	// [manifest.Reader].
	Unenforced []string
	// Workspaces are directories below which the workspaces of manifests may lie, besides the
	// directory of the manifest's file.
	Workspaces []string
	// Warn is called with the parts of a manifest that are not followed as written, or not at
	// all. Nil discards.
	Warn func(text string)
}

// ReadAll reads the agents of manifests: files with one or more documents each, and the .yaml,
// .yml and .json files of directories.
func (o Reading) ReadAll(paths []string) ([]*turn.Agent, error) {
	files, err := manifestFiles(paths)
	if err != nil {
		return nil, err
	}
	var agents []*turn.Agent
	for _, f := range files {
		docs, err := o.Read(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		for _, d := range docs {
			agents = append(agents, d.Agent)
			for _, w := range d.Report.Warnings {
				if o.Warn != nil {
					o.Warn(fmt.Sprintf("%s, line %d: %s", f, w.Line, w.Message))
				}
			}
		}
	}
	return agents, nil
}

func manifestFiles(paths []string) ([]string, error) {
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
		entries, err := os.ReadDir(p)
		if err != nil {
			return nil, tga.Errorf(tga.NotFound, "manifest: %w", err)
		}
		for _, ext := range []string{".yaml", ".yml", ".json"} {
			for _, e := range entries {
				if filepath.Ext(e.Name()) == ext {
					files = append(files, filepath.Join(p, e.Name()))
				}
			}
		}
	}
	if len(files) == 0 {
		return nil, tga.Errorf(tga.NotFound, "there is no manifest in %q", paths)
	}
	return files, nil
}

// Read reads one file. Placeholders in it get their values from the environment.
func (o Reading) Read(file string) ([]manifest.Document, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, tga.Errorf(tga.NotFound, "manifest: %w", err)
	}
	docs, err := manifest.Reader{Getenv: manifest.Environment, Unenforced: o.Unenforced}.ReadAll(raw)
	for i := 0; err == nil && i < len(docs); i++ {
		err = o.permit(file, &docs[i].Agent.Workspace)
	}
	return docs, err
}

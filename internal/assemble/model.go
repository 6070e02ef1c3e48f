package assemble

import (
	"fmt"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/emit"
	"github.com/tgad/tgad/internal/turn/model"
	"github.com/tgad/tgad/internal/turn/tools"
	"github.com/tgad/tgad/schemas/tga"
)

// Models makes the adapters of the configured models. None is contacted, and no key
// is read yet.
func Models(c *config.Config) (map[string]turn.Model, error) {
	out := map[string]turn.Model{}
	for _, m := range c.Models {
		o := model.Options{BaseURL: m.URL, Stream: m.Stream, MaxTokens: m.MaxTokens}
		switch {
		case m.KeyFile != "":
			o.Key = model.KeyFile(c.Path(m.KeyFile))
		case m.KeyEnv != "":
			o.Key = model.KeyEnv(m.KeyEnv)
		}
		make := model.OpenAI
		if m.Type == config.Anthropic {
			make = model.Anthropic
		}
		built, err := make(o)
		if err != nil {
			return nil, fmt.Errorf("model %q: %w", m.Provider, err)
		}
		out[m.Provider] = built
	}
	return out, nil
}

// Sinks makes the outputs of events.
func Sinks(c *config.Config) ([]emit.Sink, error) {
	var out []emit.Sink
	if c.Agent.EventsFile != "" {
		s, err := emit.File(c.Path(c.Agent.EventsFile), emit.FileOptions{})
		if err != nil {
			return nil, tga.Errorf(tga.ValidationError, "agent.events_file: %w", err)
		}
		out = append(out, s)
	}
	if c.Agent.EventsURL != "" {
		s, err := emit.HTTP(c.Agent.EventsURL, emit.HTTPOptions{})
		if err != nil {
			return nil, tga.Errorf(tga.ValidationError, "agent.events_url: %w", err)
		}
		out = append(out, s)
	}
	return out, nil
}

// Listers has a source of tools for each configured server that can list its tools, and nil for
// each other server that can be called from here.
func (t *Tools) Listers() map[string]tools.Lister {
	out := map[string]tools.Lister{}
	for i := range t.config.Servers {
		id := t.config.Servers[i].ID
		if t.Router[id] == nil {
			continue // an external server: an agent here cannot call it
		}
		out[id] = nil
		n := t.nodes[id]
		if n.mcp != nil {
			out[id] = n.mcp.Server
		}
		if n.grpc != nil {
			out[id] = n.grpc
		}
	}
	return out
}

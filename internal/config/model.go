package config

import (
	"fmt"
	"net/url"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// Types of a [Model]: which API it speaks.
const (
	OpenAI    = "openai"
	Anthropic = "anthropic"
)

// Model is the API of one provider of models, for tgad agent.
type Model struct {
	Provider  string `toml:"provider"` // its name in manifests
	Type      string `toml:"type"`     // openai (chat completions) or anthropic (messages)
	URL       string `toml:"url"`      // up to and with the version; the provider's own by default
	KeyFile   string `toml:"key_file"` // file with the API key; only its owner may have access
	KeyEnv    string `toml:"key_env"`  // variable with the API key, in place of key_file
	Stream    bool   `toml:"stream"`
	MaxTokens int64  `toml:"max_tokens"` // default limit of an answer; anthropic
}

// Agent is the part about tgad agent that a manifest cannot set.
type Agent struct {
	// ModelLicence says what happens to a request to a model that a crash interrupted:
	// read_only (default) sends it again with the same key, park waits for a person.
	ModelLicence string `toml:"model_licence"`
	// MaxDepth and MaxDelegations limit the delegation between agents: how deep, and how often for
	// one message; 0 means 3 and 32.
	MaxDepth       int    `toml:"max_depth"`
	MaxDelegations int    `toml:"max_delegations"`
	Instance       string `toml:"instance"` // id of this pod or process; a new one for each process by default
	// Workspaces are directories below which manifests may have workspaces. Without it, workspaces
	// must be below the directory of the manifest.
	Workspaces []string `toml:"workspaces"`
	EventsFile string   `toml:"events_file"` // CloudEvents, one a line
	EventsURL  string   `toml:"events_url"`  // CloudEvents, posted one by one
}

func (c *Config) checkAgent(r *report) {
	seen := map[string]bool{}
	for i := range c.Models {
		m, at := &c.Models[i], fmt.Sprintf("model.%d", i)
		if !tga.CleanName("model/" + m.Provider) {
			r.add(at+".provider", "%q: want %s, and no more than 122", m.Provider, tga.CleanNameForm)
		}
		if seen[m.Provider] {
			r.add(at+".provider", "%q is the provider of another model too", m.Provider)
		}
		seen[m.Provider] = true
		if m.Type != OpenAI && m.Type != Anthropic {
			r.add(at+".type", "%q: want %s or %s%s", m.Type, OpenAI, Anthropic, meant(m.Type, OpenAI, Anthropic))
		}
		if m.URL != "" {
			r.url(at+".url", m.URL)
		}
		if m.KeyFile != "" && m.KeyEnv != "" {
			r.add(at+".key_env", "it cannot stand beside key_file")
		}
		if m.MaxTokens < 0 {
			r.add(at+".max_tokens", "%d is negative", m.MaxTokens)
		}
	}
	switch c.Agent.ModelLicence {
	case "", "read_only", "park":
	default:
		r.add("agent.model_licence", "%q: want read_only or park%s", c.Agent.ModelLicence, meant(c.Agent.ModelLicence, "read_only", "park"))
	}
	if c.Agent.MaxDepth < 0 {
		r.add("agent.max_depth", "%d is negative", c.Agent.MaxDepth)
	}
	if c.Agent.MaxDelegations < 0 {
		r.add("agent.max_delegations", "%d is negative", c.Agent.MaxDelegations)
	}
	for i, dir := range c.Agent.Workspaces {
		if dir == "" {
			r.add(fmt.Sprintf("agent.workspaces.%d", i), "it is empty: want a directory")
		}
	}
	if c.Agent.EventsURL != "" {
		r.url("agent.events_url", c.Agent.EventsURL)
	}
}

func (r *report) url(at, s string) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		r.add(at, "%q: want an http:// or https:// URL", s)
	}
}

// ModelLicence is the licence of requests to models.
func (c *Config) ModelLicence() *ledger.Licence {
	l := ledger.Licence{Kind: ledger.ReadOnly}
	if c.Agent.ModelLicence == "park" {
		l.Kind = ledger.Park
	}
	return &l
}

// AgentWorkspaces are the directories below which manifests may have workspaces.
func (c *Config) AgentWorkspaces() []string {
	var out []string
	for _, dir := range c.Agent.Workspaces {
		out = append(out, c.Path(dir))
	}
	return out
}

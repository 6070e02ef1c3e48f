package config

import (
	"github.com/tgad/tgad/internal/outcome"
)

// Outcomes compiles the rules about answers, which [Parse] has checked.
func (c *Config) Outcomes() (*outcome.Rules, error) {
	var o outcome.Config
	for i := range c.Tools {
		for j := range c.Servers {
			if c.Servers[j].ID == c.Tools[i].Server {
				o.Tools = append(o.Tools, c.Tools[i].rules(&c.Servers[j], c.profile))
			}
		}
	}
	return outcome.Compile(o)
}

// Capability is the part about the tokens that approvals are turned into.
type Capability struct {
	// KeyFile has the key that signs and the earlier keys. It is made if it does not exist. "" = no
	// tokens.
	KeyFile  string    `toml:"key_file"`
	Issuer   string    `toml:"issuer"`   // tgad
	Audience string    `toml:"audience"` // tgad
	Lifetime Duration  `toml:"lifetime"` // of a token; 1h
	Skew     *Duration `toml:"skew"`     // how far clocks may be apart; absent = 30s, and 0s is zero
	Required bool      `toml:"required"` // a call is sent only with one, whoever decided
}

// Approval is the part about people's decisions.
type Approval struct {
	Self bool `toml:"self"` // the submitter of a request may approve it
}

func (k *Capability) fill() {
	if k.KeyFile == "" {
		return
	}
	if k.Issuer == "" {
		k.Issuer = "tgad"
	}
	if k.Audience == "" {
		k.Audience = "tgad"
	}
}

// KeyFile is the path of the file of keys, "" if the configuration names none.
func (c *Config) KeyFile() string { return c.Path(c.Capability.KeyFile) }

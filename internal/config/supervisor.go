package config

import (
	"fmt"

	"github.com/tgad/tgad/internal/capability"
)

// Supervisor is a remote supervisor: a peer that appends its own approvals over the
// socket and signs each of them. Its signature replaces the rules and the votes, so only the keys
// that the operator names here are trusted.
type Supervisor struct {
	UID      []uint32  `toml:"uid"`       // its peers; their role needs the verb decide
	KeysFile string    `toml:"keys_file"` // its public keys, a JSON Web Key Set; read at each approval
	Issuer   string    `toml:"issuer"`    // of its tokens; required
	Audience string    `toml:"audience"`  // of its tokens; tgad
	Skew     *Duration `toml:"skew"`      // how far its clock may be from ours; absent = 30s, and 0s is zero
}

func (c *Config) checkSupervisors(r *report) {
	seen := map[uint32]bool{}
	for i := range c.Supervisors {
		s, at := &c.Supervisors[i], fmt.Sprintf("supervisor.%d", i)
		if len(s.UID) == 0 {
			r.add(at+".uid", "it names no peer")
		}
		for _, uid := range s.UID {
			if seen[uid] {
				r.add(at+".uid", "uid %d is another supervisor too", uid)
			}
			seen[uid] = true
		}
		if s.KeysFile == "" {
			r.add(at+".keys_file", "without public keys nothing that it signs can be checked")
		}
		if !capability.Party(s.Issuer) {
			r.add(at+".issuer", "%q: want %s", s.Issuer, capability.PartyForm)
		}
		if s.Audience != "" && !capability.Party(s.Audience) {
			r.add(at+".audience", "%q: want %s", s.Audience, capability.PartyForm)
		}
		r.skew(at+".skew", s.Skew)
	}
}

// PeerName is the name of a peer of the socket in the log.
func PeerName(uid uint32) string { return fmt.Sprintf("uid:%d", uid) }

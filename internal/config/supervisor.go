package config

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/capability"
	"github.com/tgad/tgad/schemas/tga"
)

// Supervisor is a remote supervisor: a peer that appends its own approvals over the
// socket and signs each of them. Its signature takes the place of the rules and of votes,
// so only the keys that the operator names here are believed.
type Supervisor struct {
	UID      []uint32  `toml:"uid"`       // the peers that are it; their role needs the verb decide
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
		if !party.MatchString(s.Issuer) {
			r.add(at+".issuer", "%q: want 1 to 255 of A-Z a-z 0-9 _ . / : @ -", s.Issuer)
		}
		if s.Audience != "" && !party.MatchString(s.Audience) {
			r.add(at+".audience", "%q: want 1 to 255 of A-Z a-z 0-9 _ . / : @ -", s.Audience)
		}
		r.skew(at+".skew", s.Skew)
	}
}

// remoteSupervisors returns the supervisors by the name of their peer. A file of keys
// that cannot be read now is an error: better at the start than at an approval.
func (c *Config) remoteSupervisors(o BuildOptions) (map[string]*remoteSupervisor, error) {
	all := map[string]*remoteSupervisor{}
	for i := range c.Supervisors {
		s := &c.Supervisors[i]
		made := &remoteSupervisor{path: c.path(s.KeysFile), issuer: s.Issuer, audience: s.Audience, skew: capability.DefaultSkew, clock: o.Clock}
		if made.audience == "" {
			made.audience = "tgad"
		}
		if s.Skew != nil {
			made.skew = s.Skew.D
		}
		if made.clock == nil {
			made.clock = time.Now
		}
		raw, err := os.ReadFile(made.path)
		if err == nil {
			err = capability.CheckKeySet(raw)
		}
		if err != nil {
			return nil, fmt.Errorf("keys of supervisor %q: %w", s.Issuer, err)
		}
		for _, uid := range s.UID {
			all[PeerName(uid)] = made
		}
	}
	return all, nil
}

// PeerName is what the log calls a peer of the socket.
func PeerName(uid uint32) string { return fmt.Sprintf("uid:%d", uid) }

// remoteSupervisor is a [runtime.TokenChecker] that has public keys alone. It reads them
// at each check: a key that its operator took away counts for nothing from then on.
type remoteSupervisor struct {
	path, issuer, audience string
	skew                   time.Duration
	clock                  func() time.Time
}

// Check returns nil where a key of the file signed token, for this issuer and audience,
// in force now, and for exactly the call g.
func (s *remoteSupervisor) Check(_ context.Context, token string, g runtime.Grant) error {
	raw, err := os.ReadFile(s.path)
	if err != nil {
		return tga.Errorf(tga.CapabilityInvalid, "the keys of supervisor %q: %w", s.issuer, err).In(g.TraceID)
	}
	claims, err := capability.VerifyDetached(token, raw)
	if err != nil {
		return tga.Errorf(tga.CapabilityInvalid, "of supervisor %q: %w", s.issuer, err).In(g.TraceID)
	}
	switch {
	case claims.Issuer != s.issuer:
		return tga.Errorf(tga.CapabilityInvalid, "capability: claim iss is %.128q, want %q", claims.Issuer, s.issuer).In(g.TraceID)
	case claims.Audience != s.audience:
		return tga.Errorf(tga.CapabilityInvalid, "capability: claim aud is %.128q, want %q", claims.Audience, s.audience).In(g.TraceID)
	}
	if err := claims.ValidAt(s.clock(), s.skew); err != nil {
		return err
	}
	return claims.Permits(g)
}

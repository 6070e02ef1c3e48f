package assemble

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/tgad/tgad/internal/capability"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// remoteSupervisors returns the supervisors by the name of their peer. It fails if a file of keys
// cannot be read, so that the mistake shows at the start and not at the first approval.
func remoteSupervisors(c *config.Config, o Options) (map[string]*remoteSupervisor, error) {
	all := map[string]*remoteSupervisor{}
	for i := range c.Supervisors {
		s := &c.Supervisors[i]
		made := &remoteSupervisor{path: c.Path(s.KeysFile), issuer: s.Issuer, audience: s.Audience, skew: capability.DefaultSkew, clock: o.Clock}
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
			all[config.PeerName(uid)] = made
		}
	}
	return all, nil
}

// remoteSupervisor is a [runtime.TokenChecker] that has only public keys. It reads them at each
// check, so a key that its operator removes is refused from then on.
type remoteSupervisor struct {
	path, issuer, audience string
	skew                   time.Duration
	clock                  func() time.Time
}

// Check returns nil if a key of the file signed token, and token is for this issuer and audience,
// valid now, and for exactly the call g.
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

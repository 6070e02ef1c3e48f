package capability

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"io"
	"regexp"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Defaults and bounds of [Options].
const (
	DefaultLifetime = time.Hour
	MaxLifetime     = 30 * 24 * time.Hour
	DefaultSkew     = 30 * time.Second
	MaxSkew         = 10 * time.Minute
)

// Options configure a [Ring].
type Options struct {
	// StoreDir is the store's directory. A key file inside it is refused, because a backup
	// of the store would then contain the key.
	StoreDir string
	// Lifetime of a token, whole seconds up to MaxLifetime; 0 means DefaultLifetime.
	Lifetime time.Duration
	// Skew is how far this clock may differ from the clock of the minter, up to MaxSkew; nil
	// means DefaultSkew, and zero allows no difference.
	Skew *time.Duration

	// Clock and Rand are for tests. Nil means the real ones.
	Clock func() time.Time
	Rand  io.Reader
}

// Ring has the keys of a file: one that signs, and earlier ones that still verify. It is
// a [runtime.Capabilities] and may be used by several goroutines.
type Ring struct {
	path             string
	issuer, audience string
	opts             Options
	skew             time.Duration

	mu   sync.RWMutex
	keys keySet
}

var _ runtime.Capabilities = (*Ring)(nil)

// PartyForm describes what Party accepts, for messages.
const PartyForm = "1 to 255 of A-Z a-z 0-9 _ . / : @ -"

// A repetition with a bound, {1,255}, would be compiled to 255 copies at each start of tgad.
var party = regexp.MustCompile(`^[A-Za-z0-9_./:@-]+$`)

// Party reports whether s may be an issuer or an audience. encoding/json writes such a string
// unchanged, so a token's claims are canonical.
func Party(s string) bool { return len(s) <= 255 && party.MatchString(s) }

// Open reads the key file at path, or makes one with a new key if there is none.
// Tokens name issuer and audience, each 1 to 255 characters of A-Z a-z 0-9 _ . / : @ -.
// VALIDATION_ERROR says what is wrong with a value or with the file: its mode gives others
// access to the key, it is inside the store, it is no key file. STORE_UNAVAILABLE: it
// cannot be read or made.
func Open(path, issuer, audience string, o Options) (*Ring, error) {
	for _, p := range [...]struct{ name, value string }{{"issuer", issuer}, {"audience", audience}} {
		if !Party(p.value) {
			return nil, tga.Errorf(tga.ValidationError, "capability %s %.80q: want %s", p.name, p.value, PartyForm)
		}
	}
	o.Lifetime = cmp.Or(o.Lifetime, DefaultLifetime)
	skew := time.Duration(DefaultSkew)
	if o.Skew != nil {
		skew = *o.Skew
	}
	switch {
	case o.Lifetime < time.Second || o.Lifetime > MaxLifetime || o.Lifetime%time.Second != 0:
		return nil, tga.Errorf(tga.ValidationError, "capability lifetime %v: want whole seconds, 1s to %v", o.Lifetime, MaxLifetime)
	case skew < 0 || skew > MaxSkew:
		return nil, tga.Errorf(tga.ValidationError, "capability skew %v: want 0s to %v", skew, MaxSkew)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	o.Rand = cmp.Or(o.Rand, rand.Reader)
	if err := outside(path, o.StoreDir); err != nil {
		return nil, err
	}
	path, err := access.Target(path) // a rotation replaces the file, not a link to it
	if err != nil {
		return nil, noFile(path, err)
	}
	keys, err := openKeys(path, o.Rand)
	if err != nil {
		return nil, err
	}
	return &Ring{path: path, issuer: issuer, audience: audience, opts: o, skew: skew, keys: keys}, nil
}

func (r *Ring) current() keySet {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.keys
}

// Mint returns the token for g, signed by the active key. VALIDATION_ERROR if g
// does not name a call; LIMIT_EXCEEDED over [MaxToken]; STORE_UNAVAILABLE without
// randomness.
func (r *Ring) Mint(_ context.Context, g runtime.Grant) (string, error) {
	if g.TraceID.IsZero() || g.PlanID.IsZero() || g.Server == "" || g.Tool == "" || g.ArgsDigest.IsZero() {
		return "", tga.Errorf(tga.ValidationError, "mint a capability: trace, plan, server, tool or arguments' digest is missing").In(g.TraceID)
	}
	var nonce [16]byte
	if _, err := io.ReadFull(r.opts.Rand, nonce[:]); err != nil {
		return "", tga.Errorf(tga.StoreUnavailable, "mint a capability: no randomness: %w", err).In(g.TraceID)
	}
	keys, now := r.current(), r.opts.Clock().Unix()
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, body{Claims: Claims{
		Audience: r.audience, Issuer: r.issuer,
		IssuedAt: now, NotBefore: now, Expires: now + int64(r.opts.Lifetime/time.Second),
		Nonce: hex.EncodeToString(nonce[:]), PlanID: g.PlanID, TraceID: g.TraceID,
		Constraints: Constraints{
			ArgsDigest: g.ArgsDigest, SchemaDigest: g.SchemaDigest,
			Server: g.Server, Tool: g.Tool, ReadOnly: g.ReadOnly,
		},
	}})
	t.Header["kid"] = keys.active.id
	token, err := t.SignedString(keys.private)
	if err != nil {
		return "", tga.Errorf(tga.CapabilityInvalid, "mint a capability: %w", err).In(g.TraceID)
	}
	if len(token) > MaxToken {
		return "", tga.Errorf(tga.LimitExceeded, "mint a capability: the token has %d bytes, at most %d", len(token), MaxToken).In(g.TraceID)
	}
	return token, nil
}

// Check returns nil if token was minted by a key of this ring, for this issuer and
// audience, is valid now, and permits exactly g. For any other token it returns
// CAPABILITY_INVALID with the claim and both values; the error does not contain the token.
//
// Check does not prevent a second use of a token. The state machine does: a trace has one
// tool call.
func (r *Ring) Check(_ context.Context, token string, g runtime.Grant) error {
	now, keys := r.opts.Clock(), r.current()
	c, by, err := open(token, keys.public())
	if err != nil {
		return of(err, g)
	}
	if by.until != 0 && now.Unix() >= by.until {
		return invalid("key %s ended at %s", by.id, second(by.until)).In(g.TraceID)
	}
	if err := equal("iss", c.Issuer, r.issuer); err != nil {
		return err.In(g.TraceID)
	}
	if err := equal("aud", c.Audience, r.audience); err != nil {
		return err.In(g.TraceID)
	}
	if err := c.ValidAt(now, r.skew); err != nil {
		return of(err, g)
	}
	return c.Permits(g)
}

// of names the trace in an error of this package.
func of(err error, g runtime.Grant) error {
	if e, ok := err.(*tga.Error); ok {
		return e.In(g.TraceID)
	}
	return err
}

// Rotate makes a new active key, durably, and returns its id. The previous key verifies
// the tokens that it has signed until the last of them expires; its private half is
// deleted. After an error the ring still uses the previous key, although the file may
// hold either of the two. LIMIT_EXCEEDED: the file holds [MaxKeys].
func (r *Ring) Rotate() (id string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	until := r.opts.Clock().Add(r.opts.Lifetime + r.skew + time.Second - 1).Unix()
	keys, err := rotateKeys(r.path, until, r.opts.Rand)
	if err != nil {
		return "", err
	}
	r.keys = keys
	return keys.active.id, nil
}

// Reload reads the key file again: another process may have rotated it, or its owner
// deleted a key. On an error the ring stays as it was.
func (r *Ring) Reload() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys, err := readKeys(r.path)
	if err != nil {
		return err
	}
	r.keys = keys
	return nil
}

// keySet is what a key file holds.
type keySet struct {
	private ed25519.PrivateKey
	active  publicKey
	earlier []publicKey // newest first
}

func (k keySet) public() []publicKey { return append([]publicKey{k.active}, k.earlier...) }

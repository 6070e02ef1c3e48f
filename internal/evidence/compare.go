package evidence

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/schemas/tga"
)

// finding is a checkpoint that the tree contradicts.
type finding struct {
	size int64
	head tlog.Hash // zero if it is not known: a witness tells only the size
	why  string
}

// same says whether two findings are about the same checkpoint.
func (f finding) same(other finding) bool { return f.size == other.size && f.head == other.head }

// compare says how the tree contradicts a signed checkpoint; "" means that it does not.
func (k *Keeper) compare(ctx context.Context, c checkpoint.Checkpoint) (why string, err error) {
	if k.shared != nil {
		if err := k.shared.reach(ctx, c.Size); err != nil {
			return "", err
		}
	}
	have := k.tree.Size()
	if c.Size > have {
		return fmt.Sprintf("it has %d appends, and %d were signed with head %v: the store was rolled back", have, c.Size, c.Head), nil
	}
	head, err := k.tree.Head(c.Size)
	if err != nil || head == c.Head {
		return "", err
	}
	return fmt.Sprintf("its first %d appends have head %v, and were signed with head %v: what happened was rewritten", c.Size, head, c.Head), nil
}

// find freezes the store because of a finding at a place, unless a person has accepted that finding.
func (k *Keeper) find(where string, f finding) error {
	f.why = fmt.Sprintf("evidence of %s, %s: %s", k.opts.Origin, where, f.why)
	k.mu.Lock()
	old := slices.ContainsFunc(k.accepted, f.same)
	if !old {
		k.findings = append(slices.DeleteFunc(k.findings, f.same), f)
	}
	k.mu.Unlock()
	if old {
		return nil
	}
	k.log.Error("the store is not what was signed for it", "found", f.why) // the store may be frozen already, for another reason
	return k.store.Freeze(f.why)
}

// compareAll compares the tree with the newest checkpoint that the store kept, and with that of each
// place. It asks judges last (see [checkpoint.Judge]).
func (k *Keeper) compareAll(ctx context.Context) error {
	if raw, _ := k.Newest(); raw != nil {
		if _, err := k.compareKept(ctx, raw); err != nil {
			return err
		}
	}
	for _, judges := range []bool{false, true} {
		for _, p := range k.places {
			if p.judges() != judges {
				continue
			}
			if err := k.ask(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// compareKept compares the tree with a checkpoint that the store kept.
func (k *Keeper) compareKept(ctx context.Context, raw []byte) (agrees bool, err error) {
	c, _, err := k.trusted().Open(raw)
	if err != nil {
		return false, err
	}
	why, err := k.compare(ctx, c)
	if err == nil && why != "" && k.shared != nil {
		why, err = k.shared.doubt(ctx, c, why)
	}
	if err != nil || why == "" {
		return err == nil, err
	}
	return false, k.find("the newest checkpoint that the store kept", finding{c.Size, c.Head, why})
}

// trusted are the keys whose signatures are accepted.
func (k *Keeper) trusted() *checkpoint.Keys {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keys
}

// Accept records that a person, who, lets the store continue although checkpoints outside contradict
// it. The acceptance is signed and kept.
func (k *Keeper) Accept(who string) error {
	if k.shared != nil {
		if err := k.shared.beforeAccept(); err != nil {
			return err
		}
		defer k.shared.afterAccept()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	own := k.tree.Size()
	head, err := k.tree.Head(own)
	for _, f := range k.findings {
		a := checkpoint.Acceptance{Origin: k.opts.Origin, Who: who, Size: own, Head: head}
		a.Seen.Size, a.Seen.Head = f.size, f.head
		var raw []byte
		if err == nil {
			raw, err = a.Sign(k.opts.Signer)
		}
		if err == nil {
			err = k.file.Append(raw)
		}
		if err != nil {
			return err
		}
		k.accepted = append(k.accepted, f)
	}
	if len(k.findings) > 0 {
		k.size = min(k.size, own) // the next checkpoint is of this tree
	}
	k.findings = nil
	return nil
}

// readKept reads the kept notes: the keys that signed, the accepted losses, and the newest checkpoint.
func (k *Keeper) readKept() error {
	var over, others [][]byte
	for raw, err := range k.file.All() {
		switch {
		case err != nil:
			return err
		case checkpoint.IsHandOver(raw):
			over = append(over, raw)
		case checkpoint.IsAcceptance(raw):
			others = append(others, raw)
		}
	}
	newest := k.file.Newest()
	if c, err := checkpoint.Unverified(newest); newest != nil && err == nil && c.Origin != k.opts.Origin {
		return tga.Errorf(tga.PermissionDenied, "the kept checkpoints are of the origin %q, and the configuration, or the name of its key, says %q. "+
			"Set that origin; or if the store is to have a new one, move what it kept away first (docs/EVIDENCE.md)", c.Origin, k.opts.Origin)
	}
	first := k.opts.Signer.Public
	switch {
	case len(over) > 0:
		first = checkpoint.GivenBy(over[0])
	case k.opts.Former != nil && newest != nil && !k.signed(newest, k.opts.Signer):
		first = k.opts.Former.Public
	}
	keys, err := checkpoint.TrustKeys(k.opts.Origin, first, k.opts.Witnesses...)
	if err != nil {
		return err
	}
	for _, raw := range over {
		if _, err := keys.Follow(raw); err != nil {
			return tga.Errorf(tga.PermissionDenied, "the kept hand-over of %s: %w", k.opts.Origin, err)
		}
	}
	var accepted []finding
	for _, raw := range others {
		a, err := keys.OpenAcceptance(raw)
		if err != nil {
			return err
		}
		accepted = append(accepted, finding{size: a.Seen.Size, head: a.Seen.Head})
	}
	size := int64(0)
	if newest != nil {
		c, _, err := keys.Open(newest)
		if err != nil {
			return tga.Errorf(tga.PermissionDenied, "the kept checkpoints of %s were signed by another key than %s. Name that as former key, which hands over to the new one: %w",
				k.opts.Origin, k.opts.Signer.Public, err)
		}
		size = min(c.Size, k.tree.Size())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.first, k.keys, k.over, k.accepted, k.newest, k.size = first, keys, over, accepted, newest, size
	k.findings = slices.DeleteFunc(k.findings, func(f finding) bool { return slices.ContainsFunc(accepted, f.same) })
	return nil
}

// signed reports whether a key signed a checkpoint.
func (k *Keeper) signed(raw []byte, s checkpoint.Signer) bool {
	keys, err := checkpoint.TrustKeys(k.opts.Origin, s.Public)
	if err == nil {
		_, _, err = keys.Open(raw)
	}
	return err == nil
}

// signsNow reports whether a key is the one that the store's checkpoints are signed with.
func (k *Keeper) signsNow(s checkpoint.Signer) bool {
	v := k.trusted().Newest()
	return v.Name() == s.Name() && v.KeyHash() == s.KeyHash()
}

// mayHandOver refuses the options if neither Signer nor Former is the key that signs for the store now, or
// if Signer was that key before. It is asked before a hand-over is kept: one that nobody follows would keep
// the store from its next start.
func (k *Keeper) mayHandOver() error {
	if !k.signsNow(k.opts.Signer) && k.trusted().Had(k.opts.Signer) {
		return tga.Errorf(tga.PermissionDenied, "key %s handed %s over before, and no verifier believes a key that comes back: make a new key",
			k.opts.Signer.Public, k.opts.Origin)
	}
	if !k.signsNow(k.opts.Signer) && (k.opts.Former == nil || !k.signsNow(*k.opts.Former)) {
		return tga.Errorf(tga.PermissionDenied, "the checkpoints of %s are signed by key %s: name it as former key, so that it hands over to %s",
			k.opts.Origin, k.trusted().Newest().Name(), k.opts.Signer.Public)
	}
	return nil
}

// handOver makes Signer the key that signs, if Former was that key until now.
func (k *Keeper) handOver() error {
	if err := k.mayHandOver(); err != nil || k.signsNow(k.opts.Signer) {
		return err
	}
	at := checkpoint.Checkpoint{Origin: k.opts.Origin, Size: k.tree.Size()}
	var err error
	if at.Head, err = k.tree.Head(at.Size); err != nil {
		return err
	}
	// Refuse the hand-over if the store has fewer appends than the old key signed: the store may have
	// been rolled back.
	newest, _ := k.Newest()
	if c, err := checkpoint.Unverified(newest); newest != nil && (err != nil || c.Size > at.Size) {
		return tga.Errorf(tga.PermissionDenied, "the store has fewer appends than key %s signed for it: it hands over to nobody", k.opts.Former.Name())
	}
	raw, err := checkpoint.HandOver(at, *k.opts.Former, k.opts.Signer)
	if err == nil {
		err = k.file.Append(raw)
	}
	if err == nil {
		err = k.readKept()
	}
	if err != nil {
		return err
	}
	k.log.Info("the key that signs checkpoints was handed over", "origin", k.opts.Origin, "to", k.opts.Signer.Public, "appends", at.Size)
	return nil
}

// Keys returns the public key that signed first, and the hand-overs to the one that signs now.
func (k *Keeper) Keys() (first string, handOvers [][]byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.first, slices.Clone(k.over)
}

// Seen is the newest tree that a client knows of, from a header of a request.
type Seen struct {
	Size int64
	Head tlog.Hash
}

// String returns "<size> <head>".
func (s Seen) String() string { return fmt.Sprintf("%d %v", s.Size, s.Head) }

// ParseSeen reads what [Seen.String] returns.
func ParseSeen(text string) (s Seen, err error) {
	size, head, ok := strings.Cut(text, " ")
	if ok {
		s.Head, err = tlog.ParseHash(head)
	}
	if ok && err == nil {
		_, err = fmt.Sscanf(size, "%d", &s.Size)
	}
	if !ok || err != nil || s.String() != text || s.Size < 0 || s.Size > math.MaxInt32<<16 {
		return Seen{}, tga.Errorf(tga.ValidationError, "%.100q is no size and head of a tree", text)
	}
	return s, nil
}

// Check compares the tree that a client has seen with the store's. STATE_CHECKSUM_MISMATCH: the
// client has seen more appends, or other ones.
func (k *Keeper) Check(ctx context.Context, s Seen) error {
	if s.Size > k.tree.Size() && uint64(s.Size) <= k.end() {
		return nil // the log has that many appends, and the tree follows in a moment
	}
	why, err := k.compare(ctx, checkpoint.Checkpoint{Size: s.Size, Head: s.Head})
	if err == nil && why != "" {
		err = tga.Errorf(tga.StateChecksumMismatch, "evidence of %s, what the caller has seen: %s", k.opts.Origin, why)
	}
	return err
}

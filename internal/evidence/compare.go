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
	head tlog.Hash // zero where it is not known, as of a witness
	why  string
}

// compare says how the tree contradicts a checkpoint that was signed for it, "" where it does not.
func (k *Keeper) compare(c checkpoint.Checkpoint) (why string, err error) {
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

// find freezes the store for what a place knows, unless a person accepted that.
func (k *Keeper) find(where string, f finding) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if slices.ContainsFunc(k.accepted, func(a finding) bool { return a.size == f.size && a.head == f.head }) {
		return nil
	}
	f.why = fmt.Sprintf("evidence of %s, %s: %s", k.opts.Origin, where, f.why)
	k.findings = append(k.findings, f)
	k.log.Error("the store is not what was signed for it", "found", f.why) // it may be frozen for another reason
	return k.store.Freeze(f.why)
}

// compareAll compares the tree with the newest checkpoint of the store's own and of each place.
func (k *Keeper) compareAll(ctx context.Context) error {
	if raw, _ := k.Newest(); raw != nil {
		c, _, err := k.keys.Open(raw)
		if err != nil {
			return err
		}
		why, err := k.compare(c)
		if err == nil && why != "" {
			err = k.find("the newest checkpoint that the store kept", finding{c.Size, c.Head, why})
		}
		if err != nil {
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

// Accept is the word of a person, in who, that the store goes on although checkpoints outside
// contradict it. It is signed and kept.
func (k *Keeper) Accept(who string) error {
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

// readKept reads what the store kept: which keys signed, what was accepted, the newest checkpoint.
func (k *Keeper) readKept() error {
	var others [][]byte
	for raw, err := range k.file.All() {
		switch {
		case err != nil:
			return err
		case checkpoint.IsHandOver(raw):
			k.over = append(k.over, raw)
		case checkpoint.IsAcceptance(raw):
			others = append(others, raw)
		}
	}
	k.newest = k.file.Newest()
	k.first = k.opts.Signer.Public
	switch {
	case len(k.over) > 0:
		k.first = checkpoint.GivenBy(k.over[0])
	case k.opts.Former != nil && k.newest != nil && !k.signed(k.opts.Signer):
		k.first = k.opts.Former.Public
	}
	var err error
	if k.keys, err = checkpoint.TrustKeys(k.opts.Origin, k.first, k.opts.Witnesses...); err != nil {
		return err
	}
	for _, raw := range k.over {
		if _, err := k.keys.Follow(raw); err != nil {
			return tga.Errorf(tga.PermissionDenied, "the kept hand-over of %s: %w", k.opts.Origin, err)
		}
	}
	for _, raw := range others {
		a, err := k.keys.OpenAcceptance(raw)
		if err != nil {
			return err
		}
		k.accepted = append(k.accepted, finding{size: a.Seen.Size, head: a.Seen.Head})
	}
	if k.newest == nil {
		return nil
	}
	c, _, err := k.keys.Open(k.newest)
	if err != nil {
		return tga.Errorf(tga.PermissionDenied, "the kept checkpoints of %s were signed by another key than %s. Name that as former key, which hands over to the new one: %w",
			k.opts.Origin, k.opts.Signer.Public, err)
	}
	k.size = min(c.Size, k.tree.Size())
	return nil
}

// signed reports whether the newest checkpoint is of a key.
func (k *Keeper) signed(s checkpoint.Signer) bool {
	keys, err := checkpoint.TrustKeys(k.opts.Origin, s.Public)
	if err == nil {
		_, _, err = keys.Open(k.newest)
	}
	return err == nil
}

// handOver makes the key of the options the one that signs, where another one did.
func (k *Keeper) handOver() error {
	same := func(s checkpoint.Signer) bool {
		v := k.keys.Newest()
		return v.Name() == s.Name() && v.KeyHash() == s.KeyHash()
	}
	if same(k.opts.Signer) {
		return nil
	}
	if k.opts.Former == nil || !same(*k.opts.Former) {
		return tga.Errorf(tga.PermissionDenied, "the checkpoints of %s are signed by key %s: name it as former key, so that it hands over to %s",
			k.opts.Origin, k.keys.Newest().Name(), k.opts.Signer.Public)
	}
	at := checkpoint.Checkpoint{Origin: k.opts.Origin, Size: k.tree.Size()}
	var err error
	if at.Head, err = k.tree.Head(at.Size); err != nil {
		return err
	}
	// Nobody takes over a key of a store that may have been rolled back below what it signed.
	if c, err := checkpoint.Unverified(k.newest); k.newest != nil && (err != nil || c.Size > at.Size) {
		return tga.Errorf(tga.PermissionDenied, "the store has fewer appends than key %s signed for it: it hands over to nobody", k.opts.Former.Name())
	}
	raw, err := checkpoint.HandOver(at, *k.opts.Former, k.opts.Signer)
	if err == nil {
		_, err = k.keys.Follow(raw)
	}
	if err == nil {
		err = k.file.Append(raw)
	}
	if err != nil {
		return err
	}
	k.over = append(k.over, raw)
	k.log.Info("the key that signs checkpoints was handed over", "origin", k.opts.Origin, "to", k.opts.Signer.Public, "appends", at.Size)
	return nil
}

// Keys returns the public key that signed first, and the hand-overs to the one that signs now.
func (k *Keeper) Keys() (first string, handOvers [][]byte) { return k.first, slices.Clone(k.over) }

// Seen is what a client knows of the tree: the text of a header.
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

// Check compares what a client has seen of the tree with the tree. STATE_CHECKSUM_MISMATCH: the
// client has seen more, or something else.
func (k *Keeper) Check(ctx context.Context, s Seen) error {
	if s.Size > k.tree.Size() && uint64(s.Size) <= k.store.Cursor() {
		return nil // not in the tree yet, which is a moment behind the log
	}
	why, err := k.compare(checkpoint.Checkpoint{Size: s.Size, Head: s.Head})
	if err == nil && why != "" {
		err = tga.Errorf(tga.StateChecksumMismatch, "evidence of %s, what the caller has seen: %s", k.opts.Origin, why)
	}
	return err
}

package mcpshim

import (
	"strconv"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// occurrence is the place of a call among those of one conversation that ask for the
// same.
type occurrence struct {
	name string // in the book
	n    uint64
}

// key returns the key of a call, by the first rule that gives one. The occurrence is set
// for a derived key: it moves on once an answer was delivered.
func (q *call) key() (string, *occurrence, error) {
	o := &q.conv.s.opts
	if k := q.params.metaValue(MetaKey); k != nil {
		return fit(scalarText(k)), nil, validKey(scalarText(k))
	}
	if q.tool.KeyPointer != "" {
		if k := scalarText(at(q.args, q.tool.KeyPointer)); k != "" {
			return fit(k), nil, nil
		}
	}
	for _, name := range o.CallIDs {
		if id := q.params.metaText(name); id != "" {
			return fit(name + "=" + id), nil, nil
		}
	}
	scope, step := q.conv.scope, o.Server
	for _, name := range scopeIDs {
		if id := q.params.metaText(name); id != "" {
			scope = name + "=" + id
			break
		}
	}
	for _, name := range o.StepIDs {
		if id := q.params.metaText(name); id != "" {
			step += " " + name + "=" + id
		}
	}
	q.derivedKey = true
	if !q.conv.s.needsKey(q.params.tool) {
		// A read call has no key, and two of them have nothing to do with each other. This
		// name only keeps them apart here.
		return "read " + randomHex(), nil, nil
	}
	first, err := ledger.DeriveKey(scope, step, q.params.tool, q.args, 0)
	if err != nil {
		return "", nil, err
	}
	place := &occurrence{name: "occurrence " + first}
	if place.n, err = q.conv.s.occurrence(place.name); err != nil {
		return "", nil, err
	}
	key, err := ledger.DeriveKey(scope, step, q.params.tool, q.args, place.n)
	return key, place, err
}

// occurrence returns how many answers to a call were delivered. It waits for one that is
// being delivered now.
func (s *Shim) occurrence(name string) (uint64, error) {
	s.mu.Lock()
	for s.places[name] != nil {
		busy := s.places[name]
		s.mu.Unlock()
		<-busy
		s.mu.Lock()
	}
	s.mu.Unlock()
	said, err := s.told.get(name)
	if err != nil || said == "" {
		return 0, err
	}
	n, err := strconv.ParseUint(said, 10, 64)
	if err != nil {
		return 0, tga.Errorf(tga.StoreUnavailable, "the shim's book says occurrence %q", said)
	}
	return n, nil
}

// delivering holds a place while an answer is on its way to the client.
func (s *Shim) delivering(o *occurrence) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.places[o.name] != nil {
		busy := s.places[o.name]
		s.mu.Unlock()
		<-busy
		s.mu.Lock()
	}
	held := make(chan struct{})
	s.places[o.name] = held
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.places, o.name)
		close(held)
	}
}

// delivered moves an occurrence on. Of two answers to one occurrence the first does.
func (s *Shim) delivered(o *occurrence) {
	next := strconv.FormatUint(o.n+1, 10)
	err := s.told.change(o.name, func(old string) string {
		if n, err := strconv.ParseUint(old, 10, 64); err == nil && n > o.n {
			return old
		}
		return next
	})
	if err != nil {
		s.log.Error("a delivered answer was not noted: the same call again would be served this one's answer", "error", err)
	}
}

// The longest key that the log takes.
const maxLedgerKey = 255

// fit returns a key that the log takes: a longer one is its digest.
func fit(k string) string {
	if len(k) <= maxLedgerKey {
		return k
	}
	sum := tga.Sum([]byte(k))
	return "sha256=" + sum.String()
}

func validKey(k string) error {
	if k == "" {
		return tga.Errorf(tga.ValidationError, "want a string of 1 to %d characters", maxLedgerKey).At("/params/_meta/" + pointerToken(MetaKey))
	}
	return nil
}

package mcpfront

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"sync"

	"github.com/tgad/tgad/internal/mcpfront/frames"
)

// pins knows the definition of each tool as it was first seen, or last accepted. A tool
// server that changes what a tool is after people have agreed to it is found out.
type pins struct {
	life    context.Context
	shelf   *shelf
	mirrors *mirrors
	log     *slog.Logger

	mu sync.Mutex
	// changed has the digest that is pinned for each tool whose definition is another now.
	changed map[string]string
}

// pinsName is their name on the shelf.
const pinsName = "pins"

func newPins(life context.Context, k *shelf, m *mirrors, log *slog.Logger) *pins {
	return &pins{life: life, shelf: k, mirrors: m, log: log, changed: map[string]string{}}
}

// look reads the definitions in an answer to tools/list, and pins what is new.
func (p *pins) look(f *frames.Frame) {
	if !f.Result.Present() {
		return
	}
	result, err := f.Bytes(f.Result, maxList)
	if err != nil {
		p.log.Warn("a list of tools is too long to be looked at", "error", err)
		return
	}
	all := definitions(result)
	p.mirrors.learn(all)
	if err := p.see(p.life, all); err != nil {
		p.log.Error("the definitions of the tools were not looked at", "error", err)
	}
}

// see compares definitions with the pinned ones, and pins those that are new.
func (p *pins) see(ctx context.Context, all []definition) error {
	if err := p.shelf.load(ctx); err != nil {
		return err
	}
	pinned := parsePins(p.shelf.get(pinsName))
	if !matches(pinned, all) {
		// Somebody may have accepted a change since, or another shim have pinned.
		raw, err := p.shelf.look(ctx, pinsName)
		if err != nil {
			return err
		}
		pinned = parsePins(raw)
	}
	err := p.shelf.change(ctx, pinsName, func(old []byte) []byte {
		pinned = parsePins(old)
		return addPins(old, pinned, all, false)
	})
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range all {
		old := pinned[t.name]
		if old == "" || old == t.digest {
			delete(p.changed, t.name)
			continue
		}
		if p.changed[t.name] == "" {
			p.log.Warn("the definition of a tool has changed since it was pinned", "tool", t.name, "pinned", old, "now", t.digest)
		}
		p.changed[t.name] = old
	}
	return nil
}

func matches(pinned map[string]string, all []definition) bool {
	for _, t := range all {
		if pinned[t.name] != t.digest {
			return false
		}
	}
	return true
}

// parsePins reads the pinned digests, by tool.
func parsePins(raw []byte) map[string]string {
	pinned := map[string]string{}
	if raw != nil && json.Unmarshal(raw, &pinned) != nil {
		return map[string]string{} // not of this shim's making: everything is new
	}
	return pinned
}

// addPins adds digests of tools that are not pinned, or with anew of all. What stays as it
// is stays the same bytes.
func addPins(old []byte, pinned map[string]string, all []definition, anew bool) []byte {
	now := maps.Clone(pinned)
	for _, t := range all {
		if now[t.name] == "" || anew {
			now[t.name] = t.digest
		}
	}
	if maps.Equal(now, pinned) {
		return old
	}
	raw, err := json.Marshal(now)
	if err != nil {
		panic(fmt.Sprintf("mcpfront: digests did not marshal: %v", err)) // a map of strings
	}
	return raw
}

// all are the pinned digests, by tool.
func (p *pins) all(ctx context.Context) (map[string]string, error) {
	err := p.shelf.load(ctx)
	return parsePins(p.shelf.get(pinsName)), err
}

// drifted returns the pinned digest of a tool whose definition is another now, else "".
func (p *pins) drifted(tool string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed[tool]
}

// accept pins definitions as they are now.
func (p *pins) accept(ctx context.Context, all []definition) error {
	err := p.shelf.change(ctx, pinsName, func(old []byte) []byte { return addPins(old, parsePins(old), all, true) })
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range all {
		delete(p.changed, t.name)
	}
	return nil
}

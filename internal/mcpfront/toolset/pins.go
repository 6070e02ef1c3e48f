package toolset

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"sync"

	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/frames"
)

// Pins has the digest of each tool's definition when it was first seen or last accepted. It
// detects a tool server that changes a tool after people have agreed to it.
type Pins struct {
	life    context.Context
	shelf   *asklog.Shelf
	mirrors *Mirrors
	log     *slog.Logger

	mu sync.Mutex
	// changed has the pinned digest of each tool whose current definition differs.
	changed map[string]string
}

// pinsName is the name of the pins on the shelf.
const pinsName = "pins"

// NewPins makes the pins of a tool server, which are kept on its shelf. life bounds their requests to the log.
func NewPins(life context.Context, k *asklog.Shelf, m *Mirrors, log *slog.Logger) *Pins {
	return &Pins{life: life, shelf: k, mirrors: m, log: log, changed: map[string]string{}}
}

// Look reads the definitions in an answer to tools/list, and pins those of new tools.
func (p *Pins) Look(f *frames.Frame) {
	if !f.Result.Present() {
		return
	}
	result, err := f.Bytes(f.Result, MaxList)
	if err != nil {
		p.log.Warn("a list of tools is too long to be looked at", "error", err)
		return
	}
	all := Definitions(result)
	p.mirrors.Learn(all)
	if err := p.See(p.life, all); err != nil {
		p.log.Error("the definitions of the tools were not looked at", "error", err)
	}
}

// See compares definitions with the pinned ones, and pins those of new tools.
func (p *Pins) See(ctx context.Context, all []Definition) error {
	if err := p.shelf.Load(ctx); err != nil {
		return err
	}
	pinned := parsePins(p.shelf.Get(pinsName))
	if !matches(pinned, all) {
		// Somebody may have accepted a change since, or another shim may have pinned a tool.
		raw, err := p.shelf.Look(ctx, pinsName)
		if err != nil {
			return err
		}
		pinned = parsePins(raw)
	}
	err := p.shelf.Change(ctx, pinsName, func(old []byte) []byte {
		pinned = parsePins(old)
		return addPins(old, pinned, all, false)
	})
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range all {
		old := pinned[t.Name]
		if old == "" || old == t.digest {
			delete(p.changed, t.Name)
			continue
		}
		if p.changed[t.Name] == "" {
			p.log.Warn("the definition of a tool has changed since it was pinned", "tool", t.Name, "pinned", old, "now", t.digest)
		}
		p.changed[t.Name] = old
	}
	return nil
}

func matches(pinned map[string]string, all []Definition) bool {
	for _, t := range all {
		if pinned[t.Name] != t.digest {
			return false
		}
	}
	return true
}

// parsePins reads the pinned digests, by tool.
func parsePins(raw []byte) map[string]string {
	pinned := map[string]string{}
	if raw != nil && json.Unmarshal(raw, &pinned) != nil {
		return map[string]string{} // not in a form that this shim writes: every tool counts as new
	}
	return pinned
}

// addPins adds the digests of tools that are not pinned; with anew it pins all of them again. If
// nothing changes, it returns the old bytes.
func addPins(old []byte, pinned map[string]string, all []Definition, anew bool) []byte {
	now := maps.Clone(pinned)
	for _, t := range all {
		if now[t.Name] == "" || anew {
			now[t.Name] = t.digest
		}
	}
	if maps.Equal(now, pinned) {
		return old
	}
	raw, err := json.Marshal(now)
	if err != nil {
		panic(fmt.Sprintf("toolset: digests did not marshal: %v", err)) // a map of strings
	}
	return raw
}

// All returns the pinned digests, by tool.
func (p *Pins) All(ctx context.Context) (map[string]string, error) {
	err := p.shelf.Load(ctx)
	return parsePins(p.shelf.Get(pinsName)), err
}

// Drifted returns the pinned digest of a tool whose current definition differs, else "".
func (p *Pins) Drifted(tool string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed[tool]
}

// Accept pins the given definitions in place of the earlier ones.
func (p *Pins) Accept(ctx context.Context, all []Definition) error {
	err := p.shelf.Change(ctx, pinsName, func(old []byte) []byte { return addPins(old, parsePins(old), all, true) })
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range all {
		delete(p.changed, t.Name)
	}
	return nil
}

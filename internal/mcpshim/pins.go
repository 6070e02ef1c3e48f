package mcpshim

import (
	"encoding/json"
	"sync"

	"github.com/google/uuid"

	"github.com/tgad/tgad/schemas/tga"
)

func newID() tga.ID { return tga.ID(uuid.Must(uuid.NewV7())) }

// pins knows the definition of each tool as it was first seen, or last accepted. A tool
// server that changes what a tool is after people have agreed to it is found out.
type pins struct {
	s  *Shim
	mu sync.Mutex
	// changed has the digest that is pinned for each tool whose definition is another now.
	changed map[string]string
}

func newPins(s *Shim) *pins { return &pins{s: s, changed: map[string]string{}} }

// maxList bounds a tools/list answer that is looked at.
const maxList = 16 << 20

// look reads the definitions in an answer to tools/list, and pins what is new.
func (p *pins) look(f *frame) {
	if !f.result.present() {
		return
	}
	result, err := f.bytes(f.result, maxList)
	if err != nil {
		p.s.log.Warn("a list of tools is too long to be looked at", "error", err)
		return
	}
	for _, t := range definitions(result) {
		p.see(t)
	}
}

// definition is one tool of a list.
type definition struct {
	name   string
	raw    []byte
	digest string
}

func definitions(result []byte) []definition {
	var list []json.RawMessage
	if json.Unmarshal(at(result, "/tools"), &list) != nil {
		return nil
	}
	var all []definition
	for _, raw := range list {
		name := scalarText(at(raw, "/name"))
		if name == "" {
			continue
		}
		// The canonical form, so that the order of members is no change. What has none is
		// compared as it stands.
		form, err := tga.Canonicalize(raw, tga.Limits{})
		if err != nil {
			form = raw
		}
		sum := tga.Sum(form)
		all = append(all, definition{name: name, raw: raw, digest: sum.String()})
	}
	return all
}

// see compares a definition with the pinned one.
func (p *pins) see(t definition) {
	var old string
	err := p.s.book.change("pin "+t.name, func(was string) string {
		if old = was; was == "" {
			return t.digest
		}
		return was
	})
	if err != nil {
		p.s.log.Error("the definition of a tool was not looked at", "tool", t.name, "error", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if old == "" || old == t.digest {
		delete(p.changed, t.name)
		return
	}
	if p.changed[t.name] == "" {
		p.s.log.Warn("the definition of a tool has changed since it was pinned", "tool", t.name, "pinned", old, "now", t.digest)
	}
	p.changed[t.name] = old
}

// drifted returns the pinned digest of a tool whose definition is another now, else "".
func (p *pins) drifted(tool string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed[tool]
}

// accept pins a definition as it is now.
func (p *pins) accept(t definition) error {
	p.mu.Lock()
	delete(p.changed, t.name)
	p.mu.Unlock()
	return p.s.book.change("pin "+t.name, func(string) string { return t.digest })
}

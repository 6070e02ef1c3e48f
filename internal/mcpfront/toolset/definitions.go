package toolset

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// MaxList is the longest answer to tools/list that is read, in bytes.
const MaxList = 16 << 20

// Definition is one tool of a list.
type Definition struct {
	Name   string
	Raw    []byte
	digest string
}

// Definitions are the tools of a list.
func Definitions(result []byte) []Definition {
	var list []json.RawMessage
	if json.Unmarshal(mcpraw.At(result, "/tools"), &list) != nil {
		return nil
	}
	var all []Definition
	for _, raw := range list {
		name := mcpraw.Text(mcpraw.At(raw, "/name"))
		if name == "" {
			continue
		}
		// The digest is of the canonical form, so that another order of members is no change. A
		// definition without a canonical form is compared byte for byte.
		form, err := tga.Canonicalize(raw, tga.Limits{})
		if err != nil {
			form = raw
		}
		sum := tga.Sum(form)
		all = append(all, Definition{Name: name, Raw: raw, digest: sum.String()})
	}
	return all
}

// Inspected is one tool of a server: what its definition says, and what was pinned.
type Inspected struct {
	Name        string   `json:"name"`
	Digest      string   `json:"digest"` // SHA-256 of the canonical definition
	Pinned      string   `json:"pinned"` // the pinned digest, "" if the tool was not seen before
	Hints       []string `json:"hints"`  // readOnlyHint, …, as far as the server sets them
	Description string   `json:"description"`
}

// Changed reports whether the definition differs from the pinned one.
func (i Inspected) Changed() bool { return i.Pinned != "" && i.Pinned != i.Digest }

// Suggests returns the class and the licence that the hints suggest, "" if no hint says that a
// repeat is harmless.
func (i Inspected) Suggests() (class, licence string) {
	switch {
	case slices.Contains(i.Hints, "readOnlyHint=true"):
		return tga.ClassRead, ledger.ReadOnly.String()
	case slices.Contains(i.Hints, "idempotentHint=true"):
		return tga.ClassWrite, ledger.DedupeArgs.String()
	}
	return "", ""
}

// hints are the annotations about a tool's effects.
var hints = []string{"readOnlyHint", "idempotentHint", "destructiveHint", "openWorldHint"}

// Inspect describes a definition. pinned is the tool's pinned digest.
func Inspect(d Definition, pinned string) Inspected {
	i := Inspected{Name: d.Name, Digest: d.digest, Pinned: pinned, Description: mcpraw.ScalarText(mcpraw.At(d.Raw, "/description"))}
	for _, h := range hints {
		v := mcpraw.At(d.Raw, "/annotations/"+h)
		var set bool
		if json.Unmarshal(v, &set) == nil {
			i.Hints = append(i.Hints, fmt.Sprintf("%s=%t", h, set))
		}
	}
	return i
}

package manifest

import (
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/schemas/tga"
)

// Read reads a manifest with the zero [Reader].
func Read(raw []byte) (*turn.Agent, Report, error) { return Reader{}.Read(raw) }

// Read reads a manifest of one agent. Errors are those of [Reader.ReadAll], and VALIDATION_ERROR
// if the text describes several agents. The report is filled as far as the reader got.
func (o Reader) Read(raw []byte) (*turn.Agent, Report, error) {
	all, err := o.ReadAll(raw)
	switch {
	case len(all) > 1:
		at := &node{line: 1, column: 1}
		return nil, all[0].Report, &Error{Mistakes: []*Mistake{at.mistake(tga.ValidationError, "the text describes %d agents, and one is wanted", len(all))}}
	case len(all) == 0:
		return nil, newReport(), err
	case err != nil:
		return nil, all[0].Report, err
	}
	return all[0].Agent, all[0].Report, nil
}

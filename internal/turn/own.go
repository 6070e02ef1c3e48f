package turn

import (
	"bytes"
	"slices"
)

// own returns a copy for the adapter of a model, which may change what it gets: the question is asked again as
// it was recorded, and the turn goes on with its messages.
func (q Question) own() Question {
	q.Messages, q.Tools = slices.Clone(q.Messages), slices.Clone(q.Tools)
	for i := range q.Messages {
		m := &q.Messages[i]
		m.Content, m.ToolCalls = slices.Clone(m.Content), slices.Clone(m.ToolCalls)
		for j := range m.Content {
			m.Content[j].Data = bytes.Clone(m.Content[j].Data)
		}
	}
	for i := range q.Tools {
		q.Tools[i].InputSchema = bytes.Clone(q.Tools[i].InputSchema)
	}
	p := &q.Parameters
	p.MaxTokens, p.Temperature, p.TopP, p.Seed = ownValue(p.MaxTokens), ownValue(p.Temperature), ownValue(p.TopP), ownValue(p.Seed)
	p.Stop = slices.Clone(p.Stop)
	return q
}

func ownValue[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

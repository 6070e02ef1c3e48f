package message

import "strings"

// anthropicMessage reads one message of the Anthropic messages API. The results of tools in it
// become messages of their own, in front of the rest, because the API requires results first.
func anthropicMessage(p place) ([]Message, error) {
	members, err := p.object()
	if err != nil {
		return nil, err
	}
	role, content := p.child(members, "role"), p.child(members, "content")
	name, err := role.need()
	if err != nil {
		return nil, err
	}
	m := Message{Role: Role(name)}
	if m.Role != User && m.Role != Assistant {
		return nil, role.wrong("role %.80q: want user or assistant", name)
	}
	if content.is('"') {
		m.Content, err = anthropicBlocks(content)
		return []Message{m}, err
	}
	list, err := content.array(MaxParts)
	if err != nil {
		return nil, err
	}
	var results []Message
	for _, b := range list {
		members, err := b.object()
		if err != nil {
			return nil, err
		}
		kind := b.child(members, "type")
		name, err := kind.need()
		if err != nil {
			return nil, err
		}
		switch {
		case name == "tool_use" && m.Role == Assistant:
			var c ToolCall
			if c, err = anthropicCall(b, members); err == nil {
				m.ToolCalls = append(m.ToolCalls, c)
			}
		case name == "tool_result" && m.Role == User:
			var r Message
			if r, err = anthropicResult(b, members); err == nil {
				results = append(results, r)
			}
		case name == "thinking" || name == "redacted_thinking":
			// Thinking is said to nobody, and is of no use to another model.
		default:
			var part Part
			if part, err = anthropicPart(b, members); err == nil {
				m.Content = append(m.Content, part)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	if len(m.Content) > 0 || len(m.ToolCalls) > 0 || len(results) == 0 {
		results = append(results, m)
	}
	return results, nil
}

// anthropicBlocks reads a string or a list of blocks.
func anthropicBlocks(p place) ([]Part, error) {
	if p.is('"') {
		text, err := p.text()
		return []Part{{Type: Text, Text: text}}, err
	}
	list, err := p.array(MaxParts)
	if err != nil {
		return nil, err
	}
	parts := make([]Part, len(list))
	for i, b := range list {
		members, err := b.object()
		if err != nil {
			return nil, err
		}
		if parts[i], err = anthropicPart(b, members); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

func anthropicCall(p place, members map[string]place) (c ToolCall, err error) {
	if c.ID, err = p.child(members, "id").need(); err != nil {
		return c, err
	}
	if c.Name, err = p.child(members, "name").need(); err != nil {
		return c, err
	}
	input := p.child(members, "input")
	if !input.is('{') {
		return c, input.wrong("want an object")
	}
	c.Arguments = string(input.raw)
	return c, nil
}

func anthropicResult(p place, members map[string]place) (m Message, err error) {
	m.Role = Tool
	if m.ToolCallID, err = p.child(members, "tool_use_id").need(); err != nil {
		return m, err
	}
	if m.ToolError, err = p.child(members, "is_error").flag(); err != nil {
		return m, err
	}
	if content := p.child(members, "content"); !content.absent() {
		m.Content, err = anthropicBlocks(content)
	}
	return m, err
}

func anthropicPart(p place, members map[string]place) (part Part, err error) {
	kind := p.child(members, "type")
	name, err := kind.need()
	if err != nil {
		return part, err
	}
	switch name {
	case "text":
		part.Type = Text
		text := p.child(members, "text")
		if text.absent() {
			return part, text.wrong("want a string")
		}
		part.Text, err = text.text()
		return part, err
	case "image":
		part.Type = Image
		source := p.child(members, "source")
		if err = anthropicSource(source, &part); err != nil || part.Data == nil {
			return part, err
		}
		return part, source.image(part.MIME)
	case "document":
		part.Type = File
		if part.Name, err = p.child(members, "title").text(); err != nil {
			return part, err
		}
		return part, anthropicSource(p.child(members, "source"), &part)
	}
	return part, kind.wrong("a block of type %.80q has no place here", name)
}

// anthropicSource reads the content of an image or a document, or where it is.
func anthropicSource(p place, part *Part) error {
	members, err := p.object()
	if err != nil {
		return err
	}
	at := func(name string) place { return p.child(members, name) }
	kind, err := at("type").need()
	if err != nil {
		return err
	}
	switch {
	case kind == "base64":
		if part.MIME, err = at("media_type").mediaType(); err == nil {
			part.Data, err = at("data").bytes()
		}
	case kind == "url":
		part.URI, err = at("url").web()
	case kind == "file":
		var id string
		id, err = at("file_id").need()
		part.URI = AnthropicFile + id
	case kind == "text" && part.Type == File:
		if part.MIME, err = at("media_type").mediaType(); err != nil {
			return err
		}
		if !strings.HasPrefix(part.MIME, "text/") {
			return at("media_type").wrong("a text of type %.80q", part.MIME)
		}
		var text string
		text, err = at("data").need()
		part.Data = []byte(text)
	default:
		err = at("type").wrong("a source of type %.80q", kind)
	}
	return err
}

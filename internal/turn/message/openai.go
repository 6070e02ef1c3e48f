package message

// openaiRoles are the roles of the chat completions API. A developer message comes from the
// author of the program, as a system message did before.
var openaiRoles = map[string]Role{"user": User, "system": System, "developer": System, "assistant": Assistant, "tool": Tool}

// openaiMessage reads one message of the chat completions API.
func openaiMessage(p place) ([]Message, error) {
	members, err := p.object()
	if err != nil {
		return nil, err
	}
	at := func(name string) place { return p.child(members, name) }
	name, err := at("role").need()
	if err != nil {
		return nil, err
	}
	role, ok := openaiRoles[name]
	if !ok {
		return nil, at("role").wrong("role %.80q: want system, developer, user, assistant or tool", name)
	}
	m := Message{Role: role}
	if m.Content, err = openaiContent(at("content")); err != nil {
		return nil, err
	}
	refusal, err := at("refusal").text()
	if err != nil {
		return nil, err
	}
	if refusal != "" {
		m.Content = append(m.Content, Part{Type: Text, Text: refusal})
	}
	if role == Assistant {
		if m.ToolCalls, err = openaiCalls(at("tool_calls")); err != nil {
			return nil, err
		}
		if len(m.Content) == 0 && len(m.ToolCalls) == 0 {
			return nil, p.wrong("an assistant's message without content and without tool calls")
		}
	} else if !at("tool_calls").absent() {
		return nil, at("tool_calls").wrong("tool calls in a message of role %s", role)
	} else if at("content").absent() {
		return nil, at("content").wrong("want a string or parts")
	}
	if role == Tool {
		m.ToolCallID, err = at("tool_call_id").need()
	}
	if err != nil {
		return nil, err
	}
	return []Message{m}, nil
}

// openaiContent reads a string or a list of parts.
func openaiContent(p place) ([]Part, error) {
	if p.absent() {
		return nil, nil
	}
	if p.is('"') {
		text, err := p.text()
		return []Part{{Type: Text, Text: text}}, err
	}
	list, err := p.array(MaxParts)
	if err != nil {
		return nil, err
	}
	parts := make([]Part, len(list))
	for i, e := range list {
		if parts[i], err = openaiPart(e); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

func openaiPart(p place) (part Part, err error) {
	members, err := p.object()
	if err != nil {
		return part, err
	}
	at := func(name string) place { return p.child(members, name) }
	kind, err := at("type").need()
	if err != nil {
		return part, err
	}
	switch kind {
	case "text", "refusal":
		part.Type = Text
		text := at(kind)
		if text.absent() {
			return part, text.wrong("want a string")
		}
		part.Text, err = text.text()
	case "image_url":
		part, err = openaiImage(at("image_url"))
	case "file":
		part, err = openaiFile(at("file"))
	case "input_audio":
		err = p.wrong("audio is not taken: hand in its transcript")
	default:
		err = at("type").wrong("a part of type %.80q: want text, image_url, file or refusal", kind)
	}
	return part, err
}

func openaiImage(p place) (Part, error) {
	part := Part{Type: Image}
	members, err := p.object()
	if err != nil {
		return part, err
	}
	at := p.child(members, "url")
	s, err := at.need()
	if err != nil {
		return part, err
	}
	if !isData(s) {
		part.URI, err = at.web()
		return part, err
	}
	if part.MIME, part.Data, err = at.data(); err != nil {
		return part, err
	}
	return part, at.image(part.MIME)
}

func openaiFile(p place) (Part, error) {
	part := Part{Type: File}
	members, err := p.object()
	if err != nil {
		return part, err
	}
	at := func(name string) place { return p.child(members, name) }
	if part.Name, err = at("filename").text(); err != nil {
		return part, err
	}
	id, err := at("file_id").text()
	if err != nil {
		return part, err
	}
	if given := !at("file_data").absent(); given == (id != "") {
		return part, p.wrong("want either file_data or file_id")
	} else if id != "" {
		part.URI = OpenAIFile + id
		return part, nil
	}
	part.MIME, part.Data, err = at("file_data").data()
	return part, err
}

// openaiCalls reads tool calls. In this API their arguments are already a string.
func openaiCalls(p place) ([]ToolCall, error) {
	if p.absent() {
		return nil, nil
	}
	list, err := p.array(MaxToolCalls)
	if err != nil {
		return nil, err
	}
	calls := make([]ToolCall, len(list))
	for i, e := range list {
		members, err := e.object()
		if err != nil {
			return nil, err
		}
		kind := e.child(members, "type")
		if name, err := kind.text(); err != nil {
			return nil, err
		} else if name != "" && name != "function" {
			return nil, kind.wrong("a tool call of type %.80q: want function", name)
		}
		if calls[i].ID, err = e.child(members, "id").need(); err != nil {
			return nil, err
		}
		f := e.child(members, "function")
		if members, err = f.object(); err != nil {
			return nil, err
		}
		if calls[i].Name, err = f.child(members, "name").need(); err != nil {
			return nil, err
		}
		if calls[i].Arguments, err = f.child(members, "arguments").text(); err != nil {
			return nil, err
		}
	}
	return calls, nil
}

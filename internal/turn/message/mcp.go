package message

import (
	"bytes"
	"net/url"
	"unicode/utf8"

	"github.com/tgad/tgad/schemas/tga"
)

// readMCP reads content of the Model Context Protocol (2025-11-25): either blocks, which become
// one message of a user, or messages with a role and one or more blocks.
func readMCP(raw []byte) ([]Message, []place, error) {
	root, err := rootOf(raw)
	if err != nil {
		return nil, nil, err
	}
	list := []place{root}
	if root.is('[') {
		if list, err = root.array(MaxMessages); err != nil {
			return nil, nil, err
		}
	} else if body, ok := shape(root)["messages"]; ok {
		if list, err = body.array(MaxMessages); err != nil {
			return nil, nil, err
		}
	}
	var messages []Message
	var where []place
	loose := false // the last message consists of blocks that stand outside of a message
	for _, p := range list {
		members, err := p.object()
		if err != nil {
			return nil, nil, err
		}
		role := p.child(members, "role")
		if role.absent() {
			part, err := mcpPart(p, members)
			if err != nil {
				return nil, nil, err
			}
			if !loose {
				messages, where = append(messages, Message{Role: User}), append(where, root)
			}
			last := &messages[len(messages)-1]
			last.Content, loose = append(last.Content, part), true
			continue
		}
		loose = false
		name, err := role.need()
		if err != nil {
			return nil, nil, err
		}
		m := Message{Role: Role(name)}
		if m.Role != User && m.Role != Assistant {
			return nil, nil, role.wrong("role %.80q: want user or assistant", name)
		}
		if m.Content, err = mcpBlocks(p.child(members, "content")); err != nil {
			return nil, nil, err
		}
		messages, where = append(messages, m), append(where, p)
	}
	return messages, where, nil
}

// mcpBlocks reads a block or a list of blocks.
func mcpBlocks(p place) ([]Part, error) {
	list := []place{p}
	if p.is('[') {
		var err error
		if list, err = p.array(MaxParts); err != nil {
			return nil, err
		}
	}
	parts := make([]Part, len(list))
	for i, b := range list {
		members, err := b.object()
		if err != nil {
			return nil, err
		}
		if parts[i], err = mcpPart(b, members); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

func mcpPart(p place, members map[string]place) (part Part, err error) {
	at := func(name string) place { return p.child(members, name) }
	kind, err := at("type").need()
	if err != nil {
		return part, err
	}
	switch kind {
	case "text":
		part.Type = Text
		if at("text").absent() {
			return part, at("text").wrong("want a string")
		}
		part.Text, err = at("text").text()
	case "image", "audio":
		part.Type = Image
		if kind == "audio" {
			part.Type = File
		}
		if part.MIME, err = at("mimeType").mediaType(); err != nil {
			return part, err
		}
		if part.Data, err = at("data").bytes(); err == nil && part.Type == Image {
			err = at("mimeType").image(part.MIME)
		}
	case "resource_link":
		part.Type = File
		if part.Name, err = at("name").text(); err == nil {
			err = mcpURI(at("uri"), at("mimeType"), &part)
		}
	case "resource":
		part.Type = File
		err = mcpResource(at("resource"), &part)
	default:
		err = at("type").wrong("a block of type %.80q: want text, image, audio, resource or resource_link", kind)
	}
	return part, err
}

// mcpURI reads an address of any scheme, because a server's resources have schemes of their own.
func mcpURI(p, kind place, part *Part) (err error) {
	if part.URI, err = p.need(); err != nil {
		return err
	}
	if u, err := url.Parse(part.URI); err != nil || u.Scheme == "" {
		return p.wrong("want a URI")
	}
	if !kind.absent() {
		part.MIME, err = kind.mediaType()
	}
	return err
}

func mcpResource(p place, part *Part) error {
	members, err := p.object()
	if err != nil {
		return err
	}
	if err := mcpURI(p.child(members, "uri"), p.child(members, "mimeType"), part); err != nil {
		return err
	}
	text, blob := p.child(members, "text"), p.child(members, "blob")
	switch {
	case text.absent() == blob.absent():
		return p.wrong("want either text or blob")
	case blob.absent():
		var s string
		s, err = text.text()
		part.Data = []byte(s)
		if part.MIME == "" {
			part.MIME = "text/plain"
		}
	default:
		part.Data, err = blob.bytes()
	}
	return err
}

// ToolAnswer makes the message that tells a model a tool's answer to the call id. answer has the
// bytes that the tool returned. The result of an MCP tools/call becomes its parts; any other text
// is passed on unchanged. failed says that the call failed. A result that says so itself
// (isError) counts as failed too.
func ToolAnswer(id string, answer []byte, failed bool, at tga.Millis) Message {
	m := Message{
		Role: Tool, ToolCallID: id, ToolError: failed,
		Metadata: Metadata{Source: FromTool, OriginalFormat: FormatText, NormalizedAt: at},
	}
	if parts, isError, ok := mcpResult(answer); ok {
		m.Content, m.Metadata.OriginalFormat = parts, FormatMCP
		m.ToolError = failed || isError
		return m
	}
	if !utf8.Valid(answer) {
		// A model gets text. The original bytes are stored with the tool's effect.
		answer = bytes.ToValidUTF8(answer, []byte("\ufffd"))
	}
	m.Content = []Part{{Type: Text, Text: string(answer)}}
	return m
}

// mcpResult reads the result of tools/call. ok is false if raw is not exactly such a result.
func mcpResult(raw []byte) (parts []Part, isError, ok bool) {
	root, err := rootOf(raw)
	if err != nil {
		return nil, false, false
	}
	members := shape(root)
	content, structured := members["content"], members["structuredContent"]
	if !content.is('[') {
		return nil, false, false
	}
	for name := range members {
		switch name {
		case "content", "structuredContent", "isError", "_meta", "resultType":
		default:
			return nil, false, false // another answer that happens to have a member "content"
		}
	}
	if isError, err = members["isError"].flag(); err != nil {
		return nil, false, false
	}
	if parts, err = mcpBlocks(content); err != nil {
		return nil, false, false
	}
	if len(parts) == 0 && !structured.absent() {
		parts = []Part{{Type: Text, Text: string(structured.raw)}}
	}
	return parts, isError, true
}

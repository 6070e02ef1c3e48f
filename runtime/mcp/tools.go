package mcp

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// Tool is one entry of a server's tools/list.
type Tool = mcpraw.Tool

// toolsChanged is the notification that a server's tools have changed.
const toolsChanged = "notifications/tools/list_changed"

// Most pages and tools of a list. They bound the list of a server that never ends it.
const (
	maxPages = 1000
	maxTools = 100_000
)

// ListTools asks the server for all its tools. Over HTTP with revision 2026-07-28 it leaves out a
// tool whose annotations for headers break that revision's rules, and names the tool in the log.
func (s *Server) ListTools(ctx context.Context) ([]Tool, error) {
	sess, err := s.session(ctx)
	if err != nil {
		return nil, fmt.Errorf("tool server %q: list tools: %w", s.name, err)
	}
	tools, err := s.list(ctx, sess)
	if err != nil || !s.mirrors(sess) {
		return tools, err
	}
	return sess.learn(tools, s.log), nil
}

func (s *Server) list(ctx context.Context, sess *session) ([]Tool, error) {
	var tools []Tool
	cursor := ""
	for range maxPages {
		params := []byte(`{"_meta":{`)
		if len(sess.meta) > 0 {
			params = append(params, sess.meta[1:]...)
		}
		params = append(params, '}')
		if cursor != "" {
			params = tga.AppendString(append(params, `,"cursor":`...), cursor)
		}
		a, err := sess.link.exchange(ctx, &jsonrpc.Request{Method: "tools/list", Params: append(params, '}')})
		if err != nil {
			return nil, fmt.Errorf("tool server %q: list tools: %w", s.name, err)
		}
		result, err := a.control()
		if err != nil {
			return nil, fmt.Errorf("tool server %q: list tools: %w", s.name, err)
		}
		var page struct {
			Tools      []json.RawMessage `json:"tools"`
			NextCursor string            `json:"nextCursor"`
		}
		if err := json.Unmarshal(result, &page); err != nil {
			return nil, fmt.Errorf("tool server %q: list tools: %w", s.name, err)
		}
		for _, raw := range page.Tools {
			t, err := parseTool(raw)
			if err != nil {
				return nil, fmt.Errorf("tool server %q: list tools: %w", s.name, err)
			}
			tools = append(tools, t)
		}
		if cursor = page.NextCursor; cursor == "" {
			return tools, nil
		}
		if len(tools) > maxTools {
			break
		}
	}
	return nil, tga.Errorf(tga.LimitExceeded, "tool server %q: list of more than %d pages or %d tools", s.name, maxPages, maxTools)
}

func parseTool(raw json.RawMessage) (Tool, error) {
	var t struct {
		Name        string `json:"name"`
		Annotations struct {
			ReadOnlyHint   bool `json:"readOnlyHint"`
			IdempotentHint bool `json:"idempotentHint"`
		} `json:"annotations"`
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return Tool{}, fmt.Errorf("tool definition: %w", err)
	}
	return Tool{Name: t.Name, Definition: raw, ReadOnly: t.Annotations.ReadOnlyHint, Idempotent: t.Annotations.IdempotentHint}, nil
}

//go:build linux

package workstate_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/mcp"
	"github.com/tgad/tgad/runtime/workstate/hostdir"
	"github.com/tgad/tgad/schemas/tga"
)

// serverEnv makes the test binary a tool server that works in the directory it names.
const serverEnv = "TGAD_WORKSTATE_SERVER"

// refactor is a tool's work on a directory: some files change, one goes, one comes.
func refactor(dir, text string) error {
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "a"), []byte(text), 0o644),
		os.RemoveAll(filepath.Join(dir, "old")),
		os.MkdirAll(filepath.Join(dir, "new", text), 0o755),
		os.WriteFile(filepath.Join(dir, "new", text, "b"), []byte(text), 0o755),
	)
}

type refactoring struct {
	Text string `json:"text"`
	Fail bool   `json:"fail,omitempty"`
}

func serveMCP(dir string) error {
	s := sdk.NewServer(&sdk.Implementation{Name: "refactor", Version: "1"}, nil)
	s.AddTool(&sdk.Tool{Name: "refactor", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			var p refactoring
			if err := json.Unmarshal(r.Params.Arguments, &p); err != nil {
				return nil, err
			}
			if err := refactor(dir, p.Text); err != nil {
				return nil, err
			}
			return &sdk.CallToolResult{IsError: p.Fail, Content: []sdk.Content{&sdk.TextContent{Text: "done"}}}, nil
		})
	return s.Run(context.Background(), &sdk.StdioTransport{})
}

// TestFunctionAndMCPGiveEqualState: the same tool as a function of this process and as an
// MCP server in another leave equal directories and equal states, when it succeeds and
// when it fails.
func TestFunctionAndMCPGiveEqualState(t *testing.T) {
	final := map[string][]string{}
	for _, adapter := range []string{"function", "mcp"} {
		dir := t.TempDir()
		must(t, os.MkdirAll(filepath.Join(dir, "old/x"), 0o755), os.WriteFile(filepath.Join(dir, "a"), []byte("first"), 0o644), os.Mkdir(filepath.Join(dir, "empty"), 0o755))
		d, err := hostdir.Open(bg, dir, t.TempDir(), hostdir.Options{})
		must(t, err)
		defer func() { must(t, d.Close()) }()
		var tools runtime.Dispatcher = workstate.Tools{"refactor": workstate.Func(func(_ context.Context, p refactoring) (any, error) {
			if err := refactor(dir, p.Text); err != nil || p.Fail {
				return nil, errors.Join(err, workstate.ErrFailed)
			}
			return "done", nil
		})}
		if adapter == "mcp" {
			server, err := mcp.New("refactor", mcp.Options{Command: []string{os.Args[0]}, Env: []string{serverEnv + "=" + dir}})
			must(t, err)
			defer func() { must(t, server.Close()) }()
			tools = server
		}
		db, err := engine.Open(filepath.Join(t.TempDir(), "store"), engine.Options{MemTableBytes: 4 << 20, FirstSegmentBytes: 64 << 10})
		must(t, err)
		defer func() { must(t, db.Close()) }()
		r := &workstate.Registry{}
		must(t, workstate.Add(r, d))
		s, err := workstate.Open(bg, db, newID(), newSession(t), r, workstate.Options{})
		must(t, err)
		defer s.Close()
		rt, err := runtime.New(s.Store(), workstate.Transact(tools, s), runtime.AllowAll, runtime.Options{})
		must(t, err)
		for _, args := range []string{`{"text":"one"}`, `{"text":"two","fail":true}`, `{"text":"three"}`, `{"text":"four","fail":true}`} {
			res, err := rt.Call(bg, runtime.Request{Server: "s", Tool: "refactor", Key: args, Args: []byte(args)})
			must(t, err)
			var p refactoring
			must(t, json.Unmarshal([]byte(args), &p))
			if (res.Status == tga.StatusSuccess) == p.Fail {
				t.Errorf("%s, %s: %s %s", adapter, args, res.Status, res.ErrorMessage)
			}
			snap, err := s.Snapshot(bg, workstate.SnapshotOptions{}, "")
			must(t, err)
			final[adapter] = append(final[adapter], snap.Resources[onlyResource(snap)].Digest().String())
		}
		if b, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(b) != "three" {
			t.Errorf("%s: a holds %q (%v)", adapter, b, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "new/two")); err == nil {
			t.Errorf("%s: a failed call left files", adapter)
		}
	}
	for i := range final["function"] {
		if final["function"][i] != final["mcp"][i] {
			t.Errorf("after call %d the directories differ", i+1)
		}
	}
}

// onlyResource returns the name of the snapshot's only resource.
func onlyResource(s *workstate.CompositeSnapshot) string {
	for name := range s.Resources {
		return name
	}
	return ""
}

package assemble

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/tgad/tgad/internal/workspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestSnapshotsAroundSendsOfADaemon: each answer of a tool server has a record of its snapshots, a read has
// none, and without a snapshot nothing is sent.
func TestSnapshotsAroundSendsOfADaemon(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "work")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	k, err := workspace.Open(t.Context(), workspace.Options{Dir: dir, Keep: 10})
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	d := &snapshots{
		next: runtime.DispatcherFunc(func(_ context.Context, c runtime.Call) (runtime.Reply, error) {
			sent++
			switch c.Tool {
			case "doubt":
				return runtime.Reply{}, errors.New("reset")
			case "unsent":
				return runtime.Reply{}, runtime.ErrNotSent
			case "fails":
				return runtime.Reply{Status: tga.StatusFailure}, nil
			}
			return runtime.Reply{Status: tga.StatusSuccess}, os.WriteFile(filepath.Join(dir, "made"), nil, 0o600)
		}),
		keeper: k, log: slog.New(slog.DiscardHandler), reads: func(tool string) bool { return tool == "read" },
	}
	for _, c := range []struct{ tool, outcome string }{
		{"works", workspace.Succeeded}, {"fails", workspace.Failed}, {"doubt", workspace.InDoubt}, {"unsent", workspace.NotSent}, {"read", ""},
	} {
		before, err := k.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		reply, err := d.Dispatch(t.Context(), runtime.Call{Server: "s", Tool: c.tool, Attempt: 1})
		want, wantErr := d.next.Dispatch(t.Context(), runtime.Call{Tool: c.tool})
		if reply.Status != want.Status || (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
			t.Errorf("%s: %+v, %v", c.tool, reply, err)
		}
		all, err := k.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if all = all[len(before):]; c.outcome == "" && len(all) != 0 || c.outcome != "" && (len(all) != 1 || all[0].Outcome != c.outcome || all[0].After == "") {
			t.Errorf("%s: %+v", c.tool, all)
		}
	}
	sent = 0
	if err := errors.Join(os.RemoveAll(filepath.Join(k.Aside(), "snapshots")), os.WriteFile(filepath.Join(k.Aside(), "snapshots"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Dispatch(t.Context(), runtime.Call{Tool: "works"}); !errors.Is(err, runtime.ErrNotSent) || sent != 0 {
		t.Errorf("sent %d times without a snapshot: %v", sent, err)
	}
}

// TestWorkspaceOfAServer: what the file can say about the workspace of a server, and which directories
// cannot be one.
func TestWorkspaceOfAServer(t *testing.T) {
	server := "[[server]]\nid = \"s\"\ntype = \"http\"\nurl = \"http://127.0.0.1:1\"\n"
	for text, ok := range map[string]bool{
		"workspace = \"w\"\nworkspace_exclude = [\"a\"]\nworkspace_keep = 0\n": true,
		"workspace_keep = 5\n":                       false,
		"workspace_snapshots = \"x\"\n":              false,
		"workspace_exclude = [\"a\"]\n":              false,
		"workspace = \"w\"\nworkspace_keep = -1\n":   false,
		"workspace = \"w\"\nworkspace_keep = 1000\n": true,
	} {
		c, err := Parse("", []byte(server+text))
		if (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
		if err == nil && Workspace(c, &c.Servers[0]).Dir != "w" {
			t.Errorf("%s: %+v", text, Workspace(c, &c.Servers[0]))
		}
	}
}

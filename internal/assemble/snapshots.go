package assemble

import (
	"context"
	"errors"
	"log/slog"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/workspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Workspace says how the workspace of a server of the file is kept.
func Workspace(c *config.Config, s *config.Server) workspace.Options {
	return workspace.Options{Dir: c.Path(s.Workspace), Aside: c.Path(s.WorkspaceSnapshots), Exclude: s.WorkspaceExclude, Keep: s.WorkspaceKeep}
}

// snapshots takes snapshots of a workspace before and after each send of a write tool. It
// undoes nothing. If the snapshot before a send fails, the call is not sent. If the one after it
// fails, that is logged, and the answer of the call stays as it is.
type snapshots struct {
	next   runtime.Dispatcher
	keeper *workspace.Keeper
	log    *slog.Logger
	reads  func(tool string) bool
}

// Check implements [runtime.Checker].
func (d *snapshots) Check(ctx context.Context, call runtime.Call) error {
	return runtime.Check(ctx, d.next, call)
}

// Prepare implements [runtime.Preparer].
func (d *snapshots) Prepare(ctx context.Context, call runtime.Call) ([]chain.Attachment, error) {
	if p, ok := d.next.(runtime.Preparer); ok {
		return p.Prepare(ctx, call)
	}
	return nil, nil
}

// Dispatch implements [runtime.Dispatcher].
func (d *snapshots) Dispatch(ctx context.Context, call runtime.Call) (runtime.Reply, error) {
	if d.reads(call.Tool) {
		return d.next.Dispatch(ctx, call)
	}
	p, err := d.keeper.Before(ctx, workspace.Call{TraceID: call.TraceID, Attempt: call.Attempt, Server: call.Server, Tool: call.Tool})
	if err != nil {
		return runtime.Reply{}, errors.Join(runtime.ErrNotSent, err)
	}
	reply, err := d.next.Dispatch(ctx, call)
	outcome := workspace.Failed
	switch {
	case errors.Is(err, runtime.ErrNotSent):
		outcome = workspace.NotSent
	case err != nil:
		outcome = workspace.InDoubt
	case reply.Status == tga.StatusSuccess:
		outcome = workspace.Succeeded
	}
	if err := p.After(ctx, outcome); err != nil {
		d.log.Warn("no snapshot after a call", "trace", call.TraceID, "tool_server", call.Server, "tool", call.Tool, "error", err)
	}
	return reply, err
}

package attempt

import (
	"context"

	"github.com/tgad/tgad/internal/workspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// look takes the snapshot of the workspace before a send. If it fails, the call is not sent.
// A call that the log treats as a read has no snapshot.
func (a *Attempt) look(ctx context.Context, b runtime.Begun) (err error) {
	k := a.s.o.Workspace
	if k == nil || a.Keyless {
		return nil
	}
	a.say("taking a snapshot of the workspace")
	a.looked, err = k.Before(ctx, workspace.Call{TraceID: b.Result.TraceID, Attempt: b.Attempt, Server: a.s.o.Server, Tool: a.q.Params.Tool})
	return err
}

// lookAgain takes the snapshot after a send, before the log and the client learn the outcome.
func (a *Attempt) lookAgain(ctx context.Context, outcome string) {
	if a.looked == nil {
		return
	}
	if err := a.looked.After(ctx, outcome); err != nil {
		a.s.Log.Warn("no snapshot after a call", "trace", a.Trace(), "error", err)
	}
	a.looked = nil
}

// cameOut returns the workspace outcome that a reply stands for.
func cameOut(r runtime.Reply) string {
	if r.Status == tga.StatusSuccess {
		return workspace.Succeeded
	}
	return workspace.Failed
}

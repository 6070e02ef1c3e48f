package agent

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/aside"
	"github.com/tgad/tgad/internal/optional"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/tools"
	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/workstate/hostdir"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// permit makes the paths of an agent's workspace absolute and resolves links. It refuses, with
// PERMISSION_DENIED, a path that lies neither beside the manifest's file nor in a directory that
// the operator allows, because a restore removes and overwrites what is there.
func (o Reading) permit(file string, w *turn.WorkspaceSpec) error {
	home, err := realPath(filepath.Dir(file))
	if err != nil {
		return err
	}
	roots := []string{home}
	for _, r := range o.Workspaces {
		if r, err = realPath(r); err != nil {
			return err
		}
		roots = append(roots, r)
	}
	for _, p := range []struct {
		member string
		path   *string
	}{{"directory", &w.Directory}, {"database", &w.Database}} {
		if *p.path == "" {
			continue
		}
		path := *p.path
		if !filepath.IsAbs(path) {
			path = filepath.Join(home, path)
		}
		if path, err = realPath(path); err != nil {
			return err
		}
		if !slices.ContainsFunc(roots, func(root string) bool { return within(root, path) }) {
			return tga.Errorf(tga.PermissionDenied, "the workspace's %s %s is not below %s, where the manifest is: allow it in the configuration with [agent] workspaces = [%q]",
				p.member, path, home, filepath.Dir(path)).At("/spec/workspace/" + p.member)
		}
		*p.path = path
	}
	return nil
}

// realPath returns an absolute path, with links resolved in the part of it that exists. It refuses a link whose target cannot
// be resolved: whoever creates the target later would create it wherever the link leads.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", tga.Errorf(tga.ValidationError, "%s: %w", path, err)
	}
	for up, rest := path, ""; ; up, rest = filepath.Dir(up), filepath.Join(filepath.Base(up), rest) {
		if real, err := filepath.EvalSymlinks(up); err == nil {
			return filepath.Join(real, rest), nil
		} else if _, at := os.Lstat(up); !errors.Is(at, fs.ErrNotExist) || up == filepath.Dir(up) {
			return "", tga.Errorf(tga.ValidationError, "%s: %w", path, err)
		}
	}
}

func within(root, path string) bool {
	rel, err := filepath.Rel(root, path)
	return err == nil && filepath.IsLocal(rel)
}

// workspaces are the working states of a host's agents. Agents with the same workspace share one
// state.
type workspaces struct {
	states map[string]*workstate.State // by agent
	opened []*workstate.State
	files  []io.Closer
}

// openWorkspaces opens the workspaces of agents in a store, and returns the store on which the
// agents' runtime must be built. It undoes what a crash left half done there.
func openWorkspaces(ctx context.Context, store runtime.Store, data string, agents []*turn.Agent, log *slog.Logger) (_ runtime.Store, _ *workspaces, err error) {
	all := &workspaces{states: map[string]*workstate.State{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, all.close())
		}
	}()
	if err := aside.ForgetErased(ctx, store, data); err != nil { // first: a state that has begun anew no longer counts as erased
		return nil, nil, err
	}
	var first []*turn.Agent // the first agent of each workspace
	for _, a := range agents {
		w := a.Workspace
		if w.Directory == "" && w.Database == "" {
			continue
		}
		for _, other := range first {
			o := other.Workspace
			switch {
			case w.Directory == o.Directory && w.Database == o.Database && slices.Equal(w.Exclude, o.Exclude):
				all.states[a.Name] = all.states[other.Name]
			case overlap(w, o):
				return nil, nil, tga.Errorf(tga.ValidationError, "the workspaces of the agents %q and %q overlap and are not the same", other.Name, a.Name)
			}
		}
		if all.states[a.Name] != nil {
			continue
		}
		first = append(first, a)
		state, err := all.open(ctx, store, data, w, log)
		if err != nil {
			return nil, nil, tga.Errorf(cmp.Or(tga.CodeOf(err), tga.ValidationError), "workspace of the agent %q: %w", a.Name, err)
		}
		all.states[a.Name] = state
		store = state.Store()
	}
	return store, all, nil
}

// overlap says that a restore of one workspace would change the other.
func overlap(a, b turn.WorkspaceSpec) bool {
	for _, x := range []string{a.Directory, a.Database} {
		for _, y := range []string{b.Directory, b.Database} {
			if x != "" && y != "" && (within(x, y) || within(y, x)) {
				return true
			}
		}
	}
	return false
}

// open opens the state of a workspace. Its id follows from the paths, so a later process finds
// it. Copies are stored in the store's directory.
func (all *workspaces) open(ctx context.Context, store runtime.Store, data string, w turn.WorkspaceSpec, log *slog.Logger) (*workstate.State, error) {
	sum := tga.Sum([]byte("tgad workspace v1\x00" + w.Directory + "\x00" + w.Database))
	id := tga.MakeID([16]byte(sum[:16]))
	beside := aside.Dir(data, id)
	if err := access.MkdirAll(beside); err != nil {
		return nil, err
	}
	resources := &workstate.Registry{}
	if w.Directory != "" {
		exclude := slices.Clone(w.Exclude)
		if w.Database != "" && within(w.Directory, w.Database) {
			// SQLite restores the database: replacing the file under an open database damages it.
			rel, err := filepath.Rel(w.Directory, w.Database)
			if err != nil {
				return nil, err
			}
			for _, end := range []string{"", "-wal", "-shm", "-journal"} {
				exclude = append(exclude, filepath.ToSlash(rel)+end)
			}
		}
		d, err := hostdir.Open(ctx, w.Directory, filepath.Join(beside, "snapshots"), hostdir.Options{Exclude: exclude})
		if err != nil {
			return nil, err
		}
		all.files = append(all.files, d)
		if err := workstate.Add(resources, d); err != nil {
			return nil, err
		}
	}
	if w.Database != "" {
		f, err := optional.AddDatabase(ctx, resources, w.Database, filepath.Join(beside, "scratch"))
		if f != nil {
			all.files = append(all.files, f)
		}
		if err != nil {
			return nil, err
		}
	}
	state, err := workstate.Open(ctx, store, id, workstate.NewSession(), resources, workstate.Options{Logger: log})
	if err == nil {
		all.opened = append(all.opened, state)
	}
	return state, err
}

func (all *workspaces) close() error {
	if all == nil {
		return nil
	}
	var errs []error
	for _, s := range slices.Backward(all.opened) {
		s.Close()
	}
	for _, f := range all.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// transact returns a dispatcher that makes each call to next a transaction over the workspace of
// the call's agent.
func (all *workspaces) transact(next runtime.Dispatcher) runtime.Dispatcher {
	if len(all.states) == 0 {
		return next
	}
	d := transacted{next: next, of: map[string]runtime.Dispatcher{}}
	for agent, s := range all.states {
		d.of[agent] = workstate.Transact(next, s)
	}
	return d
}

// transacted sends each call through the dispatcher of the agent that makes it.
type transacted struct {
	next runtime.Dispatcher
	of   map[string]runtime.Dispatcher
}

// pick returns the dispatcher of a call. Calls to the tools of an agent's own state are not
// transactions: they do not touch the workspace.
func (d transacted) pick(ctx context.Context, call runtime.Call) runtime.Dispatcher {
	if name, ok := turn.AgentFrom(ctx); ok && d.of[name] != nil && call.Server != tools.StateServer {
		return d.of[name]
	}
	return d.next
}

// Check implements [runtime.Checker].
func (d transacted) Check(ctx context.Context, call runtime.Call) error {
	return runtime.Check(ctx, d.next, call)
}

// Prepare implements [runtime.Preparer].
func (d transacted) Prepare(ctx context.Context, call runtime.Call) ([]chain.Attachment, error) {
	if p, ok := d.pick(ctx, call).(runtime.Preparer); ok {
		return p.Prepare(ctx, call)
	}
	return nil, nil
}

// Dispatch implements [runtime.Dispatcher].
func (d transacted) Dispatch(ctx context.Context, call runtime.Call) (runtime.Reply, error) {
	return d.pick(ctx, call).Dispatch(ctx, call)
}

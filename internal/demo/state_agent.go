//go:build unix

package demo

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/workstate/hostdir"
	"github.com/tgad/tgad/runtime/workstate/sqlitefile"
	"github.com/tgad/tgad/schemas/tga"
)

// agentState is the id of the agent's working state; fixed, so that every process of the
// demo finds it.
const agentState = "01936a8b-4c2d-7000-8000-0000000000a9"

// Edit is an item of the agent's slice of what it has done: it is rolled back.
type Edit struct {
	Tool string `json:"tool"`
	What string `json:"what"`
}

// agent is a small agent that embeds tgad: a workspace, a database, a map, a budget, and
// tools that change them.
type agent struct {
	out   *json.Encoder
	in    io.Reader
	db    *engine.DB
	dir   *hostdir.Dir
	notes *sqlitefile.File
	state *workstate.State
	rt    *runtime.Runtime

	slowBegan, fastDone chan struct{} // of overlap
}

// Agent is the verb of the agent. Its arguments are DIR, and then any number of pairs of a
// tool and its arguments as JSON; overlap is two calls at once. DIR has the workspace (work)
// and the agent's store, snapshots and notes.db. The agent prints a line for each call, and
// at its end a report.
func Agent(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		_, _ = fmt.Fprintln(stderr, "usage: agent DIR [TOOL ARGS]...") // nobody else to tell
		return 2
	}
	if err := agentMain(args[0], args[1:], stdin, stdout); err != nil {
		_, _ = fmt.Fprintln(stderr, "agent:", err) // as above
		return 1
	}
	return 0
}

func agentMain(dir string, calls []string, in io.Reader, out io.Writer) (err error) {
	ctx := context.Background()
	a := &agent{out: json.NewEncoder(out), in: in, slowBegan: make(chan struct{}), fastDone: make(chan struct{})}
	defer func() { err = errors.Join(err, a.close()) }()
	if err := a.open(ctx, dir); err != nil {
		return err
	}
	for len(calls) > 0 {
		tool := calls[0]
		calls = calls[1:]
		if tool == "overlap" {
			if err := a.overlap(ctx); err != nil {
				return err
			}
			continue
		}
		if len(calls) == 0 {
			return fmt.Errorf("%s has no arguments", tool)
		}
		if err := a.call(ctx, tool, calls[0]); err != nil {
			return err
		}
		calls = calls[1:]
	}
	return a.report(ctx)
}

func (a *agent) open(ctx context.Context, dir string) (err error) {
	at := func(name string) string { return filepath.Join(dir, name) }
	if a.db, err = engine.Open(at("store"), engine.Options{MemTableBytes: 4 << 20, FirstSegmentBytes: 64 << 10}); err != nil {
		return err
	}
	if a.dir, err = hostdir.Open(ctx, at("work"), at("snapshots"), hostdir.Options{}); err != nil {
		return err
	}
	if a.notes, err = sqlitefile.Open(ctx, at("notes.db"), at("scratch")); err != nil {
		return err
	}
	r := &workstate.Registry{}
	for _, err := range []error{
		workstate.Add(r, a.dir), workstate.Add(r, a.notes), workstate.Add(r, workstate.NewKV()),
		workstate.Add(r, workstate.NewBudget(workstate.Usage{Calls: 1000})),
	} {
		if err != nil {
			return err
		}
	}
	id, err := tga.ParseID(agentState)
	if err != nil {
		return err
	}
	const dirs = "*github.com/tgad/tgad/runtime/workstate/hostdir.Dir"
	const files = "*github.com/tgad/tgad/runtime/workstate/sqlitefile.File"
	uses := map[string][]string{"refactor": {dirs}, "write": {dirs}, "note": {files}}
	a.state, err = workstate.Open(ctx, a.db, id, workstate.NewSession(), r, workstate.Options{
		Uses: func(_, tool string) []string { return append([]string{}, uses[tool]...) },
	})
	if err != nil {
		return err
	}
	a.rt, err = runtime.New(a.state.Store(), workstate.Transact(a.tools(), a.state), runtime.AllowAll, runtime.Options{})
	return err
}

func (a *agent) close() error {
	if a.state != nil {
		a.state.Close()
	}
	var errs []error
	if a.notes != nil {
		errs = append(errs, a.notes.Close())
	}
	if a.dir != nil {
		errs = append(errs, a.dir.Close())
	}
	if a.db != nil {
		errs = append(errs, a.db.Close())
	}
	return errors.Join(errs...)
}

// called is the line of one call.
type called struct {
	Tool    string   `json:"tool"`
	ID      string   `json:"id"`
	Status  string   `json:"status"`
	Code    tga.Code `json:"code,omitempty"`
	Message string   `json:"message,omitempty"`
}

func (a *agent) call(ctx context.Context, tool, args string) error {
	res, err := a.rt.Call(ctx, runtime.Request{Server: "local", Tool: tool, Key: newID().String(), Args: []byte(args)})
	if err != nil {
		return err
	}
	return a.out.Encode(called{tool, res.ToolCallID.String(), res.Status, res.ErrorCode, res.ErrorMessage})
}

var errBug = errors.New("the refactoring tool has a bug")

func (a *agent) tools() workstate.Tools {
	return workstate.Tools{
		"refactor": workstate.Func(a.refactor),
		"note":     workstate.Func(a.note),
		"write":    workstate.Func(a.write),
		"slow": workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
			close(a.slowBegan)
			if err := remember(ctx, Edit{"slow", "half of it"}); err != nil {
				return nil, err
			}
			<-a.fastDone
			return nil, errBug
		}),
		"fast": workstate.Func(func(ctx context.Context, _ struct{}) (any, error) {
			kv, err := workstate.Use[*workstate.KV](workstate.FromContext(ctx))
			if err != nil {
				return nil, err
			}
			kv.Set("fast", []byte("done"))
			return nil, nil
		}),
	}
}

// remember changes the state in memory. Every tool calls it.
func remember(ctx context.Context, e Edit) error {
	tx := workstate.FromContext(ctx)
	kv, err := workstate.Use[*workstate.KV](tx)
	if err != nil {
		return err
	}
	kv.Set("newest", []byte(e.Tool+" "+e.What))
	return workstate.Slice[Edit](tx.Session()).Append(e)
}

func (a *agent) refactor(ctx context.Context, r refactoring) (any, error) {
	if err := remember(ctx, Edit{"refactor", fmt.Sprint(r.Seed)}); err != nil {
		return nil, err
	}
	// The call holds the turn at the workspace, so it works on the directory itself.
	d, err := workstate.Use[*hostdir.Dir](workstate.FromContext(ctx))
	if err != nil {
		return nil, err
	}
	if err := r.apply(d.Path(), a.stop); err != nil {
		return nil, err
	}
	if r.Fail {
		return nil, errBug
	}
	return r.Seed, nil
}

// stop reports that the tool is in the middle of a write, and never returns: the process is
// killed, or ends when its parent ends.
func (a *agent) stop() error {
	if err := a.out.Encode(map[string]any{"stopped": true}); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, a.in)
	return errors.Join(errors.New("nobody killed the agent"), err)
}

type write struct {
	Path string `json:"path"`
	Text string `json:"text"`
	Fail bool   `json:"fail"`
}

func (a *agent) write(ctx context.Context, w write) (any, error) {
	if err := remember(ctx, Edit{"write", w.Text}); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(a.dir.Path(), w.Path), []byte(w.Text+"\n"), 0o644); err != nil {
		return nil, err
	}
	if w.Fail {
		return nil, errBug
	}
	return nil, nil
}

type note struct {
	Text string `json:"text"`
	Fail bool   `json:"fail"`
}

// note writes to the database over a connection of its own, as any tool would.
func (a *agent) note(ctx context.Context, n note) (_ any, err error) {
	if err := remember(ctx, Edit{"note", n.Text}); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(a.notes.Path()))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.ExecContext(ctx, "create table if not exists notes (text text)"); err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, "insert into notes values (?)", n.Text); err != nil {
		return nil, err
	}
	if n.Fail {
		return nil, errBug
	}
	return nil, nil
}

// overlap makes two calls: slow begins, fast begins, commits and ends, slow fails.
func (a *agent) overlap(ctx context.Context) error {
	slow := make(chan error, 1)
	go func() { slow <- a.call(ctx, "slow", "{}") }()
	select {
	case <-a.slowBegan:
	case err := <-slow:
		return errors.Join(errors.New("the slow call ended before it began"), err)
	}
	err := a.call(ctx, "fast", "{}")
	close(a.fastDone)
	return errors.Join(err, <-slow)
}

// holdings is the agent's state without its workspace.
type holdings struct {
	Edits []string          `json:"edits"`
	Names map[string]string `json:"names"`
	Notes []string          `json:"notes"`
	Spent int64             `json:"spent"` // calls booked
	Calls int               `json:"calls"` // in the log of calls, which a rollback leaves
	Open  int               `json:"open"`  // traces without an effect
}

func (a *agent) report(ctx context.Context) error {
	h := holdings{Names: map[string]string{}}
	err := a.state.View(ctx, func(tx *workstate.Tx) error {
		kv, err := workstate.Use[*workstate.KV](tx)
		if err != nil {
			return err
		}
		budget, err := workstate.Use[*workstate.Budget](tx)
		if err != nil {
			return err
		}
		for key, v := range kv.All() {
			h.Names[key] = string(v)
		}
		edits, err := workstate.Slice[Edit](tx.Session()).All()
		if err != nil {
			return err
		}
		for _, e := range edits {
			h.Edits = append(h.Edits, e.Tool+" "+e.What)
		}
		h.Spent, h.Calls = budget.Spent("").Calls, workstate.Slice[workstate.ToolInvoked](tx.Session()).Len()
		return nil
	})
	if err != nil {
		return err
	}
	for _, err := range a.db.OpenTraces(ctx) {
		if err != nil {
			return err
		}
		h.Open++
	}
	if h.Notes, err = Notes(a.notes.Path()); err != nil {
		return err
	}
	return a.out.Encode(map[string]any{"report": h})
}

// Notes reads the agent's database over a connection of its own.
func Notes(path string) (out []string, err error) {
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(path)+"?mode=ro")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return nil, err
	}
	var n int
	if err := db.QueryRow("select count(*) from sqlite_schema where name = 'notes'").Scan(&n); err != nil || n == 0 {
		return nil, err
	}
	rows, err := db.Query("select text from notes order by rowid")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return out, rows.Err()
}

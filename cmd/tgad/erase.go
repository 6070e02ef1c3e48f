package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// erasing is the verb erase: its flags, and the request that it makes of them.
type erasing struct {
	*app
	what                  wire.EraseRequest
	traces, turns, states []string
	sessions, agents      []string
	yes                   bool
	unread                []turn.Listed
}

func (a *app) erase() *cobra.Command {
	e := &erasing{app: a}
	c := &cobra.Command{
		Use:   "erase --trace TRACE... | --turn TURN... | --session AGENT/SESSION... | --agent AGENT... | --state STATE... | --kept SERVER... | --subject SUBJECT [--namespace NAMESPACE] --reason REASON",
		Short: "Destroy what finished traces carry and what agents hold, and keep what proves it",
		Long: `erase destroys the artifacts and documents of finished traces: arguments, answers, evidence.
Their entries, notes and digests stay, so the log, checkpoints, receipts and bundles verify as
before. A note says who erased them, when, and why.

In a store with a key ring the data key is destroyed, so every copy of the store and every
backup forgets too. In one without, only this disk does.

With --turn the whole invocation that a turn of an agent belongs to is erased: the journals of its
turns, those of the agents that it handed work to, and all their questions and calls. With --session
that of each turn of a session, and the state of the session. With --agent all sessions of an
agent, and the state that it keeps across them. With --state a working state as tgad state ls lists
it, with its forks and all states to which it could be rolled back. With --kept what remote
executors keep about a tool server.

An agent whose state was erased begins with none. Its directories and databases stay as they are.

A trace of a subject that cannot be read is left and named, and the exit code is 1; so is a turn of
which nobody knows whether it is the agent's.

Not erased: ids, times, idempotency keys, names of tool servers and tools, and notes with their
reasons. docs/OPERATIONS.md has the list.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.run(cmd.Context()) },
	}
	f := c.Flags()
	f.StringArrayVar(&e.traces, "trace", nil, "a `TRACE` that has ended; may be repeated")
	f.StringArrayVar(&e.turns, "turn", nil, "a `TURN` of an agent: its whole invocation, which has ended; may be repeated")
	f.StringArrayVar(&e.sessions, "session", nil, "a session of an agent, `AGENT/SESSION`: its turns, which have ended, and its state; may be repeated")
	f.StringArrayVar(&e.agents, "agent", nil, "an `AGENT`: all its sessions, and its state; may be repeated")
	f.StringArrayVar(&e.states, "state", nil, "a working `STATE`, with its forks, that no process has open; may be repeated")
	f.StringArrayVar(&e.what.Kept, "kept", nil, "a tool `SERVER`: what executors keep about it; may be repeated")
	f.StringVar(&e.what.Subject, "subject", "", "every trace whose request names this subject (meta.subject)")
	f.StringVar(&e.what.Namespace, "namespace", "", "of the subject, and of what is kept; absent = default")
	f.StringVar(&e.what.Reason, "reason", "", "why; it stays in the log")
	f.BoolVar(&e.yes, "yes", false, "do not ask")
	return c
}

func (e *erasing) run(ctx context.Context) error {
	var err error
	if e.what.Traces, err = parseIDs(e.traces); err != nil {
		return err
	}
	turns, err := parseIDs(e.turns)
	if err != nil {
		return err
	}
	sessions, err := e.named()
	if err != nil {
		return err
	}
	switch {
	case (len(e.traces)+len(turns)+len(sessions)+len(e.states)+len(e.what.Kept) > 0) == (e.what.Subject != ""):
		return cli.Usagef("name what is to be erased with --trace, --turn, --session, --agent, --state or --kept, or a subject with --subject")
	case e.what.Namespace != "" && e.what.Subject == "" && len(e.what.Kept) == 0:
		return cli.Usagef("--namespace is of a --subject, or of --kept")
	case e.what.Reason == "":
		return cli.Usagef("--reason is required. It stays in the log")
	case !e.yes && !e.agreed("What is erased cannot be brought back. Erase it?"):
		return cli.Usagef("not erased: answer y, or use --yes")
	}
	return e.ask(ctx, func(ctx context.Context, c *client.Client) error {
		for _, id := range turns {
			turns, traces, err := turn.Parts(ctx, c, id, hasTrace(c))
			if err != nil {
				return err
			}
			e.what.Turns, e.what.Traces = append(e.what.Turns, turns...), append(e.what.Traces, traces...)
		}
		if err := e.whole(ctx, c, sessions); err != nil {
			return err
		}
		if err := e.resting(ctx, c); err != nil {
			return err
		}
		if len(e.unread) > 0 && len(e.what.Turns)+len(e.what.Traces)+len(e.what.Agents)+len(e.what.States)+len(e.what.Kept) == 0 {
			return sayErased(e, wire.Erased{})
		}
		done, err := c.Erase(ctx, e.what)
		if err != nil {
			return err
		}
		return sayErased(e, done)
	})
}

// named returns the sessions of --session and --agent. A session without an id stands for all sessions
// of its agent.
func (e *erasing) named() (all []turn.Session, err error) {
	for _, s := range e.sessions {
		agent, id, ok := strings.Cut(s, "/")
		if !ok || agent == "" || id == "" {
			return nil, cli.Usagef("--session %q: want AGENT/SESSION", s)
		}
		all = append(all, turn.Session{Agent: agent, ID: id})
	}
	for _, agent := range e.agents {
		if agent == "" {
			return nil, cli.Usagef("--agent: which one?")
		}
		all = append(all, turn.Session{Agent: agent})
	}
	return all, nil
}

// whole adds the turns, traces and states of the sessions to the request.
func (e *erasing) whole(ctx context.Context, c *client.Client, sessions []turn.Session) error {
	for _, s := range sessions {
		var w turn.Whole
		var err error
		if s.ID == "" {
			w, err = turn.WholeAgent(ctx, c, s.Agent, hasTrace(c))
		} else {
			w, err = turn.WholeSession(ctx, c, s, hasTrace(c))
		}
		if err != nil {
			return err
		}
		e.what.Turns, e.what.Traces = append(e.what.Turns, w.Turns...), append(e.what.Traces, w.Traces...)
		for _, s := range w.States {
			e.what.Agents = append(e.what.Agents, wire.AgentState{Agent: s.Agent, Session: s.ID})
		}
		e.unread = append(e.unread, w.Unread...)
	}
	return nil
}

// resting adds the named working states, with their forks. It refuses a state of which a call has not
// ended: the content from before that call is still needed to undo the call, and would be erased.
func (e *erasing) resting(ctx context.Context, c *client.Client) error {
	if len(e.states) == 0 {
		return nil
	}
	list, err := workstate.States(ctx, c)
	if err != nil {
		return err
	}
	for _, name := range e.states {
		id, number, err := cli.ParseState(name)
		if err != nil {
			return err
		}
		if number != 0 {
			return cli.Usagef("--state %s: a fork is erased with the state that it was made of, %s", name, id)
		}
		for _, s := range list {
			if s.ID == id && s.Open > 0 {
				return tga.Errorf(tga.StateInvalidTransition, "erase working state %s: a call of it has not ended. Start its agent, which undoes the call", id)
			}
		}
		e.what.States = append(e.what.States, id)
	}
	return nil
}

// hasTrace asks a daemon whether there is a trace.
func hasTrace(c *client.Client) turn.Exists {
	return func(ctx context.Context, id tga.ID) (bool, error) {
		_, err := c.Trace(ctx, id)
		if errors.Is(err, tga.NotFound) {
			return false, nil
		}
		return err == nil, err
	}
}

// sayErased prints what an erasure did. Its error sets exit code 1 if something is left.
func sayErased(a *erasing, done wire.Erased) error {
	var left, unsaid error
	for _, u := range a.unread {
		what := fmt.Sprintf("turn %s cannot be read, and is left: nobody knows whether it is the agent's: ", u.InteractionID)
		unsaid = errors.Join(unsaid, a.Aside(what, u.Err))
	}
	if done.Left > 0 || len(a.unread) > 0 {
		left = cli.Silent(cli.ExitError)
	}
	if unsaid != nil {
		left = unsaid // the user was not told what is left: report that error instead
	}
	if a.JSON {
		if err := a.message(done); err != nil {
			return err
		}
		return left
	}
	a.Printf("erased %d traces, destroyed %d keys\n", done.Traces, done.Keys)
	for _, line := range []struct {
		n    int
		text string
	}{
		{done.Turns, "%d turns of agents were erased\n"},
		{done.States, "%d states were erased: of agents, and working states\n"},
		{done.Kept, "what was kept about %d tool servers was erased\n"},
		{done.Already, "%d traces, turns or states were erased before\n"},
		{done.Shared, "%d traces share the key of a subject. The key was not destroyed, so copies of the store and backups can still be read. Erase the subject to destroy it\n"},
		{done.Unsealed, "%d traces or states were not sealed: copies of the store and backups still have what they carried\n"},
		{done.Left, "%d traces cannot be read, and are left as they are:\n"},
	} {
		if line.n > 0 {
			a.Printf(line.text, line.n)
		}
	}
	for _, u := range done.Unread {
		a.Printf("  %s %s: %s\n", u.TraceID, u.Code, cli.Clean(u.Detail))
	}
	return left
}

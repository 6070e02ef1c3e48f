//go:build unix

package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"time"
)

// stateShow is the scenario about what an agent holds.
type stateShow struct {
	*show
	work string
	draw *rand.Rand
}

// RunState runs the scenario state: a refactoring tool that fails, and is killed, in the
// middle of rewriting a workspace; one that succeeds; a rollback; calls side by side. The
// witness is a digest of every file, made without tgad.
func RunState(ctx context.Context, o Options) (failed int, err error) {
	start := time.Now()
	s := &stateShow{show: &show{printer: printer{w: o.Out, json: o.JSON, colour: o.Colour}, Options: o}, draw: rand.New(rand.NewPCG(o.Seed, 2))}
	if err = s.makeDir(""); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.dropDir()) }()
	s.work = filepath.Join(s.dir, "work")
	if err := layWorkspace(s.work, o.Seed); err != nil {
		return 0, err
	}
	s.text("%s", s.bold("tgad demo --scenario state"))
	s.text("An agent with a workspace, a refactoring tool, and kill -9.")
	s.text("The workspace is compared file by file, without tgad.")
	for _, part := range []func(context.Context) error{s.failing, s.killed, s.succeeding, s.rolledBack, s.sideBySide} {
		if err := part(ctx); err != nil {
			return s.failed(), err
		}
	}
	s.summary(time.Since(start))
	return s.failed(), nil
}

// agent runs the agent with calls and returns the result of each call, and the report.
func (s *stateShow) agent(ctx context.Context, args ...string) (calls []called, h holdings, err error) {
	cmd := exec.CommandContext(ctx, s.Lab, append([]string{"agent", s.dir}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, h, fmt.Errorf("agent %s: %w", strings.Join(args, " "), err)
	}
	for line := range strings.Lines(string(out)) {
		var l struct {
			called
			Report *holdings `json:"report"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			return nil, h, err
		}
		if l.Report != nil {
			h = *l.Report
		} else {
			calls = append(calls, l.called)
		}
	}
	return calls, h, nil
}

// command runs a verb of tgad on the agent's store.
func (s *stateShow) command(ctx context.Context, args ...string) (string, int, error) {
	w := world{exe: s.Exe, data: filepath.Join(s.dir, "store")}
	return w.command(ctx, args...)
}

// same claims that the workspace is what it was.
func (s *stateShow) same(was manifest, claim string) error {
	is, err := manifestOf(s.work)
	if err != nil {
		return err
	}
	d := was.differs(is)
	s.claim(len(d) == 0, claim, "%d paths differ: %v", len(d), d)
	return nil
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// unchanged reports whether two reports differ in the logs alone.
func unchanged(a, b holdings) bool {
	a.Calls, a.Open, b.Calls, b.Open = 0, 0, 0, 0
	return reflect.DeepEqual(a, b)
}

// failing is part 1: a tool that fails leaves nothing.
func (s *stateShow) failing(ctx context.Context) error {
	s.title("A refactoring rewrites the workspace, wipes .env, and fails")
	was, err := manifestOf(s.work)
	if err != nil {
		return err
	}
	_, before, err := s.agent(ctx)
	if err != nil {
		return err
	}
	calls, after, err := s.agent(ctx, "refactor", text(refactoring{Seed: 1, Fail: true}), "note", text(note{Text: "lost", Fail: true}))
	if err != nil {
		return err
	}
	s.step("agent", "refactor: %s; note: %s", calls[0].Status, calls[1].Status)
	s.claim(calls[0].Status == "FAILURE" && calls[1].Status == "FAILURE", "both calls failed", "%+v", calls)
	if err := s.same(was, fmt.Sprintf("the workspace is as before, %d paths, byte for byte", len(was))); err != nil {
		return err
	}
	hidden := ignored(s.work, ".env")
	s.claim(hidden, "with the .env that git ignores", "ignored: %v", hidden)
	s.claim(unchanged(before, after), "plan, map, database and budget are as before", "%+v, were %+v", after, before)
	s.claim(after.Calls == 2, "the log of calls keeps both", "%d calls", after.Calls)
	return nil
}

// killed is part 2: a tool that is killed leaves nothing either.
func (s *stateShow) killed(ctx context.Context) error {
	kills := max(1, s.Points)
	s.title(fmt.Sprintf("The agent is killed in mid-write, %d times", kills))
	was, err := manifestOf(s.work)
	if err != nil {
		return err
	}
	_, before, err := s.agent(ctx)
	if err != nil {
		return err
	}
	broken, back, kept := 0, 0, 0
	var first []string
	for i := range kills {
		r := refactoring{Seed: uint64(100 + i), Stop: 1 + s.draw.IntN(workspaceFiles-1)}
		if err := s.strikeAgent(ctx, r); err != nil {
			return err
		}
		left, err := manifestOf(s.work)
		if err != nil {
			return err
		}
		if d := was.differs(left); len(d) > 0 {
			broken++
			if first == nil {
				first = d
			}
		}
		_, after, err := s.agent(ctx)
		if err != nil {
			return err
		}
		is, err := manifestOf(s.work)
		if err != nil {
			return err
		}
		if len(was.differs(is)) == 0 {
			back++
		}
		if unchanged(before, after) && after.Open == before.Open+i+1 {
			kept++
		}
	}
	s.step("agent", "kill -9 with half a file written: %d paths broken the first time", len(first))
	s.claim(broken == kills, "each kill left a workspace that was neither before nor after", "%d of %d", broken, kills)
	s.claim(back == kills, "each next start put it back, byte for byte", "%d of %d", back, kills)
	s.claim(kept == kills, "plan, map and budget too; the log says each call is in doubt", "%d of %d", kept, kills)
	return nil
}

// strikeAgent starts a refactoring and kills the agent in the middle of a file. The tool
// stops there by itself, so that the kill comes at the same place on any machine.
func (s *stateShow) strikeAgent(ctx context.Context, r refactoring) error {
	cmd := exec.CommandContext(ctx, s.Lab, "agent", s.dir, "refactor", text(r))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe() // open: the tool waits for its end
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.Contains(line, "stopped") {
		err = errors.Join(fmt.Errorf("the tool does not get to the middle of file %d: %q", r.Stop, line), err)
	}
	err = errors.Join(err, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	_ = in.Close() // Wait has closed it
	return err
}

// succeeding is part 3: a tool that succeeds leaves everything.
func (s *stateShow) succeeding(ctx context.Context) error {
	s.title("The same refactoring succeeds")
	r := refactoring{Seed: 2}
	twin := filepath.Join(s.dir, "twin")
	if err := layWorkspace(twin, s.Seed); err != nil {
		return err
	}
	if err := r.apply(twin, nil); err != nil {
		return err
	}
	want, err := manifestOf(twin)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(twin); err != nil {
		return err
	}
	calls, h, err := s.agent(ctx, "refactor", text(r))
	if err != nil {
		return err
	}
	s.step("agent", "refactor: %s", calls[0].Status)
	if err := s.same(want, "the workspace is what the tool makes of it without tgad"); err != nil {
		return err
	}
	s.claim(len(h.Edits) == 1 && h.Spent == 1, "the plan and the budget have the call", "%+v", h)
	return nil
}

// rolledBack is part 4: back to before the second of three calls, and undone again.
func (s *stateShow) rolledBack(ctx context.Context) error {
	s.title("Three calls; back to before the second, with tgad state rollback")
	_, _, err := s.agent(ctx, "refactor", text(refactoring{Seed: 3}))
	if err != nil {
		return err
	}
	first, err := manifestOf(s.work)
	if err != nil {
		return err
	}
	_, held, err := s.agent(ctx)
	if err != nil {
		return err
	}
	calls, third, err := s.agent(ctx, "note", text(note{Text: "second"}), "refactor", text(refactoring{Seed: 4}))
	if err != nil {
		return err
	}
	last, err := manifestOf(s.work)
	if err != nil {
		return err
	}
	out, code, err := s.command(ctx, "state", "rollback", agentState, calls[0].ID, "--yes")
	if err != nil {
		return err
	}
	s.step("operator", "tgad state rollback STATE CALL --yes: exit code %d", code)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	words := strings.Fields(lines[len(lines)-1])
	if code != 0 || len(words) == 0 {
		return fmt.Errorf("tgad state rollback: exit code %d: %s", code, out)
	}
	undo := words[len(words)-1]
	if err := s.same(first, "the workspace is as the first call left it"); err != nil {
		return err
	}
	_, back, err := s.agent(ctx)
	if err != nil {
		return err
	}
	s.claim(unchanged(held, back), "plan, map, database and budget too", "%+v, were %+v", back, held)
	s.claim(back.Calls == third.Calls, "the log of calls is kept", "%d calls, were %d", back.Calls, third.Calls)
	out, code, err = s.command(ctx, "state", "rollback", agentState, undo, "--yes")
	if err != nil {
		return err
	}
	s.step("operator", "tgad state rollback to before that rollback: exit code %d", code)
	if code != 0 {
		return fmt.Errorf("tgad state rollback: exit code %d: %s", code, out)
	}
	if err := s.same(last, "the rollback is undone: the workspace is as the third call left it"); err != nil {
		return err
	}
	_, again, err := s.agent(ctx)
	if err != nil {
		return err
	}
	s.claim(unchanged(third, again), "and the rest of the state", "%+v, were %+v", again, third)
	return nil
}

// sideBySide is part 5: one call fails, one that ran inside its time has committed.
func (s *stateShow) sideBySide(ctx context.Context) error {
	s.title("Two calls at once: one commits, the other fails after it")
	_, before, err := s.agent(ctx)
	if err != nil {
		return err
	}
	calls, after, err := s.agent(ctx, "overlap")
	if err != nil {
		return err
	}
	status := map[string]string{}
	for _, c := range calls {
		status[c.Tool] = c.Status
	}
	s.step("agent", "fast: %s, then slow: %s", status["fast"], status["slow"])
	s.claim(status["fast"] == "SUCCESS" && status["slow"] == "FAILURE", "fast committed while slow was under way, and slow failed", "%v", status)
	s.claim(after.Names["fast"] == "done", "what fast wrote stands", "%v", after.Names)
	delete(after.Names, "fast")
	before.Spent++ // fast's
	s.claim(unchanged(before, after), "of slow there is nothing left", "%+v, were %+v", after, before)
	return nil
}

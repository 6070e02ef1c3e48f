//go:build unix

package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// trust is the scenario about what the log alone cannot know.
type trust struct {
	*show
	w        *world
	provider *exec.Cmd
	journal  string
	files    string
}

// RunTrust runs the scenario trust: a provider that loses acknowledgements, a file that
// is deleted behind our back, an approval that outlives a kill, a booking that is undone.
func RunTrust(ctx context.Context, o Options) (failed int, err error) {
	start := time.Now()
	s := &show{printer: printer{w: o.Out, json: o.JSON, colour: o.Colour}, Options: o}
	t := &trust{show: s}
	defer func() { err = errors.Join(err, t.end()) }()
	if err := t.begin(ctx); err != nil {
		return 0, err
	}
	s.text("%s", s.bold("tgad demo --scenario trust"))
	s.text("A provider with a journal of its own, the daemon, and kill -9.")
	for _, part := range []func(context.Context) error{t.lostAnswers, t.deletedFile, t.approval, t.undone} {
		if err := part(ctx); err != nil {
			return s.failed(), err
		}
	}
	s.summary(time.Since(start))
	return s.failed(), nil
}

func (t *trust) begin(ctx context.Context) error {
	err := t.makeDir("")
	if err != nil {
		return err
	}
	t.journal, t.files = filepath.Join(t.dir, "provider.journal"), filepath.Join(t.dir, "files")
	address := filepath.Join(t.dir, "provider.address")
	if err := errors.Join(os.MkdirAll(t.files, 0o750), os.RemoveAll(address)); err != nil {
		return err
	}
	t.provider = exec.Command(t.Lab, "provider", "--listen", address, "--journal", t.journal, "--files", t.files)
	t.provider.Stderr = os.Stderr
	if err := t.provider.Start(); err != nil {
		return err
	}
	var at []byte
	for until := time.Now().Add(30 * time.Second); at == nil; time.Sleep(2 * time.Millisecond) {
		if at, err = os.ReadFile(address); err != nil && time.Now().After(until) {
			return fmt.Errorf("the provider does not listen: %w", err)
		}
	}
	if t.w, err = newWorld(t.Exe, t.Lab, filepath.Join(t.dir, "trust")); err != nil {
		return err
	}
	text := fmt.Sprintf(trustConfig, "http://"+string(at), strconv.Quote(filepath.Join(t.dir, "capability.pem")), strconv.Quote(t.files))
	if err := os.WriteFile(t.w.config, []byte(text), 0o640); err != nil {
		return err
	}
	return t.w.start(ctx)
}

func (t *trust) end() error {
	err := t.w.close()
	if t.provider != nil && t.provider.Process != nil {
		err = errors.Join(err, t.provider.Process.Kill())
		_ = t.provider.Wait() // it was killed
	}
	return errors.Join(err, t.dropDir())
}

// trustConfig is the operator's configuration. %[1]s is the provider, %[2]s the key file of
// capabilities, %[3]s the directory that the tool write writes in.
const trustConfig = `[store]
memtable_bytes = "4MiB"

[capability]
key_file = %[2]s

[approval]
self = true # one person plays everybody here

[[server]]
id = "provider"
type = "http"
url = "%[1]s"

# The provider does not deduplicate. It can be asked whether a key ran, and asking ends
# the attempts made so far.
[[tool]]
server = "provider"
name = "*"
licence = "probe"

[tool.probe]
first = "50ms"
max = "1s"

[[prober]]
server = "provider"
tool = "*"
type = "http"
method = "POST"
url = "%[1]s/claims"
body = { tool = "tool", key = "key" }
fences = true

[[prober.ran]]
check = [{ pointer = "/ran", equals = "true" }]

[[prober.not_ran]]
check = [{ pointer = "/ran", equals = "false" }]

[prober.reply]
result = "/answer"

[[tool]]
server = "provider"
name = "book"
licence = "probe"

[tool.probe]
first = "50ms"
max = "1s"

[tool.inverse]
name = "cancel"
args = '{"booking":"{/result/id}","think_ms":200}'
` + writeTool + `
[[verifier]]
resource_type = "file"
type = "file"
root = %[3]s

[[rule]]
risk = "HIGH_RISK"
decision = "NEEDS_APPROVAL"
rationale = "a high-risk payment needs a person"

[[rule]]
server = "provider"
decision = "APPROVE"
rationale = "the provider's calls are approved"
`

// writeTool is a part of the configuration whose replay mode the scenario changes.
const writeTool = `
[[tool]]
server = "provider"
name = "write"
licence = "probe"
replay = "strict"
change = [{ resource_type = "file", resource_id = "{/result/path}", operation = "create", version = "{/result/sha256}" }]
`

// call makes a call and returns its result.
func (t *trust) call(ctx context.Context, tool, args, key string, more func(*runtime.Request)) (runtime.Result, error) {
	req := runtime.Request{Server: "provider", Tool: tool, Args: []byte(args), Key: key}
	if more != nil {
		more(&req)
	}
	return t.w.client.Call(ctx, req)
}

// restart kills the daemon and starts it again.
func (t *trust) restart(ctx context.Context) error {
	if err := t.w.kill(); err != nil {
		return err
	}
	return t.w.start(ctx)
}

// until calls done again and again until it returns true or three minutes are over.
func until(ctx context.Context, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// lostAnswers is part 1: calls that were lost on the way, or whose answer was lost, some of
// them with a kill in the middle. tgad resolves them by asking the tool server.
func (t *trust) lostAnswers(ctx context.Context) error {
	t.title("Lost answers, lost calls and kill -9: the provider is asked")
	calls := max(t.Points, 2)
	for i := range calls {
		key := fmt.Sprintf("order-%d", i)
		args := `{"think_ms":30,"lose_answer":true}`
		if i%2 == 1 {
			args = `{"lose_call":true}`
		}
		done := make(chan error, 1)
		go func() {
			_, err := t.call(ctx, "charge", args, key, nil)
			done <- err
		}()
		if i%2 == 0 {
			err := until(ctx, func() (bool, error) {
				n, err := acts(t.journal, "received", "charge", key)
				return n > 0, err
			})
			if err == nil && i%4 == 0 { // half of these die in mid call
				err = t.restart(ctx)
			}
			if err != nil {
				return err
			}
		}
		<-done // killed, in doubt or answered: the journal and the log are checked below
	}
	var left []wire.OpenTrace
	err := until(ctx, func() (bool, error) {
		var err error
		left, err = t.w.client.InDoubt(ctx)
		return len(left) == 0, err
	})
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	double, missing := 0, 0
	for i := range calls {
		n, err := acts(t.journal, "acted", "charge", fmt.Sprintf("order-%d", i))
		if err != nil {
			return err
		}
		switch {
		case n > 1:
			double++
		case n == 0:
			missing++
		}
	}
	t.step("caller", "%d charges: half lost their answer, half were lost on the way;\n%d times the daemon was killed in mid call", calls, (calls+3)/4)
	t.claim(len(left) == 0, "every call is settled, by asking alone", "%d in doubt", len(left))
	t.claim(double == 0 && missing == 0, "each was charged once, says the provider's journal", "%d double, %d missing", double, missing)
	return nil
}

// deletedFile is part 2: a record says that a file is there, and it is not.
func (t *trust) deletedFile(ctx context.Context) error {
	t.title("A file is deleted behind our back, then the record is replayed")
	for _, mode := range []string{"strict", "warn", "human"} {
		if err := t.mode(ctx, mode); err != nil {
			return err
		}
		key, name := "report-"+mode, "report-"+mode+".txt"
		args := fmt.Sprintf(`{"path":%q,"text":"quarterly report"}`, name)
		first, err := t.call(ctx, "write", args, key, nil)
		if err != nil {
			return err
		}
		again := func(r *runtime.Request) { r.Replay = true }
		intact, err := t.call(ctx, "write", args, key, again)
		if err != nil {
			return err
		}
		t.claim(intact.Confirmation != nil && intact.Confirmation.Checked == 1 && len(intact.Confirmation.Mismatches) == 0,
			mode+": while the file is there, the replay is confirmed and served", "%+v", intact.Confirmation)
		if err := os.Remove(filepath.Join(t.files, name)); err != nil {
			return err
		}
		res, err := t.call(ctx, "write", args, key, again)
		switch mode {
		case "strict":
			t.claim(errors.Is(err, tga.ConfirmationMismatch) && res.Value == nil, "strict: the replay fails; nothing is served or written", "%v", err)
		case "warn":
			t.claim(err == nil && res.Confirmation != nil && len(res.Confirmation.Mismatches) == 1, "warn: served, and the mismatch is reported", "%v, %+v", err, res.Confirmation)
		case "human":
			t.claim(errors.Is(err, tga.ConfirmationRequired), "human: the replay waits for a person", "%v", err)
			if err := t.restart(ctx); err != nil {
				return err
			}
			list, err := t.w.client.Approvals(ctx)
			if err != nil {
				return err
			}
			out, code, err := t.w.command(ctx, "approve", first.TraceID.String(), "--rationale", "archived on purpose, it may go")
			if err != nil {
				return err
			}
			t.step("operator", "kill -9, restart, tgad approve: exit code %d", code)
			served, err := t.call(ctx, "write", args, key, again)
			t.claim(len(list) == 1 && err == nil && served.ServedFrom == first.TraceID, "human: the question survives kill -9; answered, it is served", "%d questions, %s, %v", len(list), firstLine(out), err)
		}
		n, err := acts(t.journal, "acted", "write", key)
		if err != nil {
			return err
		}
		t.claim(n == 1, mode+": the file was written once, whatever happened", "%d writes", n)
	}
	return nil
}

// mode restarts the daemon with another replay mode of the tool write.
func (t *trust) mode(ctx context.Context, mode string) error {
	text, err := os.ReadFile(t.w.config)
	if err != nil {
		return err
	}
	if err := t.w.stop(); err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, "replay = ") {
			lines[i] = "replay = " + strconv.Quote(mode)
		}
	}
	if err := os.WriteFile(t.w.config, []byte(strings.Join(lines, "\n")), 0o640); err != nil {
		return err
	}
	return t.w.start(ctx)
}

// approval is part 3: an approval survives kill -9, and is for this call and no other.
func (t *trust) approval(ctx context.Context) error {
	t.title("An approval survives kill -9, and is for these arguments only")
	trace := newID()
	risky := func(r *runtime.Request) { r.TraceID, r.Risk = trace, tga.RiskHigh }
	_, err := t.call(ctx, "charge", `{"amount":900}`, "vip", risky)
	waits := errors.Is(err, tga.EscalationRequired)
	if err := t.restart(ctx); err != nil {
		return err
	}
	list, err := t.w.client.Approvals(ctx)
	if err != nil {
		return err
	}
	t.claim(waits && len(list) == 1 && list[0].TraceID == trace, "the request waits for a person, also after kill -9", "%d waiting", len(list))
	out, code, err := t.w.command(ctx, "approve", trace.String(), "--rationale", "checked with the customer")
	if err != nil {
		return err
	}
	t.step("operator", "tgad approve: exit code %d", code)
	said, err := t.w.client.Trace(ctx, trace)
	if err != nil {
		return err
	}
	capability := false
	for _, e := range said.Entries {
		a, err := tga.DecodeArtifact(e.Artifact, tga.Limits{})
		if err != nil {
			return err
		}
		capability = capability || a.Decision != nil && a.Decision.MintedCapability != ""
	}
	n, err := acts(t.journal, "acted", "charge", "vip")
	if err != nil {
		return err
	}
	t.claim(code == 0 && capability && n == 1, "approved: a signed capability is in the log, and the call is made once", "exit code %d, capability %v, %d charges: %s", code, capability, n, firstLine(out))
	_, err = t.call(ctx, "charge", `{"amount":9000}`, "vip", risky)
	changed := err != nil
	_, err2 := t.call(ctx, "charge", `{"amount":9000}`, "vip", nil)
	if n, err = acts(t.journal, "received", "charge", "vip"); err != nil {
		return err
	}
	t.claim(changed && errors.Is(err2, tga.IdempotencyKeyConflict) && n == 1, "the same approval with other arguments is refused; nothing is sent", "%v, %v, %d received", changed, err2, n)
	return nil
}

// undone is part 4: a booking is cancelled once, in spite of a kill in the middle.
func (t *trust) undone(ctx context.Context) error {
	t.title("A booking is undone, and the daemon is killed while it is")
	booked, err := t.call(ctx, "book", `{}`, "trip", nil)
	if err != nil {
		return err
	}
	plan, code, err := t.w.command(ctx, "rollback-plan", booked.TraceID.String())
	if err != nil {
		return err
	}
	t.step("operator", "tgad rollback-plan: exit code %d", code)
	t.quote(plan)
	done := make(chan error, 1)
	go func() {
		_, _, err := t.w.command(ctx, "compensate", booked.TraceID.String())
		done <- err
	}()
	err = until(ctx, func() (bool, error) {
		n, err := acts(t.journal, "received", "cancel", "")
		return n > 0, err
	})
	if err != nil {
		return err
	}
	if err := t.restart(ctx); err != nil {
		return err
	}
	if err := <-done; err != nil {
		return err
	}
	t.step("operator", "kill -9 while the provider cancels; restart; tgad compensate again")
	var out string
	err = until(ctx, func() (bool, error) {
		var err error
		out, code, err = t.w.command(ctx, "compensate", booked.TraceID.String())
		return code == 0, err
	})
	if err != nil {
		return fmt.Errorf("compensate: exit code %d: %s: %w", code, out, err)
	}
	cancelled, err := acts(t.journal, "acted", "cancel", "")
	if err != nil {
		return err
	}
	t.claim(cancelled == 1, "the booking was cancelled once", "%d times", cancelled)
	again, err := t.call(ctx, "book", `{}`, "trip", nil)
	t.claim(err == nil && !again.CompensatedBy.IsZero(), "serving the booking's record says that it was undone", "%v, %+v", err, again)
	verify, code, err := t.w.command(ctx, "verify")
	if err != nil {
		return err
	}
	t.claim(code == 0, "the log verifies after all that", "exit code %d: %s", code, firstLine(verify))
	return nil
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

func (a *app) call() *cobra.Command {
	var (
		req                runtime.Request
		trace, plan, agent string
		argsFile           string
		timeout, reconnect time.Duration
		deadline           time.Duration
	)
	c := &cobra.Command{
		Use:   "call SERVER TOOL [ARGS]",
		Short: "Make one governed tool call",
		Long: `call makes one governed tool call and prints the tool's answer. ARGS is a JSON
object; "-" reads it from stdin.

The same key again is the same call: it gets the recorded answer and the tool is not
called. A call that ends in doubt exits 4: it may have run. Repeat it with the same
key, or settle it with resolve or abandon. It exits 4 too when the daemon goes away, you
press Ctrl-C, or --timeout is over while the call is under way: the message has the trace
id. --timeout is how long you wait; --deadline is until when the call may be sent at all.`,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Server, req.Tool = args[0], args[1]
			var err error
			if req.Args, err = a.callArgs(args[2:], argsFile); err != nil {
				return err
			}
			// Made here: a caller that loses the answer knows the trace and can ask again.
			req.TraceID = tga.ID(uuid.Must(uuid.NewV7()))
			for _, f := range []struct {
				text string
				id   *tga.ID
			}{{trace, &req.TraceID}, {plan, &req.PlanID}, {agent, &req.AgentID}} {
				if f.text == "" {
					continue
				}
				if *f.id, err = cli.ParseID(f.text); err != nil {
					return err
				}
			}
			if cmd.Flags().Changed("deadline") {
				if deadline <= 0 {
					return cli.Usagef("--deadline %s: want a positive duration", deadline)
				}
				req.Deadline = time.Now().Add(deadline)
			}
			if timeout <= 0 || reconnect < 0 { // a call that was not made is not one that may have run
				return cli.Usagef("--timeout %s, --reconnect %s: want a positive duration", timeout, reconnect)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return a.ask(ctx, func(ctx context.Context, c *client.Client) error {
				res, err := a.callUntil(ctx, c, req, time.Now().Add(reconnect))
				if err := a.result(res, err); err != nil || req.Scope == "" || req.Key != "" {
					return err
				}
				// Confirm the delivery only after printing: an answer that was not printed
				// was not delivered.
				return c.Delivered(ctx, res.TraceID)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&req.Key, "key", "", "idempotency key: the same for every repeat of one intended call")
	f.StringVar(&argsFile, "args-file", "", "read ARGS from a `file`")
	f.StringVar(&trace, "trace", "", "trace id: go on with that trace, or use it for a new one")
	f.StringVar(&plan, "plan", "", "plan id")
	f.StringVar(&agent, "agent", "", "agent id")
	f.StringVar(&req.Namespace, "namespace", "", "namespace (default: yours)")
	f.StringVar(&req.Risk, "risk", "", "READ, WRITE or HIGH_RISK")
	f.StringVar(&req.Intent, "intent", "", "why, in 10 to 1000 characters")
	f.StringVar(&req.Scope, "scope", "", "without --key: the job or conversation that the key is made of")
	f.StringVar(&req.Step, "step", "", "with --scope: the step in it; the same call in it is a repeat until its answer is printed")
	f.BoolVar(&req.Replay, "replay", false, "look whether what a recorded call changed still stands, before its answer is served")
	f.BoolVar(&req.Fresh, "fresh", false, "the key was never used: what a store in quarantine asks for")
	f.BoolVar(&req.Retry, "retry", false, "a new attempt where the key is settled as a retryable failure")
	f.DurationVar(&timeout, "timeout", time.Minute, "how long to wait for the answer; the call goes on")
	f.DurationVar(&deadline, "deadline", 0, "from now: the call is not sent later than that, after an approval or a restart either (default: none)")
	f.DurationVar(&reconnect, "reconnect", 0, "while the daemon is away, ask again for this long")
	return c
}

func (a *app) callArgs(args []string, file string) ([]byte, error) {
	var raw []byte
	var err error
	switch {
	case file != "" && len(args) > 0:
		return nil, cli.Usagef("give ARGS or --args-file, not both")
	case file != "":
		raw, err = os.ReadFile(file)
	case len(args) == 0:
		return nil, nil
	case args[0] == "-":
		raw, err = io.ReadAll(a.In)
	default:
		raw = []byte(args[0])
	}
	if err != nil {
		return nil, err
	}
	// The text is inserted into the request as it is. If it were not one JSON value, it could
	// add members to the request.
	if !json.Valid(raw) {
		return nil, cli.Usagef("ARGS is not JSON: %.60q", raw)
	}
	return raw, nil
}

// callUntil makes the call, and repeats it until the time is over while no daemon answers
// or the daemon is not ready yet. A repeat has the same trace id, so it is the same call,
// whatever became of the first one.
func (a *app) callUntil(ctx context.Context, c *client.Client, req runtime.Request, until time.Time) (runtime.Result, error) {
	lost := false // a request was sent, and has no answer
	for {
		res, err := c.Call(ctx, req)
		lost = lost || unanswered(err)
		again := errors.Is(err, tga.StoreUnavailable)
		if again && ctx.Err() == nil && time.Now().Before(until) {
			select {
			case <-time.After(50 * time.Millisecond):
				continue
			case <-ctx.Done():
			}
		}
		if lost && again {
			return res, a.lostAnswer(req.TraceID, err)
		}
		return res, err
	}
}

// unanswered reports whether a request may have reached the daemon but got no answer.
func unanswered(err error) bool {
	if !errors.Is(err, tga.StoreUnavailable) {
		return false // an answer, or a request that could not be made
	}
	if _, answered := client.ProblemIn(err); answered {
		return false
	}
	var dial *net.OpError
	return !errors.As(err, &dial) || dial.Op != "dial"
}

// lostAnswer makes the error of a call whose request was sent and whose answer never came.
// The error says how to ask for the answer.
func (a *app) lostAnswer(trace tga.ID, cause error) error {
	return caused(cause, tga.EffectInDoubt, "no answer came, and the call may have run: %v; to ask what became of it (NOT_FOUND: it was never begun), run: tgad show --socket %s %s",
		cause, cli.ShellWord(a.socket), trace).In(trace)
}

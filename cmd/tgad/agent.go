package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/agent"
	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// messageFormats are what --format takes.
var messageFormats = []string{message.FormatText, message.FormatOpenAI, message.FormatAnthropic, message.FormatMCP}

// agentVerbs are the verbs of agent, with the flags that they share.
type agentVerbs struct {
	*app
	dir        string // of the store
	file       string // with the configuration
	others     []string
	model      string
	unenforced []string
}

func (a *app) agent() *cobra.Command {
	v := &agentVerbs{app: a}
	c := &cobra.Command{
		Use:   "agent",
		Short: "Run whole turns of an agent: crash-safe from message to answer",
		Long: `agent runs an agent that a manifest (OSSA) describes: a message comes in, its model is
asked, its tools are called, its state is kept, and a turn that a crash cut off goes on
where it was. It opens the store itself, so no daemon may have it; ls and show ask the
daemon where one has the store.

The manifest says what the agent is; the configuration (--config) says which models and
tool servers there are, and what may be sent again.`,
	}
	c.PersistentFlags().StringVar(&v.dir, "data", os.Getenv("TGAD_DATA"), "the store's directory (or $TGAD_DATA)")
	c.PersistentFlags().StringVar(&v.file, "config", "", "configuration `file` (TOML)")
	c.PersistentFlags().StringArrayVar(&v.others, "with", nil, "manifest `file or directory` of agents that this one may hand work to (repeatable)")
	c.PersistentFlags().StringVar(&v.model, "model", "", "`PROVIDER/MODEL` of the agent, and of others whose manifests name none")
	c.PersistentFlags().StringArrayVar(&v.unenforced, "unenforced", nil, "accept that the restriction at this JSON `pointer` of a manifest is not enforced (repeatable)")
	c.AddCommand(v.check(), v.run(), v.resume(), v.decide(), a.of(needLog, v.ls()), a.of(needLog, v.show()))
	return c
}

func (v *agentVerbs) check() *cobra.Command {
	return &cobra.Command{
		Use:   "check MANIFEST",
		Short: "Check a manifest: what each setting comes from, what is ignored, what is contradictory",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := v.load()
			if err != nil {
				return err
			}
			docs, err := agent.Reading{Unenforced: v.unenforced, Workspaces: c.AgentWorkspaces()}.Read(args[0])
			if err != nil {
				return err
			}
			for _, d := range docs {
				if err := v.Manifest(d.Agent, d.Report); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func (v *agentVerbs) run() *cobra.Command {
	var text, file, format, session, id string
	var span turn.SpanContext
	c := &cobra.Command{
		Use:   "run MANIFEST --message TEXT",
		Short: "Send an agent a message and run the turns that follow",
		Long: `run prints the answer on stdout and what happens on the way on stderr. What an earlier
run left unfinished goes on first. Exit code 0 where the answer is there, 1 where a turn
failed or waits for a person, 4 where a call is in doubt.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			message, err := v.message(cmd, text, file)
			if err != nil {
				return err
			}
			q := turn.Request{SessionID: session, Message: message, Format: format, SpanContext: span}
			if id != "" {
				if q.InteractionID, err = tga.ParseID(id); err != nil {
					return cli.Usage(err)
				}
			}
			return v.hosting(cmd.Context(), args[0], func(ctx context.Context, h *agent.Host) error {
				if _, err := h.Recover(ctx); err != nil {
					return err
				}
				q.Agent = h.Agent
				res, err := h.Run(ctx, q)
				if err != nil {
					return err
				}
				return v.AgentResult(res, v.typed(args[0]))
			})
		},
	}
	c.Flags().StringVarP(&text, "message", "m", "", "the message; - reads it from stdin")
	c.Flags().StringVar(&file, "message-file", "", "`file` with the message")
	c.Flags().StringVar(&format, "format", "text", "its format: "+strings.Join(messageFormats, ", ")+`; "" finds out`)
	c.Flags().StringVar(&session, "session", "", "the conversation; a new one by default")
	c.Flags().StringVar(&id, "id", "", "interaction id: the same request again goes on with that turn")
	c.Flags().StringVar(&span.Traceparent, "traceparent", os.Getenv("TRACEPARENT"), "W3C trace context (or $TRACEPARENT)")
	return c
}

func (v *agentVerbs) message(cmd *cobra.Command, text, file string) ([]byte, error) {
	switch {
	case file != "" && text != "":
		return nil, cli.Usagef("--message and --message-file cannot stand together")
	case file != "":
		return os.ReadFile(file)
	case text == "-":
		return io.ReadAll(cmd.InOrStdin())
	case text == "":
		return nil, cli.Usagef("--message is required")
	}
	return []byte(text), nil
}

func (v *agentVerbs) resume() *cobra.Command {
	return &cobra.Command{
		Use:   "resume MANIFEST [TURN]",
		Short: "Continue turns that a crash interrupted or a decision released",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return v.hosting(cmd.Context(), args[0], func(ctx context.Context, h *agent.Host) error {
				if len(args) == 2 {
					id, err := tga.ParseID(args[1])
					if err != nil {
						return cli.Usage(err)
					}
					res, err := h.Resume(ctx, id)
					if err != nil {
						return err
					}
					return v.AgentResult(res, v.typed(args[0]))
				}
				all, err := h.Recover(ctx)
				if err != nil {
					return err
				}
				var last error
				for _, res := range all {
					if err := v.AgentResult(res, v.typed(args[0])); err != nil {
						last = err
					}
				}
				return last
			})
		},
	}
}

func (v *agentVerbs) ls() *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the unfinished turns",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return v.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				open, err := turn.ListOpen(ctx, c)
				if err != nil {
					return err
				}
				var rows [][]string
				for _, o := range open {
					if v.JSON {
						if err := v.Line(o); err != nil {
							return err
						}
						continue
					}
					rows = append(rows, []string{o.InteractionID.String(), o.Agent, o.SessionID, string(o.Phase), string(o.Waiting), o.Reason})
				}
				if v.JSON {
					return nil
				}
				return v.Table([]string{"TURN", "AGENT", "SESSION", "PHASE", "WAITS FOR", "REASON"}, rows)
			})
		},
	}
}

func (v *agentVerbs) show() *cobra.Command {
	return &cobra.Command{
		Use:   "show TURN",
		Short: "Verify and print the journal of a turn",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := tga.ParseID(args[0])
			if err != nil {
				return cli.Usage(err)
			}
			return v.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				records, err := turn.Records(ctx, c, id)
				if err != nil {
					return err
				}
				return v.TurnRecords(records)
			})
		},
	}
}

// typed returns how to type a verb about a turn of this agent, with these flags, in any directory.
func (v *agentVerbs) typed(manifest string) cli.AgentCommand {
	c := cli.AgentCommand{Manifest: cli.Absolute(manifest), Flags: []string{"--data", cli.Absolute(v.dir)}}
	if v.file != "" {
		c.Flags = append(c.Flags, "--config", cli.Absolute(v.file))
	}
	for _, other := range v.others {
		c.Flags = append(c.Flags, "--with", cli.Absolute(other))
	}
	if v.model != "" {
		c.Flags = append(c.Flags, "--model", v.model)
	}
	for _, p := range v.unenforced {
		c.Flags = append(c.Flags, "--unenforced", p)
	}
	return c
}

// load reads the configuration, where one is named.
func (v *agentVerbs) load() (*config.Config, error) {
	if v.file == "" {
		return config.Default(), nil
	}
	return assemble.Load(v.file)
}

// hosting opens the store and the agent, runs g with them, and closes them.
func (v *agentVerbs) hosting(ctx context.Context, file string, g func(context.Context, *agent.Host) error) (err error) {
	if v.dir == "" {
		return cli.Usagef("--data is required: the store's directory")
	}
	c, err := v.load()
	if err != nil {
		return err
	}
	defer cli.OutliveReaders()()
	view := cli.NewAgentView(&v.Streams)
	var h *agent.Host
	err = cli.WhenFree(ctx, time.Second, func() (err error) {
		h, err = agent.Open(agent.Options{Data: v.dir, Config: c, Manifests: append([]string{file}, v.others...), Model: v.model, Unenforced: v.unenforced, Observe: view.Observe, Warn: view.Warn})
		return err
	})
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = errors.Join(err, h.Close(end))
		view.Close()
	}()
	return g(ctx, h)
}

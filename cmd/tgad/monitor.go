package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	fnote "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/monitor"
	"github.com/tgad/tgad/internal/evidence/sends"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// monitor is the verb that follows a store from outside.
func (a proving) monitor() *cobra.Command {
	var key, origin, file, licences string
	var witnesses, others []string
	var cosigned int
	var every time.Duration
	var once bool
	c := &cobra.Command{
		Use:   "monitor --key KEY --state FILE",
		Short: "Follow a store from outside; exits 3 if it takes something back",
		Long: `monitor asks a store for its signed checkpoints and for evidence of each append, checks
all of it, and remembers in FILE what it saw. It ends with exit code 3 when the store
has lost or changed appends, or has one that no rule allows. Run it on another machine
than the store's, with FILE on its disk: what an attacker can write to proves nothing.
A store that is restarted or does not answer is asked again.

It also recomputes what became of each idempotency key, and alarms if a call was sent
that no rule allows. Name a copy of the daemon's configuration with --config, so that it
knows the licences of the tools: without it, it takes a repeat within a trace to be
licensed.

The alarm is written to FILE.alarm, with both signed checkpoints where two contradict
each other. Whoever starts monitor again is told the same until that file is removed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := monitor.Options{Key: key, Origin: origin, State: file, Cosigned: cosigned}
			switch {
			case key == "" || file == "":
				return cli.Usagef("name the store's public key with --key, and a file to remember in with --state")
			case every < time.Millisecond:
				return cli.Usagef("--every %v: want a time of at least 1ms", every)
			case cosigned < 0 || cosigned > len(witnesses):
				return cli.Usagef("--cosigned %d: want at most the %d witnesses that are given", cosigned, len(witnesses))
			}
			if _, err := note.NewVerifier(key); err != nil {
				return cli.Usagef("--key %q: it is no public key of a signed note, name+number+key: %v", key, err)
			}
			for _, w := range witnesses {
				v, err := fnote.NewVerifierForCosignatureV1(w)
				if err != nil {
					return cli.Usagef("--witness %q: it is no public key of a witness: %v", w, err)
				}
				o.Witnesses = append(o.Witnesses, v)
			}
			o.Others = shown(others)
			if licences != "" {
				c, err := assemble.Load(licences)
				if err != nil {
					return err
				}
				o.Attested = attested(c)
			}
			o.Logger = a.Lines(slog.LevelInfo, false)
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				m, err := monitor.Open(proofs{c.Proofs()}, o)
				if err == nil {
					err = errors.Join(a.follow(ctx, m, every, once, o.Logger), m.Close())
				}
				var alarm *monitor.Alarm
				if errors.As(err, &alarm) {
					return &cli.Unverified{Err: err}
				}
				return err
			})
		},
	}
	c.Flags().StringVar(&key, "key", "", "the store's public `key`")
	c.Flags().StringVar(&licences, "config", "", "the daemon's configuration `file`, or a copy: what it says of tools and their licences")
	c.Flags().StringVar(&origin, "origin", "", "the `origin` in the store's checkpoints, where it is not the name of the key")
	c.Flags().StringVar(&file, "state", "", "the `file` that remembers what was seen")
	c.Flags().DurationVar(&every, "every", 10*time.Second, "`time` between two questions")
	c.Flags().BoolVar(&once, "once", false, "ask once, check all that is new, and end; for cron")
	c.Flags().StringArrayVar(&others, "against", nil, "a `file or address` with a checkpoint that others were shown; may be given again")
	c.Flags().StringArrayVar(&witnesses, "witness", nil, "public `key` of a witness that you trust; may be given again")
	c.Flags().IntVar(&cosigned, "cosigned", 0, "how many `witnesses` must have signed; fewer are logged")
	return c
}

// shown returns the places to fetch checkpoints from that others were shown.
func shown(places []string) (out []checkpoint.Target) {
	for _, p := range places {
		if strings.HasPrefix(p, "https://") || strings.HasPrefix(p, "http://") {
			out = append(out, checkpoint.Web{URL: p})
		} else {
			out = append(out, checkpoint.Directory{Path: p})
		}
	}
	return out
}

// attested returns what a configuration attests about tools, and about models.
func attested(c *config.Config) sends.Attested {
	model := ledger.ReadOnly
	if c.Agent.ModelLicence == ledger.Park.String() {
		model = ledger.Park
	}
	return sends.Attested{Profile: c.LedgerProfile(), Licence: func(server, tool string) sends.Tool {
		if strings.HasPrefix(server, turn.ModelServer("")) {
			return sends.Tool{Licence: ledger.Licence{Kind: model}, Explicit: true, Reads: model == ledger.ReadOnly}
		}
		p, _ := c.Policy(server, tool)
		return sends.Tool{Licence: p.Licence, Explicit: p.LicenceSet, Reads: p.Class == tga.ClassRead, Claims: p.ClientLicence}
	}}
}

// follow checks what is new, again and again. With once it ends when all of it was checked.
func (a proving) follow(ctx context.Context, m *monitor.Monitor, every time.Duration, once bool, log *slog.Logger) error {
	said := int64(-1)
	silent := ""
	for {
		more, err := m.Step(ctx)
		var alarm *monitor.Alarm
		switch {
		case errors.As(err, &alarm):
			return err
		case ctx.Err() != nil && once:
			return ctx.Err() // not all was checked
		case ctx.Err() != nil:
			return nil // it was told to end
		case err != nil && once:
			return err
		case err != nil && err.Error() != silent:
			log.Warn("the store or a place cannot be asked", "error", err)
			silent = err.Error()
		case err == nil:
			silent = ""
		}
		if size, checked := m.Seen(); checked != said && err == nil && !more {
			said = checked
			if err := a.seen(size, checked); err != nil {
				return err
			}
		}
		if more {
			continue
		}
		if once {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

func (a proving) seen(size, checked int64) error {
	if a.JSON {
		return a.Line(struct {
			Appends int64 `json:"appends"`
			Checked int64 `json:"checked"`
		}{size, checked})
	}
	a.Printf("%d appends, %d checked, and nothing was taken back\n", size, checked)
	return nil
}

// proofs asks a daemon for what a monitor checks.
type proofs struct{ client.Proofs }

// Checkpoint implements [monitor.Source].
func (p proofs) Checkpoint(ctx context.Context) (raw []byte, handOvers [][]byte, err error) {
	s, err := p.Proofs.Checkpoint(ctx)
	for _, o := range s.HandOvers {
		handOvers = append(handOvers, []byte(o))
	}
	return []byte(s.Checkpoint), handOvers, err
}

// Evidence implements [monitor.Source].
func (p proofs) Evidence(ctx context.Context, w io.Writer, after, most int64, old []byte) error {
	for line, err := range p.Export(ctx, wire.EvidenceRequest{After: after, Most: most, Old: string(old)}) {
		if err != nil {
			return err
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return nil
}

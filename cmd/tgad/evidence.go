package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	fnote "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/evidence/bundle"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/verifiers"
	"github.com/tgad/tgad/internal/evidence/witness"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// proving are the verbs about evidence files.
type proving struct{ *app }

// evidence is the verb that prints a piece of evidence, with those about evidence files below it.
func (a *app) evidence() *cobra.Command {
	c := a.of(needLog, a.printEvidence())
	p := proving{a}
	c.AddCommand(a.of(needLog, a.traceArgs(true, everyOne, p.export())), a.of(needLog, p.checkpoint()), p.verify(), p.verifiers(), p.keygen())
	return c
}

func (a proving) export() *cobra.Command {
	var file, since, against string
	c := &cobra.Command{
		Use:   "export [TRACE...] -o FILE",
		Short: "Write a file that proves to others what happened",
		Long: `export writes the named traces, or all since a time, with the proof of each append and
the signed checkpoint that the proofs lead to. tgad evidence verify checks the file
without a store, and so do verify.py and verify.html, which share no code with tgad.

With --against the file proves too that the store grew from an older checkpoint that
its reader has, without a change.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := parseIDs(args)
			if err != nil {
				return err
			}
			m := wire.EvidenceRequest{TraceIDs: ids}
			if since != "" && len(ids) > 0 {
				return cli.Usagef("--since chooses the traces: name none beside it")
			}
			if m.Since, err = cli.ParseTime("--since", since, time.Now()); err != nil {
				return err
			}
			if against != "" {
				raw, err := readNote(against)
				if err != nil {
					return err
				}
				m.Old = string(raw)
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				var done atomic.Int64
				defer a.Watch(ctx, func(context.Context) string { return fmt.Sprintf("evidence: %d traces", done.Load()) })()
				return a.toFile(ctx, file, func(w io.Writer) error {
					return exportTo(w, c.Proofs().Export(ctx, m), &done)
				})
			})
		},
	}
	c.Flags().StringVarP(&file, "output", "o", "", "write to a `file`, which must not exist, instead of stdout")
	c.Flags().StringVar(&since, "since", "", "every trace with an append at this `time` or later, instead of chosen ones")
	c.Flags().StringVar(&against, "against", "", "a `file` with an older signed checkpoint, from which the evidence is to prove that it grew")
	return c
}

func (a proving) checkpoint() *cobra.Command {
	return &cobra.Command{
		Use:   "checkpoint",
		Short: "Print the newest signed checkpoint of the store",
		Long: `checkpoint prints the newest signed checkpoint. Whoever keeps it can show later whether
the store still has everything that it had then.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				s, err := c.Proofs().Checkpoint(ctx)
				if err != nil {
					return err
				}
				if a.JSON {
					return a.Line(s)
				}
				return a.Bytes([]byte(s.Checkpoint))
			})
		},
	}
}

func (a proving) verify() *cobra.Command {
	var key, old string
	var witnesses []string
	c := &cobra.Command{
		Use:   "verify FILE",
		Short: "Check an evidence file or a receipt; exits 3 if it is not what it says",
		Long: `verify checks an evidence file without a store: every signature, proof, digest and link.
It says what is proved and what is not, and exits 0 only where all that is in the file
is proved by the key you gave, 1 where some came after the checkpoint or no key was
given. Get the key from the operator by a way of your own.

FILE may be a receipt too, as tgad receipt --json prints it: then it says which appends of
the trace the checkpoint covers.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			trust := bundle.Trust{Key: key}
			for _, w := range witnesses {
				v, err := fnote.NewVerifierForCosignatureV1(w)
				if err != nil {
					return cli.Usagef("--witness %q: it is no public key of a witness: %v", w, err)
				}
				trust.Witnesses = append(trust.Witnesses, v)
			}
			if key != "" {
				if _, err := note.NewVerifier(key); err != nil {
					return cli.Usagef("--key %q: it is no public key of a signed note, name+number+key: %v", key, err)
				}
			}
			if old != "" {
				raw, err := readNote(old)
				if err != nil {
					return err
				}
				trust.Old = raw
			}
			return a.check(cmd.Context(), args[0], trust)
		},
	}
	c.Flags().StringVar(&key, "key", "", "the store's public `key`")
	c.Flags().StringArrayVar(&witnesses, "witness", nil, "public `key` of a witness that you trust; may be given again")
	c.Flags().StringVar(&old, "against", "", "a `file` with an older signed checkpoint of the store that you have")
	return c
}

// readNote reads a file with a signed note.
func readNote(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "checkpoint: %w", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, checkpoint.MaxBytes+1))
	if err == nil && len(raw) > checkpoint.MaxBytes {
		err = fmt.Errorf("%s: more than %d bytes", path, checkpoint.MaxBytes)
	}
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "checkpoint: %w", err)
	}
	return raw, nil
}

// proof is what a check of an evidence file prints as JSON.
type proof struct {
	OK      bool     `json:"ok"`
	Verdict string   `json:"verdict"` // proved, not covered, own key, refused or no answer
	Origin  string   `json:"origin,omitempty"`
	Size    int64    `json:"checkpoint_appends,omitempty"`
	Proved  []string `json:"proved,omitempty"`
	Open    []string `json:"not_proved,omitempty"`
	Code    string   `json:"code,omitempty"`
	Fault   string   `json:"fault,omitempty"`
}

func (a proving) check(ctx context.Context, path string, trust bundle.Trust) error {
	f, err := os.Open(path)
	if err != nil {
		return tga.Errorf(tga.ValidationError, "evidence: %w", err)
	}
	defer f.Close()
	p, r, err := proof{Verdict: "refused"}, verdict(nil), error(nil)
	if receipt, failed := readReceipt(f); failed != nil {
		return failed
	} else if receipt != nil {
		var m *bundle.Receipt
		m, err = bundle.VerifyReceipt(receipt, trust)
		p.Origin, p.Size, r = m.Origin, m.Checkpoint.Size, m
	} else {
		var m *bundle.Report
		m, err = bundle.Verify(stoppable{ctx, f}, trust)
		p.Origin, p.Size, r = m.Origin, m.Checkpoint.Size, m
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	exit := cli.ExitVerify
	if bundle.IsUnanswered(err) {
		p.Verdict, exit = "no answer", cli.ExitError
	}
	if err != nil {
		p.Code, p.Fault = string(tga.CodeOf(err)), err.Error()
	} else {
		p.Verdict, exit = r.Verdict(), cli.ExitError
		p.Proved, p.Open = r.Words()
	}
	if p.OK = p.Verdict == bundle.Proved; p.OK {
		exit = cli.ExitOK
	}
	if a.JSON {
		if err := a.Line(p); err != nil {
			return err
		}
		return silent(exit)
	}
	switch {
	case bundle.IsUnanswered(err):
		return fmt.Errorf("%s: no answer: %w", path, err)
	case err != nil:
		return &cli.Unverified{Err: fmt.Errorf("%s proves nothing: %w", path, err)}
	}
	a.Printf("%s\n", headlines[p.Verdict])
	for _, part := range []struct {
		title string
		lines []string
	}{{"Proved:", p.Proved}, {"Not proved:", p.Open}} {
		a.Printf("%s\n", part.title)
		for _, line := range part.lines {
			a.Printf("  - %s\n", cli.Clean(line))
		}
	}
	return silent(exit)
}

// verdict is what was found in an evidence file or a receipt.
type verdict interface {
	Verdict() string
	Words() (proved, open []string)
}

// readReceipt returns the whole content of a file if it is a receipt. Otherwise it returns nil and
// leaves the file at its beginning.
func readReceipt(f *os.File) ([]byte, error) {
	head := make([]byte, 512)
	n, err := f.ReadAt(head, 0)
	if (err == nil || err == io.EOF) && !bundle.IsReceipt(head[:n]) {
		return nil, nil
	}
	var raw []byte
	if err == nil || err == io.EOF {
		raw, err = io.ReadAll(io.LimitReader(f, bundle.MaxReceipt+1))
	}
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "evidence: %w", err)
	}
	return raw, nil
}

// headlines explain each verdict in one line.
var headlines = map[string]string{
	bundle.Proved:     "PROVED",
	bundle.NotCovered: "NOT ALL IS COVERED: some of the file came after the checkpoint",
	bundle.OwnKey:     "NOT PROVED: the file agrees with itself, but only it says whose key signed it",
}

// silent ends the command with an exit code, once all is printed.
func silent(exit int) error {
	if exit == cli.ExitOK {
		return nil
	}
	return cli.Silent(exit)
}

// stoppable is a reader that ends with its context.
type stoppable struct {
	ctx context.Context
	r   io.Reader
}

func (s stoppable) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.Read(p)
}

func (a proving) keygen() *cobra.Command {
	var file string
	var cosigns bool
	c := &cobra.Command{
		Use:   "keygen NAME -o FILE",
		Short: "Make a key that signs checkpoints",
		Long: `keygen makes an Ed25519 key and prints its public part, which auditors check evidence
with. NAME is the origin in the store's checkpoints, such as payments.example/tgad. FILE
is for [evidence] key_file in the configuration. Keep it outside of the store and of its
backups: whoever has both can rewrite what happened.

With --witness it makes the key of a witness, for tgad witness serve; NAME is the name
of the witness.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if file == "" {
				return cli.Usagef("name the new file of the secret key with -o")
			}
			make := checkpoint.NewKey
			if cosigns {
				make = witness.NewKey
			}
			secret, public, err := make(args[0])
			if err != nil {
				return err
			}
			if err := checkpoint.CreateKeyFile(file, secret); err != nil {
				return err
			}
			if a.JSON {
				return a.Line(map[string]string{"public_key": public})
			}
			_, err = fmt.Fprintln(a.Out, public)
			return err
		},
	}
	c.Flags().StringVarP(&file, "output", "o", "", "the new `file` of the secret key, mode 0600")
	c.Flags().BoolVar(&cosigns, "witness", false, "make the key of a witness")
	return c
}

func (a proving) verifiers() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "verifiers -o DIR",
		Short: "Write the two other programs that check evidence files",
		Long: `verifiers writes verify.py and verify.html into a directory, for an auditor who trusts
no program of ours: they share no code with tgad or with each other, and can be read.
verify.py needs Python 3.8 and nothing else. verify.html is a page that needs a browser
and no network.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if dir == "" {
				return cli.Usagef("name the directory with -o")
			}
			for name, content := range map[string][]byte{"verify.py": verifiers.Python, "verify.html": verifiers.Page} {
				f, err := access.Create(filepath.Join(dir, name))
				if err != nil {
					return tga.Errorf(tga.ValidationError, "write: %w", err)
				}
				_, err = f.Write(content)
				if err = errors.Join(err, f.Close()); err != nil {
					// A part of it would keep the next one out, or be taken for the whole.
					return tga.Errorf(tga.StoreUnavailable, "write: %w", errors.Join(err, os.Remove(f.Name())))
				}
			}
			return nil
		},
	}
	c.Flags().StringVarP(&dir, "output", "o", "", "the `directory`; files that are there are not replaced")
	return c
}

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/schemas/tga"
)

func TestErrorsHaveOneForm(t *testing.T) {
	trace, err := tga.ParseID("01936a8b-4c2d-7000-8000-000000000001")
	if err != nil {
		t.Fatal(err)
	}
	bad := tga.Errorf(tga.StateChecksumMismatch, "entry 3 does not hash to its digest").In(trace)
	bad.Seq, bad.GotDigest, bad.WantDigest = 3, tga.Sum([]byte("got")), tga.Sum([]byte("want"))
	for _, c := range []struct {
		name string
		err  error
		exit int
		line string // first line of the text
	}{
		{"nothing", nil, ExitOK, ""},
		{"silent", Silent(ExitVerify), ExitVerify, ""},
		{"usage", Usagef("unknown flag: --x"), ExitUsage, "tgad: unknown flag: --x"},
		{"plain", errors.New("disk on fire"), ExitError, "tgad: disk on fire"},
		{"coded", tga.Errorf(tga.NotFound, "no trace"), ExitError, "tgad: NOT_FOUND: no trace"},
		{"in doubt", tga.Errorf(tga.EffectInDoubt, "may have run"), ExitInDoubt, "tgad: EFFECT_IN_DOUBT: may have run"},
		{"locked", fmt.Errorf("open: %w", tga.Errorf(tga.StateLockAcquireFailed, "held by 12")), ExitLocked, "tgad: STATE_LOCK_ACQUIRE_FAILED: held by 12"},
		{"not opened", &Unopened{tga.Errorf(tga.StoreUnavailable, "EIO")}, ExitLocked, "tgad: STORE_UNAVAILABLE: EIO"},
		{"not permitted", &Unopened{tga.Errorf(tga.StoreUnavailable, "open: %w", os.ErrPermission)}, ExitError, "tgad: STORE_UNAVAILABLE: open: permission denied"},
		{"not there", &Unopened{tga.Errorf(tga.NotFound, "no store")}, ExitError, "tgad: NOT_FOUND: no store"},
		{"verify", &Unverified{bad}, ExitVerify, "tgad: STATE_CHECKSUM_MISMATCH: entry 3 does not hash to its digest"},
		{"a usage error with a code is one of usage", Usage(tga.Errorf(tga.EffectInDoubt, "x")), ExitUsage, "tgad: EFFECT_IN_DOUBT: x"},
		{"a found fault outranks its code", &Unverified{tga.Errorf(tga.StateLockAcquireFailed, "x")}, ExitVerify, "tgad: STATE_LOCK_ACQUIRE_FAILED: x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var text, lines bytes.Buffer
			if got := (&Streams{Err: &text}).Fail(c.err); got != c.exit {
				t.Errorf("exit code %d, want %d", got, c.exit)
			}
			first, _, _ := strings.Cut(text.String(), "\n")
			if first != c.line {
				t.Errorf("first line %q, want %q", first, c.line)
			}
			(&Streams{Err: &lines, JSON: true}).Fail(c.err)
			if c.line == "" {
				if lines.Len() > 0 {
					t.Errorf("printed %q", lines.String())
				}
				return
			}
			var f Failure
			if err := json.Unmarshal(lines.Bytes(), &f); err != nil || strings.Count(lines.String(), "\n") != 1 {
				t.Fatalf("%q is not one object on a line: %v", lines.String(), err)
			}
		})
	}

	t.Run("the place is named, from the cause where the error does not", func(t *testing.T) {
		var text bytes.Buffer
		(&Streams{Err: &text}).Fail(tga.Errorf(tga.StateRecoveryFailed, "load: %w", bad))
		for _, want := range []string{trace.String(), "sequence  3", bad.GotDigest.String(), bad.WantDigest.String(), "tgad explain STATE_RECOVERY_FAILED"} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("no %q in:\n%s", want, text.String())
			}
		}
	})
}

// TestPrintedTextIsHarmless: whatever a verb prints for people, only the ends of lines and tabs are left of what a terminal
// obeys.
func TestPrintedTextIsHarmless(t *testing.T) {
	for in, want := range map[string]string{
		"one\n\ttwo\n":                      "one\n\ttwo\n",
		"\x1b]0;title\x07 \u009b31m \x7f\r": `\x1b]0;title\a \u009b31m \x7f\r`,
		"\n\n":                              "\n\n",
		"":                                  "",
		"naïve \u202e\xff\n":                "naïve \\u202e�\n",
	} {
		var out bytes.Buffer
		s := &Streams{Out: &out}
		s.Printf("%s", in)
		if out.String() != want {
			t.Errorf("%q is printed as %q, want %q", in, out.String(), want)
		}
		out.Reset()
		if err := s.Bytes([]byte(in)); err != nil || out.String() != in {
			t.Errorf("a pipe gets %q of %q, %v", out.String(), in, err)
		}
	}
}

func TestWrapKeepsToItsWidth(t *testing.T) {
	text := "the quick brown fox jumps over the lazy dog and a verylongwordthatdoesnotfitanywhere ends"
	for _, width := range []int{10, 20, 40, 78} {
		got := Wrap(text, "→ ", width)
		if strings.Join(strings.Fields(strings.TrimPrefix(got, "→ ")), " ") != text {
			t.Errorf("width %d lost words:\n%s", width, got)
		}
		for _, l := range strings.Split(got, "\n") {
			if utf8.RuneCountInString(l) > width && len(strings.Fields(strings.TrimPrefix(l, "→ "))) > 1 {
				t.Errorf("width %d: line of %d: %q", width, utf8.RuneCountInString(l), l)
			}
		}
	}
}

func TestShorten(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"ääää", 4, "ääää"}, {"äääää", 4, "äää…"}} {
		if got := Shorten(c.in, c.n); got != c.want {
			t.Errorf("Shorten(%q, %d) = %q, want %q", c.in, c.n, got, c.want)
		}
	}
}

// TestInterruptEndsVerify: an interrupt ends the verification of a file and of a store, with an exit code of
// its own.
func TestInterruptEndsVerify(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, head := range []string{"{}\n", "TGADSEG\n" + strings.Repeat("x", 100)} {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, []byte(head), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := (&Streams{}).VerifyPath(ctx, file, nil); !errors.Is(err, context.Canceled) || ExitCode(err) != ExitInterrupted {
			t.Errorf("%.10q: %v, exit code %d", head, err, ExitCode(err))
		}
	}
	if code := ExitCode(tga.Errorf(tga.EffectInDoubt, "it may have run: %w", context.Canceled)); code != ExitInDoubt {
		t.Errorf("an interrupted call that may have run exits %d", code)
	}
}

// overAfter is a context that is over after its error was asked for the given number of times.
type overAfter struct {
	context.Context
	left atomic.Int64
}

func (c *overAfter) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// TestInterruptedVerifyReadsNoFurther: an interrupted verification stops in the middle of a valid
// file, instead of checking all of it and then reporting an interrupt.
func TestInterruptedVerifyReadsNoFurther(t *testing.T) {
	var export bytes.Buffer
	tr := chaintest.New(chaintest.Options{Seed: 1})
	for export.Len() < 1<<20 {
		if err := errors.Join(ndjson.Write(&export, tr.ID, tr.AllEntries(), tr.AllNotes()), ndjson.End(&export, 1)); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, export.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, reads := range []int64{1, 2, 8} {
		ctx := &overAfter{Context: t.Context()}
		ctx.left.Store(reads)
		if v, err := (&Streams{}).VerifyPath(ctx, file, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("over at read %d: %+v, %v", reads, v, err)
		}
		if asked := reads - ctx.left.Load(); asked > reads+3 {
			t.Errorf("over at read %d: it went on to %d", reads, asked)
		}
	}
}

// loud is an error with a long form for programmers, like Pebble's errors.
type loud struct{}

func (loud) Error() string              { return "disk on fire" }
func (loud) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("disk on fire\nstack\nstack")) }

// TestErrorIsLoggedAsItsMessage: without the stack that its type has.
func TestErrorIsLoggedAsItsMessage(t *testing.T) {
	for _, inJSON := range []bool{false, true} {
		var said bytes.Buffer
		log := (&Streams{Err: &said}).Lines(slog.LevelInfo, inJSON)
		log.Info("it stops", "error", error(loud{}), "nothing", error(nil), "n", 1)
		if got := said.String(); !strings.Contains(got, "disk on fire") || strings.Contains(got, "stack") || strings.Count(got, "\n") != 1 {
			t.Errorf("%q", got)
		}
	}
}

// TestVerbSaysWhichArgumentsItTakes: a wrong number of arguments gives the arguments that the verb takes. An
// unknown verb is named.
func TestVerbSaysWhichArgumentsItTakes(t *testing.T) {
	for line, want := range map[string]string{
		"init dir":          "tgad init takes other arguments: tgad init --data DIR",
		"call":              "tgad call takes other arguments: tgad call SERVER TOOL [ARGS]",
		"call a b c d":      "tgad call takes other arguments: tgad call SERVER TOOL [ARGS]",
		"check":             "tgad check takes other arguments: tgad check FILE",
		"keys lots":         `unknown command "lots" for "tgad keys"`,
		"set tpo":           `unknown command "tpo" for "tgad set"; did you mean top?`,
		"set tpo --x":       `unknown command "tpo" for "tgad set"; did you mean top?`,
		"chek FILE":         `unknown command "chek"; did you mean check?`,
		"chek --x 1":        `unknown command "chek"; did you mean check?`,
		"check --x":         "unknown flag: --x",
		"help lots":         `unknown command "lots"`,
		"help set lots":     `unknown command "lots" for "tgad set"`,
		"completion x":      `unknown command "x" for "tgad completion"`,
		"completion bash x": "tgad completion bash takes other arguments: tgad completion bash",
		"own":               "no words of ours",
	} {
		root := &cobra.Command{Use: "tgad"}
		nothing := func(*cobra.Command, []string) error { return nil }
		keys := &cobra.Command{Use: "keys", Args: cobra.NoArgs, RunE: nothing}
		keys.AddCommand(&cobra.Command{Use: "show", RunE: nothing})
		set := &cobra.Command{Use: "set"} // it has no meaning of its own
		set.AddCommand(&cobra.Command{Use: "top", RunE: nothing})
		root.AddCommand(keys, set,
			&cobra.Command{Use: "init --data DIR", Args: cobra.NoArgs, RunE: nothing},
			&cobra.Command{Use: "call SERVER TOOL [ARGS]", Args: cobra.RangeArgs(2, 3), RunE: nothing},
			&cobra.Command{Use: "check FILE", Args: cobra.ExactArgs(1), RunE: nothing},
			&cobra.Command{Use: "own", RunE: nothing, Args: func(*cobra.Command, []string) error { return errors.New("no words of ours") }})
		(&Streams{In: strings.NewReader(""), Out: &strings.Builder{}, Err: &strings.Builder{}}).Prepare(root)
		root.SetArgs(strings.Fields(line))
		err := root.Execute()
		var usage *UsageError
		if !errors.As(err, &usage) || err.Error() != want {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}

// TestMistakeOfACommandLineHasTheFormThatItAsksFor: with --json the error is an object, also if the flag stands behind the mistake.
func TestMistakeOfACommandLineHasTheFormThatItAsksFor(t *testing.T) {
	for line, object := range map[string]bool{
		"init --json --x": true, "init --x --json": true, "init --limit=x --json": true, "nit --json": true, "nit --x --json": true,
		"init --x": false, "init --x -- --json": false,
	} {
		var out, errs bytes.Buffer
		s := &Streams{In: strings.NewReader(""), Out: &out, Err: &errs}
		root := &cobra.Command{Use: "tgad"}
		root.PersistentFlags().BoolVar(&s.JSON, "json", false, "")
		verb := &cobra.Command{Use: "init", RunE: func(*cobra.Command, []string) error { return nil }}
		verb.Flags().Int("limit", 0, "")
		root.AddCommand(verb)
		s.Prepare(root)
		if code := s.Execute(t.Context(), root, strings.Fields(line)); code != ExitUsage || out.Len() > 0 || json.Valid(errs.Bytes()) != object {
			t.Errorf("%s: exit code %d, %q, %q", line, code, &out, &errs)
		}
	}
}

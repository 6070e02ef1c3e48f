package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/schemas/tga"
)

// Exit codes of the command.
const (
	ExitOK      = 0
	ExitError   = 1
	ExitUsage   = 2
	ExitVerify  = 3
	ExitInDoubt = 4
	ExitLocked  = 5
	// ExitInterrupted is 128 plus the number of SIGINT, as in shells. It is also used for SIGTERM.
	ExitInterrupted = 130
	noCode          = tga.Code("")
	usageMessage    = "run the verb with --help"
)

// exits are the error codes that have an exit code of their own; for all others it is ExitError.
var exits = map[tga.Code]int{
	tga.EffectInDoubt:          ExitInDoubt,
	tga.IdempotencyKeyInFlight: ExitInDoubt, // it runs, or has run, and its outcome is not known here
	tga.StateLockAcquireFailed: ExitLocked,
}

// UsageError is the error of a wrong command line.
type UsageError struct{ err error }

func (e *UsageError) Error() string { return e.err.Error() }
func (e *UsageError) Unwrap() error { return e.err }

// Usage marks err as an error of usage.
func Usage(err error) error { return &UsageError{err} }

// Usagef makes an error of usage.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// Unverified marks err as a finding of a verification. An error without this mark means that
// the verification could not be made.
type Unverified struct{ Err error }

func (e *Unverified) Error() string { return e.Err.Error() }
func (e *Unverified) Unwrap() error { return e.Err }

// Found marks an error of a check as [Unverified] if it is a finding.
func Found(err error) error {
	if story.Unread(err) {
		return err
	}
	return &Unverified{err}
}

// Unopened marks err as the reason why a store was not opened. If it is STORE_UNAVAILABLE, the exit code
// is ExitLocked: nobody can use a store whose files fail.
type Unopened struct{ Err error }

func (e *Unopened) Error() string { return e.Err.Error() }
func (e *Unopened) Unwrap() error { return e.Err }

// Silent ends the command with an exit code and prints nothing, because the verb has already
// printed everything.
type Silent int

func (e Silent) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// ExitCode returns the exit code that err stands for.
func ExitCode(err error) int {
	var (
		usage      *UsageError
		unverified *Unverified
		silent     Silent
		unopened   *Unopened
	)
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &silent):
		return int(silent)
	case errors.As(err, &usage):
		return ExitUsage
	case errors.As(err, &unverified):
		return ExitVerify
	case errors.As(err, &unopened) && errors.Is(err, tga.StoreUnavailable) && !errors.Is(err, fs.ErrPermission):
		return ExitLocked
	}
	if code, ok := exits[tga.CodeOf(err)]; ok {
		return code
	}
	if errors.Is(err, context.Canceled) {
		return ExitInterrupted
	}
	return ExitError
}

// Failure is an error as --json prints it.
type Failure struct {
	Code    tga.Code `json:"code,omitempty"` // absent for an error of usage or of the system
	Message string   `json:"message"`
	Hint    string   `json:"hint,omitempty"`

	TraceID  string `json:"trace_id,omitempty"`
	Sequence uint64 `json:"sequence_number,omitempty"`
	Note     uint32 `json:"note_number,omitempty"`
	Pointer  string `json:"pointer,omitempty"`
	Stored   string `json:"stored_digest,omitempty"`
	Computed string `json:"computed_digest,omitempty"`
}

// FailureOf describes err.
func FailureOf(err error) Failure {
	var usage *UsageError
	if errors.As(err, &usage) {
		return Failure{Message: err.Error(), Hint: usageMessage}
	}
	f := Failure{Code: tga.CodeOf(err), Message: err.Error()}
	if f.Code == noCode {
		return f
	}
	f.Hint = "tgad explain " + string(f.Code)
	var e *tga.Error
	if !errors.As(err, &e) {
		return f
	}
	f.Message, f.Pointer = e.Message, e.Pointer
	// The outermost error has the code. Only an inner one may know the place.
	for ; e != nil; e = inner(e) {
		if f.TraceID == "" && !e.TraceID.IsZero() {
			f.TraceID = e.TraceID.String()
		}
		if f.Sequence == 0 {
			f.Sequence = e.Seq
		}
		if f.Note == 0 {
			f.Note = e.Note
		}
		if f.Stored == "" && (!e.GotDigest.IsZero() || !e.WantDigest.IsZero()) {
			f.Stored, f.Computed = e.GotDigest.String(), e.WantDigest.String()
		}
	}
	return f
}

func inner(e *tga.Error) *tga.Error {
	var next *tga.Error
	if errors.As(e.Err, &next) {
		return next
	}
	return nil
}

// Fail prints err to stderr and returns its exit code. For nil the code is 0, unless text of the verb did
// not reach stdout: a user who redirects it to a file must not take an incomplete file for a whole one.
func (s *Streams) Fail(err error) int {
	if err == nil {
		err = s.Lost()
	}
	code := ExitCode(err)
	var silent Silent
	if err == nil || errors.As(err, &silent) {
		return code
	}
	f := FailureOf(err)
	text := f.text()
	if s.JSON {
		text = f.line()
	}
	// If stderr takes nothing, there is no other place for the message. The exit code says all the same that the verb failed.
	_, _ = io.WriteString(s.Err, text)
	return code
}

// Aside prints an error about one of several things to stderr. It does not end the verb. what begins the message, and says
// which thing it is.
func (s *Streams) Aside(what string, err error) error {
	f := FailureOf(err)
	text := "tgad: " + what + Clean(err.Error()) + "\n"
	if f.Message = what + f.Message; s.JSON {
		text = f.line()
	}
	_, err = io.WriteString(s.Err, text)
	return err
}

// line returns the failure as one line of JSON.
func (f Failure) line() string {
	b, err := json.Marshal(f)
	if err != nil {
		b = []byte(`{"message":"the error cannot be printed"}`)
	}
	return string(append(b, '\n'))
}

// text returns the failure as text for people. The first line is "tgad: CODE: message".
func (f Failure) text() string {
	out := "tgad: "
	if f.Code != noCode {
		out += string(f.Code) + ": "
	}
	for i, line := range strings.Split(f.Message, "\n") {
		if i > 0 {
			out += "\n  " // a configuration has one mistake a line
		}
		out += Clean(line)
	}
	if f.Pointer != "" {
		out += " (at " + Clean(f.Pointer) + ")"
	}
	out += "\n"
	for _, fact := range []struct{ name, value string }{
		{"trace", f.TraceID},
		{"sequence", number(f.Sequence)},
		{"note", number(uint64(f.Note))},
		{"stored", f.Stored},
		{"computed", f.Computed},
		{"see", f.Hint},
	} {
		if fact.value != "" {
			out += fmt.Sprintf("  %-9s %s\n", fact.name, fact.value)
		}
	}
	return out
}

func number(n uint64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// Package redact takes secrets out of the arguments and answers of tool calls before they are
// stored. In their place stand marks: keyed digests, which tell whoever holds the key whether two
// values were the same, and tell nobody else anything.
//
// # Invariants
//
//	gone     what a rule names is nowhere in what is left              [Rule.args]   TestSecretsAreNowhere
//	repeats  the same call leaves the same bytes, another secret others [Redactor]    TestMarksTellSecretsApart
//	json     what was JSON is JSON, and all else in it has its bytes    [document]    TestTheRestKeepsItsBytes
package redact

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// MinKey is how many bytes a key has at least.
const MinKey = 32

// Mark begins what stands in the place of a value.
const Mark = "[REDACTED:hmac-sha256:"

// Rule says what of one tool's calls is not stored.
type Rule struct {
	// Args and Result are JSON Pointers (RFC 6901) into the arguments and the answer; a token
	// "*" stands for each member or element. What they name is taken out, and so is each copy
	// of its texts elsewhere in the same call.
	Args, Result []string
	// Patterns are taken out of each text, member's name and number, of arguments and answers.
	Patterns []*regexp.Regexp
}

// Redactor is the [runtime.Redactor] of rules.
type Redactor struct {
	key  []byte
	rule func(server, tool string) *Rule
}

// New makes a Redactor with a key of [MinKey] bytes or more, VALIDATION_ERROR where it is
// shorter. rule returns nil for a tool of whose calls all is stored.
func New(key []byte, rule func(server, tool string) *Rule) (*Redactor, error) {
	if len(key) < MinKey {
		return nil, tga.Errorf(tga.ValidationError, "the key has %d bytes, want %d or more", len(key), MinKey)
	}
	return &Redactor{key: slices.Clone(key), rule: rule}, nil
}

// CheckPointer refuses what is no JSON Pointer; below says that it must not name the whole.
func CheckPointer(pointer string, below bool) error {
	if pointer == "" && !below {
		return nil
	}
	if !strings.HasPrefix(pointer, "/") {
		return tga.Errorf(tga.ValidationError, "%.80q is no JSON Pointer to a part of a document: it begins with /", pointer)
	}
	for i := range len(pointer) {
		if next := pointer[i+1:]; pointer[i] == '~' && !strings.HasPrefix(next, "0") && !strings.HasPrefix(next, "1") {
			return tga.Errorf(tga.ValidationError, "%.80q is no JSON Pointer: after ~ stands 0 or 1", pointer)
		}
	}
	return nil
}

// Args implements [runtime.Redactor].
func (r *Redactor) Args(call runtime.Call) (kept []byte, redacted bool, err error) {
	rule := r.rule(call.Server, call.Tool)
	if rule == nil {
		return call.Args, false, nil
	}
	t := taker{rule: rule, pointers: rule.Args, mark: r.marks(call, "args")}
	if t.texts, err = textsAt(call.Args, rule.Args); err != nil {
		return nil, false, err
	}
	kept, err = t.document(call.Args)
	return kept, t.took, err
}

// Reply implements [runtime.Redactor]. call has the whole arguments where they are known: what
// a server repeats of them in its answer is taken out too.
func (r *Redactor) Reply(call runtime.Call, reply runtime.Reply) (kept runtime.Reply, redacted bool, err error) {
	rule := r.rule(call.Server, call.Tool)
	if rule == nil {
		return reply, false, nil
	}
	t := taker{rule: rule, pointers: rule.Result, mark: r.marks(call, "result")}
	if t.texts, err = textsAt(call.Args, rule.Args); err != nil {
		return reply, false, err
	}
	if reply.Result != nil {
		whole := reply.Result
		if reply.Result, err = t.answer(whole); err != nil {
			return reply, false, err
		}
		if t.took && reply.Received.IsZero() {
			reply.Received, reply.ReceivedBytes = tga.Digest(r.mac(call, "received", "", whole)), int64(len(whole))
		}
	}
	reply.Summary, reply.ErrorMessage, reply.ErrorCode = t.text("", reply.Summary), t.text("", reply.ErrorMessage), t.text("", reply.ErrorCode)
	reply.Status = t.text("", reply.Status)
	reply.Changes = slices.Clone(reply.Changes)
	for i := range reply.Changes {
		c := &reply.Changes[i]
		for _, field := range []*string{&c.ResourceType, &c.ResourceID, &c.Operation, &c.Version, &c.ETag, &c.ExternalRef} {
			*field = t.text("", *field)
		}
	}
	return reply, t.took, nil
}

// marks makes the marks of one call's values.
func (r *Redactor) marks(call runtime.Call, of string) func(where string, value []byte) string {
	return func(where string, value []byte) string {
		sum := r.mac(call, of, where, value)
		return Mark + hex.EncodeToString(sum[:]) + "]"
	}
}

// mac binds a value to its call and to where it stood. The key of the call is in it, so equal
// secrets of two calls look different; a repeat has the same key.
func (r *Redactor) mac(call runtime.Call, of, where string, value []byte) (sum [32]byte) {
	h := hmac.New(sha256.New, r.key)
	for _, field := range []string{"tgad redacted v1", call.Namespace, call.Server, call.Tool, call.Key, of, where, string(value)} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(field)))
		h.Write(n[:])
		h.Write([]byte(field))
	}
	h.Sum(sum[:0])
	return sum
}

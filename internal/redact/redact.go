// Package redact removes secrets from the arguments and answers of tool calls before they are
// stored. It replaces each secret by a mark: a keyed digest. With the key one can tell whether two
// values were the same. Without the key a mark tells nothing.
//
// # Invariants
//
//	gone     what a rule names is nowhere in what is left              [Redactor]    TestSecretsAreNowhere
//	repeats  the same call leaves the same bytes, another secret others [Redactor]    TestMarksTellSecretsApart
//	json     what was JSON is JSON, and all else in it has its bytes    [Redactor]    TestTheRestKeepsItsBytes
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

// MinKey is the least length of a key, in bytes.
const MinKey = 32

// Mark is the beginning of the mark that replaces a value.
const Mark = "[REDACTED:hmac-sha256:"

// Rule says which parts of one tool's calls are not stored.
type Rule struct {
	// Args and Result are JSON Pointers (RFC 6901) into the arguments and the answer; a token
	// "*" stands for each member or element. The values that they name are replaced, and so is
	// each copy of their texts elsewhere in the same call.
	Args, Result []string
	// Patterns are replaced in each text, member's name and number of arguments and answers.
	Patterns []*regexp.Regexp
}

// Redactor is the [runtime.Redactor] of rules.
type Redactor struct {
	key  []byte
	rule func(server, tool string) *Rule
}

// New makes a Redactor. A key under [MinKey] bytes is VALIDATION_ERROR. rule returns nil for a
// tool whose calls are stored whole.
func New(key []byte, rule func(server, tool string) *Rule) (*Redactor, error) {
	if len(key) < MinKey {
		return nil, tga.Errorf(tga.ValidationError, "the key has %d bytes, want %d or more", len(key), MinKey)
	}
	return &Redactor{key: slices.Clone(key), rule: rule}, nil
}

// CheckPointer returns VALIDATION_ERROR if a text is no JSON Pointer. below says that it must not
// name the whole document.
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

// Reply implements [runtime.Redactor]. call has the unredacted arguments if they are known: then
// secrets of the arguments that the server repeats in its answer are replaced too. Status and
// ErrorCode are words of the contract, and are left as they are.
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
	if reply.Truncated {
		// What would be taken out of it is not known. By its plain digest, somebody who knows the rest could find it.
		reply.ResultDigest, t.took = tga.Digest(r.mac(call, "received", "", reply.ResultDigest[:])), true
	}
	reply.Summary, reply.ErrorMessage = t.text("", reply.Summary), t.text("", reply.ErrorMessage)
	reply.Changes = slices.Clone(reply.Changes)
	for i := range reply.Changes {
		c := &reply.Changes[i]
		for _, field := range []*string{&c.ResourceType, &c.ResourceID, &c.Operation, &c.Version, &c.ETag, &c.ExternalRef} {
			*field = t.text("", *field)
		}
	}
	return reply, t.took, nil
}

// marks returns a function that makes the marks of one call's values.
func (r *Redactor) marks(call runtime.Call, of string) func(where string, value []byte) string {
	return func(where string, value []byte) string {
		sum := r.mac(call, of, where, value)
		return Mark + hex.EncodeToString(sum[:]) + "]"
	}
}

// mac returns the keyed digest of a value, its call and its place. It covers the call's idempotency
// key, so equal secrets in two calls get different marks, and a repeat of a call gets the same.
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

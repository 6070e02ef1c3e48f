package grpccall

import (
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/dispatch/httpcall"
	"github.com/tgad/tgad/schemas/tga"
)

// defaults says what a status code means if no rule of the operator does: first on attempt 1,
// again on a later attempt. Its index is the code.
//
// A re-send that fails says nothing about the attempt before it, which may even be the reason:
// the account exists already. Only InvalidArgument depends, by its definition, on the arguments
// alone, whatever the state of the system.
var defaults = [...]struct {
	first, again httpcall.Outcome
	denied       bool // the server refused before it did anything
}{
	codes.OK:                 {httpcall.Succeeded, httpcall.Succeeded, false},
	codes.Canceled:           {httpcall.InDoubt, httpcall.InDoubt, false},
	codes.Unknown:            {httpcall.InDoubt, httpcall.InDoubt, false}, // a server's status for an error without one
	codes.InvalidArgument:    {httpcall.Failed, httpcall.Failed, false},
	codes.DeadlineExceeded:   {httpcall.InDoubt, httpcall.InDoubt, false},
	codes.NotFound:           {httpcall.Failed, httpcall.InDoubt, false},
	codes.AlreadyExists:      {httpcall.Failed, httpcall.InDoubt, false},
	codes.PermissionDenied:   {httpcall.Failed, httpcall.InDoubt, true},
	codes.ResourceExhausted:  {httpcall.InDoubt, httpcall.InDoubt, false}, // a quota, or an answer that is too long for this client
	codes.FailedPrecondition: {httpcall.Failed, httpcall.InDoubt, false},
	codes.Aborted:            {httpcall.Failed, httpcall.InDoubt, false},
	codes.OutOfRange:         {httpcall.Failed, httpcall.InDoubt, false},
	codes.Unimplemented:      {httpcall.Failed, httpcall.InDoubt, true},
	codes.Internal:           {httpcall.InDoubt, httpcall.InDoubt, false},
	codes.Unavailable:        {httpcall.InDoubt, httpcall.InDoubt, false},
	codes.DataLoss:           {httpcall.InDoubt, httpcall.InDoubt, false},
	codes.Unauthenticated:    {httpcall.Failed, httpcall.InDoubt, true},
}

// classify makes a reply of a status other than OK, or an error of a status that says too little.
func classify(rules map[codes.Code]httpcall.Outcome, attempt uint32, err error) (runtime.Reply, error) {
	st, ok := status.FromError(err)
	if !ok {
		return runtime.Reply{}, err
	}
	said := fmt.Sprintf("gRPC %s: %s", st.Code(), st.Message())
	outcome, denied := httpcall.InDoubt, false
	if int(st.Code()) < len(defaults) {
		row := defaults[st.Code()]
		if outcome, denied = row.first, row.denied; attempt > 1 {
			outcome = row.again
		}
		if rule, ok := rules[st.Code()]; ok {
			outcome = rule
		}
	}
	reply := runtime.Reply{
		Status: tga.StatusFailure, Class: outcome.Class(), Result: document(st),
		ErrorCode: string(tga.ToolError), ErrorMessage: clip.Runes(said, maxMessage),
	}
	if st.Code() == codes.ResourceExhausted {
		reply.ErrorCode = string(tga.RateLimited)
	}
	switch outcome {
	case httpcall.Succeeded: // the operator says that this status means success
		return runtime.Reply{Status: tga.StatusSuccess, Result: reply.Result, Summary: clip.Runes(said, maxSummary)}, nil
	case httpcall.Failed:
		if denied {
			reply.Status = tga.StatusDenied
		}
		return reply, nil
	case httpcall.NotExecuted:
		if attempt > 1 {
			// This attempt did nothing, but an earlier one may have. Only the ledger knows
			// whether any is left in doubt.
			return runtime.Reply{}, fmt.Errorf("%w: the server did not execute this attempt: %s", runtime.ErrNotSent, said)
		}
		return reply, nil
	}
	return runtime.Reply{}, fmt.Errorf("the call may have run: %w", errors.New(said))
}

// document returns a status as a tool's answer: code, message, and the unchanged details.
func document(st *status.Status) []byte {
	type detail struct {
		Type  string `json:"type_url"`
		Value []byte `json:"value"`
	}
	doc := struct {
		Code    uint32   `json:"code"`
		Status  string   `json:"status"`
		Message string   `json:"message"`
		Details []detail `json:"details,omitempty"`
	}{Code: uint32(st.Code()), Status: st.Code().String(), Message: st.Message()}
	for _, d := range st.Proto().GetDetails() {
		doc.Details = append(doc.Details, detail{d.GetTypeUrl(), d.GetValue()})
	}
	b, err := json.Marshal(doc)
	if err != nil {
		panic(fmt.Sprintf("grpccall: a status did not marshal: %v", err)) // cannot happen
	}
	return b
}

// Longest texts that an effect may carry (docs/FORMAT.md).
const (
	maxMessage = 200
	maxSummary = 500
)

package mcpfront

import (
	"strconv"

	"github.com/tgad/tgad/internal/mcpfront/attempt"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/schemas/tga"
)

// answer gives the outcome of an attempt to the client. That ends the call.
func (q *call) answer(a *attempt.Attempt, mine bool) error {
	q.conv.giving(q.w) // first: a client that has the answer may use the id again
	defer q.conv.given()
	select {
	case <-q.GaveUp.C:
		return attempt.ErrOver
	default:
	}
	o := &a.Out
	if mine && o.Frame != nil {
		// The tool server's own message, byte for byte.
		f := o.Frame
		o.Frame = nil
		defer f.Close()
		return q.conv.send(q.w.batch, &f.Envelope, f)
	}
	switch {
	case o.Asks != nil && (q.Params.InRequest() || o.Words == ""): // else this client cannot be asked in an answer
		return q.reply(`,"result":`, o.Asks)
	case o.Words != "" && o.RPC != 0:
		q.conv.fail(q.w.id, q.w.batch, o.RPC, o.Code, o.Trace.String(), o.Words)
		return nil
	case o.Words != "":
		return q.reply(q.refusal(o.Code, o.Trace, o.Words))
	case o.Value == nil:
		return q.reply(q.refusal(tga.LimitExceeded, o.Trace, "This call has run before and its answer was too long to be kept. "+
			"It is not run again. Its digest is in trace "+o.Trace.String()+"."))
	case o.Fault:
		return q.reply(`,"error":`, o.Value)
	}
	return q.reply(`,"result":`, say.Replayed(o.Value, o.Trace, o.Digest, o.Redacted))
}

// reply answers the client.
func (q *call) reply(kind string, value []byte) error {
	return q.conv.answer(q.w, kind, value)
}

func (q *call) refusal(code tga.Code, trace tga.ID, words string) (kind string, value []byte) {
	id := ""
	if !trace.IsZero() {
		id = trace.String()
	}
	return `,"result":`, say.ToolError(q.version, code, id, words)
}

// leave ends the client's part in a call that continues without it. The id stays in use for
// as long as the tool server may still answer to it.
func (q *call) leave(a *attempt.Attempt, mine bool) {
	if q.Question != nil && mine && a.Left() {
		<-a.Done.C // comes soon: the attempt ends when no call waits for it
		mine = false
	}
	if !mine {
		q.conv.unregister(q.w)
	}
	if q.Question != nil {
		_ = q.reply(`,"result":`, q.Question) // a client that is gone is seen by send
	}
	if !mine {
		return
	}
	q.conv.s.Work.Go(func() {
		<-a.Done.C
		if f := a.Out.Frame; f != nil {
			f.Close()
		}
		if q.IsAbandoned() {
			q.conv.keepLate(q.w)
		} else {
			q.conv.unregister(q.w)
		}
	})
}

// progress sends a progress notification, if the client asked for them.
func (q *call) progress(words string) {
	if len(q.token) == 0 || q.token[0] != '"' && (q.token[0] < '0' || q.token[0] > '9') {
		return
	}
	q.steps++
	raw := append([]byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`), q.token...)
	// The value is small, so that the tool server's own later reports are greater.
	raw = strconv.AppendFloat(append(raw, `,"progress":`...), float64(q.steps)/1e6, 'f', -1, 64)
	raw = append(tga.AppendString(append(raw, `,"message":`...), words), "}}"...)
	f := frames.NewFrame(raw)
	_ = q.conv.hand(nil, &f.Envelope, f) // not send: the call's end must not wait for a slow client
}

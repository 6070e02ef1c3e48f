//go:build unix

package gateway

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/tgad/tgad/internal/mcpfront"
	"github.com/tgad/tgad/internal/mcpfront/entry"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// gatePrefix begins the ids that the fan makes: for its own requests to tool servers, and for the
// requests of tool servers to the client.
const gatePrefix = "gate-"

// FromClient handles one message of the client.
func (f *fan) FromClient(msg *frames.Frame) {
	switch {
	case msg.Bad != "":
		id, code := msg.RawID, mcpraw.CodeInvalidRequest
		if id == nil {
			id, code = []byte("null"), mcpraw.CodeParse
		}
		f.g.watch.Refused(RefusedInvalid)
		f.fail(id, code, "", "the message does not pass: "+msg.Bad)
	case msg.Batch:
		f.g.watch.Refused(RefusedInvalid)
		// The answer has no id. Over HTTP the array has a name by which its POST is found.
		_ = f.out.Hand(&mcpraw.Envelope{Batch: true, RawID: msg.RawID},
			frames.Text(say.Fault([]byte("null"), mcpraw.CodeInvalidRequest, "", "", "a gateway takes no arrays of messages: send them one by one")))
	case msg.IsNotification():
		f.notification(msg)
		return
	case !msg.IsRequest():
		f.answerOf(msg)
		return
	default:
		f.request(msg)
		return
	}
	msg.Close()
}

// request handles a request of the client.
func (f *fan) request(msg *frames.Frame) {
	if handshaken[msg.Method] && revisionOf(msg).Stateless() {
		f.refuse(msg, mcpraw.CodeNoMethod, tga.Errorf(tga.NotFound, "there is no method %q in revisions without a handshake", msg.Method))
		return
	}
	if msg.Method == "initialize" {
		f.initialize(msg)
		return
	}
	f.start(nil) // does nothing after a handshake
	if _, ok := lists[msg.Method]; ok {
		f.mine(msg, f.list)
		return
	}
	switch msg.Method {
	case "ping":
		f.mine(msg, func(*frames.Frame, []byte) ([]byte, error) { return []byte("{}"), nil })
	case "server/discover":
		f.mine(msg, f.discover)
	case "logging/setLevel":
		f.mine(msg, f.setLevel)
	case "tools/call":
		f.call(msg)
	case "prompts/get":
		f.route(msg, "/name", nameOf(msg))
	case "completion/complete":
		params, err := msg.Bytes(msg.Params, toolcall.MaxParams)
		switch of := string(mcpraw.At(params, "/ref/type")); {
		case err == nil && of == `"ref/prompt"`:
			f.route(msg, "/ref/name", mcpraw.Text(mcpraw.At(params, "/ref/name")))
		case err == nil && of == `"ref/resource"`:
			f.resource(msg, refURI)
		default:
			f.refuse(msg, mcpraw.CodeInvalidParams, tga.Errorf(tga.ValidationError, "a gateway completes arguments of prompts and of templates of resources").At("/params/ref/type"))
		}
	case say.Listen:
		f.listen(msg)
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		f.resource(msg, "/uri")
	case "tasks/get", "tasks/result", "tasks/update", "tasks/cancel":
		f.routeTo(msg, "/taskId", func() (*member, string, error) { return f.now().task(textOf(msg, "/taskId")) })
	default:
		f.refuse(msg, mcpraw.CodeNoMethod, tga.Errorf(tga.NotFound, "a gateway has no method %q: it leads tools, tasks, prompts and resources to their servers", msg.Method))
	}
}

// handshaken lists the methods that only revisions with a handshake have.
var handshaken = map[string]bool{"initialize": true, "ping": true, "logging/setLevel": true, "resources/subscribe": true, "resources/unsubscribe": true, "tasks/list": true}

// revisionOf is the revision that a request itself names.
func revisionOf(msg *frames.Frame) mcpraw.Revision {
	if !msg.Params.Present() {
		return ""
	}
	params, err := msg.Bytes(msg.Params, toolcall.MaxParams)
	if err != nil {
		return ""
	}
	return mcpraw.RevisionOf(params)
}

// call handles a call of a tool. A call over a quota is answered before anything is written.
func (f *fan) call(msg *frames.Frame) {
	name := nameOf(msg)
	if m, _, _ := f.behind(name); m != nil {
		after, of := f.now().over(name, time.Now())
		if after > 0 && !m.shim.Observes(mcpfront.WouldLimit) {
			f.g.watch.Refused(RefusedQuota)
			params, _ := msg.Bytes(msg.Params, toolcall.MaxParams) // no error: nameOf has read them
			f.reply(msg.RawID, say.ToolError(mcpraw.RevisionOf(params), tga.RateLimited, "", fmt.Sprintf(
				"The call was not sent: only %d calls of %s in %v are for this client. Repeat the same call in %v.", of.Calls, cmp.Or(of.Tool, "all tools"), of.Per, after.Round(time.Millisecond))))
			msg.Close()
			return
		}
	}
	f.route(msg, "/name", name)
}

// route passes a request to the tool server that a name leads to, with that server's own name.
func (f *fan) route(msg *frames.Frame, pointer, name string) {
	f.routeTo(msg, pointer, func() (*member, string, error) { return f.behind(name) })
}

// routeTo passes a request to the tool server that find returns. It replaces the string at a place in the params by
// the one that find returns.
func (f *fan) routeTo(msg *frames.Frame, pointer string, find func() (m *member, inside string, err error)) {
	for {
		m, inside, err := find()
		var inner *frames.Frame
		if err == nil {
			inner, err = rewrite(msg, pointer, inside)
		}
		if err != nil {
			f.refuse(msg, mcpraw.CodeInvalidParams, err)
			return
		}
		switch f.enter(msg, m) {
		case isIn:
			msg.Close()
			m.Conversation.FromClient(m.untasked(inner))
			return
		case isMoved:
			continue
		}
		return
	}
}

// entered is the result of [fan.enter].
type entered uint8

const (
	isTaken entered = iota // the request's id is in use: it was refused
	isIn                   // the request is entered
	isMoved                // the tool server gets no new requests any more: find the tool server again
)

// enter notes that a request is under way. It refuses a request whose id is in use.
func (f *fan) enter(msg *frames.Frame, m *member) entered {
	key := frames.KeyOf(msg.RawID)
	f.mu.Lock()
	_, taken := f.asked[key]
	if m != nil && m.retired {
		f.mu.Unlock()
		return isMoved
	}
	if !taken {
		f.asked[key] = asked{m, msg.Method, time.Now()}
	}
	f.mu.Unlock()
	if taken {
		f.refuse(msg, mcpraw.CodeInvalidRequest, tga.Errorf(tga.ValidationError, "a request of this id is under way"))
		return isTaken
	}
	return isIn
}

// mine answers a request that is not for a single tool server. It calls answer with the params.
func (f *fan) mine(msg *frames.Frame, answer func(msg *frames.Frame, params []byte) ([]byte, error)) {
	params := []byte("{}")
	var err error
	if msg.Params.Present() {
		if params, err = msg.Bytes(msg.Params, frames.SpillBytes); err != nil {
			f.refuse(msg, mcpraw.CodeInvalidParams, err)
			return
		}
	}
	if f.enter(msg, nil) != isIn {
		return
	}
	f.work.Go(func() {
		defer msg.Close()
		result, err := answer(msg, params)
		var fault *faulted
		f.mu.Lock()
		_, waits := f.asked[frames.KeyOf(msg.RawID)]
		delete(f.asked, frames.KeyOf(msg.RawID))
		f.mu.Unlock()
		switch {
		case !waits: // the request was given up
		case errors.As(err, &fault):
			f.answer(msg.RawID, `,"error":`, fault.fault)
		case err != nil:
			f.challengedBy(err, msg.RawID)
			f.fail(msg.RawID, codeOf(err), tga.CodeOf(err), err.Error())
		default:
			if mcpraw.RevisionOf(params).Stateless() {
				result = say.With(result, "resultType", []byte(`"complete"`))
			}
			f.reply(msg.RawID, result)
		}
	})
}

// codeOf is the JSON-RPC code of an error of the fan.
func codeOf(err error) int {
	if tga.CodeOf(err) == tga.ValidationError {
		return mcpraw.CodeInvalidParams
	}
	return mcpraw.CodeGone
}

func (f *fan) reply(id, result []byte) { f.answer(id, `,"result":`, result) }

func (f *fan) answer(id []byte, kind string, value []byte) {
	f.say(frames.NewFrame(slices.Concat([]byte(`{"jsonrpc":"2.0","id":`), id, []byte(kind), value, []byte("}"))))
}

func (f *fan) fail(id []byte, code int, tgaCode tga.Code, words string) {
	env := mcpraw.Envelope{RawID: id, ID: mcpraw.Span{From: 0, To: 1}}
	_ = f.out.Hand(&env, frames.Text(say.Fault(id, code, tgaCode, "", words)))
}

func (f *fan) refuse(msg *frames.Frame, code int, err error) {
	f.g.watch.Refused(refusalOf(err))
	f.challengedBy(err, msg.RawID)
	f.fail(msg.RawID, code, tga.CodeOf(err), err.Error())
	msg.Close()
}

// notification handles a notification of the client.
func (f *fan) notification(msg *frames.Frame) {
	defer msg.Close()
	switch msg.Method {
	case "notifications/initialized":
		f.mu.Lock()
		f.greeted = true
		f.mu.Unlock()
		for _, m := range f.now().views {
			m.Resume() // the shim has sent the notification to the tool server itself
		}
	case "notifications/cancelled":
		params, err := msg.Bytes(msg.Params, frames.MaxCancel)
		if err != nil {
			return
		}
		key := frames.KeyOf(mcpraw.At(params, "/requestId"))
		if m := f.ended(key, EndGivenUp); m != nil {
			m.Conversation.FromClient(frames.NewFrame(bytes.Clone(msg.Head)))
		}
		f.unlisten(key, func(b *branch) {
			b.m.Conversation.FromClient(frames.NewFrame(slices.Concat([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`), b.id, []byte("}}"))))
		})
	case "notifications/roots/list_changed":
		for _, m := range f.now().views {
			m.Conversation.FromClient(frames.NewFrame(bytes.Clone(msg.Head)))
		}
	default:
		// It does not say which tool server it is for. Progress of a tool server's request, for example,
		// has only that server's own token.
		f.g.log.Debug("a notification was dropped: it says not for which tool server it is", "method", msg.Method)
	}
}

// answerOf passes the client's answer to the tool server that asked.
func (f *fan) answerOf(msg *frames.Frame) {
	defer msg.Close()
	key := frames.KeyOf(msg.RawID)
	f.mu.Lock()
	q, known := f.questions[key]
	delete(f.questions, key)
	f.mu.Unlock()
	if !known {
		f.g.log.Warn("dropped an answer to an unknown request of a tool server")
		return
	}
	raw, err := msg.Bytes(mcpraw.Span{From: 0, To: msg.Size}, toolcall.MaxParams)
	if err != nil {
		f.g.log.Warn("an answer of the client's was dropped", "error", err)
		return
	}
	q.m.Conversation.FromClient(q.m.untasked(frames.Splice(raw, msg.ID, q.id)))
}

// seat is the outlet of the conversation with one tool server.
type seat struct{ m *member }

func (s seat) Send(env *mcpraw.Envelope, parts ...io.WriterTo) error {
	return s.pass(s.m.f.out.Send, env, parts)
}

func (s seat) Hand(env *mcpraw.Envelope, parts ...io.WriterTo) error {
	return s.pass(s.m.f.out.Hand, env, parts)
}

// Challenge makes the answer to a request ask for authorization. For a request of the fan itself, the challenge is
// kept until the answer comes.
func (s seat) Challenge(id []byte, ch *frames.Challenge) {
	f, key := s.m.f, frames.KeyOf(id)
	f.mu.Lock()
	q, of := f.own[key], f.branches[key]
	if q != nil {
		q.challenge = ch
	}
	if of != nil && of.at[key] != nil {
		of.at[key].challenge = ch
	}
	f.mu.Unlock()
	if q == nil && of == nil {
		f.challenge(id, ch)
	}
}

func (f *fan) challenge(id []byte, ch *frames.Challenge) {
	if out, ok := f.out.(entry.Challengeable); ok {
		out.Challenge(id, ch)
	}
}

// challengedBy makes the answer to a request a challenge if err is one.
func (f *fan) challengedBy(err error, id []byte) {
	var ch *frames.Challenge
	if errors.As(err, &ch) {
		f.challenge(id, ch)
	}
}

// pass passes a message to the client. It returns only when way has returned: the conversation
// then counts the message as delivered.
func (s seat) pass(way func(*mcpraw.Envelope, ...io.WriterTo) error, env *mcpraw.Envelope, parts []io.WriterTo) error {
	f := s.m.f
	if env.Bad == "" {
		var err error
		if env, parts, err = s.tasked(env, parts); err != nil {
			return err
		}
	}
	switch {
	case env.Bad != "":
		f.g.log.Debug("a line of a tool server's that is no message was dropped", "tool_server", s.m.shim.Server())
		return nil
	case env.IsAnswer():
		key := frames.KeyOf(env.RawID)
		if taken, err := s.branchEnded(key, env, parts); taken {
			return err
		}
		f.mu.Lock()
		own := f.own[key]
		delete(f.own, key)
		_, waits := f.asked[key]
		f.mu.Unlock()
		if own == nil && !waits && bytes.HasPrefix(env.RawID, []byte(`"`+gatePrefix)) {
			return entry.ErrNoTaker // the answer to a request of the fan that it has given up
		}
		end := EndResult
		if env.Fault.Present() {
			end = EndError
		}
		f.ended(key, end)
		if own == nil {
			return way(env, parts...)
		}
		msg, err := whole(parts)
		if err == nil {
			own.got <- msg // does not block: the channel has room for one
		}
		return err
	case env.IsRequest():
		msg, err := whole(parts)
		if err != nil {
			return err
		}
		f.mu.Lock()
		f.next++
		id := tga.AppendString(nil, gatePrefix+strconv.FormatUint(f.next, 10))
		f.questions[frames.KeyOf(id)] = question{s.m, bytes.Clone(env.RawID)}
		f.mu.Unlock()
		msg = frames.Replace(msg, msg.ID, id)
		return way(&msg.Envelope, msg)
	case env.Method == "notifications/cancelled":
		return s.withdraw(way, parts)
	case heardOf[env.Method]:
		msg, err := whole(parts)
		if err != nil {
			return err
		}
		if env.Method == resourceUpdated && !s.mayHear(msg) {
			return nil
		}
		if taken, err := s.heard(way, msg); taken {
			return err
		}
		return way(&msg.Envelope, msg)
	}
	return way(env, parts...)
}

// heardOf lists the notifications that belong on a stream.
var heardOf = map[string]bool{say.Ack: true, say.ToolsChanged: true, promptsChanged: true, resourcesChanged: true, resourceUpdated: true, taskChanged: true}

// mayHear reports whether the client may still have the resource that a notification is about.
func (s seat) mayHear(msg *frames.Frame) bool {
	v := s.m.f.now().with(s.m.shim)
	return v != nil && msg.Params.Present() && v.has(mcpraw.Text(mcpraw.At(msg.Head[msg.Params.From:msg.Params.To], "/uri")))
}

// withdraw tells the client that a tool server has cancelled its request.
func (s seat) withdraw(way func(*mcpraw.Envelope, ...io.WriterTo) error, parts []io.WriterTo) error {
	msg, err := whole(parts)
	if err != nil || !msg.Params.Present() {
		return err
	}
	params := msg.Head[msg.Params.From:msg.Params.To]
	from, to, ok := mcpraw.Locate(params, "/requestId")
	if !ok {
		return nil
	}
	f, theirs := s.m.f, frames.KeyOf(params[from:to])
	var mine []byte
	f.mu.Lock()
	for key, q := range f.questions {
		if q.m == s.m && frames.KeyOf(q.id) == theirs {
			mine = tga.AppendString(nil, string(key[1:]))
			delete(f.questions, key)
		}
	}
	f.mu.Unlock()
	if mine == nil {
		return nil
	}
	msg = frames.Replace(msg, mcpraw.Span{From: msg.Params.From + int64(from), To: msg.Params.From + int64(to)}, mine)
	return way(&msg.Envelope, msg)
}

// whole reads a message into memory.
func whole(parts []io.WriterTo) (*frames.Frame, error) {
	var buf bytes.Buffer
	for _, p := range parts {
		if _, err := p.WriteTo(&buf); err != nil {
			return nil, err
		}
	}
	return frames.NewFrame(buf.Bytes()), nil
}

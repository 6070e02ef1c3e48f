//go:build unix

package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tgad/tgad/internal/mcpfront"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpfront/toolset"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// lists has the methods whose answers are merged, each with the member that has the items.
var lists = map[string]string{
	"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates",
	"tasks/list": "tasks",
}

// offer returns the function that makes the client's form of a list's item, or nil to leave the item out.
func (m *view) offer(method string) func(item []byte) []byte {
	switch method {
	case "resources/list":
		return m.offeredResource
	case "resources/templates/list":
		return m.offeredTemplate
	case "tasks/list":
		return m.offeredTask
	}
	return m.offered
}

// serverInfo is how a gateway names itself.
const serverInfo = `{"name":"tgad gateway","version":"1"}`

// initialize answers the client's handshake. The tool servers get the client's params. The answer
// has the capabilities of the tool servers that have started in time.
func (f *fan) initialize(msg *frames.Frame) {
	var params []byte
	if msg.Params.Present() {
		if p, err := msg.Bytes(msg.Params, frames.SpillBytes); err == nil {
			params = bytes.Clone(p)
		}
	}
	if params == nil {
		f.refuse(msg, mcpraw.CodeInvalidParams, tga.Errorf(tga.ValidationError, "want params of at most %d bytes", frames.SpillBytes))
		return
	}
	if !f.start(params) {
		f.refuse(msg, mcpraw.CodeInvalidRequest, tga.Errorf(tga.ValidationError, "the conversation has begun already"))
		return
	}
	f.mine(msg, func(*frames.Frame, []byte) ([]byte, error) {
		f.settled()
		agreed := mcpraw.Revision(mcpraw.ScalarText(mcpraw.At(params, "/protocolVersion"))).Agree()
		var all []able
		told := ""
		for _, m := range f.now().views {
			if m.Said() == nil {
				if ch := m.Challenged(); ch.ComesBack() {
					return nil, ch // the tool server refuses the client's own credentials: no session without them
				}
				f.missing(m.member)
			}
			said := m.Said() // again, after missing: a server that starts from now on is announced later
			if said == nil {
				continue
			}
			if v := m.Version(); v != "" {
				agreed = min(agreed, v)
			}
			all = append(all, able{m, mcpraw.At(said, "/capabilities")})
			if words := mcpraw.ScalarText(mcpraw.At(said, "/instructions")); words != "" {
				told += fmt.Sprintf("Of the tools whose names begin with %q: %s\n\n", m.names.Prefix, words)
			}
		}
		b := tga.AppendString([]byte(`{"protocolVersion":`), string(agreed))
		b = append(append(b, `,"capabilities":`...), together(all)...)
		b = append(b, `,"serverInfo":`+serverInfo...)
		if told != "" {
			b = tga.AppendString(append(b, `,"instructions":`...), strings.TrimSpace(told))
		}
		return append(b, '}'), nil
	})
}

// able are the capabilities of a tool server.
type able struct {
	m   *view
	can []byte
}

// together merges the capabilities of tool servers into those of the gateway.
func together(all []able) []byte {
	b := []byte(`{"tools":{"listChanged":true}`)
	for _, c := range []struct{ name, is string }{{"prompts", `{"listChanged":true}`}, {"completions", "{}"}, {"logging", "{}"}} {
		if slices.ContainsFunc(all, func(a able) bool { return mcpraw.At(a.can, "/"+c.name) != nil }) {
			b = append(b, `,"`+c.name+`":`+c.is...)
		}
	}
	has := func(at string) bool {
		return slices.ContainsFunc(all, func(a able) bool { return mcpraw.At(a.can, at) != nil })
	}
	if has("/tasks") {
		is := ""
		for _, c := range []string{"list", "cancel", "requests/tools/call"} {
			if has("/tasks/" + c) {
				is += `,"` + strings.ReplaceAll(c, "/", `":{"`) + `":{}` + strings.Repeat("}", strings.Count(c, "/"))
			}
		}
		b = append(b, `,"tasks":{`+strings.TrimPrefix(is, ",")+"}"...)
	}
	if has("/extensions/" + tga.EscapeToken(tasksExtension)) {
		b = append(b, `,"extensions":{"`+tasksExtension+`":{}}`...)
	}
	all = slices.DeleteFunc(all, func(a able) bool { return len(a.m.resources) == 0 || mcpraw.At(a.can, "/resources") == nil })
	if len(all) > 0 {
		subscribes := slices.ContainsFunc(all, func(a able) bool { return string(mcpraw.At(a.can, "/resources/subscribe")) == "true" })
		b = append(strconv.AppendBool(append(b, `,"resources":{"listChanged":true,"subscribe":`...), subscribes), '}')
	}
	return append(b, '}')
}

// missing notes that the client gets an answer without a tool server's part.
func (f *fan) missing(m *member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m.absent = true
}

// ask makes a request of the fan itself to a tool server and returns the result.
func (m *member) ask(ctx context.Context, method string, params []byte) ([]byte, error) {
	f, q := m.f, &inquiry{method: method, got: make(chan *frames.Frame, 1)}
	id := []byte(`"` + gatePrefix + frames.Nonce() + `"`)
	f.mu.Lock()
	f.own[frames.KeyOf(id)] = q
	f.mu.Unlock()
	raw := tga.AppendString(append(append([]byte(`{"jsonrpc":"2.0","id":`), id...), `,"method":`...), method)
	m.Conversation.FromClient(frames.NewFrame(append(append(append(raw, `,"params":`...), params...), '}')))
	select {
	case msg := <-q.got:
		defer msg.Close()
		f.mu.Lock()
		ch := q.challenge
		f.mu.Unlock()
		if ch != nil {
			return nil, ch
		}
		if msg.Result.Present() {
			return msg.Bytes(msg.Result, toolset.MaxList)
		}
		fault, err := msg.Bytes(msg.Fault, 4096)
		if err == nil {
			err = &faulted{bytes.Clone(fault)}
		}
		return nil, err
	case <-ctx.Done():
		f.mu.Lock()
		delete(f.own, frames.KeyOf(id))
		f.mu.Unlock()
		m.Conversation.GivenUp(frames.KeyOf(id))
		return nil, context.Cause(ctx)
	}
}

// faulted is an error that a tool server answered.
type faulted struct{ fault []byte }

func (e *faulted) Error() string { return "it answers " + string(e.fault) }

// noMethod reports whether the tool server has no such method, and so nothing to list.
func (e *faulted) noMethod() bool {
	return string(mcpraw.At(e.fault, "/code")) == strconv.Itoa(mcpraw.CodeNoMethod)
}

// mutePart divides the time that a list waits for a tool server that did not answer the last one in time.
const mutePart = 20

// part is what one tool server has answered.
type part struct {
	m    *view
	said []byte
}

// each asks every running tool server at the same time, and returns their answers in the order of the table. A tool
// server that does not run, or does not answer in time, has an empty part. err is the challenge of a tool server that
// refused the client's own credentials. Otherwise, if all answers are errors, err is the first of them.
func (f *fan) each(ask func(context.Context, *view) ([]byte, error)) ([]part, error) {
	f.settled()
	ctx, cancel := context.WithTimeout(f.life, f.g.wait)
	defer cancel()
	views := f.now().views
	all, faults, said := make([]part, len(views)), make([]*faulted, len(views)), atomic.Bool{}
	refusals := make([]*frames.Challenge, len(views))
	var asked sync.WaitGroup
	for i, m := range views {
		all[i].m = m
		if !m.There() {
			f.missing(m.member)
		}
		if !m.There() { // again, after missing: a server that starts from now on is announced later
			if refusals[i] = m.Challenged(); refusals[i] != nil {
				m.Nudge()
			}
			continue
		}
		asked.Go(func() {
			patience := f.g.wait
			if m.mute.Load() {
				patience /= mutePart
			}
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			answer, err := ask(ctx, m)
			m.mute.Store(ctx.Err() != nil && f.life.Err() == nil)
			switch {
			case err == nil:
				said.Store(true)
			case errors.As(err, &faults[i]) && faults[i].noMethod():
				faults[i] = nil
				said.Store(true) // it has answered: it has nothing of this kind
			case errors.As(err, &refusals[i]):
				f.missing(m.member)
				f.g.log.Info("a tool server was left out of a list", "tool_server", m.shim.Server(), "error", err)
			case faults[i] == nil:
				f.missing(m.member)
				fallthrough
			default:
				f.g.log.Warn("a tool server was left out of a list", "tool_server", m.shim.Server(), "error", err)
			}
			all[i].said = answer
		})
	}
	asked.Wait()
	for _, ch := range refusals {
		if ch.ComesBack() {
			return all, ch
		}
	}
	for _, fault := range faults {
		if fault != nil && !said.Load() {
			return all, fault
		}
	}
	return all, nil
}

// list merges the lists of the tool servers, with the client's names. The result has one page.
func (f *fan) list(msg *frames.Frame, params []byte) ([]byte, error) {
	where, method := lists[msg.Method], msg.Method
	if mcpraw.At(params, "/cursor") != nil {
		return nil, tga.Errorf(tga.ValidationError, "the list has one page").At("/params/cursor")
	}
	all, err := f.each(func(ctx context.Context, m *view) ([]byte, error) {
		return m.pages(ctx, method, where, params, m.offer(method))
	})
	if err != nil {
		return nil, err
	}
	if method == "resources/list" {
		all = f.owned(all)
	}
	b := []byte(`{"` + where + `":[`)
	var parts [][]byte
	for _, p := range all {
		if len(p.said) > 0 {
			parts = append(parts, p.said)
		}
	}
	b = append(b, bytes.Join(parts, []byte{','})...)
	if b = append(b, ']'); mcpraw.RevisionOf(params).Stateless() {
		b = append(b, `,"ttlMs":0,"cacheScope":"private"`...)
	}
	return append(b, '}'), nil
}

// pages returns the items of all pages of a tool server's list that the client may have, joined by commas.
func (m *member) pages(ctx context.Context, method, where string, params []byte, offer func([]byte) []byte) ([]byte, error) {
	var all []byte
	cursor := ""
	for range mcpfront.MaxPages {
		asks := params
		if cursor != "" {
			asks = say.With(params, "cursor", tga.AppendString(nil, cursor))
		}
		result, err := m.ask(ctx, method, asks)
		if err != nil {
			return all, err
		}
		var items []json.RawMessage
		if list := mcpraw.At(result, "/"+where); list != nil && json.Unmarshal(list, &items) != nil {
			return all, tga.Errorf(tga.ToolError, "its list is not an array")
		}
		for _, item := range items {
			if item = offer(item); item == nil {
				continue
			}
			if len(all) > 0 {
				all = append(all, ',')
			}
			if all = append(all, item...); len(all) > toolset.MaxList {
				return nil, tga.Errorf(tga.LimitExceeded, "its list has over %d bytes", toolset.MaxList)
			}
		}
		if cursor = mcpraw.ScalarText(mcpraw.At(result, "/nextCursor")); cursor == "" {
			return all, nil
		}
	}
	return nil, tga.Errorf(tga.LimitExceeded, "its list has more than %d pages", mcpfront.MaxPages)
}

// offered is an item of a list with the client's name, nil if the client may not have it.
func (m *view) offered(item []byte) []byte {
	from, to, ok := mcpraw.Locate(item, "/name")
	if !ok {
		return nil
	}
	seen := m.names.Seen(mcpraw.Text(item[from:to]))
	if of, _, err := m.t.behind(seen); err != nil || of.member != m.member {
		return nil
	}
	return named(item, from, to, seen)
}

// named is an item of a list with another string in a place.
func named(item []byte, from, to int, name string) []byte {
	return append(tga.AppendString(bytes.Clone(item[:from]), name), item[to:]...)
}

// discover merges the tool servers' answers to server/discover, for a client without a handshake.
func (f *fan) discover(_ *frames.Frame, params []byte) ([]byte, error) {
	all, err := f.each(func(ctx context.Context, m *view) ([]byte, error) { return m.ask(ctx, "server/discover", params) })
	if err != nil {
		return nil, err
	}
	var versions []string
	var can []able
	for _, p := range all {
		var these []string
		if p.said == nil || json.Unmarshal(mcpraw.At(p.said, "/supportedVersions"), &these) != nil {
			continue
		}
		if can = append(can, able{p.m, mcpraw.At(p.said, "/capabilities")}); len(can) == 1 {
			versions = these
		} else {
			versions = slices.DeleteFunc(versions, func(v string) bool { return !slices.Contains(these, v) })
		}
	}
	if len(versions) == 0 {
		return nil, tga.Errorf(tga.ToolError, "the running tool servers have no common revision without a handshake")
	}
	b := []byte(`{"supportedVersions":[`)
	for i, v := range versions {
		if i > 0 {
			b = append(b, ',')
		}
		b = tga.AppendString(b, v)
	}
	return append(append(append(b, `],"capabilities":`...), together(can)...), `,"serverInfo":`+serverInfo+`,"_meta":{"io.modelcontextprotocol/serverInfo":`+serverInfo+`},"ttlMs":0,"cacheScope":"private"}`...), nil
}

// setLevel sets the log level of every tool server, including those that start later.
func (f *fan) setLevel(msg *frames.Frame, params []byte) ([]byte, error) {
	f.mu.Lock()
	f.level = bytes.Clone(params)
	f.mu.Unlock()
	for _, m := range f.now().views {
		m.Saw(msg)
	}
	_, err := f.each(func(ctx context.Context, m *view) ([]byte, error) { return m.ask(ctx, msg.Method, params) })
	return []byte("{}"), err
}

//go:build unix

package gateway

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// A client sees a task under an id that the gateway makes ([names.Tasks]). The gateway replaces the tool server's id by its
// own in messages to the client, and puts the tool server's id back in messages to the tool server. Only this file does
// that: the conversations, and so the log, know only the tool server's ids.

const (
	tasksExtension = "io.modelcontextprotocol/tasks"
	taskChanged    = "notifications/tasks"        // revision 2026-07-28
	taskStatus     = "notifications/tasks/status" // revision 2025-11-25
	relatedTask    = "/_meta/io.modelcontextprotocol~1related-task/taskId"
	taskWord       = `taskId` // without it a message names no task
)

// task finds the task that a client's id stands for.
func (t *table) task(seen string) (m *member, task string, err error) {
	server, task, ok := t.g.tasks.Behind(seen)
	if v := t.of(server); ok && v != nil {
		return v.member, task, nil
	}
	return nil, "", tga.Errorf(tga.NotFound, "there is no such task of this client's at this gateway").At("/params/taskId")
}

// tasked returns a message of a tool server with the ids of tasks as the client sees them.
func (s seat) tasked(env *mcpraw.Envelope, parts []io.WriterTo) (*mcpraw.Envelope, []io.WriterTo, error) {
	if !slices.ContainsFunc(parts, mentionsTask) {
		return env, parts, nil
	}
	msg, err := whole(parts)
	if err != nil {
		return env, parts, err
	}
	f := s.m.f
	for _, at := range taskPlaces(msg, s.methodOf(env)) {
		id := mcpraw.Text(at.in(msg))
		if id == "" {
			continue
		}
		f.g.handed.add(s.m.shim.Server(), id)
		msg = at.put(msg, f.g.tasks.Seen(s.m.shim.Server(), id))
	}
	return &msg.Envelope, []io.WriterTo{msg}, nil
}

// mentionsTask reports whether a part of a message may name a task. A message that is not wholly in memory counts as one
// that names none.
func mentionsTask(p io.WriterTo) bool {
	switch p := p.(type) {
	case frames.Text:
		return bytes.Contains(p, []byte(taskWord))
	case *frames.Frame:
		return int64(len(p.Head)) == p.Size && bytes.Contains(p.Head, []byte(taskWord))
	}
	return true
}

// methodOf is the method of the request that a message answers, "" if it is no answer.
func (s seat) methodOf(env *mcpraw.Envelope) string {
	if !env.IsAnswer() {
		return ""
	}
	f, key := s.m.f, frames.KeyOf(env.RawID)
	f.mu.Lock()
	defer f.mu.Unlock()
	if q := f.own[key]; q != nil {
		return q.method
	}
	return f.asked[key].method
}

// place says where in a message the id of a task may be.
type place string // a JSON Pointer into the result of an answer, or into the params of another message

func partOf(m *frames.Frame) mcpraw.Span {
	if m.IsAnswer() {
		return m.Result
	}
	return m.Params
}

func (p place) in(m *frames.Frame) []byte {
	span := partOf(m)
	return mcpraw.At(m.Head[span.From:span.To], string(p))
}

// put puts an id into the place.
func (p place) put(m *frames.Frame, id string) *frames.Frame {
	span := partOf(m)
	from, to, ok := mcpraw.Locate(m.Head[span.From:span.To], string(p))
	if !ok {
		return m
	}
	return frames.Replace(m, mcpraw.Span{From: span.From + int64(from), To: span.From + int64(to)}, tga.AppendString(nil, id))
}

// taskPlaces lists the places of a tool server's message that have ids of tasks. method is that of the request it answers.
func taskPlaces(m *frames.Frame, method string) (all []place) {
	all = append(all, relatedTask)
	isTask := mcpraw.ScalarText(place("/resultType").in(m)) == "task"
	switch {
	case strings.HasPrefix(method, "tasks/"), method == "tools/call" && isTask, m.Method == taskChanged, m.Method == taskStatus:
		all = append(all, "/taskId")
	case method == "tools/call":
		all = append(all, "/task/taskId")
	}
	return all
}

// untasked returns a client's message with the tool server's id of the task that the message belongs to.
func (m *member) untasked(msg *frames.Frame) *frames.Frame {
	if int64(len(msg.Head)) != msg.Size || !bytes.Contains(msg.Head, []byte(taskWord)) {
		return msg
	}
	server, task, ok := m.f.g.tasks.Behind(mcpraw.Text(place(relatedTask).in(msg)))
	if !ok || server != m.shim.Server() {
		return msg
	}
	return place(relatedTask).put(msg, task)
}

// handed remembers the tasks that a gate's clients were told of. A tool server that has one account for all identities
// may list the tasks of all of them, and only the remembered ones are shown.
type handed struct {
	mu  sync.Mutex
	ids map[string]bool
}

// maxHanded bounds the remembered tasks. Further tasks are not listed, but a client can ask about them.
const maxHanded = 1 << 16

func (h *handed) add(server, task string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ids == nil {
		h.ids = map[string]bool{}
	}
	if len(h.ids) < maxHanded {
		h.ids[server+":"+task] = true
	}
}

func (h *handed) has(server, task string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ids[server+":"+task]
}

// offeredTask returns an item of tasks/list as the client sees it. It is nil if neither the gate nor the log knows that
// the task belongs to its clients.
func (m *view) offeredTask(item []byte) []byte {
	from, to, ok := mcpraw.Locate(item, "/taskId")
	if !ok {
		return nil
	}
	server, task := m.shim.Server(), mcpraw.Text(item[from:to])
	if !m.f.g.handed.has(server, task) && !m.Unfinished(task) {
		return nil
	}
	return named(item, from, to, m.f.g.tasks.Seen(server, task))
}

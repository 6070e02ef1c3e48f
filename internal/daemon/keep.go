package daemon

import (
	"context"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// keep changes a value that a remote executor keeps beside its calls.
func (q *request) keep() (any, error) {
	var m wire.KeepRequest
	if err := q.decode(&m); err != nil {
		return nil, err
	}
	namespace, err := q.peer.namespace(m.Namespace)
	if err != nil {
		return nil, err
	}
	r := runtime.KeepRequest{Namespace: namespace, Server: m.ToolServer, Name: m.Name, Old: m.Old, Value: m.Value}
	return run(q, namespace, func(ctx context.Context) (wire.KeepAnswer, error) {
		now, changed, err := q.d.rt.Keep(ctx, r)
		return wire.KeepAnswer{Changed: changed, Value: now.Value}, err
	})
}

// keptPage limits the names and values of one answer, in bytes together. Tests set another value.
var keptPage = 4 << 20

// kept lists the values that remote executors keep about a tool server, those after a name.
func (q *request) kept() (any, error) {
	v := q.r.URL.Query()
	namespace, err := q.peer.namespace(v.Get("namespace"))
	if err != nil {
		return nil, err
	}
	server := v.Get("tool_server")
	if server == "" {
		return nil, tga.Errorf(tga.ValidationError, "the tool server is required").At("/tool_server")
	}
	answer := wire.KeptValues{Values: []wire.KeptValue{}}
	size := 0
	for k, err := range q.d.rt.Kept(q.r.Context(), namespace, server, v.Get("after")) {
		if err != nil {
			return nil, err
		}
		if size += len(k.Name) + len(k.Value); size > keptPage && len(answer.Values) > 0 {
			answer.Next = answer.Values[len(answer.Values)-1].Name
			break
		}
		answer.Values = append(answer.Values, wire.KeptValue{Name: k.Name, Value: k.Value})
	}
	return answer, nil
}

package owntask

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// Split takes the ids of the shim's own tasks out of a subscription's filter. others says that the filter
// asks for something else too.
func Split(params []byte) (own []string, rest []byte, others bool) {
	filter := mcpraw.At(params, "/notifications")
	all, err := mcpraw.Members(filter)
	if err != nil {
		return nil, params, true
	}
	for _, m := range all {
		v := filter[m.From:m.To]
		if m.Name != "taskIds" {
			others = others || string(v) != "false" && string(v) != "null" && string(v) != "[]"
			continue
		}
		var ids, theirs []string
		if json.Unmarshal(v, &ids) != nil {
			return nil, params, true
		}
		for _, id := range ids {
			if name, ours := strings.CutPrefix(id, Prefix); ours {
				own = append(own, name)
			} else {
				theirs = append(theirs, id)
			}
		}
		others = others || len(theirs) > 0
		from, to, _ := mcpraw.Locate(params, "/notifications/taskIds")
		rest = slices.Concat(params[:from], list(theirs), params[to:])
	}
	return own, rest, others
}

// Names is the JSON array of task ids for these traces.
func Names(ids []tga.ID) []byte {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = Prefix + id.String()
	}
	return list(names)
}

// list is a JSON array of texts.
func list(texts []string) []byte {
	b := []byte{'['}
	for i, text := range texts {
		if i > 0 {
			b = append(b, ',')
		}
		b = tga.AppendString(b, text)
	}
	return append(b, ']')
}

// Granted puts the shim's own tasks into the tool server's acknowledgement.
func Granted(f *frames.Frame, tasks []tga.ID) *frames.Frame {
	params := f.Head[f.Params.From:f.Params.To]
	names := Names(tasks)
	if from, to, ok := mcpraw.Locate(params, "/notifications/taskIds"); ok {
		at := f.Params.From + int64(to) - 1 // its closing bracket
		if len(bytes.TrimSpace(params[from+1:to-1])) > 0 {
			names = append([]byte{','}, names[1:]...)
		} else {
			names = names[1:]
		}
		return frames.Replace(f, mcpraw.Span{From: at, To: at}, names[:len(names)-1])
	}
	from, to, ok := mcpraw.Locate(params, "/notifications")
	if !ok || params[from] != '{' {
		return f
	}
	at := mcpraw.Span{From: f.Params.From + int64(from), To: f.Params.From + int64(to)}
	return frames.Replace(f, at, say.With(params[from:to], "taskIds", names))
}

package turn_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/tools"
	"github.com/tgad/tgad/schemas/tga"
)

// TestLimitsOfTheStateTools: at each limit of what an agent may do to its state with tools, and
// one past it.
func TestLimitsOfTheStateTools(t *testing.T) {
	serial.Test(t)
	value := func(bytes int) string { return `"` + strings.Repeat("x", bytes-2) + `"` }
	set := func(key string, bytes int) string { return fmt.Sprintf(`{"key":%q,"value":%s}`, key, value(bytes)) }
	keys := func(n, last int) string {
		all := []string{}
		for i := range n - 1 {
			all = append(all, fmt.Sprint("k", i))
		}
		raw, err := json.Marshal(map[string]any{"keys": append(all, strings.Repeat("k", last))})
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	ttl := func(s int64) string { return fmt.Sprintf(`{"key":"t","value":1,"ttl_seconds":%d}`, s) }
	most := int64(tools.MaxStateTTL / time.Second)
	rows := []struct {
		tool, args string
		code       tga.Code
	}{
		{"state_set", set("k0", tools.MaxStateValue), ""},
		{"state_set", set("k0", tools.MaxStateValue+1), tga.LimitExceeded},
		{"state_append", set("list", tools.MaxStateValue), ""},
		{"state_append", set("list", tools.MaxStateValue+1), tga.LimitExceeded},
		{"state_set", set("k1", tools.MaxStateValue), ""},
		{"state_set", set("k2", tools.MaxStateValue), ""},
		{"state_set", set("k3", tools.MaxStateValue), ""},
		{"state_get", keys(5, 1), ""},
		{"state_set", set("k", 3), ""},
		{"state_get", keys(5, 1), tga.LimitExceeded},
		{"state_get", keys(tools.MaxStateKeys, 1), tga.LimitExceeded}, // too many bytes, with a permitted number of keys
		{"state_delete", `{"key":"k"}`, ""},
		{"state_get", keys(tools.MaxStateKeys, 1), ""},
		{"state_get", keys(tools.MaxStateKeys+1, 1), tga.SchemaViolation},
		{"state_get", `{"keys":[]}`, tga.SchemaViolation},
		{"state_get", keys(1, 255), ""},
		{"state_get", keys(1, 256), tga.SchemaViolation},
		{"state_get", `{"keys":["` + strings.Repeat("é", 128) + `"]}`, tga.ValidationError}, // 256 bytes
		{"state_set", ttl(most), ""},
		{"state_set", ttl(most + 1), tga.SchemaViolation},
		{"state_set", ttl(1), ""},
		{"state_set", ttl(0), tga.SchemaViolation},
		{"state_set", `{"key":"k"}`, tga.SchemaViolation},
		{"state_delete", `{"key":"k","value":1}`, tga.SchemaViolation},
		{"state_set", `{"key":"null","value":null}`, ""},
	}
	var lines []string
	for _, r := range rows {
		lines = append(lines, "call "+r.tool+" "+r.args)
	}
	w := newWorld(t, func(w *world) {
		w.agents[0].Tools = []turn.ToolSpec{{Transport: turn.OverMCP, Server: tools.StateServer, Discover: true}}
		w.agents[0].Retry = turn.RetryPolicy{MaxRetries: -1}
		w.elsewhere = tools.State()
		w.options = func(o *turn.Options) {
			var err error
			if o.Resolver, err = tools.New(tools.Options{Servers: map[string]tools.Lister{tools.StateServer: tools.State()}}); err != nil {
				t.Fatal(err)
			}
		}
	})
	res := w.run(strings.Join(lines, "\n"))
	if len(res.Effects) != len(rows) {
		t.Fatalf("%d effects, %v", len(res.Effects), res.Failure)
	}
	for i, r := range rows {
		f := res.Effects[i].Failure
		if (f == nil) != (r.code == "") || f != nil && f.Code != r.code {
			t.Errorf("row %d, %s %.60s: %v, want %q", i, r.tool, r.args, f, r.code)
		}
	}
}

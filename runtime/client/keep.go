package client

import (
	"context"
	"iter"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/wire"
)

// Keep changes a kept value; see [runtime.Runtime.Keep]. Here an empty value counts as no value.
func (c *Client) Keep(ctx context.Context, r runtime.KeepRequest) (now runtime.Kept, changed bool, err error) {
	var a wire.KeepAnswer
	m := wire.KeepRequest{ToolServer: r.Server, Namespace: r.Namespace, Name: r.Name, Old: r.Old, Value: r.Value}
	if err := exact(namesOfKeep(&m)...); err != nil {
		return runtime.Kept{}, false, err
	}
	err = c.ask(ctx, post("/v1/keep", m), &a)
	return runtime.Kept{Name: r.Name, Value: a.Value}, a.Changed, err
}

// Kept yields the values that are kept about a tool server; see [runtime.Runtime.Kept].
func (c *Client) Kept(ctx context.Context, namespace, server string) iter.Seq2[runtime.Kept, error] {
	return func(yield func(runtime.Kept, error) bool) {
		for after := ""; ; {
			var page wire.KeptValues
			if err := c.ask(ctx, get("/v1/kept", "namespace", namespace, "tool_server", server, "after", after), &page); err != nil {
				yield(runtime.Kept{}, err)
				return
			}
			for _, k := range page.Values {
				if !yield(runtime.Kept(k), nil) {
					return
				}
			}
			if after = page.Next; after == "" {
				return
			}
		}
	}
}

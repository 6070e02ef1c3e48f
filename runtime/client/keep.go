package client

import (
	"context"
	"iter"

	"github.com/tgad/tgad/runtime"
)

// KeepRequest changes a value that a remote executor keeps beside its calls:
// POST /v1/keep. An absent value is none.
type KeepRequest struct {
	ToolServer string `json:"tool_server"`
	Namespace  string `json:"namespace,omitempty"` // absent = the peer's
	Name       string `json:"name"`
	Old        []byte `json:"old_base64,omitempty"`
	Value      []byte `json:"value_base64,omitempty"`
}

// KeepAnswer says whether the value is kept now, and which one is.
type KeepAnswer struct {
	Changed bool   `json:"changed"`
	Value   []byte `json:"value_base64,omitempty"`
}

// KeptValue is one kept value.
type KeptValue struct {
	Name  string `json:"name"`
	Value []byte `json:"value_base64"`
}

// KeptValues is a page of kept values: GET /v1/kept.
type KeptValues struct {
	Values []KeptValue `json:"values"`
	Next   string      `json:"next,omitempty"` // after= of the next page
}

// Keep changes a kept value; see [runtime.Runtime.Keep]. An empty value is none.
func (c *Client) Keep(ctx context.Context, r runtime.KeepRequest) (now runtime.Kept, changed bool, err error) {
	var a KeepAnswer
	m := KeepRequest{ToolServer: r.Server, Namespace: r.Namespace, Name: r.Name, Old: r.Old, Value: r.Value}
	err = c.ask(ctx, post("/v1/keep", m), &a)
	return runtime.Kept{Name: r.Name, Value: a.Value}, a.Changed, err
}

// Kept yields what is kept about a tool server; see [runtime.Runtime.Kept].
func (c *Client) Kept(ctx context.Context, namespace, server string) iter.Seq2[runtime.Kept, error] {
	return func(yield func(runtime.Kept, error) bool) {
		for after := ""; ; {
			var page KeptValues
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

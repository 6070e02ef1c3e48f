package wire

// KeepRequest changes a value that a remote executor keeps beside its calls, from Old to
// Value: POST /v1/keep. An absent Old or Value means that there is no value.
type KeepRequest struct {
	ToolServer string `json:"tool_server"`
	Namespace  string `json:"namespace,omitempty"` // absent = the peer's
	Name       string `json:"name"`
	Old        []byte `json:"old_base64,omitempty"`
	Value      []byte `json:"value_base64,omitempty"`
}

// KeepAnswer says whether the value was changed, and which value is kept now.
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

package verify

import (
	"encoding/json"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// MaxEvidence is the most bytes of an evidence's detail; MaxBody the most that is read
// of an answer.
const (
	MaxEvidence = 64 << 10
	MaxBody     = 1 << 20
)

// maxSource bounds an evidence's source.
const maxSource = 4 << 10

// Evidence makes the evidence of an answer: the members as they are, and the length, the
// digest and as much text of the body as there is room for. A nil body means that there
// was none. Secrets are hidden. Numbers among the members must be under 2^53.
func Evidence(source string, members map[string]any, body []byte, hide Secrets) runtime.Evidence {
	all := map[string]any{}
	for name, v := range members {
		if text, ok := v.(string); ok {
			v = clip.Bytes(hide.Hide(text), maxSource)
		}
		all[name] = v
	}
	e := runtime.Evidence{Source: clip.Bytes(hide.Hide(source), maxSource)}
	if body != nil {
		all["body_bytes"], all["body_sha256"] = len(body), tga.Sum(body).String()
	}
	// A character may take six bytes in JSON: the text is cut until the whole has room.
	text := hide.Hide(string(body))
	for n := MaxEvidence / 2; ; n /= 2 {
		if body != nil {
			all["body"] = clip.Bytes(text, n)
			if len(text) > n {
				all["body_cut"] = true
			}
		}
		e.Detail = encode(all)
		if len(e.Detail) <= MaxEvidence {
			return e
		}
		if n == 0 {
			// The members alone are too much.
			e.Detail = encode(map[string]any{"left_out": len(e.Detail)})
			return e
		}
	}
}

func encode(members map[string]any) []byte {
	raw, err := json.Marshal(members)
	if err == nil {
		raw, err = tga.Canonicalize(raw, tga.Limits{})
	}
	if err != nil {
		// A member that has no JSON form is a bug of the verifier. The evidence says so,
		// and the finding is kept.
		return encode(map[string]any{"evidence_error": err.Error()})
	}
	return raw
}

package daemon

import (
	"encoding/hex"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// attachments answers with the values of a kind whose key starts with ?prefix=, in key order.
// Clients read working states and the journals of turns from them. Attachments have no namespace,
// so it takes a peer that sees every namespace.
func (q operating) attachments() (any, error) {
	if err := q.everything("read working states and turns"); err != nil {
		return nil, err
	}
	v := q.r.URL.Query()
	kind, ok := wire.AttachmentKinds[v.Get("kind")]
	if !ok {
		return nil, tga.Errorf(tga.ValidationError, "kind=%.40q: want stream or blob", v.Get("kind")).At("/kind")
	}
	prefix, err := hex.DecodeString(v.Get("prefix"))
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "prefix=%.80q: %w", v.Get("prefix"), err).At("/prefix")
	}
	leave, err := q.takeFollower()
	if err != nil {
		return nil, err
	}
	defer leave()
	s := q.newStream()
	for a, err := range q.d.db.Attachments(q.r.Context(), kind, prefix) {
		if err != nil {
			return nil, err
		}
		if err := s.line(wire.Attachment{Key: a.Key, Value: a.Value}); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

package say

import (
	"slices"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// ToolsChanged is the notification that the list of tools is another one.
const ToolsChanged = "notifications/tools/list_changed"

// Changed is a notification for the subscription of an id, with more members.
func Changed(id []byte, method, more string) *frames.Frame {
	return frames.NewFrame(slices.Concat([]byte(`{"jsonrpc":"2.0","method":"`+method+`","params":{"_meta":{"`+MetaSubscription+`":`), id, []byte("}"+more+"}}")))
}

// SubscriptionAt is where a message says which subscription it belongs to.
var SubscriptionAt = "/_meta/" + tga.EscapeToken(MetaSubscription)

// SubscriptionID is the id of the request whose stream a notification belongs to.
func SubscriptionID(m *frames.Frame) []byte {
	if !m.IsNotification() || !m.Params.Present() {
		return nil
	}
	return mcpraw.At(m.Head[m.Params.From:m.Params.To], SubscriptionAt)
}

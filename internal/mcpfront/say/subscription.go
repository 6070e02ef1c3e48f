package say

import (
	"slices"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// ToolsChanged is the notification that the list of tools has changed.
const ToolsChanged = "notifications/tools/list_changed"

// Changed makes a notification for the subscription with an id. more are further members of its params.
func Changed(id []byte, method, more string) *frames.Frame {
	return frames.NewFrame(slices.Concat([]byte(`{"jsonrpc":"2.0","method":"`+method+`","params":{"_meta":{"`+MetaSubscription+`":`), id, []byte("}"+more+"}}")))
}

// SubscriptionAt is the place in a message's params or result that names its subscription.
var SubscriptionAt = "/_meta/" + tga.EscapeToken(MetaSubscription)

// SubscriptionID is the id of the subscription that a notification belongs to, nil for none.
func SubscriptionID(m *frames.Frame) []byte {
	if !m.IsNotification() || !m.Params.Present() {
		return nil
	}
	return mcpraw.At(m.Head[m.Params.From:m.Params.To], SubscriptionAt)
}

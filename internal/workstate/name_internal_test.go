package workstate

import (
	"reflect"
	"testing"
)

// TestStoredNamesOutliveAMove: the names in stored states do not change when this package is
// moved to another import path.
func TestStoredNamesOutliveAMove(t *testing.T) {
	for want, of := range map[string]reflect.Type{
		"*github.com/tgad/tgad/runtime/workstate.KV":         reflect.TypeFor[*KV](),
		"*github.com/tgad/tgad/runtime/workstate.Budget":     reflect.TypeFor[*Budget](),
		"github.com/tgad/tgad/runtime/workstate.ToolInvoked": reflect.TypeFor[ToolInvoked](),
	} {
		if got := nameOf(of); got != want {
			t.Errorf("%s is stored under the name %s", want, got)
		}
	}
}
